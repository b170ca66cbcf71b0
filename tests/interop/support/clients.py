"""One face for both clients, so that one test runs with either: `JavaClient` and `OurClient`.

Payloads are the same everywhere: byte i of entry n is (n * 31 + i * 7) mod 256. Reads are told as what was read:
count, ids, bytes, SHA-256 over the payloads in order.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import bookkeeper
from bookkeeper.client.client import BookKeeper
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import BKError
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, DigestType, WriteFlag
from tests.interop.support.peer import JavaSession, Refused
from tests.support.waiting import until

ASKING_SECONDS = 0.02
"""Between two questions to a client that is at work."""

_CYCLE = bytes(i * 7 % 256 for i in range(256))
_PATTERN = _CYCLE * 33
"""The payload of entry 0. Another entry's begins elsewhere in the same cycle: 183 * 7 mod 256 is 1."""


def payload(entry_id: int, size: int) -> bytes:
    start = entry_id * 31 * 183 % 256
    if start + size <= len(_PATTERN):
        return _PATTERN[start : start + size]
    return (_CYCLE[start:] + _CYCLE[:start]) * (size // 256) + _PATTERN[start : start + size % 256]


@dataclass(frozen=True)
class Read:
    """What a read brought."""

    count: int
    first: int
    last: int
    bytes: int
    sha256: str


def expected(sizes: Sequence[int], first: int = 0) -> Read:
    """What reading entries of these sizes, ids from `first`, must bring."""
    return summary([(first + n, payload(first + n, size)) for n, size in enumerate(sizes)])


def summary(entries: Iterable[tuple[int, bytes]]) -> Read:
    sha = hashlib.sha256()
    ids: list[int] = []
    total = 0
    for entry_id, data in entries:
        sha.update(data)
        ids.append(entry_id)
        total += len(data)
    return Read(len(ids), ids[0] if ids else -1, ids[-1] if ids else -1, total, sha.hexdigest())


@dataclass(frozen=True)
class State:
    """A ledger as a handle sees it."""

    ledger: int
    lac: int
    length: int
    closed: bool
    ensembles: dict[int, tuple[str, ...]]
    custom: dict[str, bytes]


@dataclass(frozen=True)
class Stopped:
    """How a background load ended: entries below `acked` are acknowledged; `failure` is a code, 0 if none."""

    acked: int
    failure: int


class Handle(abc.ABC):
    """An open ledger, for reading, or writing and reading. Every operation may raise `Refused`."""

    ledger: int

    @abc.abstractmethod
    async def append(self, size: int) -> int: ...

    @abc.abstractmethod
    async def fill(self, count: int, size: int = 100, step: int = 0) -> int:
        """Append many, all in flight at once; sizes size, size + step, ... Returns the last id."""

    @abc.abstractmethod
    async def write(self, entries: Sequence[int], size: int) -> int:
        """Entries with ids of one's own, all in flight at once. Returns the LAC."""

    @abc.abstractmethod
    async def force(self) -> int: ...

    @abc.abstractmethod
    async def close(self) -> int: ...

    @abc.abstractmethod
    async def read(self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False) -> Read: ...

    @abc.abstractmethod
    async def batch_read(self, first: int, count: int, size: int) -> Read: ...

    @abc.abstractmethod
    async def lac(self) -> int: ...

    @abc.abstractmethod
    async def explicit_lac(self) -> int: ...

    @abc.abstractmethod
    async def start_poll(self, entry: int, ms: int) -> Any:
        """Begin a long poll."""

    @abc.abstractmethod
    async def poll_result(self, poll: Any) -> tuple[int, int | None]:
        """LAC and the entry that came with it."""

    @abc.abstractmethod
    async def state(self) -> State: ...

    @abc.abstractmethod
    async def start_load(self, window: int = 100, size: int = 100, limit: int = 2**62) -> None:
        """Append in the background until stopped or refused."""

    @abc.abstractmethod
    async def acked(self) -> tuple[int, bool]:
        """Entries acknowledged so far, and whether the load still runs."""

    @abc.abstractmethod
    async def stop_load(self) -> Stopped: ...

    async def load_reaches(self, count: int) -> None:
        """Wait until that many entries are acknowledged, or the load has ended."""

        async def reached() -> bool:
            acked, running = await self.acked()
            return acked >= count or not running

        await until(reached, f"{count} entries are acknowledged", 120, pause=ASKING_SECONDS)


class Client(abc.ABC):
    """A client of either kind."""

    name: str
    """`java-v2`, `java-v3`, `ours-v2`, `ours-v3`, `ours-auto`."""

    @property
    def v2(self) -> bool:
        return self.name.endswith("v2")

    @abc.abstractmethod
    async def create(
        self,
        *,
        e: int = 3,
        qw: int = 3,
        qa: int = 2,
        digest: str = "CRC32C",
        password: str = "",
        custom: Mapping[str, str] | None = None,
        adv: bool = False,
        ledger: int | None = None,
        deferred: bool = False,
    ) -> Handle: ...

    @abc.abstractmethod
    async def open(
        self, ledger: int, *, recovery: bool = True, digest: str = "CRC32C", password: str = ""
    ) -> Handle: ...

    @abc.abstractmethod
    async def delete(self, ledger: int) -> None: ...

    @abc.abstractmethod
    async def list(self) -> list[int]: ...

    @abc.abstractmethod
    async def held(self, bookie: str, ledger: int, last: int) -> list[int]:
        """Which entries up to `last` the bookie says it holds."""

    @abc.abstractmethod
    async def bookies(self, mode: str = "writable") -> dict[str, str | None]:
        """Id -> published endpoint (None for mode `all`)."""

    async def sees(self, *bookies: str) -> None:
        """Wait until this client can reach these bookies: it hears of them later than a reader of the store."""

        async def seen() -> bool:
            try:
                known = await self.bookies()
            except Refused:  # Java: listed in the store, not yet in the client's cache
                return False
            return all(known.get(bookie) for bookie in bookies)

        await until(seen, f"{self.name} sees {', '.join(bookies)}", 60, pause=ASKING_SECONDS)

    @abc.abstractmethod
    async def bookie_info(self) -> dict[str, tuple[int, int]]:
        """Id -> free and total bytes."""

    @abc.abstractmethod
    async def close(self) -> None: ...


# --- Java ------------------------------------------------------------------------------------------


class JavaHandle(Handle):
    def __init__(self, client: JavaClient, name: str, ledger: int) -> None:
        self._client = client
        self._name = name
        self.ledger = ledger

    async def _ask(self, command: str, **arguments: object) -> dict[str, Any]:
        return await self._client.session.ask(command, client=self._client.id, handle=self._name, **arguments)

    async def append(self, size: int) -> int:
        return int((await self._ask("append", size=size))["entry"])

    async def fill(self, count: int, size: int = 100, step: int = 0) -> int:
        return int((await self._ask("fill", count=count, size=size, step=step))["entry"])

    async def write(self, entries: Sequence[int], size: int) -> int:
        return int((await self._ask("write", entries=",".join(map(str, entries)), size=size))["lac"])

    async def force(self) -> int:
        return int((await self._ask("force"))["lac"])

    async def close(self) -> int:
        return int((await self._ask("close"))["lac"])

    async def read(self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False) -> Read:
        return Read(**await self._ask("read", first=first, last=last, unconfirmed=unconfirmed))

    async def batch_read(self, first: int, count: int, size: int) -> Read:
        return Read(**await self._ask("batch-read", first=first, count=count, bytes=size))

    async def lac(self) -> int:
        return int((await self._ask("lac"))["lac"])

    async def explicit_lac(self) -> int:
        return int((await self._ask("explicit-lac"))["lac"])

    async def start_poll(self, entry: int, ms: int) -> Any:
        name = f"p{next(self._client.names)}"
        await self._ask("poll", poll=name, entry=entry, ms=ms)
        return name

    async def poll_result(self, poll: Any) -> tuple[int, int | None]:
        found = await self._ask("poll-result", poll=poll)
        return found["lac"], found.get("entry")

    async def state(self) -> State:
        found = await self._ask("state")
        return State(
            found["ledger"],
            found["lac"],
            found["length"],
            found["closed"],
            {first: tuple(members) for first, members in found["ensembles"]},
            {key: bytes.fromhex(value) for key, value in found["custom"].items()},
        )

    async def start_load(self, window: int = 100, size: int = 100, limit: int = 2**62) -> None:
        await self._ask("load", window=window, size=size, limit=limit)

    async def acked(self) -> tuple[int, bool]:
        found = await self._ask("load-acked")
        return found["acked"], found["running"]

    async def stop_load(self) -> Stopped:
        return Stopped(**await self._ask("load-stop"))


class JavaClient(Client):
    """Java's client, in a JVM shared with others."""

    names = itertools.count(1)

    def __init__(self, session: JavaSession, name: str) -> None:
        self.session = session
        self.name = name
        self.id = f"c{next(self.names)}"

    @classmethod
    async def connect(cls, session: JavaSession, uri: str, protocol: str, **conf: object) -> JavaClient:
        client = cls(session, f"java-{protocol}")
        settings = {f"conf__{key}": value for key, value in conf.items()}
        await session.ask("connect", client=client.id, uri=uri, v2=client.v2, **settings)
        return client

    async def create(
        self,
        *,
        e: int = 3,
        qw: int = 3,
        qa: int = 2,
        digest: str = "CRC32C",
        password: str = "",
        custom: Mapping[str, str] | None = None,
        adv: bool = False,
        ledger: int | None = None,
        deferred: bool = False,
    ) -> Handle:
        name = f"h{next(self.names)}"
        found = await self.session.ask(
            "create",
            client=self.id,
            handle=name,
            e=e,
            qw=qw,
            qa=qa,
            digest=digest,
            password=password,
            adv=adv,
            ledger=ledger,
            deferred=deferred,
            **{f"custom__{key}": value for key, value in (custom or {}).items()},
        )
        return JavaHandle(self, name, found["ledger"])

    async def open(self, ledger: int, *, recovery: bool = True, digest: str = "CRC32C", password: str = "") -> Handle:
        name = f"h{next(self.names)}"
        await self.session.ask(
            "open", client=self.id, handle=name, ledger=ledger, recovery=recovery, digest=digest, password=password
        )
        return JavaHandle(self, name, ledger)

    async def delete(self, ledger: int) -> None:
        await self.session.ask("delete", client=self.id, ledger=ledger)

    async def list(self) -> list[int]:
        return list((await self.session.ask("list", client=self.id))["ledgers"])

    async def held(self, bookie: str, ledger: int, last: int) -> list[int]:
        found = await self.session.ask("held", client=self.id, bookie=bookie, ledger=ledger, last=last)
        return list(found["entries"])

    async def bookies(self, mode: str = "writable") -> dict[str, str | None]:
        return dict((await self.session.ask("bookies", client=self.id, mode=mode))["bookies"])

    async def bookie_info(self) -> dict[str, tuple[int, int]]:
        found = (await self.session.ask("bookie-info", client=self.id))["bookies"]
        return {bookie: (free, total) for bookie, (free, total) in found.items()}

    async def close(self) -> None:
        await self.session.ask("disconnect", client=self.id)


# --- ours ------------------------------------------------------------------------------------------


class _Load:
    def __init__(self) -> None:
        self.stop = False
        self.acked = 0
        self.failure = 0
        self.task: asyncio.Task[None] | None = None


class OurHandle(Handle):
    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.ledger = handle.id
        self._load: _Load | None = None

    async def append(self, size: int) -> int:
        with _refusals():
            return int(await self._handle.append(payload(self._handle.last_add_pushed + 1, size)))

    async def fill(self, count: int, size: int = 100, step: int = 0) -> int:
        with _refusals():
            next_id = self._handle.last_add_pushed + 1
            futures = [await self._handle.append_soon(payload(next_id + n, size + n * step)) for n in range(count)]
            return int([await future for future in futures][-1])

    async def write(self, entries: Sequence[int], size: int) -> int:
        with _refusals():
            futures = [self._handle.write_nowait(entry, payload(entry, size)) for entry in entries]
            for future in futures:
                await future
            return int(self._handle.last_add_confirmed)

    async def force(self) -> int:
        with _refusals():
            await self._handle.force()
            return int(self._handle.last_add_confirmed)

    async def close(self) -> int:
        with _refusals():
            await self._handle.close()
            return int(self._handle.last_add_confirmed)

    async def read(self, first: int = 0, last: int | None = None, *, unconfirmed: bool = False) -> Read:
        with _refusals():
            end = self._handle.last_add_confirmed if last is None else last
            read = self._handle.read_unconfirmed if unconfirmed else self._handle.read
            return summary((entry.entry_id, entry.data) for entry in await read(first, end))

    async def batch_read(self, first: int, count: int, size: int) -> Read:
        with _refusals():
            entries = await self._handle.batch_read(first, max_count=count, max_size=size)
            return summary((entry.entry_id, entry.data) for entry in entries)

    async def lac(self) -> int:
        with _refusals():
            return int(await self._handle.read_last_add_confirmed())

    async def explicit_lac(self) -> int:
        with _refusals():
            return int(await self._handle.read_explicit_last_add_confirmed())

    async def start_poll(self, entry: int, ms: int) -> Any:
        return asyncio.ensure_future(self._handle.read_last_add_confirmed_and_entry(entry, poll_timeout=ms / 1000))

    async def poll_result(self, poll: Any) -> tuple[int, int | None]:
        with _refusals():
            found = await poll
            return found.last_add_confirmed, None if found.entry is None else found.entry.entry_id

    async def state(self) -> State:
        handle = self._handle
        return State(
            handle.id,
            handle.last_add_confirmed,
            handle.length,
            handle.closed,
            {first: tuple(members) for first, members in handle.metadata.ensembles.items()},
            dict(handle.metadata.custom_metadata),
        )

    async def start_load(self, window: int = 100, size: int = 100, limit: int = 2**62) -> None:
        load = self._load = _Load()

        async def run() -> None:
            pending: list[asyncio.Future[int]] = []
            try:
                first = self._handle.last_add_pushed + 1
                for n in range(first, first + limit):
                    if load.stop:
                        break
                    pending.append(await self._handle.append_soon(payload(n, size)))
                    if len(pending) >= window:
                        load.acked = await pending.pop(0) + 1
            except BKError as error:
                load.failure = error.code
            for outcome in await asyncio.gather(*pending, return_exceptions=True):
                if isinstance(outcome, int):
                    load.acked = outcome + 1
                elif isinstance(outcome, BKError):
                    load.failure = load.failure or outcome.code
                else:
                    raise outcome

        load.task = asyncio.ensure_future(run())

    async def acked(self) -> tuple[int, bool]:
        assert self._load is not None
        assert self._load.task is not None
        return self._load.acked, not self._load.task.done()

    async def stop_load(self) -> Stopped:
        load = self._load
        assert load is not None
        assert load.task is not None
        load.stop = True
        await load.task
        return Stopped(load.acked, load.failure)


class _refusals:  # noqa: N801 - reads as a function
    """Our errors as the tests want them."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BKError):
            raise Refused(error.code, str(error)) from error


class OurClient(Client):
    def __init__(self, bk: BookKeeper, name: str) -> None:
        self.bk = bk
        self.name = name
        self._writers: list[Any] = []

    @classmethod
    async def connect(cls, uri: str, protocol: str, **conf: object) -> OurClient:
        config = ClientConfiguration.from_mapping({"protocol": protocol, **conf})
        return cls(await bookkeeper.connect(uri, config=config, runtime=RealRuntime()), f"ours-{protocol}")

    async def create(
        self,
        *,
        e: int = 3,
        qw: int = 3,
        qa: int = 2,
        digest: str = "CRC32C",
        password: str = "",
        custom: Mapping[str, str] | None = None,
        adv: bool = False,
        ledger: int | None = None,
        deferred: bool = False,
    ) -> Handle:
        shape: dict[str, Any] = {
            "ensemble_size": e,
            "write_quorum": qw,
            "ack_quorum": qa,
            "digest": DigestType(digest),
            "password": password.encode(),
            "custom_metadata": {key: value.encode() for key, value in (custom or {}).items()},
            "write_flags": WriteFlag.DEFERRED_SYNC if deferred else WriteFlag.NONE,
        }
        with _refusals():
            writer: Any = await (
                self.bk.create_ledger_adv(ledger_id=ledger, **shape) if adv else self.bk.create_ledger(**shape)
            )
        self._writers.append(writer)
        return OurHandle(writer)

    async def open(self, ledger: int, *, recovery: bool = True, digest: str = "CRC32C", password: str = "") -> Handle:
        with _refusals():
            return OurHandle(
                await self.bk.open_ledger(
                    ledger, password=password.encode(), digest=DigestType(digest), recover=recovery
                )
            )

    async def delete(self, ledger: int) -> None:
        with _refusals():
            await self.bk.delete_ledger(ledger)

    async def list(self) -> list[int]:
        with _refusals():
            return [ledger async for ledger in self.bk.list_ledgers()]

    async def held(self, bookie: str, ledger: int, last: int) -> list[int]:
        with _refusals():
            found = await self.bk.list_entries_of(ledger, BookieId(bookie))
            return [entry for entry in range(last + 1) if entry in found]

    async def bookies(self, mode: str = "writable") -> dict[str, str | None]:
        with _refusals():
            if mode == "all":
                return dict.fromkeys(await self.bk.all_bookies())
            names = await (self.bk.writable_bookies() if mode == "writable" else self.bk.readonly_bookies())
            found: dict[str, str | None] = {}
            for name in names:
                info = await self.bk.context.driver.discovery.info(name)
                end = info.endpoints[0]
                found[name] = f"{end.protocol} {end.host}:{end.port}"
            return found

    async def bookie_info(self) -> dict[str, tuple[int, int]]:
        with _refusals():
            return {bookie: (info.free, info.total) for bookie, info in (await self.bk.bookie_info()).items()}

    async def close(self) -> None:
        for writer in self._writers:
            with contextlib.suppress(BKError):  # some were fenced off, on purpose
                await writer.close()
        await self.bk.close()
