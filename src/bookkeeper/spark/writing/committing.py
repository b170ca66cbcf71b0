"""What the driver of a write does: what the tasks wrote becomes part of the streams, at once (spec streams §17.6).

Theory of operation

`Namespace.publish_segments` does it, in one transaction with the marker of the sink, or by an intent. So a batch whose
driver dies is either published and its marker says so, or not at all; when it is repeated, the marker decides. A batch
without rows counts, too: else a checkpoint that was put back could read on, unnoticed, where another one had found
nothing to write, and both would write what comes next.

An error here ends a query. So what may pass is tried again here: the same key again finds out what became of the first
try. After a failure Spark has the batch aborted. That ends its run, which fails if the run was published after all:
nothing that was published is ever deleted.

Before anything is tried, small drafts are merged (`merging`), once: so each try is about the same ledgers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ...errors import BookKeeperError, NotOwnerError, ServiceUnavailable, StreamConflictError
from ...streams.errors import EpochConflictError, TxidOrderError
from ...streams.namespace import Namespace
from ...streams.publishing.drafts import SegmentDraft
from ...streams.publishing.marker import Decision, PublishKey, decide
from ...streams.publishing.staging import run_path, sink_path
from ..errors import JobError
from .framing import make_keyed
from .merging import Drafts, merge_small
from .sink_options import MergePolicy
from .tasks import Batch, Written

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds before another try."""

MERGED = MergePolicy()
"""What is merged if nobody says it."""

PASSING = (ServiceUnavailable, NotOwnerError, StreamConflictError)
"""What may be better in a moment: the store is away, a stream is written, others are faster."""


def check(messages: Sequence[Written | None], epoch: int) -> Batch | None:
    """The one batch that all messages are of; None: there are none. Raises `JobError` if they do not fit together."""
    written = [message for message in messages if message is not None]
    if len(written) < len(messages):
        raise JobError("a task of the batch has not told what it wrote")
    if not written:
        return None
    batch = written[0].batch
    if batch.epoch != epoch or any(message.batch != batch for message in written):
        raise JobError(f"the tasks wrote for different batches, or not for {epoch}")
    if len({message.partition for message in written}) < len(written):
        raise JobError("two tasks wrote the same partition")
    return batch


def check_order(drafts: Drafts) -> None:
    """Raises `TxidOrderError` if transaction ids fall from one partition to a later one."""
    for name, some in drafts.items():
        for before, after in pairwise(some):
            if before.last_txid is not None and after.first_txid is not None and after.first_txid < before.last_txid:
                raise TxidOrderError(
                    f"stream {name}: a partition begins with transaction id {after.first_txid}, and one before it ends "
                    f"with {before.last_txid}: sort all rows by txid, as with orderBy"
                )


def drafts_of(messages: Sequence[Written | None]) -> dict[str, list[SegmentDraft]]:
    """By stream, in the order of the partitions."""
    found: dict[str, list[SegmentDraft]] = {}
    for message in sorted((each for each in messages if each is not None), key=lambda each: each.partition):
        for stream, draft in message.drafts:
            found.setdefault(stream, []).append(SegmentDraft.from_json(draft))
    return found


async def commit(
    namespace: Namespace,
    epoch: int,
    messages: Sequence[Written | None],
    *,
    fingerprint: str | None = None,
    reset: bool = False,
    create_streams: bool = True,
    overwrite: bool = False,
    merge: MergePolicy = MERGED,
    timeout: float = 600.0,
) -> None:
    """Publish what the tasks of a batch wrote; nothing happens if it is published already.

    - `overwrite`: truncate what the streams have that rows go to, at the same moment.
    - `merge`: which drafts are small, and become one.

    Tries for `timeout` seconds. Raises `EpochConflictError`, `StagingLostError`, `EndOfStreamError`,
    `StreamNotFoundError`, `TxidOrderError`, `JobError`; and what is left of what may pass.
    """
    batch = check(messages, epoch)
    if batch is None:
        return
    drafts: Drafts = drafts_of(messages)
    check_order(drafts)
    if (run := _run_of(messages)) is not None:
        drafts = await merge_small(namespace, run, drafts, merge)
    key = PublishKey(batch.sink, epoch, fingerprint, batch.query) if batch.counted else None
    runtime = namespace.client.context.runtime
    deadline = runtime.now() + timeout
    while True:
        try:
            left = max(deadline - runtime.now(), PAUSE)
            how = _How(reset, create_streams, overwrite, left)
            await _publish(namespace, drafts, key, messages, how)
            break
        except PASSING as error:
            if runtime.now() + PAUSE >= deadline:
                raise
            log.warning("sink %s, epoch %d is tried again: %s", batch.sink, epoch, error)
            await asyncio.sleep(PAUSE)
    try:
        await end_runs(namespace, messages)
    except BookKeeperError as error:
        log.warning("sink %s, epoch %d: what was not published is deleted later: %s", batch.sink, epoch, error)


class _How(NamedTuple):
    """What the options say of a commit."""

    reset: bool
    create: bool
    overwrite: bool
    lock_timeout: float


async def _publish(
    namespace: Namespace,
    drafts: Drafts,
    key: PublishKey | None,
    messages: Sequence[Written | None],
    how: _How,
) -> None:
    if key is not None and any(message is not None and message.skipped for message in messages):
        decision = decide(await namespace.last_published(key.sink), key, reset=how.reset)
        if decision is not Decision.DONE:
            raise EpochConflictError(f"sink {key.sink}: epoch {key.epoch} was published, and is not any more")
        return
    if key is None and not drafts:
        return
    for name in drafts if how.create else ():
        await namespace.create(name, exist_ok=True)
    for name in sorted({name for each in messages if each is not None for name in each.keyed}):
        await make_keyed(namespace, name)
    run = _run_of(messages) if drafts else None
    done = await namespace.publish_segments(
        drafts, key, staging=run, reset=how.reset, supersede=how.overwrite, lock_timeout=how.lock_timeout
    )
    log.info("%s: %s", key or "a batch", "was published before" if done.already else done.streams)


def _run_of(messages: Sequence[Written | None]) -> str | None:
    """The path of the run; None: nothing was written, or not all, because it is published."""
    written = [message for message in messages if message is not None]
    if any(message.skipped for message in written):
        return None
    return next((message.run for message in written if message.run is not None), None)


async def end_runs(namespace: Namespace, messages: Sequence[Written | None], batch: Batch | None = None) -> None:
    """Delete what the tasks wrote, and is not published. `batch`: theirs, if it is known without messages."""
    runs = {(each.batch.sink, each.run) for each in messages if each is not None and each.run is not None}
    if batch is not None:
        sink = sink_path(namespace.path, batch.sink)
        runs.add((batch.sink, run_path(sink, batch.epoch, batch.run)))
    for name, path in sorted(runs):
        await namespace.give_up_staging(name, path)
