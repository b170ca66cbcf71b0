"""What a bookie must store, and how it gets back what it lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.integrity import duties
from bookkeeper.bookie.integrity.full_check import FullCheck
from bookkeeper.bookie.integrity.protection import protect
from bookkeeper.bookie.storage.db_storage import DbLedgerStorage
from bookkeeper.errors import LedgerRecoveryError, LimboError, NoEntryError, ReadError, ServiceUnavailable
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import MetadataDriver, Versioned
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol.digest import master_key
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, LedgerState
from tests.support.bookie import DIGEST, KEY, METADATA_URI, PASSWORD, bookie_config, init_cluster

B = [BookieId(f"b{number}:3181") for number in range(6)]
ME = B[0]


# --- what must be here --------------------------------------------------------------------------------------------


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    size = draw(st.integers(1, 5))
    write = draw(st.integers(1, size))
    firsts = sorted(draw(st.sets(st.integers(1, 40), max_size=4)) | {0})
    ensembles = {first: tuple(draw(st.permutations(B))[:size]) for first in firsts}
    state = draw(st.sampled_from(LedgerState))
    last = draw(st.integers(firsts[-1] - 1, 60)) if state is LedgerState.CLOSED else -1
    return LedgerMetadata(7, size, write, write, ensembles, state, last_entry_id=last)


def stores(metadata: LedgerMetadata, entry_id: int) -> bool:
    """The definition, in plain words: one of the Wq members from the id's own index on."""
    members, size = metadata.ensemble_at(entry_id), metadata.ensemble_size
    return ME in [members[(entry_id + i) % size] for i in range(metadata.write_quorum)]


@given(ledgers(), st.integers(0, 70), st.integers(0, 70))
def test_an_entry_is_owed_if_its_write_set_names_the_bookie(metadata: LedgerMetadata, first: int, stop: int) -> None:
    known = metadata.last_entry_id + 1 if metadata.closed else max(metadata.ensembles)
    expected = [e for e in range(first, min(stop, known)) if stores(metadata, e)]
    assert list(duties.owed(metadata, ME, first, stop)) == expected


@given(ledgers(), st.sets(st.integers(0, 70)), st.integers(1, 20))
def test_windows_find_what_is_owed_and_not_held_once(metadata: LedgerMetadata, held: set[int], window: int) -> None:
    found = []
    for first in range(0, duties.end(metadata), window):
        found += duties.missing(metadata, ME, sorted(held), first, first + window)
    assert found == [e for e in duties.owed(metadata, ME, 0, 100) if e not in held]


@given(ledgers())
def test_a_ledger_names_its_bookies_whether_it_is_closed_or_not(metadata: LedgerMetadata) -> None:
    assert duties.names(metadata, ME) == any(ME in members for members in metadata.ensembles.values())


# --- before serving, and the check ----------------------------------------------------------------------------


class OtherBookies:
    """Peers that have every entry of every ledger, but for what a test takes from them."""

    def __init__(self, driver: MetadataDriver) -> None:
        self._driver = driver
        self.without: set[tuple[int, int]] = set()
        self.recovered: list[int] = []
        self.unable: set[int] = set()
        """Ledgers that cannot be recovered now."""

    async def recover(self, metadata: Versioned[LedgerMetadata]) -> LedgerMetadata:
        ledger_id = metadata.value.ledger_id
        if ledger_id in self.unable:
            raise LedgerRecoveryError
        self.recovered.append(ledger_id)
        closed = metadata.value.close(9, 0)
        return (await self._driver.ledgers.write(ledger_id, closed, metadata.version)).value

    async def fetch(self, metadata: LedgerMetadata, entry_id: int) -> bytes:
        if (metadata.ledger_id, entry_id) in self.without:
            raise ReadError
        return entry(metadata.ledger_id, entry_id)


class Home:
    """A storage that has lost everything, the store that knows what it had, and the peers."""

    def __init__(self, storage: DbLedgerStorage, driver: MetadataDriver, runtime: RealRuntime, config: Any) -> None:
        self.storage = storage
        self.driver = driver
        self.peers = OtherBookies(driver)
        self._check = lambda: FullCheck(runtime, config, driver.ledgers, storage, ME, self.peers)
        self.check = self._check()

    async def ledger(self, ledger_id: int, *, last: int | None, members: tuple[BookieId, ...] = (ME, B[1])) -> None:
        metadata = LedgerMetadata(ledger_id, 2, 2, 2, {0: members}, password=PASSWORD)
        await self.driver.ledgers.create(ledger_id, metadata if last is None else metadata.close(last, 0))

    def restart_check(self) -> None:
        self.check = self._check()


def entry(ledger_id: int, entry_id: int) -> bytes:
    return DIGEST.package(ledger_id, entry_id, entry_id - 1, 0, b"x")


