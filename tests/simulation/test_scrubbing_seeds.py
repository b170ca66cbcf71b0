"""Entry logs of one bookie rot while it serves: it mends them. `--scrubbing` of the simulation runs more seeds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bookkeeper.bookie.scrub.mender import Mender
from bookkeeper.bookie.storage.entry_log.format import HEADER_SIZE
from bookkeeper.errors import NoSuchLedgerOnMetadataError
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol.messages import ReadRequest, Status
from bookkeeper.simulation import run
from bookkeeper.simulation.checkers.soundness import find_unsound
from bookkeeper.simulation.run import run_seed
from bookkeeper.simulation.swarm import Options
from bookkeeper.types import BookieId

from .scenario import Scenario, play, power_off

SCRUBBING = Options(scrubbing=True)
OFF = {"localScrubInterval": 0}


@pytest.mark.parametrize("seed", range(4))
def test_every_copy_is_sound_in_the_end(seed: int) -> None:
    """BI-10, RT-16: nothing acknowledged is lost, nothing else than what was written is served, all that rotted is
    mended."""
    report = run_seed(seed, SCRUBBING)
    assert report.violation is None, f"{report.violation}\nreplay with --scrubbing --seed {seed}"


def test_planted_what_is_written_was_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """What any bookie of the write set gives is written, be it the damaged copy itself."""

    async def mend(self: Mender, peers: Any, metadata: LedgerMetadata, entry_id: int) -> bool:
        request = ReadRequest(metadata.ledger_id, entry_id)
        response = await peers._context.bookies.request(self._home.bookie_id, request)
        self._home.storage.add_entry(metadata.ledger_id, entry_id, response.entry or b"")
        return True

    monkeypatch.setattr(Mender, "_mend", mend)
    monkeypatch.setattr(run, "WHOLE_SECONDS", 20.0)
    assert any(run_seed(seed, SCRUBBING).violation is not None for seed in range(6))


def test_planted_nothing_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mender, "report", lambda *_: None)
    monkeypatch.setattr(run, "WHOLE_SECONDS", 20.0)
    assert "copies are damaged" in (run_seed(0, SCRUBBING).violation or "")


# --- stories ------------------------------------------------------------------------------------------------------


async def _written(s: Scenario, count: int = 20) -> Any:
    """A closed ledger on the disks of three bookies, in no cache."""
    writer = await s.create(await s.connect("w"))
    await s.append(writer, count)
    await s.on("w", writer.close())
    await _cold(s, "b1")
    return writer


async def _cold(s: Scenario, name: str) -> None:
    """Start a bookie anew, and let nothing read from it."""
    await power_off(s, name)
    assert await s.cluster.start_bookie(name)


def _flip(s: Scenario, name: str, where: int) -> None:
    """A bit of the first entry log, so many bytes behind its header."""
    disk = s.cluster.machine(name).disk
    (path, *_) = sorted(path for path, inode in disk.names.items() if path.endswith(".log") and len(inode.seen) > 1024)
    disk.flip_bit(path, HEADER_SIZE + where)


async def _unsound(s: Scenario, writer: Any) -> list[str]:
    bk = await s.connect("judge")
    return await s.on("judge", find_unsound(bk, s.stored(writer), s.ledger(writer), ()))


async def _asked(s: Scenario, writer: Any, bookie: str, entry_id: int) -> Status:
    bk = await s.connect("judge")
    request = ReadRequest(writer.id, entry_id)
    response = await s.on("judge", bk.context.bookies.request(BookieId(f"{bookie}:3181"), request))
    return Status(response.status)  # type: ignore[union-attr]


def test_a_read_that_meets_damage_is_answered_with_trouble_and_the_entry_comes_back() -> None:
    """BI-10: without a scrubber, without a restart. Never "no such entry"."""

    async def story(s: Scenario) -> None:
        writer = await _written(s)
        _flip(s, "b1", 4)  # the ledger id of entry 0
        answers = []
        while not answers or answers[-1] is not Status.EOK:
            answers.append(await _asked(s, writer, "b1", 0))
            await asyncio.sleep(0.05)
        assert {*answers} == {Status.EIO, Status.EOK}
        assert s.cluster.bookies["b1"].parts.stats.scrubber.entriesRepaired == 1
        assert not await _unsound(s, writer)
        await _cold(s, "b1")
        assert not await _unsound(s, writer)
        await s.recover(await s.connect("r"), writer.id)

    play(story, settings=OFF)


def test_a_payload_that_rots_is_found_by_the_scrubber_only() -> None:
    async def story(s: Scenario) -> None:
        writer = await _written(s)
        _flip(s, "b1", 4 + 32 + 4 + 1)
        assert len(await _unsound(s, writer)) == 1
        stats = s.cluster.bookies["b1"].parts.stats.scrubber
        await s.until(lambda: stats.entriesRepaired == 1)
        assert not await _unsound(s, writer)

    play(story, settings={"localScrubInterval": 5, "localScrubRateLimit": 0})


def test_what_no_other_bookie_has_is_left_and_said() -> None:
    async def story(s: Scenario) -> None:
        writer = await s.create(await s.connect("w"), ensemble=1, write=1, ack=1)
        await s.append(writer)
        await s.on("w", writer.close())
        (home,) = (bookie.split(":")[0] for bookie in s.stored(writer).last_ensemble[1])
        await _cold(s, home)
        _flip(s, home, 4)
        assert await _asked(s, writer, home, 0) is Status.EIO
        stats = s.cluster.bookies[home].parts.stats.scrubber
        await s.until(lambda: stats.entriesNotRepaired == 1)
        assert await _asked(s, writer, home, 0) is Status.EIO
        assert stats.entriesRepaired == 0

    play(story, settings=OFF)


async def _deleted_meanwhile(s: Scenario) -> None:
    """The ledger is deleted, and collected, while a copy waits for an answer."""
    writer = await _written(s)
    s.cut("b1", "b2")
    s.cut("b1", "b3")
    _flip(s, "b1", 4)
    assert await _asked(s, writer, "b1", 0) is Status.EIO
    await asyncio.sleep(0.3)
    bk = await s.connect("d")
    s.ledger(writer).delete_started = True
    await s.on("d", bk.delete_ledger(writer.id))
    s.cut("b1", "b2", False)
    s.cut("b1", "b3", False)
    storage = s.cluster.bookies["b1"].storage
    storage.delete_ledger(writer.id)  # as garbage collection does, at the worst moment
    await asyncio.sleep(10)
    assert not storage.ledger_exists(writer.id), "the deleted ledger is here again"
    with pytest.raises(NoSuchLedgerOnMetadataError):
        await s.on("d", bk.get_ledger_metadata(writer.id))


def test_a_ledger_that_is_deleted_while_it_is_mended_stays_deleted() -> None:
    play(_deleted_meanwhile, settings={**OFF, "gcWaitTime": 600_000})


def test_planted_a_deleted_ledger_is_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def mend(self: Mender, peers: Any, metadata: LedgerMetadata, entry_id: int) -> bool:
        entry = await peers.fetch(metadata, entry_id)
        self._home.storage.set_master_key(metadata.ledger_id, b"")
        self._home.storage.add_entry(metadata.ledger_id, entry_id, entry)
        return True

    monkeypatch.setattr(Mender, "_mend", mend)
    with pytest.raises(AssertionError, match="here again"):
        play(_deleted_meanwhile, settings={**OFF, "gcWaitTime": 600_000})
