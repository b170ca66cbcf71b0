"""BOOKIE_STATUS, DIRTY, directories, status tables, statistics, permits: the small parts of a bookie."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bookkeeper.bookie.file_names import current
from bookkeeper.bookie.journal.journals import Journals
from bookkeeper.bookie.node import dirty
from bookkeeper.bookie.node import status_file as bookie_status
from bookkeeper.bookie.node.directories import Directories
from bookkeeper.bookie.node.status_file import StoredStatus
from bookkeeper.bookie.requests.error_status import ADD, READ, WRITE_LAC, status_of, wire_status
from bookkeeper.bookie.sharing.permits import Permits
from bookkeeper.bookie.stats import OpStats
from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import (
    BookieError,
    ConfigurationError,
    CorruptStorageError,
    FencedAndDeletedError,
    FencedError,
    LimboError,
    NoEntryError,
    NoLedgerError,
    NoWritableLedgerDirError,
    ReadOnlyError,
    RejectedError,
    UnauthorizedAccessError,
)
from bookkeeper.protocol.messages import V2, V3, Status
from bookkeeper.runtime.disk.files import RealFiles

FILES = RealFiles()


def test_the_status_line_is_that_of_the_spec() -> None:
    assert bookie_status.encode(StoredStatus(True, 1700000000000, True)) == b"1,READ_ONLY,1700000000000,true\n"
    assert bookie_status.encode(StoredStatus(False, 1700000000000, False)) == b"1,READ_WRITE,1700000000000,false\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"1,READ_ONLY,5,false\n", StoredStatus(True, 5, False)),
        (b"1,READ_WRITE,5", StoredStatus(False, 5, True)),
        (b"2,READ_ONLY,5,true\n", None),
        (b"1,READ,5,true\n", None),
        (b"1,READ_ONLY,x,true\n", None),
        (b"1,READ_ONLY,5,maybe\n", None),
        (b"", None),
        (b"\xff\xff", None),
    ],
)
def test_status_lines_are_read(line: bytes, expected: StoredStatus | None) -> None:
    assert bookie_status.parse(line) == expected


def test_the_newest_status_counts_and_unreadable_ones_do_not(tmp_path: Path) -> None:
    roots = [str(tmp_path / name) for name in "abc"]
    for root in roots:
        FILES.makedirs(current(root))
    assert bookie_status.read(FILES, roots) is None
    bookie_status.write(FILES, roots, StoredStatus(False, 5, False))
    bookie_status.write(FILES, roots[1:2], StoredStatus(True, 9, False))
    Path(current(roots[2]), "BOOKIE_STATUS").write_bytes(b"rubbish")
    assert bookie_status.read(FILES, roots) == StoredStatus(True, 9, False)


def test_any_dirty_marker_means_unclean(tmp_path: Path) -> None:
    roots = [str(tmp_path / name) for name in "ab"]
    for root in roots:
        FILES.makedirs(current(root))
    assert not dirty.was_unclean(FILES, roots)
    dirty.mark(FILES, roots)
    Path(current(roots[0]), "DIRTY").unlink()
    assert dirty.was_unclean(FILES, roots)
    dirty.clear(FILES, roots)
    assert not dirty.was_unclean(FILES, roots)


def test_directories_on_one_file_system_can_be_forbidden(tmp_path: Path) -> None:
    config = ServerConfiguration(
        journalDirectories=[str(tmp_path / "j")], ledgerDirectories=[str(tmp_path / "l0"), str(tmp_path / "l1")]
    )
    directories = Directories.of(config)
    directories.prepare(FILES, allow_shared_partition=True)
    assert all(FILES.is_dir(current(root)) for root in directories.all)
    with pytest.raises(ConfigurationError, match="same file system"):
        directories.prepare(FILES, allow_shared_partition=False)


@pytest.mark.parametrize(
    ("error", "add", "read", "write_lac"),
    [
        (RejectedError(), Status.ETOOMANYREQUESTS, Status.ETOOMANYREQUESTS, Status.ETOOMANYREQUESTS),
        (FencedError(), Status.EFENCED, Status.EUA, Status.EUA),
        (FencedAndDeletedError(), Status.EFENCED, Status.ENOLEDGER, Status.ENOLEDGER),
        (UnauthorizedAccessError(), Status.EUA, Status.EUA, Status.EUA),
        (ReadOnlyError(), Status.EREADONLY, Status.EUA, Status.EREADONLY),
        (NoWritableLedgerDirError(), Status.EIO, Status.EIO, Status.EIO),
        (CorruptStorageError(), Status.EIO, Status.EIO, Status.EIO),
        (OSError(), Status.EIO, Status.EIO, Status.EIO),
        (LimboError(), Status.EUA, Status.EUNKNOWNLEDGERSTATE, Status.EUA),
        (BookieError(), Status.EUA, Status.EUA, Status.EUA),
        (ValueError(), Status.EBADREQ, Status.EBADREQ, Status.EBADREQ),
    ],
)
def test_errors_become_statuses(error: Exception, add: Status, read: Status, write_lac: Status) -> None:
    """BI-5, BI-16."""
    assert [status_of(error, table) for table in (ADD, READ, WRITE_LAC)] == [add, read, write_lac]


def test_absence_is_said_only_for_the_errors_that_mean_it() -> None:
    """BI-5, BI-16, gap G13."""
    assert status_of(NoLedgerError(), READ) is Status.ENOLEDGER
    assert status_of(NoEntryError(), READ) is Status.ENOENTRY
    assert wire_status(Status.EUNKNOWNLEDGERSTATE, V2) is Status.EIO
    assert wire_status(Status.EUNKNOWNLEDGERSTATE, V3) is Status.EUNKNOWNLEDGERSTATE


@pytest.mark.parametrize(
    ("ledger_id", "two", "three"),
    [(0, 0, 0), (1, 1, 1), (3, 1, 0), (14, 0, 2), (17, 1, 2), (2147483648, 0, 2), (1099511627781, 1, 0)],
)
def test_a_ledgers_journal_follows_from_its_id(ledger_id: int, two: int, three: int) -> None:
    """I4."""
    assert Journals([0, 1]).of(ledger_id) == two  # type: ignore[list-item, comparison-overlap]
    assert Journals([0, 1, 2]).of(ledger_id) == three  # type: ignore[list-item, comparison-overlap]


def test_quantiles_come_from_the_histogram() -> None:
    stats = OpStats()
    assert stats.quantile(0.5) == 0.0
    stats.ok(0.001, 90)
    stats.ok(0.1, 10)
    stats.fail(count=3)
    assert 0.0009 < stats.quantile(0.5) < 0.0013
    assert 0.09 < stats.quantile(0.99) < 0.13
    assert (stats.succeeded, stats.failed) == (100, 3)


async def test_permits_are_given_in_the_order_they_were_asked_for() -> None:
    permits = Permits(1)
    permits.acquire()
    got: list[int] = []

    async def user(number: int) -> None:
        await permits.wait()
        permits.acquire()
        got.append(number)
        await asyncio.sleep(0)
        permits.release()

    tasks = [asyncio.ensure_future(user(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert not got
    permits.release()
    await asyncio.gather(*tasks)
    assert got == [0, 1, 2, 3, 4]
    assert permits.used == 0


async def test_a_waiter_that_takes_no_permit_does_not_keep_it_from_the_next() -> None:
    permits = Permits(1)
    permits.acquire()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await permits.wait()
        woken.append(number)

    tasks = [asyncio.ensure_future(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    permits.release()
    for _ in range(10):
        await asyncio.sleep(0)
    assert woken == [0, 2]


async def test_a_waiter_that_is_cancelled_after_it_was_woken_wakes_the_next() -> None:
    permits = Permits(1)
    permits.acquire()
    tasks = [asyncio.ensure_future(permits.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    permits.release()
    tasks[0].cancel()
    async with asyncio.timeout(20):
        await tasks[1]


async def test_everybody_who_waits_for_the_end_of_all_hears_of_it() -> None:
    permits = Permits(0)
    permits.acquire(2)
    tasks = [asyncio.ensure_future(permits.wait_until_idle()) for _ in range(2)]
    await asyncio.sleep(0)
    permits.release(2)
    async with asyncio.timeout(20):
        await asyncio.gather(*tasks)
    await permits.wait_until_idle()


async def test_without_a_limit_permits_are_only_counted() -> None:
    permits = Permits(0)
    permits.acquire(1000)
    assert permits.free()
    idle = asyncio.ensure_future(permits.wait_until_idle())
    await asyncio.sleep(0)
    assert not idle.done()
    permits.release(1000)
    await idle