@asynccontextmanager
async def home(directory: Path, **settings: Any) -> AsyncIterator[Home]:
    runtime = RealRuntime()
    await init_cluster(runtime)
    driver = open_driver(METADATA_URI, runtime)
    await driver.open()
    config = bookie_config(directory, **settings)
    runtime.files.makedirs(f"{directory}/ledgers/current")
    storage = DbLedgerStorage(runtime, config)
    await storage.open()
    try:
        yield Home(storage, driver, runtime, config)
    finally:
        await storage.close()
        await driver.close()


async def test_all_ledgers_that_name_the_bookie_are_fenced_and_in_limbo(tmp_path: Path) -> None:
    async with home(tmp_path) as h:
        await h.ledger(1, last=None)
        await h.ledger(2, last=5)
        await h.ledger(3, last=None, members=(B[1], B[2]))
        assert await protect(h.driver, h.storage, ME) == 2
        assert h.storage.ledgers() == [1, 2]
        assert all(h.storage.is_limbo(i) and h.storage.is_fenced(i) for i in (1, 2))
        assert h.storage.master_key(1) == KEY == master_key(PASSWORD)
    async with home(tmp_path) as h:
        assert h.storage.is_limbo(1)
        assert h.storage.is_fenced(2)
        assert await h.storage.needs_integrity_check()


async def test_a_store_that_is_away_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not protected must not be served; and the flag is there already."""
    async with home(tmp_path) as h:
        await h.ledger(1, last=None)

        async def away(*_: Any) -> None:
            raise ServiceUnavailable("away")

        monkeypatch.setattr(type(h.driver.ledgers), "read", away)
        with pytest.raises(ServiceUnavailable):
            await protect(h.driver, h.storage, ME)
        assert await h.storage.needs_integrity_check()


async def test_the_check_recovers_copies_and_ends_limbo(tmp_path: Path) -> None:
    async with home(tmp_path) as h:
        await h.ledger(1, last=None)
        await h.ledger(2, last=5)
        await protect(h.driver, h.storage, ME)
        mine = DIGEST.package(2, 3, 2, 0, b"was here already")
        h.storage.add_entry(2, 3, mine)
        assert await h.check.round()
        assert h.peers.recovered == [1]
        assert list(await h.storage.list_entries(1)) == list(range(10))
        assert list(await h.storage.list_entries(2)) == list(range(6))
        assert await h.storage.read_entry(2, 3) == mine
        assert h.check.copied == 15
        assert not await h.storage.needs_integrity_check()
        assert h.storage.is_fenced(1)
        with pytest.raises(NoEntryError):
            await h.storage.read_entry(1, 10)


async def test_what_cannot_be_repaired_stays_in_limbo_and_comes_again(tmp_path: Path) -> None:
    async with home(tmp_path) as h:
        for ledger_id in (1, 2, 3):
            await h.ledger(ledger_id, last=None if ledger_id == 1 else 5)
        await protect(h.driver, h.storage, ME)
        h.peers.unable = {1}
        h.peers.without = {(2, 4)}
        assert not await h.check.round()
        assert [i for i in (1, 2, 3) if h.storage.is_limbo(i)] == [1, 2]
        with pytest.raises(LimboError):
            await h.storage.read_entry(2, 4)
        h.peers.unable.clear()
        assert not await h.check.round()
        assert h.check.copied == 6 + 5 + 10
        h.peers.without.clear()
        h.restart_check()  # as after a restart
        assert await h.check.round()
        assert h.check.copied == 1
        assert not any(h.storage.is_limbo(i) for i in (1, 2, 3))


async def test_a_live_ledger_that_lost_nothing_is_not_recovered(tmp_path: Path) -> None:
    """One that was made after the protection: its writer writes."""
    async with home(tmp_path) as h:
        await protect(h.driver, h.storage, ME)
        await h.ledger(1, last=None)
        h.storage.set_master_key(1, KEY)
        assert await h.check.round()
        assert not h.peers.recovered
        assert not h.storage.is_fenced(1)


async def test_a_ledger_that_was_deleted_stays_in_limbo_for_garbage_collection(tmp_path: Path) -> None:
    async with home(tmp_path) as h:
        await h.ledger(1, last=5)
        await protect(h.driver, h.storage, ME)
        await h.driver.ledgers.remove(1)
        assert await h.check.round()
        assert h.storage.is_limbo(1)


async def test_copies_keep_to_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy asks for its bytes."""
    taken: list[float] = []

    async with home(tmp_path, dataIntegrityRateByBytes=10_000_000) as h:
        rate = h.check._rate
        take = rate.take

        async def count(amount: float) -> None:
            taken.append(amount)
            await take(amount)

        monkeypatch.setattr(rate, "take", count)
        await h.ledger(1, last=5)
        await protect(h.driver, h.storage, ME)
        assert await h.check.round()
    assert taken == [len(entry(1, 0))] * 6
