"""One ZooKeeper session behind coroutines.

Theory of operation

**Threads.** kazoo keeps the connection in a thread of its own and calls back from others. Here every such callback
does one thing: it posts to the event loop. The loop never waits for kazoo: operations use kazoo's `*_async` calls,
whose results resolve futures; starting and stopping (which join threads) run on a worker.

**Outcomes.** An operation is an answer of the server, or no answer. `NoNode`, `NodeExists`, `BadVersion`, `NotEmpty`
are answers. A lost connection, an expired session, a time-out are none: the operation is tried again under the limits
of `zkRetryBackoff*`, and every later answer carries `after_unknown`, because the earlier attempt may have been
applied. What that means is for the caller to find out (spec metadata §12.1); kazoo's own retries are switched off so
that nothing is hidden.

**Waiting.** While the connection is down nothing is handed to kazoo: its queue is woken through a socket pair, and a
full one would block the loop. For the same reason at most `max_in_flight` requests are under way at once. kazoo can
lose a request for good (it replaces its queue when a session expires), so each one also has a time limit of one
session timeout.

**Session.** States arrive in kazoo's order: CONNECTED, SUSPENDED, then CONNECTED again (survived) or LOST and
CONNECTED (a new session). `generation` counts lost sessions. An answer may overtake the news that its session is
gone, as they come from different threads; so an ephemeral node counts as created only if the generation is still the
one it was asked under, else its creation has an unknown outcome. One session timeout after the server last heard us,
the session is *in doubt*: its ephemerals may be gone and another session's in their place, though no server can tell
us so.

**Watches** are one-shot hints: the callback says "read again", nothing more. One `WatchPoint` per node and kind is
what kazoo and the server know, however many subscribers there are; when the last one leaves, the server is told to
forget it. Lost connections fire all watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kazoo import exceptions as kz
from kazoo.client import KazooClient
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ....errors import MetadataError, NotInitialized, RecordTooLarge, ServiceUnavailable, SessionLost
from ....runtime.api import Runtime, Workers
from ....runtime.tasks import TaskScope
from ....runtime.waiting.rate_limit import RateLimit
from ...tree import Create, Delete, Operation, Write
from ..settings import ZooKeeperSettings
from .doubt import Doubt
from .in_flight import InFlight
from .keepalive import KeepAliveHandler
from .removewatches import RemoveWatches, WatchKind
from .watch_point import Changed, WatchPoint

log = logging.getLogger(__name__)

RECONNECT_START_SECONDS = 0.05
RECONNECT_MAX_SECONDS = 1.0
"""Pause between attempts to connect; grows from the first to the second, or to a tenth of the session timeout."""

LEAST_PATIENCE_SECONDS = 1.0
"""How long at least a server may take until it says something on a new connection. See `_patience`."""

RETRY_FLOOR_SECONDS = 0.02
"""Shortest pause before an operation is tried again although the connection is up; doubles with each attempt."""

FAREWELL_SECONDS = 2.0
"""How long `close` waits for the server to confirm the end of the session."""

REQUEST_OVERHEAD = 512
"""Bytes of a request besides paths and data, at most: headers, lengths, flags, and the owner that an ACL names."""

ANY_VERSION = -1


class Stat(Protocol):
    """What ZooKeeper keeps about a node (the fields used here)."""

    czxid: int
    mzxid: int
    ctime: int
    version: int
    cversion: int
    ephemeralOwner: int  # noqa: N815  (ZooKeeper's name)
    numChildren: int  # noqa: N815


class Refused(MetadataError):
    """The server answered: no. With `after_unknown` an earlier attempt of the same call may have been applied."""

    def __init__(self, path: str, after_unknown: bool = False) -> None:
        super().__init__(f"{type(self).__name__}: {path}")
        self.path = path
        self.after_unknown = after_unknown
        self.step = 0
        """Which operation of a transaction it was."""


class NoNode(Refused):
    """There is no such node (for a create: no such parent)."""


class NodeExists(Refused):
    """The node exists already."""


class BadVersion(Refused):
    """The node has another version."""


class NotEmpty(Refused):
    """The node has children."""


_REFUSALS: tuple[tuple[type[Exception], type[Refused]], ...] = (
    (kz.NoNodeError, NoNode),
    (kz.NodeExistsError, NodeExists),
    (kz.BadVersionError, BadVersion),
    (kz.NotEmptyError, NotEmpty),
)

_NO_ANSWER = (
    kz.ConnectionLoss,
    kz.OperationTimeoutError,
    kz.RequestTimeoutError,
    kz.SessionMovedError,
    kz.SessionExpiredError,
    kz.ThrottledOpError,
    kz.ConnectionDropped,
    TimeoutError,
)


class SessionObserver(Protocol):
    """Is told about the session, on the loop, in order."""

    def connected(self) -> None:
        """With a new session, or still with the old one."""

    def suspended(self) -> None: ...

    def in_doubt(self) -> None:
        """The session's ephemerals may be gone: nothing may be done in their name any more."""

    def lost(self) -> None:
        """The session and its ephemerals are gone."""


