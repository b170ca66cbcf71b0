"""Damage is found, and mended with what other bookies have; what must not be written is not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.scrub import mender as mender_module
from bookkeeper.bookie.scrub import scrubber as scrubber_module
from bookkeeper.bookie.scrub.judging import belongs, judge_of
from bookkeeper.bookie.scrub.mender import Home, Mender
from bookkeeper.bookie.scrub.queue import ATTEMPTS, RepairQueue
from bookkeeper.bookie.scrub.scrubber import Scrubber, wanted
from bookkeeper.bookie.stats import ScrubStats
from bookkeeper.bookie.storage.db_storage import DbLedgerStorage
from bookkeeper.bookie.storage.entry_log import format as fmt
from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import CorruptStorageError, ReadError, ServiceUnavailable
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol.digest import digest_for
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.runtime.tasks import TaskScope
from bookkeeper.runtime.waiting.backoff import Backoff
from bookkeeper.types import BookieId, DigestType
from tests.support.bookie import DIGEST, KEY, METADATA_URI, PASSWORD, bookie_config, init_cluster

B = [BookieId(f"b{number}:3181") for number in range(4)]
ME = B[0]


# --- judging ------------------------------------------------------------------------------------------------------


@given(st.sampled_from(list(DigestType)), st.binary(max_size=40), st.data())
def test_a_judge_finds_every_flipped_bit_that_the_digest_protects(
    kind: DigestType, payload: bytes, data: st.DataObject
) -> None:
    metadata = LedgerMetadata(3, 1, 1, 1, {0: (ME,)}, digest_type=kind, password=b"secret")
    judge = judge_of(metadata)
    sound = digest_for(kind, b"secret").package(3, 8, 7, 100, payload)
    assert judge(8, sound) is None
    assert judge(9, sound) is not None
    bit = data.draw(st.integers(0, 8 * len(sound) - 1))
    changed = bytearray(sound)
    changed[bit // 8] ^= 1 << bit % 8
    protected = kind is not DigestType.DUMMY or bit < 8 * 16  # a DUMMY digest leaves the ids
    assert (judge(8, bytes(changed)) is not None) == protected
    assert judge(8, sound[: data.draw(st.integers(0, 31))]) is not None


def test_the_oldest_records_say_no_digest() -> None:
    judge = judge_of(LedgerMetadata(3, 1, 1, 1, {0: (ME,)}, digest_type=None, password=None))
    assert judge(8, DIGEST.package(3, 8, 7, 100, b"x")) is None
    assert judge(7, DIGEST.package(3, 8, 7, 100, b"x")) is not None


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_an_entry_belongs_here_if_its_write_set_says_so(
    size: int, write: int, entry_id: int, change: int, closed: bool
) -> None:
    write = min(write, size)
    ensembles = {0: tuple(B[:size])} | ({change: tuple(B[4 - size :])} if change else {})
    metadata = LedgerMetadata(3, size, write, write, ensembles)
    metadata = metadata.close(20, 0) if closed and change <= 20 else metadata
    members = metadata.ensemble_at(entry_id)
    stores = ME in [members[(entry_id + i) % size] for i in range(write)]
    assert belongs(metadata, ME, entry_id) == (stores and not (metadata.closed and entry_id > 20))


# --- the queue ----------------------------------------------------------------------------------------------------


def test_the_queue_has_each_entry_once_and_no_more_than_its_limit() -> None:
    queue = RepairQueue(3)
    for key in ((2, 1), (1, 5), (2, 1), (1, 4)):
        assert queue.add(*key)
    assert queue.full
    assert not queue.add(9, 9)
    assert queue.add(1, 5)
    assert queue.by_ledger() == [(1, [4, 5]), (2, [1])]
    queue.done(1, 5)
    assert not queue.full
    assert queue.add(9, 9)


def test_the_queue_gives_an_entry_up_after_its_attempts() -> None:
    queue = RepairQueue(3)
    queue.add(1, 1)
    assert [queue.failed(1, 1) for _ in range(ATTEMPTS)] == [False] * (ATTEMPTS - 1) + [True]
    assert len(queue) == 0
    queue.add(1, 1)  # found again: from the beginning
    assert not queue.failed(1, 1)


# --- mending ------------------------------------------------------------------------------------------------------


class OtherBookies:
    """Peers that have every entry of every ledger, but for what a test takes from them."""

    def __init__(self) -> None:
        self.without: set[tuple[int, int]] = set()
        self.bad: set[tuple[int, int]] = set()
        self.fetched: list[tuple[int, int]] = []
        self.gate: asyncio.Event | None = None
        """Holds fetches up, until it is set."""
        self.opened = 0

    async def recover(self, *_: Any) -> LedgerMetadata:
        raise AssertionError("nothing is recovered for the sake of damage")

    async def fetch(self, metadata: LedgerMetadata, entry_id: int) -> bytes:
        key = (metadata.ledger_id, entry_id)
        self.fetched.append(key)
        if self.gate is not None:
            await self.gate.wait()
        if key in self.without:
            raise ReadError
        return entry(*key)[:-1] + b"?" if key in self.bad else entry(*key)

    @asynccontextmanager
    async def open(self, *_: Any) -> AsyncIterator[OtherBookies]:
        self.opened += 1
        yield self


def entry(ledger_id: int, entry_id: int) -> bytes:
    return DIGEST.package(ledger_id, entry_id, entry_id - 1, 0, b"what was written")


RECORD = fmt.SIZE_WORD + len(entry(0, 0))


class Rig:
    """A storage with entries on its disk, peers, and what looks for damage."""

    def __init__(self, directory: Path, storage: DbLedgerStorage, driver: MetadataDriver, scope: TaskScope) -> None:
        self.storage = storage
        self.driver = driver
        self.peers = OtherBookies()
        self.stats = ScrubStats()
        self.writable = True
        self._log = directory / "ledgers" / "current" / "0.log"
        self._scope = scope

    def build(self, config: ServerConfiguration, *, alone: bool = False) -> None:
        runtime = RealRuntime()
        home = Home(ME, self.storage, self.driver.ledgers, lambda: self.writable, self.stats)
        self.mender = Mender(runtime, config, home, None if alone else self.peers.open, self._scope)
        self.scrubber = Scrubber(runtime, config, home, self.mender)
        self.storage.set_damage_listener(self.mender.report)

    async def ledger(self, ledger_id: int, count: int = 5, members: tuple[BookieId, ...] = (ME, B[1])) -> None:
        metadata = LedgerMetadata(ledger_id, 2, 2, 2, {0: members}, password=PASSWORD)
        await self.driver.ledgers.create(ledger_id, metadata.close(count - 1, 0))
        self.storage.set_master_key(ledger_id, KEY)
        for entry_id in range(count):
            self.storage.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id))
        await self.storage.flush()

    def flip(self, record: int, byte: int = -1) -> None:
        """A bit of a byte of a record in the log; the last byte is payload, 4 to 11 are the ledger id."""
        content = bytearray(self._log.read_bytes())
        content[fmt.HEADER_SIZE + record * RECORD + byte % RECORD] ^= 1
        self._log.write_bytes(content)

    async def settled(self) -> None:
        """Nothing waits any more."""
        while self.mender._work is not None and not self.mender._work.done():
            await asyncio.wait([self.mender._work], timeout=30)

    async def scrub(self) -> None:
        await self.scrubber.once()
        await self.settled()

    async def damaged(self, ledger_id: int) -> list[int]:
        judge = judge_of((await self.driver.ledgers.read(ledger_id)).value)
        return [found.entry_id for found in (await self.storage.examine(ledger_id, 0, 1000, judge)).damage]


@asynccontextmanager
async def rig(directory: Path, *, alone: bool = False, **settings: Any) -> AsyncIterator[Rig]:
    runtime = RealRuntime()
    await init_cluster(runtime)
    driver = open_driver(METADATA_URI, runtime)
    await driver.open()
    config = bookie_config(directory, **{"localScrubRateLimit": 0, **settings})
    runtime.files.makedirs(f"{directory}/ledgers/current")
    storage = DbLedgerStorage(runtime, config)
    await storage.open()
    failures: list[BaseException] = []
    scope = TaskScope(runtime, "test", lambda _, error: failures.append(error))
    try:
        built = Rig(directory, storage, driver, scope)
        built.build(config, alone=alone)
        yield built
    finally:
        await scope.close()
        await storage.close()
        await driver.close()
    assert not failures


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mender_module, "BACKOFF", Backoff(0.001, 0.002))


async def test_what_a_scrub_finds_is_mended_and_durable(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.ledger(1)
        r.storage.set_fenced(1)
        r.flip(1)  # payload
        r.flip(3, byte=5)  # ledger id
        r.flip(4, byte=3)  # size word
        assert await r.damaged(1) == [1, 3, 4]
        await r.scrub()
        assert sorted(r.peers.fetched) == [(1, 1), (1, 3), (1, 4)]
        assert (r.stats.detectedScrubErrors, r.stats.entriesRepaired, r.stats.entriesNotRepaired) == (3, 3, 0)
        assert await r.damaged(1) == []
        assert [await r.storage.read_entry(1, i) for i in range(5)] == [entry(1, i) for i in range(5)]
        assert r.storage.is_fenced(1)
        await r.scrub()
        assert r.stats.detectedScrubErrors == 3
    async with rig(tmp_path) as r:
        assert [await r.storage.read_entry(1, i) for i in range(5)] == [entry(1, i) for i in range(5)]
        assert await r.storage.read_run(1, 0, 5, 10_000) == b"".join(
            len(entry(1, i)).to_bytes(4, "big") + entry(1, i) for i in range(5)
        )


async def test_what_a_read_finds_is_mended_once_and_the_reader_hears_of_trouble_not_of_absence(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.ledger(1)
        r.peers.gate = asyncio.Event()
        r.flip(2, byte=6)
        for _ in range(3):
            with pytest.raises(CorruptStorageError):
                await r.storage.read_entry(1, 2)
        r.peers.gate.set()
        await r.settled()
        assert r.peers.fetched == [(1, 2)]
        assert await r.storage.read_entry(1, 2) == entry(1, 2)
        assert r.stats.entriesRepaired == 1


async def test_a_copy_that_is_not_good_is_never_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with rig(tmp_path) as r:
        await r.ledger(1)
        r.flip(2)
        r.flip(3)
        r.peers.bad = {(1, 2)}
        with caplog.at_level(logging.WARNING):
            await r.scrub()
        assert await r.damaged(1) == [2]
        assert (r.stats.entriesRepaired, r.stats.entriesNotRepaired) == (1, 1)
        assert r.peers.fetched.count((1, 2)) == ATTEMPTS
        assert "entry 2 of ledger 1 is damaged here, and cannot be mended: the copy that was fetched" in caplog.text
        r.peers.bad.clear()
        await r.scrub()  # it is found again
        assert await r.damaged(1) == []


async def test_a_ledger_that_is_deleted_meanwhile_is_not_brought_back(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.ledger(1)
        await r.ledger(2)
        r.peers.gate = asyncio.Event()
        r.flip(0)
        r.flip(5)
        await r.scrubber.once()
        while not r.peers.fetched:
            await asyncio.sleep(0)
        r.storage.delete_ledger(1)  # while the copy is under way
        await r.driver.ledgers.remove(2)  # not collected here yet
        r.peers.gate.set()
        await r.settled()
        assert r.storage.ledgers() == [2]
        assert r.peers.fetched == [(1, 0)]
        assert r.stats.entriesRepaired == 0
        assert r.stats.entriesNotRepaired == 0


async def test_what_does_not_belong_here_is_left_alone(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.ledger(1, members=(B[1], B[2]))
        r.flip(0)
        await r.scrub()
        r.mender.report(1, 0)
        await r.settled()
        assert r.peers.fetched == []
        assert r.stats.detectedScrubErrors == 0


@pytest.mark.parametrize("settings", [{"alone": True}, {"localRepairQueueSize": 0}])
async def test_without_a_way_to_others_or_a_queue_damage_is_only_reported(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with rig(tmp_path, **settings) as r:
        await r.ledger(1)
        r.flip(0)
        await r.scrub()
        assert await r.damaged(1) == [0]
        assert (r.stats.detectedScrubErrors, r.stats.entriesRepaired, r.peers.opened) == (1, 0, 0)


async def test_without_the_store_what_can_be_seen_is_reported_and_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        await r.ledger(1)
        r.flip(0)  # seen by its digest only
        r.flip(1, byte=6)

        async def away(*_: Any) -> None:
            raise ServiceUnavailable("away")

        with monkeypatch.context() as patched:
            patched.setattr(type(r.driver.ledgers), "read", away)
            await r.scrub()
        assert (r.stats.detectedScrubErrors, r.stats.entriesRepaired, r.stats.entriesNotRepaired) == (1, 0, 1)
        assert r.peers.fetched == []
        await r.scrub()
        assert await r.damaged(1) == []


async def test_a_small_queue_makes_the_scrubber_wait_and_reads_leave_out(tmp_path: Path) -> None:
    async with rig(tmp_path, localRepairQueueSize=1) as r:
        await r.ledger(1)
        for record in range(5):
            r.flip(record, byte=6)
        r.peers.gate = asyncio.Event()
        for entry_id in (0, 1):
            with pytest.raises(CorruptStorageError):
                await r.storage.read_entry(1, entry_id)
        assert r.stats.repairsLeftOut == 1
        r.peers.gate.set()
        await r.scrub()
        assert await r.damaged(1) == []
        assert (r.stats.entriesRepaired, r.stats.repairsLeftOut) == (5, 1)


async def test_a_read_only_bookie_waits_with_its_repairs(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.ledger(1)
        r.flip(0)
        r.writable = False
        await r.scrubber.once()
        while r.mender._work is None:
            await asyncio.sleep(0)
        await asyncio.wait([r.mender._work], timeout=0.02)
        assert r.peers.opened == 0
        r.writable = True
        await r.settled()
        assert await r.damaged(1) == []


async def test_an_index_that_cannot_be_read_is_counted_and_the_rest_is_scrubbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        await r.ledger(1)
        await r.ledger(2)
        r.flip(5)
        examine = r.storage.examine

        async def broken(ledger_id: int, *rest: Any) -> Any:
            if ledger_id == 1:
                raise CorruptStorageError("a block of the index")
            return await examine(ledger_id, *rest)

        monkeypatch.setattr(r.storage, "examine", broken)
        await r.scrub()
        assert (r.stats.detectedFatalScrubErrors, r.stats.detectedScrubErrors) == (1, 1)
        assert r.stats.entriesRepaired == 1
        r.mender.report(1, 0)  # a read met it
        await r.settled()
        assert r.stats.entriesNotRepaired == 1


# --- when ---------------------------------------------------------------------------------------------------------


async def test_the_rate_bounds_parts_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path, localScrubRateLimit=2) as r:
        await r.ledger(1)
        taken: list[float] = []

        async def count(amount: float) -> None:
            taken.append(amount)

        monkeypatch.setattr(r.scrubber._rate, "take", count)
        await r.scrub()
        assert taken == [2, 2, 1]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"localScrubInterval": 100}, ["pause", "run", "pause", "run"]),
        ({"localScrubInterval": 100, "localConsistencyCheckOnStartup": True}, ["run", "pause", "run", "pause"]),
        ({"localConsistencyCheckOnStartup": True}, ["run"]),
    ],
)
async def test_runs_begin_when_the_settings_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], expected: list[str]
) -> None:
    class Enough(Exception):
        pass

    done: list[str] = []

    def note(what: str) -> None:
        done.append(what)
        if len(done) == 4:
            raise Enough

    async def sleep(seconds: float) -> None:
        assert 50 <= seconds <= 150
        note("pause")

    async def once() -> None:
        note("run")

    async with rig(tmp_path, **settings) as r:
        assert wanted(r.scrubber._config)
        monkeypatch.setattr(scrubber_module.asyncio, "sleep", sleep)
        monkeypatch.setattr(r.scrubber, "once", once)
        with suppress(Enough):
            await r.scrubber.run()
        monkeypatch.undo()
        assert done == expected
        assert r.stats.runTime.succeeded + r.stats.runTime.failed == done.count("run")


def test_nothing_is_looked_for_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert not wanted(bookie_config(tmp_path))
