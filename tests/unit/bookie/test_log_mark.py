"""Mark files (spec bookie-storage §4.1, §14.2; safety BI-7, JH-6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.journal.last_mark import START, LogMark, MarkFiles
from bookkeeper.errors import CorruptStorageError
from bookkeeper.simulation.world.disk import MachineCrashed, SimulatedDisk, SimulatedFiles
from tests.support.disk import new_disk


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk("/l0", "/l1", "/l2")


def marks(disk: SimulatedDisk, *directories: str) -> MarkFiles:
    return MarkFiles(SimulatedFiles(disk), directories, "lastMark")


def test_vector() -> None:
    mark = LogMark(1700000000001, 1024)
    javas = bytes.fromhex("0000018bcfe568010000000000000400")
    assert mark.encode()[:16] == javas, "what Java reads of it"
    assert LogMark.decode(mark.encode()) == LogMark.decode(javas) == mark
    assert mark.encode()[16:20] == b"BKLM"


@pytest.mark.parametrize("bit", range(24 * 8))
def test_a_flipped_bit_is_found(bit: int) -> None:
    """BI-22."""
    data = bytearray(LogMark(1700000000001, 1024).encode())
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptStorageError):
        LogMark.decode(bytes(data))


def test_a_damaged_copy_is_reported_and_the_others_count(disk: SimulatedDisk, caplog: pytest.LogCaptureFixture) -> None:
    """BI-22, DF-9."""
    marks(disk, "/l0", "/l1").write(LogMark(5, 9000))
    disk.names["/l1/lastMark"].seen[7] ^= 2
    assert marks(disk, "/l0", "/l1").read() == (LogMark(5, 9000), True)
    assert "/l1/lastMark is damaged" in caplog.text
    disk.names["/l0/lastMark"].seen[3] ^= 2
    assert marks(disk, "/l0", "/l1").read() == (START, True), "everything is replayed"
    assert "no copy of the mark is whole" in caplog.text


def test_a_mark_of_javas_is_told_apart(disk: SimulatedDisk) -> None:
    marks(disk, "/l0").write(LogMark(5, 512))
    assert marks(disk, "/l0").read().checked
    del disk.names["/l0/lastMark"].seen[16:]
    assert marks(disk, "/l0").read() == (LogMark(5, 512), False)


def test_no_mark_is_the_start(disk: SimulatedDisk) -> None:
    assert marks(disk, "/l0", "/l1").read().mark == START == (0, 0)


def test_the_greatest_copy_counts_and_short_ones_do_not(disk: SimulatedDisk) -> None:
    """R5."""
    marks(disk, "/l0").write(LogMark(5, 9000))
    marks(disk, "/l1").write(LogMark(6, 512))
    marks(disk, "/l2").write(LogMark(9, 9))
    del disk.names["/l2/lastMark"].seen[15:]
    assert marks(disk, "/l0", "/l1", "/l2").read().mark == LogMark(6, 512)


def test_write_reports_whether_every_directory_has_the_mark(disk: SimulatedDisk) -> None:
    both = marks(disk, "/l0", "/l1")
    assert both.write(LogMark(5, 512))
    assert not marks(disk, "/l0", "/gone").write(LogMark(5, 1024))
    assert both.read().mark == LogMark(5, 1024)
    with pytest.raises(OSError, match="any ledger directory"):
        marks(disk, "/gone").write(LogMark(5, 2048))


@given(seed=st.integers(0, 2**32), at=st.integers(1, 8))
def test_power_loss_while_writing_leaves_the_old_or_the_new_mark(seed: int, at: int) -> None:
    """JH-6, defect A11."""
    disk = new_disk("/l0", seed=seed)
    one = marks(disk, "/l0")
    one.write(LogMark(5, 512))
    disk.faults.crash_after_calls = at
    try:
        one.write(LogMark(7, 1024))
        possible = [LogMark(7, 1024)]
    except MachineCrashed:
        possible = [LogMark(5, 512), LogMark(7, 1024)]
    disk.power_loss()
    assert marks(disk, "/l0").read().mark in possible  # as the next process sees it
