"""Mark files (spec bookie-storage §4.1, §14.2; safety BI-7, JH-6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.log_mark import START, LogMark, MarkFiles, file_name
from bookkeeper.simulation.disk import MachineCrashed, SimulatedDisk, SimulatedFiles
from tests.support.disk import new_disk


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk("/l0", "/l1", "/l2")


def marks(disk: SimulatedDisk, *directories: str) -> MarkFiles:
    return MarkFiles(SimulatedFiles(disk), directories, "lastMark")


def test_vector() -> None:
    mark = LogMark(1700000000001, 1024)
    assert mark.encode() == bytes.fromhex("0000018bcfe568010000000000000400")
    assert LogMark.decode(mark.encode()) == mark


def test_names() -> None:
    assert file_name(0, 1) == "lastMark"
    assert [file_name(i, 2) for i in range(2)] == ["lastMark.0", "lastMark.1"]


def test_no_mark_is_the_start(disk: SimulatedDisk) -> None:
    assert marks(disk, "/l0", "/l1").read() == START == (0, 0)


def test_the_greatest_copy_counts_and_short_ones_do_not(disk: SimulatedDisk) -> None:
    marks(disk, "/l0").write(LogMark(5, 9000))
    marks(disk, "/l1").write(LogMark(6, 512))
    marks(disk, "/l2").write(LogMark(9, 9))
    del disk.names["/l2/lastMark"].seen[15:]
    assert marks(disk, "/l0", "/l1", "/l2").read() == LogMark(6, 512)


def test_write_reports_whether_every_directory_has_the_mark(disk: SimulatedDisk) -> None:
    both = marks(disk, "/l0", "/l1")
    assert both.write(LogMark(5, 512))
    assert not marks(disk, "/l0", "/gone").write(LogMark(5, 1024))
    assert both.read() == LogMark(5, 1024)
    with pytest.raises(OSError, match="any ledger directory"):
        marks(disk, "/gone").write(LogMark(5, 2048))


@given(seed=st.integers(0, 2**32), at=st.integers(1, 8))
def test_power_loss_while_writing_leaves_the_old_or_the_new_mark(seed: int, at: int) -> None:
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
    assert marks(disk, "/l0").read() in possible  # as the next process sees it
