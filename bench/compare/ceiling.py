"""What the disk lets three bookies of one machine take, if all else cost nothing.

Each byte of an entry goes to a journal, which is synced before the acknowledgement, and to an entry log, which is
synced with a flush. Three threads stand for the bookies: each writes a chunk to its journal and syncs it, writes it to
its entry log, and syncs that every so often. Files grow, as those of a store do: to write the same bytes of a file
again and again is several times as fast, where the page cache has them already. It is measured with entry logs that
are written through the page cache and past it, and the better one counts. What comes out is the payload that all three
have taken, in MB a second: a rate of appends times the size of an entry cannot be greater for long.

    python -m bench.compare.ceiling [--directory DIR] [--seconds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bookkeeper.runtime import File, Files
from bookkeeper.runtime.disk.files import RealFiles

BOOKIES = 3
CHUNK = 512 << 10
STEP = 16 << 20
"""Bytes of a journal that are reserved at once."""
FLUSH = 64 << 20
FILE = 1 << 30
"""Then a file is deleted, and the next one begins: the disk does not fill up."""


class _Growing:
    """A file that grows; a new one now and then."""

    def __init__(self, files: Files, path: Path, *, direct: bool, reserve: bool) -> None:
        self._files, self._path = files, str(path)
        self._direct, self._reserve = direct, reserve
        self._file: File | None = None
        self._size = 0

    def write(self, chunk: bytes) -> None:
        if self._file is None or self._size >= FILE:
            self.close()
            self._file, self._size = self._files.open(self._path, "x+"), 0
        if self._reserve and self._size % STEP == 0:
            self._file.allocate(self._size, STEP)
        if self._direct:
            self._file.write_through((chunk,), self._size)
        else:
            self._file.pwrite(chunk, self._size)
        self._size += len(chunk)

    def sync(self) -> None:
        assert self._file is not None
        self._file.fdatasync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._files.unlink(self._path)


def measure(directory: Path, seconds: float = 3.0) -> float:
    """MB of payload a second. Raises OSError if the disk refuses."""
    return max(_measure(directory, seconds / 2, direct) for direct in (False, True))


def _measure(directory: Path, seconds: float, direct: bool) -> float:
    began = time.monotonic()
    deadline = began + seconds
    with ThreadPoolExecutor(BOOKIES) as bookies:
        names = [directory / f"ceiling{number}" for number in range(BOOKIES)]
        written = list(bookies.map(lambda name: _bookie(name, deadline, direct), names))
    return min(written) / (time.monotonic() - began) / 1e6


def _bookie(directory: Path, deadline: float, direct: bool) -> int:
    """Bytes that one bookie took until the deadline, one chunk at least; its files are removed."""
    directory.mkdir()
    chunk = os.urandom(CHUNK)
    files = RealFiles()
    journal = _Growing(files, directory / "journal", direct=False, reserve=True)
    log = _Growing(files, directory / "log", direct=direct, reserve=False)
    written = 0
    try:
        while not written or time.monotonic() < deadline:
            journal.write(chunk)
            journal.sync()
            log.write(chunk)
            written += CHUNK
            if written % FLUSH == 0:
                log.sync()
        log.sync()
    finally:
        journal.close()
        log.close()
        directory.rmdir()
    return written


def parts(line: dict[str, Any], entry_bytes: int, ceilings: Sequence[float], java: str, ours: str) -> dict[str, float]:
    """How much of the ceiling each system used: its best rate of appends, as payload, over the greatest ceiling."""
    most = max(ceilings) * 1e6
    return {who: round(max(line[who]) * entry_bytes / most, 3) for who in (java, ours)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ceiling-", dir=given.directory) as made:
        print(json.dumps({"mb_per_s": round(measure(Path(made), given.seconds), 1)}))
