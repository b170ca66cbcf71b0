"""An event loop in virtual time, shared by all machines of a simulated cluster.

Theory of operation

The loop is asyncio's own, with the clock and the selector taken out. When nothing is ready it jumps to the next
timer, so a day of waiting costs nothing. Time moves in steps of `QUANTUM`; callbacks that are ready at the same step
belong to several machines, and their order *between* machines is drawn from the seed. Within one machine the order
is asyncio's: shuffling it would break promises that production code may rely on (`call_soon` is first in, first out).

Which machine a callback belongs to is carried by a context variable, `MACHINE`, which tasks and callbacks inherit.
A crashed machine is not cancelled, as that would run its `finally` blocks: its callbacks are dropped, and kept
referenced until the end of the run so that garbage collection does not run them either. A paused machine's callbacks
are put off; when it goes on they come as they would have come, or timers and input apart (`Thaw`).

Every executed callback goes into a running hash, so that two runs can be compared: same seed, same trace.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import hashlib
import heapq
import logging
import random
import sys
import warnings
from asyncio import base_events, events
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

QUANTUM = 1e-4
"""Seconds. Coarse enough that callbacks of several machines meet in one step, and their order can be drawn."""

NOTES_AT_ONCE = 512
"""Lines of the trace that are hashed together."""


class Thaw(Enum):
    """The order in which a machine that stood still sees what has happened meanwhile.

    A program in one piece with its event loop finds timers that are long due and sockets that are full, both at once.
    Which of them it looks at first is up to the event loop.
    """

    AS_IT_CAME = "as it came"
    TIMERS_FIRST = "timers first"
    """uvloop."""
    INPUT_FIRST = "input first"
    """asyncio's own loops."""


def from_outside(call: F) -> F:
    """Marks a callback as input: bytes from a socket, the result of a thread."""
    call.from_outside = True  # type: ignore[attr-defined]
    return call


class Hosted(Protocol):
    """What the loop must know of a machine's incarnation."""

    name: str
    alive: bool
    paused_until: float
    held: list[events.Handle]
    """Callbacks put off while it is paused."""
    thaw: Thaw
    """In which order they come afterwards."""


MACHINE: contextvars.ContextVar[Hosted | None] = contextvars.ContextVar("machine", default=None)


class Stuck(RuntimeError):
    """Nothing is ready and no timer is left: the simulated program waits for something that cannot come."""


class Runaway(RuntimeError):
    """More callbacks or more virtual time than any run needs: something goes round and round."""


