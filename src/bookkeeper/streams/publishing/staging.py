"""The ledgers of a run before they are published: whose they are (spec streams §15.7).

    <namespace>/.sinks/<sink>/staging/<epoch>-<run>      {"query": "...", "state": "open", "time": ms, "v": 1}
      <ledger, 18 digits>                                a token: the ledger belongs to the run
      part-<6 digits>                                    drafts of an intent

Theory of operation

The record of the run decides on all its ledgers at once. While it is open, tokens may be added. The transaction that
publishes makes it *taken*, who cleans up makes it *swept*, both by compare-and-set: so a late publisher and a cleaner
never both win. After either nothing is added any more.

A token is written before its ledger is made, so that no ledger is without one, whoever dies. Who has made a ledger
looks at the run once more: a run is over before its tokens are collected, so either the collector finds the ledger, or
its maker finds the run over and deletes it. (The token says less: it may go right after it was seen.) A token goes in
the transaction that makes its ledger a segment. Tokens that are left in a run that is swept, or taken and published
to the end, are those of ledgers that nobody wants: of attempts that were repeated elsewhere (`collecting`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import quote

from ...errors import NoSuchRecord, RecordChanged, RecordExists, StreamConflictError, StreamMetadataError
from ...metadata.tree import Check, Create, RecordTree, Write, parent_of
from ...metadata.versions import Version
from ..errors import StagingLostError

FORMAT = 1
SINKS = ".sinks"
STAGING = "staging"
PART = "part-"

MOST_ATTEMPTS = 100
"""How often a change of a run's record is tried again because others were faster."""


class RunState(StrEnum):
    OPEN = "open"
    TAKEN = "taken"
    """Published, or decided to be."""
    SWEPT = "swept"
    """Given up: its ledgers are deleted."""


@dataclass(frozen=True, slots=True)
class Run:
    """The record of a run, as it was read."""

    path: str
    state: RunState
    time: int
    """When it was heard of last; milliseconds since 1970."""
    query: str | None
    version: Version

    @property
    def epoch(self) -> int:
        return int(self.path.rpartition("/")[2].partition("-")[0])

    @property
    def name(self) -> str:
        return self.path.rpartition("-")[2]

    def becoming(self, state: RunState) -> Write:
        """Fails if the record was changed since it was read."""
        return Write(self.path, encode_run(replace(self, state=state)), self.version)


def sink_path(namespace: str, sink: str) -> str:
    """The marker, and parent of all the sink has."""
    return f"{namespace}/{SINKS}/{quote(sink, safe='')}"


def run_path(sink: str, epoch: int, name: str) -> str:
    """`sink`: the sink's path."""
    return f"{sink}/{STAGING}/{epoch}-{name}"


def token_path(run: str, ledger_id: int) -> str:
    return f"{run}/{ledger_id:018d}"


def part_path(run: str, part: int) -> str:
    return f"{run}/{PART}{part:06d}"


def encode_run(run: Run) -> bytes:
    values = {"v": FORMAT, "state": run.state, "time": run.time, "query": run.query}
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


async def load_run(tree: RecordTree, path: str) -> Run:
    """Raises `StagingLostError` if there is none, `StreamMetadataError`."""
    node = await tree.get(path, fresh=True)
    if node is None:
        raise StagingLostError(f"there is no run {path} any more: it was published or given up")
    try:
        found = json.loads(node.data)
        if found["v"] != FORMAT:
            raise ValueError("its format is not known here")
        run = Run(path, RunState(found["state"]), int(found["time"]), found["query"], node.version)
        if run.epoch < 0:
            raise ValueError("it has no epoch")
    except (ValueError, KeyError, TypeError) as error:
        raise StreamMetadataError(f"{path} is no record of a run: {error}") from None
    return run


async def begin_run(tree: RecordTree, sink: str, epoch: int, name: str, query: str | None, now_ms: int) -> Run:
    """A new run; `sink` is the sink's path. Raises `StreamConflictError` if there is one of this name."""
    run = Run(run_path(sink, epoch, name), RunState.OPEN, now_ms, query, 0)
    await tree.make(parent_of(run.path))
    try:
        return replace(run, version=await tree.create(run.path, encode_run(run)))
    except RecordExists:
        raise StreamConflictError(f"there is a run {run.path} already") from None


async def join_run(tree: RecordTree, sink: str, epoch: int, name: str, query: str | None, now_ms: int) -> Run:
    """The run of this name, which is begun unless somebody else was first. Raises `StagingLostError` if it is over."""
    try:
        return await begin_run(tree, sink, epoch, name, query, now_ms)
    except StreamConflictError:
        return await open_run(tree, run_path(sink, epoch, name))


async def open_run(tree: RecordTree, path: str) -> Run:
    """Raises `StagingLostError` if it is not open any more."""
    run = await load_run(tree, path)
    if run.state is not RunState.OPEN:
        raise StagingLostError(f"run {path} is {run.state}: nothing can be added to it, nor published of it")
    return run


async def add_token(tree: RecordTree, path: str, ledger_id: int) -> None:
    """Say that a ledger, which is still to be made, belongs to a run. Raises `StagingLostError`."""
    for _ in range(MOST_ATTEMPTS):
        run = await open_run(tree, path)
        try:
            await tree.commit((Check(path, run.version), Create(token_path(path, ledger_id))))
            return
        except (RecordChanged, NoSuchRecord):
            continue
    raise StreamConflictError(f"the record of run {path} changes all the time")


async def beat(tree: RecordTree, path: str, now_ms: int, after_ms: float = 0.0) -> None:
    """Say that a run is alive, unless somebody has said so within `after_ms`. Raises `StagingLostError`."""
    for _ in range(MOST_ATTEMPTS):
        run = await open_run(tree, path)
        if now_ms - run.time < after_ms:
            return
        try:
            await tree.write(path, encode_run(replace(run, time=now_ms)), run.version)
            return
        except (RecordChanged, NoSuchRecord):
            continue
    raise StreamConflictError(f"the record of run {path} changes all the time")
