"""Writing past the page cache: what is in the file does not depend on how it came there."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.runtime.disk import direct_io
from bookkeeper.runtime.disk.direct_io import cut, whole_pages
from bookkeeper.runtime.disk.files import RealFile, RealFiles

PAGE = mmap.PAGESIZE
SIZES = st.one_of(st.integers(0, 3 * PAGE), st.sampled_from([PAGE, PAGE - 1, 2 * PAGE]))


@given(offset=st.integers(0, 1 << 20), size=st.integers(0, 1 << 20))
def test_pages_are_whole_and_as_many_as_there_are(offset: int, size: int) -> None:
    pages = whole_pages(offset, size)
    assert len(pages) % PAGE == 0
    if not pages:
        assert size < 2 * PAGE
        return
    assert (offset + pages.start) % PAGE == 0
    assert 0 <= pages.start < PAGE
    assert 0 <= size - pages.stop < PAGE


@given(sizes=st.lists(st.integers(0, 10)), start=st.integers(0, 60), size=st.integers(0, 60))
def test_a_cut_is_that_of_the_whole(sizes: list[int], start: int, size: int) -> None:
    pieces = [os.urandom(each) for each in sizes]
    assert b"".join(cut(pieces, start, start + size)) == b"".join(pieces)[start : start + size]


def write(path: Path, parts: Sequence[Sequence[bytes]]) -> bytes:
    """Write parts one after the other; what the file has then."""
    with RealFiles().open(str(path), "w+") as file:
        at = 0
        for pieces in parts:
            file.write_through(pieces, at)
            at += sum(map(len, pieces))
            file.fdatasync()
        return file.pread(at + 1, 0)


@given(
    sizes=st.lists(st.lists(SIZES, min_size=1, max_size=4), min_size=1, max_size=5), buffer=st.sampled_from([1, 2, 64])
)
def test_all_that_was_written_is_there(
    sizes: list[list[int]], buffer: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parts = [[os.urandom(size) for size in row] for row in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct_io, "BUFFER", buffer * PAGE)
        assert write(tmp_path_factory.mktemp("direct") / "file", parts) == b"".join(b"".join(row) for row in parts)


def refuse_after(count: int) -> Callable[..., int]:
    """An `os.pwrite` that writes to memory addresses as asked `count` times, and refuses then."""
    real, calls = os.pwrite, 0

    def pwrite(fd: int, data: Any, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls > count:
            raise OSError(errno.EINVAL, "not so")
        return real(fd, data, offset)

    return pwrite


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_what_the_disk_refuses_goes_through_the_page_cache(
    taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [os.urandom(4 * PAGE) for _ in range(3)]
    monkeypatch.setattr(direct_io, "BUFFER", 2 * PAGE)
    written = direct_io.DirectWriter._put

    def put(self: direct_io.DirectWriter, size: int, offset: int) -> int:
        nonlocal taken
        taken -= 1
        return written(self, size, offset) if taken >= 0 else 0

    monkeypatch.setattr(direct_io.DirectWriter, "_put", put)
    assert write(tmp_path / "file", [pieces, pieces]) == b"".join(pieces + pieces)


def test_a_file_system_that_cannot_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Refusing:
        def __init__(self, path: str) -> None:
            asked.append(path)
            raise OSError(errno.EINVAL, "not here", path)

    monkeypatch.setattr("bookkeeper.runtime.disk.files.DirectWriter", Refusing)
    pieces = [os.urandom(2 * PAGE)]
    assert write(tmp_path / "file", [pieces, pieces]) == pieces[0] * 2
    assert asked == [str(tmp_path / "file")]


def test_any_other_failure_is_told_and_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: direct_io.DirectWriter, size: int, offset: int) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(direct_io, "_O_DIRECT", os.O_CLOEXEC)  # on any file system
    monkeypatch.setattr(direct_io.DirectWriter, "_put", full)
    file = RealFile(str(tmp_path / "file"), "x+")
    with pytest.raises(OSError, match="full") as caught:
        file.write_through([bytes(PAGE)], 0)
    file.close()
    assert caught.value.filename == str(tmp_path / "file")
    assert caught.value.errno == errno.ENOSPC


def test_a_file_that_is_closed_is_not_written(tmp_path: Path) -> None:
    file = RealFile(str(tmp_path / "file"), "x+")
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_through([bytes(2 * PAGE)], 0)
    assert (tmp_path / "file").read_bytes() == b""


def test_pages_that_the_system_refuses_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    monkeypatch.setattr(direct_io, "_O_DIRECT", os.O_CLOEXEC)  # on any file system
    monkeypatch.setattr(direct_io, "BUFFER", PAGE)
    writer = direct_io.DirectWriter(str(path))
    monkeypatch.setattr(os, "pwrite", refuse_after(1))
    assert writer.write([bytes(3 * PAGE)], 0) == PAGE
    writer.close()
    writer.close()