@dataclass(frozen=True, slots=True)
class Session:
    """Names one session; see `ZooKeeper.session`."""

    generation: int
    id: int


class ZooKeeper:
    """One session with a ZooKeeper ensemble. All methods belong to the event loop that `open` ran on."""

    def __init__(
        self, hosts: str, root: str, settings: ZooKeeperSettings, runtime: Runtime, observer: SessionObserver
    ) -> None:
        self.root = root
        """The ledgers root path: parents are made below it only."""
        self._settings = settings
        self._runtime = runtime
        self._observer = observer
        self._random = runtime.random("zookeeper-retry")
        self._timeout = settings.timeout_ms / 1000
        self._acl = CREATOR_ALL_ACL if settings.secure else OPEN_ACL_UNSAFE
        self._handler = KeepAliveHandler(runtime.now, _patience(self._timeout, servers=len(collect_hosts(hosts)[0])))
        self._kazoo = KazooClient(
            hosts=hosts,
            timeout=self._timeout,
            handler=self._handler,
            auth_data=set(settings.auth),
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RECONNECT_START_SECONDS,
                max_delay=min(RECONNECT_MAX_SECONDS, self._timeout / 10),
                max_jitter=0.4,
            ),
            command_retry=KazooRetry(max_tries=0),
        )
        self._kazoo.add_listener(self._on_state)
        self._lane: Workers | None = None  # None: not opened
        self._points: dict[tuple[WatchKind, str], WatchPoint] = {}
        self._in_flight = InFlight(settings.max_in_flight)
        self._rate = RateLimit(runtime, settings.requests_per_second)
        self._ready = asyncio.Event()
        self._closing = False
        self._doubt = Doubt(runtime, observer.in_doubt)
        self.generation = 0
        """How many sessions were lost so far."""
        self.session_id: int | None = None

    # --- life ---

    async def open(self) -> None:
        """Connect. Raises `ServiceUnavailable` if no session is there after one session timeout."""
        self._loop = asyncio.get_running_loop()
        self._lane = self._runtime.workers("zookeeper")
        self._tasks = TaskScope(self._runtime, "zookeeper")
        await self._lane.submit(self._kazoo.start_async)
        try:
            async with asyncio.timeout(self._timeout):
                await self._ready.wait()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise ServiceUnavailable(
                    f"no ZooKeeper server answered within {self._timeout:g} s at {self.addresses}"
                ) from None
            raise

    async def close(self) -> None:
        """End the session: pending operations fail, ephemerals vanish, watches fire a last time. Idempotent."""
        if self._closing:
            return
        farewell = FAREWELL_SECONDS if self.connected else 0.0
        self._closing = True
        self._doubt.end()
        self._ready.set()  # callers that wait for the connection find out that there will be none
        self._in_flight.fail_all(kz.ConnectionLoss())
        for point in list(self._points.values()):
            point.fire()
        if self._lane is not None:
            await self._tasks.close()
            timer = self._runtime.call_later(farewell, self._handler.give_up)
            await self._lane.submit(self._stop_kazoo)
            timer.cancel()
            await self._lane.close()

    def _stop_kazoo(self) -> None:
        """On the worker: it joins kazoo's threads."""
        self._kazoo.stop()
        self._kazoo.close()

    @property
    def addresses(self) -> str:
        """The servers, as a connect string."""
        return ",".join(f"{host}:{port}" for host, port in self._kazoo.hosts)

    @property
    def connected(self) -> bool:
        return self._ready.is_set() and not self._closing

    def closed(self) -> bool:
        return self._closing

    @property
    def session(self) -> Session:
        """The session now. Raises `SessionLost` if there is none, or if it is in doubt."""
        session = self.session_in_any_state()
        if session is None or self._doubt.present:
            raise SessionLost("there is no ZooKeeper session at the moment")
        return session

    def session_in_any_state(self) -> Session | None:
        """The session now, even if it is in doubt."""
        return None if self.session_id is None else Session(self.generation, self.session_id)

    def owns(self, stat: Stat) -> bool:
        """Whether an ephemeral node belongs to our session."""
        return self.session_id is not None and stat.ephemeralOwner == self.session_id

    # --- session events ---

    def _post(self, call: Callable[..., object], *args: Any) -> None:
        """From kazoo's threads to the loop."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    def _on_state(self, state: str) -> None:
        """Called by kazoo's connection thread; must not block."""
        client_id = self._kazoo.client_id
        self._post(self._state_changed, state, client_id[0] if client_id else None, self._handler.heard)

    def _state_changed(self, state: str, session_id: int | None, heard: float) -> None:
        if self._closing:
            return
        if state == KazooState.CONNECTED:
            self._doubt.end()
            self.session_id = session_id
            self._ready.set()
            self._observer.connected()
        elif state == KazooState.SUSPENDED:
            self._ready.clear()
            self._doubt.begin_at(heard + self._granted_timeout())
            self._observer.suspended()
        else:
            self._ready.clear()
            self._doubt.end()
            self.generation += 1
            self.session_id = None
            self._observer.lost()

    def _granted_timeout(self) -> float:
        """The session timeout that the server granted, never more than was asked for; seconds."""
        limit = self._handler.write_limit
        return self._timeout if limit is None else min(self._timeout, limit * len(self._kazoo.hosts))

    # --- operations ---

    async def get(self, path: str, changed: Changed | None = None) -> tuple[bytes, Stat]:
        """Data and stat. With `changed`, it is called once when the node may have changed. Raises `NoNode`."""
        data, stat = await self._watched(WatchKind.DATA, path, changed, "get_async")
        return data or b"", stat

    async def exists(self, path: str, changed: Changed | None = None) -> Stat | None:
        """The stat, or None; with `changed` also told when the node is created."""
        stat: Stat | None = await self._watched(WatchKind.DATA, path, changed, "exists_async")
        return stat

    async def children(
        self, path: str, changed: Changed | None = None, *, sync: bool = False
    ) -> tuple[list[str], Stat]:
        """Names below a node, sorted, and its stat; with `sync`, as the leader has them now. Raises `NoNode`."""
        names, stat = await self._watched(
            WatchKind.CHILDREN, path, changed, "get_children_async", sync, include_data=True
        )
        return sorted(names), stat

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        world: bool = False,
    ) -> None:
        """Create a node. `world`: open to all, even with security on. Raises `NodeExists`, `NoNode` (parent)."""
        self._check_size([(path, data)])
        acl = self._acl_for(world)
        await self._call(
            path,
            lambda: self._kazoo.create_async(path, data, acl=acl, ephemeral=ephemeral),
            changes=True,
            ephemeral=ephemeral,
        )

    async def create_sequential(
        self, prefix: str, data: bytes = b"", *, world: bool = False, retry: bool = True
    ) -> str:
        """Create an ephemeral node with a number after `prefix`; returns its path.

        After an attempt with unknown outcome there may be one more node than returned. Without `retry` that is
        reported as `ServiceUnavailable(maybe_applied=True)`, for the caller to look into. Raises `NoNode` (parent).
        """
        self._check_size([(prefix, data)])
        acl = self._acl_for(world)
        path: str = await self._call(
            prefix,
            lambda: self._kazoo.create_async(prefix, data, acl=acl, ephemeral=True, sequence=True),
            changes=True,
            ephemeral=True,
            attempts=None if retry else 1,
        )
        return path

    async def ensure(self, path: str, *, world: bool = False) -> None:
        """Create a node without data and its missing parents; existing ones are fine. Raises `NotInitialized`."""
        await self.create_with_parents(path, world=world, exist_ok=True)

    async def create_with_parents(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, world: bool = False, exist_ok: bool = False
    ) -> None:
        """Create a node, and its parents as far as they are missing. Raises `NodeExists` unless `exist_ok`.

        Another client may remove a parent (empty ledger directories go with their last ledger) between its creation and
        that of the node: then start over. Nothing but the tools makes the root: `NotInitialized` if it is missing.
        """
        if len(path) <= len(self.root):
            raise NotInitialized(f"there is no cluster at {self.root}")
        unknown = False
        while True:
            try:
                return await self.create(path, data, ephemeral=ephemeral, world=world)
            except NodeExists as error:
                if exist_ok:
                    return None
                raise NodeExists(path, unknown or error.after_unknown) from None
            except NoNode as error:
                unknown = unknown or error.after_unknown
                await self.create_with_parents(path.rpartition("/")[0], world=world, exist_ok=True)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Write; returns the new stat. Raises `BadVersion`, `NoNode`."""
        self._check_size([(path, data)])
        stat: Stat = await self._call(path, lambda: self._kazoo.set_async(path, data, version), changes=True)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION, *, session: Session | None = None) -> None:
        """Delete a node. With `session`, an ephemeral one of that session, and no other owner's: only as long as the
        session lives (`SessionLost` afterwards). Raises `NoNode`, `BadVersion`, `NotEmpty`.
        """
        own = None if session is None else path
        await self._call(path, lambda: self._kazoo.delete_async(path, version), changes=True, session=session, own=own)

    async def delete_tree(self, path: str) -> None:
        """Delete a node and everything below; a missing one is fine."""
        while True:
            try:
                names, _ = await self.children(path)
                for name in names:
                    await self.delete_tree(f"{path}/{name}")
                return await self.delete(path)
            except NoNode:
                return None
            except NotEmpty:
                continue  # another client put a node there meanwhile

    async def transact(
        self, operations: Sequence[Operation], *, session: Session | None = None, own: str | None = None
    ) -> list[Any]:
        """Carry out all or none, in this order; what the server answers to each, nothing if that was lost for good.

        `own`: an ephemeral node of `session` that is deleted by this, and no other owner's, as with `delete`. It tells
        whether an attempt without an answer was applied: the transaction is applied once.

        Raises `Refused`, with its `step`.
        """
        self._check_size([(step.path, step.data if isinstance(step, Create | Write) else b"") for step in operations])

        def submit() -> Any:
            transaction = self._kazoo.transaction()
            for step in operations:
                if isinstance(step, Create):
                    transaction.create(step.path, step.data, acl=self._acl)
                elif isinstance(step, Write):
                    transaction.set_data(step.path, step.data, step.expected)
                elif isinstance(step, Delete):
                    transaction.delete(step.path, step.expected)
                else:
                    transaction.check(step.path, step.expected)
            return transaction.commit_async()

        results: list[Any] | None
        results = await self._call(operations[0].path, submit, changes=True, session=session, own=own)
        return results or []

    async def sync(self, path: str) -> None:
        """Reads that follow see what the leader has now."""
        await self._call(path, lambda: self._kazoo.sync_async(path))

    def unwatch(self, kind: WatchKind, path: str, changed: Changed) -> None:
        """Forget a subscription; when it was the node's last one, the server is told. Never fails."""
        point = self._points.get((kind, path))
        if point is None:
            return
        point.subscribers.pop(changed, None)
        if point.subscribers:
            return
        del self._points[point.key]
        if self.connected:  # else the watch is gone with the connection
            self._tasks.spawn(self._remove_watch(kind, path), name="remove-watch")

    # --- the machinery ---

    def _check_size(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        """Raises `RecordTooLarge` for what the servers would answer with a broken connection, again and again."""
        size = sum(len(path.encode()) + len(data) + REQUEST_OVERHEAD for path, data in nodes)
        if size > self._settings.max_packet:
            raise RecordTooLarge(
                f"{nodes[0][0]}: a record of {sum(len(data) for _, data in nodes)} bytes is more than ZooKeeper takes "
                f"(zkJuteMaxBuffer is {self._settings.max_packet}, as jute.maxbuffer of the servers must be)"
            )

    def _acl_for(self, world: bool) -> Any:
        return OPEN_ACL_UNSAFE if world else self._acl

    async def _watched(
        self, kind: WatchKind, path: str, changed: Changed | None, call: str, sync: bool = False, **options: Any
    ) -> Any:
        """A read that arms a watch if it succeeds (`exists`: also if there is no node)."""
        point = None
        if changed is not None:
            point = self._points.get((kind, path))
            if point is None:
                point = self._points[kind, path] = WatchPoint((kind, path), self._points, self._post)
            point.subscribers[changed] = None

        def submit() -> Any:
            if sync:
                self._kazoo.sync_async(path)  # requests of one session are answered in order: no need to wait
            return getattr(self._kazoo, call)(path, watch=point.on_event if point else None, **options)

        try:
            return await self._call(path, submit)
        except BaseException:
            if point is not None and changed is not None:
                self._disarm(point, changed)
            raise

    def _disarm(self, point: WatchPoint, changed: Changed) -> None:
        """After a read that failed, so that nothing was armed for it."""
        point.subscribers.pop(changed, None)
        if not point.subscribers and self._points.get(point.key) is point:
            del self._points[point.key]

    async def _remove_watch(self, kind: WatchKind, path: str) -> None:
        try:
            await self._call(path, lambda: self._submit_remove(kind, path), attempts=1)
        except ServiceUnavailable as error:
            log.debug("watch of %s stays until it fires: %s", path, error)

    def _submit_remove(self, kind: WatchKind, path: str) -> Any:
        result = self._handler.async_result()
        if (kind, path) in self._points:  # another subscriber watches the node again, or is about to
            result.set(True)
            return result
        self._kazoo._call(RemoveWatches(path, kind, self._kazoo), result)
        return result

    async def _call(
        self,
        path: str,
        submit: Callable[[], Any],
        *,
        changes: bool = False,
        ephemeral: bool = False,
        session: Session | None = None,
        own: str | None = None,
        attempts: int | None = None,
    ) -> Any:
        """Run one operation to an answer. `changes`: a lost attempt may have been applied. `own`: a node of `session`
        that the operation deletes: if it is gone, a lost attempt was applied (None)."""
        if self._lane is None:
            raise ServiceUnavailable("the metadata driver is not open")
        limit = self._settings.retry_limit + 1 if attempts is None else attempts
        unknown = False
        wait = self._timeout
        attempt = 0
        while True:
            attempt += 1
            await self._connection(wait)
            self._check_session(session, path)
            generation = self.generation
            problem: object = "the connection is down"
            if self.connected:
                try:
                    if unknown and own is not None and await self._was_deleted(own, session):
                        return None
                    result = await self._attempt(submit)
                except _NO_ANSWER as error:
                    unknown = unknown or changes
                    problem = type(error).__name__
                except kz.ZookeeperError as error:
                    raise self._refusal(error, path, unknown) from None
                else:
                    if not ephemeral or generation == self.generation:
                        return self._checked(result, path, unknown)
                    unknown = True
                    problem = "the session has ended meanwhile"
            if self._closing:
                raise ServiceUnavailable(f"the metadata driver is closed ({path})", maybe_applied=unknown)
            if attempt >= limit:
                raise ServiceUnavailable(
                    f"ZooKeeper at {self.addresses} gave no answer for {path}: {problem}", maybe_applied=unknown
                )
            wait = await self._back_off(attempt)

    def _check_session(self, session: Session | None, path: str) -> None:
        """Raises `SessionLost` if it has ended. Asks kazoo too, whose thread learns of a new session before the loop
        does."""
        if session is None:
            return
        client_id = self._kazoo.client_id
        if session.generation != self.generation or (client_id is not None and client_id[0] != session.id):
            raise SessionLost(f"the session that {path} belongs to has ended")

    async def _was_deleted(self, path: str, session: Session | None) -> bool:
        """Whether a node of this session is not there any more; what is there may be another owner's."""
        stat = await self._attempt(lambda: self._kazoo.exists_async(path))
        self._check_session(session, path)
        return stat is None or not self.owns(stat)

    @staticmethod
    def _refusal(error: Exception, path: str, unknown: bool) -> MetadataError:
        for kind, refusal in _REFUSALS:
            if isinstance(error, kind):
                return refusal(path, unknown)
        return ServiceUnavailable(f"ZooKeeper refused {path}: {type(error).__name__}", maybe_applied=unknown)

    def _checked(self, result: Any, path: str, unknown: bool) -> Any:
        """A transaction answers with a list that holds the errors, first the one that made it fail."""
        if isinstance(result, list):
            errors = [(step, item) for step, item in enumerate(result) if isinstance(item, Exception)]
            own = [item for item in errors if not isinstance(item[1], kz.RolledBackError | kz.RuntimeInconsistency)]
            for step, error in own or errors:
                refusal = self._refusal(error, path, unknown)
                if isinstance(refusal, Refused):
                    refusal.step = step
                raise refusal
        return result

    async def _connection(self, wait: float) -> None:
        """Wait until the connection is up, at most `wait` seconds; and for the rate limit."""
        if not self._ready.is_set():
            try:
                async with asyncio.timeout(wait):
                    await self._ready.wait()
            except TimeoutError:
                return
        await self._rate.take(1)

    async def _attempt(self, submit: Callable[[], Any]) -> Any:
        """Hand one request to kazoo and wait for its result."""
        requests = self._in_flight
        await requests.slot()
        if not self.connected:
            requests.give_back()
            raise kz.ConnectionLoss
        future = requests.begin()
        timer = self._runtime.call_later(self._timeout, requests.settle, future, None)
        try:
            submit().rawlink(partial(self._post, requests.settle, future))
            return await future
        finally:
            timer.cancel()
            if future.cancelled():
                # The caller has left, the request is still kazoo's: it keeps its slot until it is answered or lost.
                self._runtime.call_later(self._timeout, requests.settle, future, None)

    async def _back_off(self, attempt: int) -> float:
        """Pause before the next attempt; returns how long it may wait for the connection (spec metadata §4.5)."""
        base, most = self._settings.backoff_start_ms / 1000, self._settings.backoff_max_ms / 1000
        ceiling = min(most, base * max(1, self._random.randrange(2 ** min(attempt + 1, 30))))
        floor = min(ceiling, RETRY_FLOOR_SECONDS * 2 ** min(attempt - 1, 10))
        await asyncio.sleep(floor)
        return float(ceiling - floor)


def _patience(timeout: float, servers: int) -> float:
    """Seconds until a new connection that brings no answer is given up: while a session of `timeout` seconds lives that
    is not heard of, each server can be asked, and two that said nothing once more. Of one server it is a third of the
    time-out, as long as kazoo waits for the answer to a heartbeat."""
    return max(LEAST_PATIENCE_SECONDS, timeout / (servers + 2))
