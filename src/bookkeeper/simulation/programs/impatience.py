"""A program that loses patience: whatever it waits for, it may be cancelled while it waits.

Some hands share a ledger's writer: they append in every way there is, flush, read and follow, each operation cancelled
at a drawn one of its awaits, or not. Then the ledger ends: by its writer, by its client, or by a recovery, which are
cancelled too, and done again. What is promised:

- every operation ends, cancelled or not, and so does the next one;
- what was acknowledged is in the ledger;
- when the handles are closed, nothing is left of what was cancelled: no task, no place at the writer's gate; and when
  the client is closed, no connection.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

from ...client.client import BookKeeper
from ...client.writer import LedgerWriter
from ...errors import BKError, BookKeeperError
from ..history import LedgerHistory, Viewer, Violation
from ..swarm import client_settings
from ..world.world import SimulatedRuntime
from .users import PASSWORD, Programs, limit, peek, recover

T = TypeVar("T")

AWAITS = (1, 1, 1, 2, 2, 3, 4, 6, 9, 15)
"""At which of its awaits an operation is cancelled, if it has as many."""

SIMULATION = __name__.rpartition(".")[0].replace(".", "/")

QUIET_SECONDS = 60.0
"""Virtual seconds after which nothing may be left of what was cancelled."""


class Cut(Generic[T]):
    """Awaits a coroutine, and cancels the task in which that happens when it waits for the nth time."""

    def __init__(
        self, work: Coroutine[Any, Any, T], number: int, delay: float, cancelled: Callable[[str], None]
    ) -> None:
        """`cancelled` is told where. `delay`: seconds after the wait has begun."""
        self._work = work
        self._number = number
        self._delay = delay
        self._cancelled = cancelled

    def __await__(self) -> Generator[Any, Any, T]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._work.__await__()
        try:
            waits_for = steps.send(None)
            while True:
                self._number -= 1
                if self._number == 0:
                    asyncio.get_running_loop().call_later(self._delay, self._cancel, task)
                try:
                    found = yield waits_for
                except BaseException as error:
                    waits_for = steps.throw(error)
                else:
                    waits_for = steps.send(found)
        except StopIteration as end:
            return cast(T, end.value)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        if not task.done():
            self._cancelled(where_it_waits(self._work))
            task.cancel()


def where_it_waits(work: Any) -> str:
    """The innermost function of the client in which a suspended coroutine waits."""
    place = "-"
    while work is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(work, f"{kind}_frame")), None)
        if kind is None:  # what `await` makes of an object; it refers to the coroutine or generator behind it
            behind = [one for one in gc.get_referents(work) if hasattr(one, "cr_frame") or hasattr(one, "ag_frame")]
            work = behind[0] if behind else None
            continue
        frame = getattr(work, f"{kind}_frame")
        file = "" if frame is None else frame.f_code.co_filename
        if "bookkeeper" in file and SIMULATION not in file:
            place = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        work = getattr(work, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return place


class Impatience:
    """The program, for all machines of a run."""

    def __init__(self, programs: Programs, cancelled: Callable[[str, str], None]) -> None:
        """`cancelled` is told each operation that was, and where it waited."""
        self._programs = programs
        self._cluster = programs.cluster
        self._history = programs.history
        self._cancelled = cancelled

    async def live(self, bk: BookKeeper, dice: random.Random) -> None:
        """One ledger, from its creation to its end, with a client of its own."""
        runtime = bk.context.runtime
        assert isinstance(runtime, SimulatedRuntime)
        before = self._tasks(runtime)
        mine = self._cluster.client(runtime, **client_settings(dice))
        try:
            if dice.random() < 0.1:
                await self._try("connect", _wait_for(mine), dice)
            else:
                await mine
            if not mine.context.closed:
                await self._ledger(mine, dice)
        finally:
            await self._surely("client close", mine.close, dice)
            async with limit("closing a client once more"):
                await mine.close()
        await self._until_quiet(runtime, before, "after the client was closed")
        left = [end.peer_machine for end in self._cluster.world.connections() if end.owner is runtime.incarnation]
        if left:
            raise Violation(f"connections left behind by a closed client: {', '.join(left)}")

    # --- one operation ---

    async def _try(self, name: str, work: Coroutine[Any, Any, T], dice: random.Random) -> tuple[bool, T | None]:
        """Do something, and perhaps cancel it: whether it came to its end, and its result. Raises what it raises."""
        number = dice.choice(AWAITS) if dice.random() < 0.8 else 0
        delay = dice.choice((0.0, 0.0, 0.001, 0.05))
        cut = Cut(work, number, delay, lambda place: self._cancelled(name, place))
        task = asyncio.get_running_loop().create_task(_wait_for(cut), name=_named(name))
        try:
            async with limit(name):
                await asyncio.wait([task])
        finally:
            task.cancel()
        return (False, None) if task.cancelled() else (True, task.result())

    async def _surely(
        self, name: str, work: Callable[[], Coroutine[Any, Any, T]], dice: random.Random, *, tries: int = 20
    ) -> T | None:
        """Do something again until it was not cancelled, at most so many times."""
        for _ in range(tries):
            ended, result = await self._try(name, work(), dice)
            if ended:
                return result
        return None

    # --- a ledger ---

    async def _ledger(self, bk: BookKeeper, dice: random.Random) -> None:
        context_runtime = cast(SimulatedRuntime, bk.context.runtime)
        before = self._tasks(context_runtime)
        shape = self._programs.shape

        async def create() -> LedgerWriter:
            return await bk.create_ledger(
                ensemble_size=shape.ensemble_size,
                write_quorum=shape.write_quorum,
                ack_quorum=shape.ack_quorum,
                password=PASSWORD,
                digest=shape.digest,
            )

        async with limit("creating a ledger", 5):
            writer = await self._surely("create", create, dice)
        if writer is None:
            return
        ledger = self._history.created(writer.id, shape.write_quorum, shape.ack_quorum, PASSWORD)
        ledger.offered = {}
        self._cluster.world.note(f"ledger {writer.id}", "created, for impatient hands")
        hands = [self._hand(bk, writer, ledger, dice.randint(2, 10), dice) for _ in range(dice.randint(1, 5))]
        working = asyncio.gather(*hands, self._end_it(bk, writer, ledger, dice))
        try:
            async with limit("everything that hands do with a ledger", 5):
                await working
        finally:
            await self._close(writer, dice)
        self._check_gate(writer)
        if not bk.context.closed:
            await self._until_quiet(context_runtime, before, f"of ledger {writer.id}, whose handles are closed")

    async def _hand(
        self, bk: BookKeeper, writer: LedgerWriter, ledger: LedgerHistory, turns: int, dice: random.Random
    ) -> None:
        for _ in range(turns):
            name, work = self._draw(bk, writer, ledger, dice)
            try:
                await self._try(name, work, dice)
            except BookKeeperError as error:
                self._programs.sometimes(f"impatient: {name}: {type(error).__name__}")
            await asyncio.sleep(dice.choice((0.0, 0.0, 0.01, 0.1)))

    def _draw(
        self, bk: BookKeeper, writer: LedgerWriter, ledger: LedgerHistory, dice: random.Random
    ) -> tuple[str, Coroutine[Any, Any, object]]:
        match dice.randrange(9):
            case 0 | 1:
                return "append", self._append(writer, ledger, dice)
            case 2 | 3:
                return "append_many", self._append_many(writer, ledger, dice)
            case 4:
                return "append_soon", self._append_soon(writer, ledger, dice)
            case 5:
                return "flush", self._flush(writer, ledger)
            case 6:
                return "entries", self._read(bk, ledger)
            case 7:
                return "tail", self._follow(bk, ledger, dice.random() * 2)
            case _:
                return "open", self._look(bk, ledger)

    def _payload(self, ledger: LedgerHistory, dice: random.Random) -> bytes:
        assert ledger.offered is not None
        data = b"%d/%d:" % (ledger.ledger_id, ledger.sent) + bytes(dice.choice((0, 10, 300, 3000)))
        ledger.offered[data] = None
        ledger.sent += 1
        return data

    def _acked(self, ledger: LedgerHistory, entry_id: int, data: bytes) -> None:
        self._history.acknowledged(ledger.ledger_id, entry_id)
        if not ledger.is_as_given(entry_id, data):
            raise Violation(f"ledger {ledger.ledger_id}: two appends got the id {entry_id}")

    async def _append(self, writer: LedgerWriter, ledger: LedgerHistory, dice: random.Random) -> None:
        data = self._payload(ledger, dice)
        self._acked(ledger, await writer.append(data), data)

    async def _append_many(self, writer: LedgerWriter, ledger: LedgerHistory, dice: random.Random) -> None:
        payloads = [self._payload(ledger, dice) for _ in range(dice.randint(1, 12))]
        for entry_id, data in zip(await writer.append_many(payloads), payloads, strict=True):
            self._acked(ledger, entry_id, data)

    async def _append_soon(self, writer: LedgerWriter, ledger: LedgerHistory, dice: random.Random) -> None:
        data = self._payload(ledger, dice)
        future = await writer.append_soon(data)
        self._acked(ledger, await future, data)

    async def _flush(self, writer: LedgerWriter, ledger: LedgerHistory) -> None:
        last = await writer.flush()
        if last >= 0:
            self._history.acknowledged(ledger.ledger_id, last)

    async def _read(self, bk: BookKeeper, ledger: LedgerHistory) -> None:
        reader = await peek(bk, ledger.ledger_id)
        try:
            await self._see(ledger, reader.entries(), lambda: reader.last_add_confirmed)
        finally:
            await reader.close()

    async def _follow(self, bk: BookKeeper, ledger: LedgerHistory, seconds: float) -> None:
        reader = await peek(bk, ledger.ledger_id)
        try:
            async with asyncio.timeout(seconds):
                await self._see(ledger, reader.tail(0), lambda: reader.last_add_confirmed)
        except TimeoutError:
            pass
        finally:
            await reader.close()

    async def _see(self, ledger: LedgerHistory, entries: AsyncIterator[Any], lac: Callable[[], int]) -> None:
        viewer = Viewer(self._history, ledger)
        viewer.start_sequence(0)
        async for entry in entries:
            viewer.delivered(entry.entry_id, entry.data, lac())

    async def _look(self, bk: BookKeeper, ledger: LedgerHistory) -> None:
        reader = await peek(bk, ledger.ledger_id)
        await reader.close()

    # --- its end ---

    async def _end_it(self, bk: BookKeeper, writer: LedgerWriter, ledger: LedgerHistory, dice: random.Random) -> None:
        """While the hands are at it."""
        await asyncio.sleep(dice.random() * 1.5)
        match dice.randrange(4):
            case 0:
                await self._close(writer, dice)
            case 1:
                await self._surely("client close", bk.close, dice)
            case 2:
                await self._recover(bk, ledger, dice)
            case _:
                await self._leave(writer, ledger, dice)

    async def _close(self, writer: LedgerWriter, dice: random.Random) -> None:
        drain = dice.random() < 0.5
        try:
            await self._surely("close", lambda: writer.close(drain=drain), dice)
        except BookKeeperError as error:
            self._programs.sometimes(f"impatient: close: {type(error).__name__}")

    async def _leave(self, writer: LedgerWriter, ledger: LedgerHistory, dice: random.Random) -> None:
        """The end of `async with`. Cancelled in it, the writer is closed, or as it was."""
        try:
            ended, _ = await self._try("async with", writer.__aexit__(None, None, None), dice)
        except BookKeeperError:
            return
        if ended or writer.closed:
            return
        try:
            async with limit("an append after a close that was cancelled"):
                await self._append(writer, ledger, dice)
        except BKError as error:
            if not writer.closed:
                raise Violation(
                    f"ledger {writer.id}: the end of its `async with` was cancelled; it is not closed, "
                    f"and takes no appends: {error!r}"
                ) from error

    async def _recover(self, bk: BookKeeper, ledger: LedgerHistory, dice: random.Random) -> None:
        async def recovering() -> None:
            safe = ledger.safe
            reader = await recover(bk, ledger.ledger_id)
            self._history.opened(ledger.ledger_id, safe, reader.last_add_confirmed, reader.metadata.length)
            await reader.close()

        try:
            await self._surely("recovery", recovering, dice)
        except BookKeeperError as error:
            self._programs.sometimes(f"impatient: recovery: {type(error).__name__}")

    # --- what is left ---

    def _check_gate(self, writer: LedgerWriter) -> None:
        if writer._awake is not None and writer._awake.gate.waiting:
            raise Violation(f"ledger {writer.id}: places at the gate of a closed writer are taken for ever")

    def _tasks(self, runtime: SimulatedRuntime) -> Counter[str]:
        prefix = f"{runtime.incarnation.name}/"
        return Counter(
            _kind(task.get_name())
            for task in asyncio.all_tasks()
            if task.get_name().startswith(prefix) and task is not asyncio.current_task()
        )

    async def _until_quiet(self, runtime: SimulatedRuntime, before: Counter[str], when: str) -> None:
        deadline = runtime.now() + QUIET_SECONDS
        while left := self._tasks(runtime) - before:
            if runtime.now() > deadline:
                raise Violation(f"tasks left behind {when}: {', '.join(sorted(left))}")
            await asyncio.sleep(0.1)


async def _wait_for(what: Awaitable[T]) -> T:
    return await what


def _named(operation: str) -> str:
    """A name that does not count as left behind: `_try` sees to it that its tasks end."""
    return f"impatient/{operation}"


def _kind(name: str) -> str:
    """The name of a task, without what is different in each."""
    return name.rstrip("0123456789- ")


__all__ = ["Cut", "Impatience", "where_it_waits"]