class SimulatedLoop(base_events.BaseEventLoop):
    """See the module's text. One loop per run; not for use by several threads."""

    def __init__(self, order: random.Random) -> None:
        super().__init__()
        self._virtual_now = 0.0
        self._order = order
        self._hash = hashlib.blake2b(digest_size=16)
        self._notes: list[str | bytes] = []  # not hashed yet
        self._timers: list[tuple[float, int, events.TimerHandle]] = []  # a heap; of one instant, in order of making
        self._timers_made = 0
        self._dropped: list[events.Handle] = []
        self.steps = 0
        """Callbacks executed so far."""
        self._window = (0.0, 0)  # when it ends, and the callbacks executed when it began
        self.step_limit = sys.maxsize
        self.steps_per_second = sys.maxsize
        self.deadline = float("inf")
        """`Runaway` is raised beyond these."""
        self.after_step: Callable[[], None] | None = None
        """Called after each batch of callbacks of one instant; checkers go here."""

    # --- time ---

    def time(self) -> float:
        return self._virtual_now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> events.TimerHandle:
        when = -(-when // QUANTUM) * QUANTUM  # up, so that a timer never fires early
        timer = events.TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self._virtual_now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """It is skipped when its time comes."""

    # --- the heart ---

    def _run_once(self) -> None:
        ready: deque[events.Handle] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not ready:
            if not timers:
                if self._stopping:  # type: ignore[attr-defined]
                    return
                raise Stuck(f"at {self._virtual_now:.4f} s nothing is left to happen")
            if timers[0][0] > self._virtual_now:
                self._virtual_now = timers[0][0]
                if self._virtual_now >= self._window[0]:
                    self._window = (self._virtual_now + 1.0, self.steps)
                self._notes.append(f"@{self._virtual_now:.4f}\n")
        now = self._virtual_now
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        if self.steps - self._window[1] > self.steps_per_second:
            raise Runaway(f"more than {self.steps_per_second} callbacks in a virtual second")
        if self.steps > self.step_limit or now > self.deadline:
            raise Runaway(f"{self.steps} callbacks in {now:.0f} virtual seconds, and no end")
        if len(ready) == 1:
            handle = ready.popleft()
            self._execute(handle, handle._context.get(MACHINE))  # type: ignore[attr-defined]
        else:
            batch = [(handle._context.get(MACHINE), handle) for handle in ready]  # type: ignore[attr-defined]
            ready.clear()
            for machine, handle in self._in_drawn_order(batch):
                self._execute(handle, machine)
        if len(self._notes) >= NOTES_AT_ONCE:
            self._hash_notes()
        if self.after_step is not None:
            self.after_step()

    def _in_drawn_order(
        self, batch: list[tuple[Hosted | None, events.Handle]]
    ) -> list[tuple[Hosted | None, events.Handle]]:
        by_machine: dict[str, list[tuple[Hosted | None, events.Handle]]] = {}
        for item in batch:
            by_machine.setdefault(item[0].name if item[0] else "", []).append(item)
        if len(by_machine) == 1:
            return batch
        names = list(by_machine)
        self._order.shuffle(names)
        return [item for name in names for item in by_machine[name]]

    def _execute(self, handle: events.Handle, machine: Hosted | None) -> None:
        if handle.cancelled():
            return
        if machine is not None:
            if not machine.alive:
                self._dropped.append(handle)
                return
            if machine.paused_until > self._virtual_now or machine.held:
                self._put_off(machine, handle)
                return
        self.steps += 1
        self._notes.append(f"{machine.name if machine else '-'} {_label(handle)}\n")
        handle._run()

    def _put_off(self, machine: Hosted, handle: events.Handle) -> None:
        """Keep a paused machine's callback, in order, until the machine goes on."""
        if not machine.held:
            self.call_at(machine.paused_until, self._go_on, machine, context=contextvars.Context())
        machine.held.append(handle)

    def resume(self, machine: Hosted) -> None:
        """End a pause early."""
        machine.paused_until = self._virtual_now
        self.call_soon(self._go_on, machine, context=contextvars.Context())

    def _go_on(self, machine: Hosted) -> None:
        if machine.paused_until > self._virtual_now:
            self.call_at(machine.paused_until, self._go_on, machine, context=contextvars.Context())
            return
        held, machine.held = machine.held, []
        if machine.thaw is not Thaw.AS_IT_CAME:
            input_first = machine.thaw is Thaw.INPUT_FIRST
            held.sort(key=lambda handle: _is_input(handle) is not input_first)  # keeps the order within each kind
            machine.thaw = Thaw.AS_IT_CAME
        self._ready.extendleft(reversed(held))  # type: ignore[attr-defined]

    # --- the trace ---

    def note(self, who: str, what: str, data: bytes = b"") -> None:
        """Put something that happened into the trace."""
        self._notes.append(f"{who}: {what} {len(data)}\n")
        if data:
            self._notes.append(data)

    def _hash_notes(self) -> None:
        notes, self._notes = self._notes, []
        self._hash.update(b"".join([note.encode() if isinstance(note, str) else note for note in notes]))

    def trace_hash(self) -> str:
        """A hash of everything that has happened so far."""
        self._hash_notes()
        return self._hash.hexdigest()

    # --- the end ---

    def dispose(self) -> None:
        """End the run: whatever still waits is closed without being heard, and the loop with it."""
        self._check_closed = lambda: None  # the dead may still try to use it
        complain, sys.unraisablehook = sys.unraisablehook, lambda _: None
        logged = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for task in asyncio.all_tasks(self):
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    coroutine = task.get_coro()
                    # Cleanup code of the dead may do anything, and none of it matters any more.
                    with contextlib.suppress(BaseException):
                        coroutine.close()
                self._dropped.clear()
                self._timers.clear()
                self._ready.clear()  # type: ignore[attr-defined]
                self.after_step = None
                self.close()
                if self.steps:
                    gc.collect()
        finally:
            sys.unraisablehook = complain
            logging.disable(logged)

    # --- what BaseEventLoop expects of a loop with a selector ---

    def _process_events(self, event_list: object) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """There are no other threads to be woken from."""

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> events.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        raise RuntimeError("no threads in the simulation: use runtime.workers")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""


def _is_input(handle: events.Handle) -> bool:
    return getattr(handle._callback, "from_outside", False)  # type: ignore[attr-defined]


def _label(handle: events.Handle) -> str:
    """A name for a callback that is the same in every run: no addresses."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        name = owner.get_name()
        return "task" if name.startswith("Task-") else name  # asyncio numbers tasks over the whole process
    return getattr(callback, "__qualname__", type(callback).__name__)
