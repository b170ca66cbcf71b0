"""What runs have left behind (spec streams §15.7).

Of a run that was published, or given up, each token that is left is that of a ledger that is no segment and never will
be: it is deleted, then the token, then the run. A run that is open is given up when its epoch was published by another
run, or when nothing was heard of it for long.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from ...errors import NoSuchRecord, RecordChanged, RecordNotEmpty, StreamConflictError
from ...metadata.tree import Delete, RecordTree
from ..errors import StagingLostError
from .marker import Marker, State
from .publisher import Publisher
from .staging import MOST_ATTEMPTS, PART, SINKS, STAGING, Run, RunState, load_run, sink_path

log = logging.getLogger(__name__)

DeleteLedger = Callable[[int], Awaitable[object]]
"""Deletes a ledger; one that is gone already is a success."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What was found and done."""

    finished: Sequence[str]
    """Sinks whose publish was decided, and is finished now."""
    given_up: Sequence[str]
    """Runs that will not be published any more: by their records' paths."""
    ledgers: Sequence[int]
    """Ledgers that nobody wanted, and are deleted."""


class Collector:
    """Cleans up behind the sinks of one namespace."""

    def __init__(
        self, tree: RecordTree, namespace: str, publisher: Publisher, delete_ledger: DeleteLedger, lost_after: float
    ) -> None:
        """`lost_after`: seconds after which a run that is not heard of counts as dead."""
        self._tree = tree
        self._namespace = namespace
        self._publisher = publisher
        self._delete_ledger = delete_ledger
        self._lost_after_ms = lost_after * 1000
        self._finished: list[str] = []
        self._given_up: list[str] = []
        self._ledgers: list[int] = []

    async def collect(self, now_ms: int, lock_timeout: float | None) -> Collected:
        """Of all sinks. Raises `NotOwnerError` if an intent waits for a stream that is written."""
        sinks = await self._tree.children(f"{self._namespace}/{SINKS}", fresh=True)
        for quoted in () if sinks is None else sinks.names:
            sink = unquote(quoted)
            if await self._publisher.finish(sink, lock_timeout):
                self._finished.append(sink)
            await self.collect_sink(sink, now_ms)
        return Collected(self._finished, self._given_up, self._ledgers)

    async def collect_sink(self, sink: str, now_ms: int) -> None:
        """Of one. A run is read before the marker: so if it is taken, the marker says whether it is published yet."""
        path = f"{sink_path(self._namespace, sink)}/{STAGING}"
        listing = await self._tree.children(path, fresh=True)
        for name in () if listing is None else listing.names:
            try:
                run = await load_run(self._tree, f"{path}/{name}")
            except StagingLostError:
                continue  # another client's doing
            marker, _ = await self._publisher.load(sink)
            if run.state is RunState.OPEN and not await self._give_up(run, marker, now_ms):
                continue
            await self._clean_over(run, marker)

    async def end_run(self, sink: str, path: str) -> None:
        """Give one run up, unless it is published, and delete what nobody wants of it. Idempotent."""
        for _ in range(MOST_ATTEMPTS):
            try:
                run = await load_run(self._tree, path)
            except StagingLostError:
                return None  # another client's doing
            marker, _ = await self._publisher.load(sink)
            if run.state is not RunState.OPEN or await self._sweep(run):
                return await self._clean_over(run, marker)
        raise StreamConflictError(f"the record of run {path} changes all the time")

    async def _clean_over(self, run: Run, marker: Marker | None) -> None:
        """`marker` was read after the run."""
        if marker is not None and marker.state is State.PUBLISHING and run.name in (marker.run, marker.staged):
            return  # decided since we looked: its ledgers become segments
        await self._clean(run.path)

    async def _give_up(self, run: Run, marker: Marker | None, now_ms: int) -> bool:
        """Whether the run was open and is swept now."""
        same = marker is not None and run.query == marker.query
        late = same and marker is not None and run.epoch <= marker.epoch
        return (late or now_ms - run.time > self._lost_after_ms) and await self._sweep(run)

    async def _sweep(self, run: Run) -> bool:
        """False: it is alive, or another client's doing."""
        try:
            await self._tree.commit((run.becoming(RunState.SWEPT),))
        except (RecordChanged, NoSuchRecord):
            return False
        self._given_up.append(run.path)
        return True

    async def _clean(self, run: str) -> None:
        """Delete what a run that is over has left."""
        listing = await self._tree.children(run, fresh=True)
        for name in () if listing is None else listing.names:
            if not name.startswith(PART):
                await self._delete_ledger(int(name))
                self._ledgers.append(int(name))
                log.info("deleted ledger %d, which was not published", int(name))
            try:
                await self._tree.commit((Delete(f"{run}/{name}"),))
            except NoSuchRecord:
                continue
        try:
            await self._tree.delete(run)
        except (NoSuchRecord, RecordNotEmpty):
            return
