"""Space kept for the index: when it is given up, and when it is made again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from bookkeeper.bookie.file_names import RESERVED_SPACE
from bookkeeper.bookie.storage.reserve import LEAST_FREE, MAX_SHARE, PLENTY, Reserve
from bookkeeper.runtime import DiskUsage
from bookkeeper.runtime.disk.files import RealFiles

SIZE = 1 << 20


class SmallDisk(RealFiles):
    """Says what a test wants about the space; a reserved file takes its size from it."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / RESERVED_SPACE
        self.free = 1 << 30
        self.total = MAX_SHARE * SIZE * 2

    def disk_usage(self, path: str) -> DiskUsage:
        taken = self._file.stat().st_size if self._file.exists() else 0
        return DiskUsage(total=self.total, usable=self.free - taken, device=1)


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    return SmallDisk(tmp_path)


def test_space_is_reserved_when_there_is_plenty_and_given_up_in_need(tmp_path: Path, disk: SmallDisk) -> None:
    """FX-51."""
    reserve = Reserve(disk, str(tmp_path), SIZE)
    disk.free = PLENTY * SIZE - 1
    reserve.restore()
    assert not (tmp_path / RESERVED_SPACE).exists()
    disk.free = PLENTY * SIZE
    reserve.restore()
    assert (tmp_path / RESERVED_SPACE).stat().st_size == SIZE
    reserve.require(1000)
    assert (tmp_path / RESERVED_SPACE).exists()
    disk.free = SIZE  # all that is free is reserved
    reserve.require(1000)
    assert not (tmp_path / RESERVED_SPACE).exists()
    disk.free = LEAST_FREE
    with pytest.raises(OSError, match="No space") as failure:
        reserve.require(1)
    assert failure.value.errno == errno.ENOSPC


def test_what_was_reserved_is_not_for_the_entry_logs(tmp_path: Path, disk: SmallDisk) -> None:
    reserve = Reserve(disk, str(tmp_path), SIZE)
    reserve.restore()
    disk.free = SIZE + 10
    reserve.leave_for_index(lambda: 1000)  # it is held: an append finds for itself that there is no space
    reserve.release()
    with pytest.raises(OSError, match="No space left but for the index"):
        reserve.leave_for_index(lambda: 1000)
    reserve.leave_for_index(lambda: 10)


def test_a_small_disk_has_a_small_reserve(tmp_path: Path, disk: SmallDisk) -> None:
    disk.total = 10 * SIZE
    Reserve(disk, str(tmp_path), SIZE).restore()
    assert (tmp_path / RESERVED_SPACE).stat().st_size == 10 * SIZE // MAX_SHARE


def test_a_reserve_of_another_size_is_made_anew(tmp_path: Path, disk: SmallDisk) -> None:
    (tmp_path / RESERVED_SPACE).write_bytes(b"cut off")
    reserve = Reserve(disk, str(tmp_path), SIZE)
    assert not (tmp_path / RESERVED_SPACE).exists()
    reserve.restore()
    assert Reserve(disk, str(tmp_path), SIZE).release() is None
    assert not (tmp_path / RESERVED_SPACE).exists()


def test_nothing_is_reserved_when_that_is_switched_off(tmp_path: Path, disk: SmallDisk) -> None:
    reserve = Reserve(disk, str(tmp_path), 0)
    reserve.restore()
    reserve.leave_for_index(lambda: 1 << 40)
    assert not (tmp_path / RESERVED_SPACE).exists()
