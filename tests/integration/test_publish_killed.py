"""A publish of more segments than a transaction bears, whose process is killed half-way (spec streams §15.7).

Its ledgers are records of the metadata store only: a publish asks for no more. The publisher is a process of its own
and kills itself, before or after the commit of one of the parts; another process has to go on.

    python -m tests.integration.test_publish_killed URI PART before|after
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import pytest

import bookkeeper
from bookkeeper.metadata import LedgerMetadata, open_driver
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.publishing.drafts import SegmentDraft
from bookkeeper.streams.publishing.marker import PublishKey, State
from bookkeeper.streams.publishing.publisher import MOST_AT_ONCE, Publisher
from bookkeeper.types import BookieId, LedgerState

SEGMENTS = 5000
FIRST_LEDGER = 100
STREAM, SINK = "much", "nightly"
KEY = PublishKey(SINK, 0, "one fingerprint")


def drafts() -> dict[str, list[SegmentDraft]]:
    return {STREAM: [SegmentDraft(FIRST_LEDGER + n, 1, 0, 0) for n in range(SEGMENTS)]}


async def make_ledgers(uri: str) -> None:
    """Closed ones, with one entry each."""
    driver = open_driver(uri, RealRuntime())
    await driver.open(create=True)
    try:
        await driver.admin.init_new_cluster()
        members = {0: (BookieId("a:1"),)}
        for ledger_id in range(FIRST_LEDGER, FIRST_LEDGER + SEGMENTS):
            closed = LedgerMetadata(ledger_id, 1, 1, 1, members, LedgerState.CLOSED, last_entry_id=0, length=20)
            await driver.ledgers.create(ledger_id, closed)
    finally:
        await driver.close()


def opened(uri: str) -> Namespace:
    return bookkeeper.open_namespace(f"distributedlog-{uri}?namespace=/much", create=True)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


async def publish_and_die(uri: str, part: int, moment: str) -> None:
    """The process that is killed."""
    real = Publisher._publish_part

    async def fatal(self: Publisher, intent, some, locks) -> bool:  # type: ignore[no-untyped-def]
        if intent.marker.next < part:
            return await real(self, intent, some, locks)
        if moment == "after":
            await real(self, intent, some, locks)
        die()

    Publisher._publish_part = fatal  # type: ignore[method-assign]
    async with opened(uri) as namespace:
        await namespace.publish_segments(drafts(), KEY)


@pytest.mark.parametrize(
    ("part", "moment", "successor"),
    [
        (0, "before", "the same key"),
        (2, "after", "the same key"),
        (2, "before", "whoever cleans up"),
        (4, "after", "whoever cleans up"),
    ],
)
async def test_a_publish_of_five_thousand_segments_is_finished_by_another_process(
    tmp_path: Path, part: int, moment: str, successor: str
) -> None:
    uri = f"sqlite://{tmp_path}/meta.db"
    await make_ledgers(uri)
    async with opened(uri) as namespace:
        await namespace.create(STREAM)
        words = (sys.executable, "-m", "tests.integration.test_publish_killed", uri, str(part), moment)
        child = await asyncio.create_subprocess_exec(*words)
        assert await child.wait() == -signal.SIGKILL
        marker = await namespace.last_published(SINK)
        assert marker is not None
        done = part + (moment == "after")
        parts = SEGMENTS // MOST_AT_ONCE
        assert (marker.state, marker.next, marker.parts) == (
            State.DONE if done == parts else State.PUBLISHING,
            done,
            parts,
        )
        assert len((await namespace.info(STREAM)).segments) == done * MOST_AT_ONCE
        if successor == "the same key":
            published = await namespace.publish_segments(drafts(), KEY)
            assert published.streams == {STREAM: (1, SEGMENTS)}
        else:
            collected = await namespace.collect_staged(lost_after=-1)
            assert list(collected.finished) == ([] if done == parts else [SINK])
            assert not collected.ledgers
        found = (await namespace.info(STREAM)).segments
        assert [each.ledger_id for each in found] == list(range(FIRST_LEDGER, FIRST_LEDGER + SEGMENTS))
        marker = await namespace.last_published(SINK)
        assert marker is not None
        assert marker.state is State.DONE
        assert (await namespace.publish_segments(drafts(), KEY)).already
        listing = await namespace._tree.children(f"{namespace.path}/.sinks/{SINK}/staging", fresh=True)
        assert listing is None or not listing.names, "its parts are left"


if __name__ == "__main__":
    asyncio.run(publish_and_die(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
