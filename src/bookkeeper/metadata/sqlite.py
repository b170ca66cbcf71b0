"""The embedded metadata store: an SQLite file shared by the processes of one machine (spec metadata §12.6).

    sqlite:///absolute/path/metadata.db[?root=name]

`root` names one of several clusters in the file. Local file systems only. Processes that are killed lose their
registrations and locks at once. All blocking work is done by one thread per driver; see `sqlite_file`. Transactions
that wait for it are run together, and share one commit: so many at once cost little more than one.

Changes made by other processes are noticed by looking at SQLite's data version every `poll_interval_ms`; own changes
are told at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from ..errors import ConfigurationError, MetadataError, ServiceUnavailable
from ..runtime import Runtime, TaskScope, Workers
from ..runtime.waiting.backoff import Backoff
from .records.driver import DEFAULT_SESSION_TIMEOUT_MS, RecordDriver
from .records.store import SCAN_LIMIT, Changes, RecordStore, Transaction
from .sqlite_file import LARGEST_RECORD, Call, SqliteFile
from .tree import TransactionLimits
from .uri import ServiceUri

T = TypeVar("T")

Line = deque[Call[Any]]
"""Transactions that wait for the thread. The loop appends, the thread takes from the left."""

log = logging.getLogger(__name__)

FACTORY = "sqlite"
"""Name of this store in a cluster's layout."""

DEFAULT_ROOT = "ledgers"
DEFAULT_POLL_INTERVAL_MS = 50
LIMITS = TransactionLimits(operations=SCAN_LIMIT, bytes=LARGEST_RECORD)
"""Of a transaction of the tree: more would keep other processes waiting."""

BUSY_TIMEOUT_MS = 5_000
"""How long one transaction waits for those of other processes."""

TOGETHER = 128
"""Transactions that share a commit at most: the file is theirs for some milliseconds."""

LONGEST_POLL_PAUSE_SECONDS = 5.0
"""Between two looks at a file that cannot be read."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class SqliteStore(RecordStore):
    """The file, seen from the loop."""

    def __init__(
        self,
        path: str,
        root: str,
        runtime: Runtime,
        *,
        poll_interval_ms: int = DEFAULT_POLL_INTERVAL_MS,
        boot_id: str | None = None,
    ) -> None:
        self._runtime = runtime
        self._poll_interval = poll_interval_ms / 1000
        self._file = SqliteFile(
            path,
            root,
            boot_id=_read_boot_id(runtime) if boot_id is None else boot_id,
            clock_ms=lambda: int(runtime.now() * 1000),
            wall_ms=runtime.wall_ms,
        )
        self._lane: Workers | None = None
        self._lines: tuple[Line, Line] = (deque(), deque())  # transactions that read, and that write
        self._scope = TaskScope(runtime, "metadata-sqlite")

    async def open(self, *, create: bool = False) -> None:
        if self._lane is None:
            self._lane = self._runtime.workers("metadata-sqlite")
        await self._lane.submit(partial(self._file.open, BUSY_TIMEOUT_MS, create=create))
        self._scope.spawn(self._poll(), name="poll")

    async def close(self) -> None:
        await self._scope.close()
        if self._lane is not None:
            lane, self._lane = self._lane, None
            try:
                await lane.submit(self._file.close)
            finally:
                await lane.close()

    async def run(self, name: str, transaction: Callable[[Transaction], T], *, write: bool = True) -> T:  # noqa: ARG002
        return await self._in_lane(_Joined(Call(transaction), self._file, self._lines[write], write))

    async def start_session(self, timeout: float) -> int:
        return await self._in_lane(lambda: self._file.start_session(int(timeout * 1000)))

    async def renew_session(self, session: int, timeout: float) -> bool:
        return await self._in_lane(lambda: self._file.renew_session(session, int(timeout * 1000)))

    async def end_session(self, session: int) -> None:
        await self._in_lane(lambda: self._file.end_session(session))

    async def _in_lane(self, call: Callable[[], T]) -> T:
        """Run `call` on the thread. What changed is told even if it failed, or no task waits for it any more."""
        if self._lane is None:
            raise ServiceUnavailable("the metadata driver is not open")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(outcome: _Outcome | None, error: BaseException | None) -> None:
            assert outcome is not None, error
            if outcome.news is None or outcome.news:
                self.on_changes(outcome.news)
            if answer.done():
                return
            if outcome.error is not None:
                answer.set_exception(outcome.error)
            else:
                answer.set_result(outcome.result)

        if isinstance(call, _Joined):
            call.queue()
        self._lane.post(_step, (call, self._file), done)
        return await answer

    async def _poll(self) -> None:
        """For ever. While the file cannot be read it is looked at ever more rarely, and that is said once."""
        backoff = Backoff(self._poll_interval, max(LONGEST_POLL_PAUSE_SECONDS, self._poll_interval))
        failures = 0
        while True:
            await asyncio.sleep(backoff.pause(failures))
            try:
                await self._in_lane(self._file.poll)
            except MetadataError as error:
                if not failures:
                    log.warning("changes by other processes are not seen for now: %s", error)
                failures += 1
            else:
                failures = 0


class _Joined(Generic[T]):
    """Runs a transaction with those that were queued behind it meanwhile, unless it was run with one before it.

    The lane keeps the order in which they were queued: who comes first finds itself at the head of the line.
    """

    __slots__ = ("_call", "_file", "_line", "_write")

    def __init__(self, call: Call[T], file: SqliteFile, line: Line, write: bool) -> None:
        self._call = call
        self._file = file
        self._line = line
        self._write = write

    def queue(self) -> None:
        """On the loop, before it is posted to the lane."""
        self._line.append(self._call)

    def __call__(self) -> T:
        line = self._line
        if not self._call.done:
            assert line[0] is self._call
            self._file.run([line.popleft() for _ in range(min(len(line), TOGETHER))], write=self._write)
        return self._call.outcome()


class _Outcome(NamedTuple):
    """What a call on the thread came to, and what changed."""

    result: Any
    error: BaseException | None
    news: Changes


def _step(call: Callable[[], Any], file: SqliteFile) -> _Outcome:
    try:
        result = call()
    except BaseException as error:
        return _Outcome(None, error, file.take_changes())
    return _Outcome(result, None, file.take_changes())


def _read_boot_id(runtime: Runtime) -> str:
    """Differs after each boot; empty where the system has none (then sessions end by their locks and deadlines)."""
    try:
        with runtime.files.open(_BOOT_ID) as file:
            return file.pread(64, 0).decode().strip()
    except OSError:
        return ""


class SqliteDriver(RecordDriver):
    """See the module's text."""

    def __init__(
        self,
        uri: ServiceUri,
        runtime: Runtime,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        poll_interval_ms: int = DEFAULT_POLL_INTERVAL_MS,
        retry_ms: int | None = None,
        owner: str | None = None,
        store_mark_time: bool = True,
    ) -> None:
        unknown = [name for name in uri.parameters if name != "root"]
        if unknown:
            raise ConfigurationError(f"metadata service address {uri}: unknown parameter {unknown[0]}; there is root")
        root = uri.parameters.get("root") or DEFAULT_ROOT
        super().__init__(
            SqliteStore(uri.path, root, runtime, poll_interval_ms=poll_interval_ms),
            runtime,
            factory=FACTORY,
            session_timeout_ms=session_timeout_ms,
            retry_ms=retry_ms,
            owner=owner,
            store_mark_time=store_mark_time,
            limits=LIMITS,
        )
