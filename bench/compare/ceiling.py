"""What the disk lets three bookies of one machine take, if all else cost nothing.

Each byte of an entry goes to a journal, which is synced before the acknowledgement, and to an entry log, which is
synced with a flush. Three threads stand for the bookies: each writes a chunk to its journal and syncs it, writes it to
its entry log, and syncs that every so often. What comes out is the payload that all three have taken, in MB a second:
a rate of appends times the size of an entry cannot be greater for long.

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

BOOKIES = 3
CHUNK = 512 << 10
FLUSH = 64 << 20
FILE = 256 << 20
"""A file is written again from its start when it has this size: neither the disk nor the page cache fills up."""


def measure(directory: Path, seconds: float = 3.0) -> float:
    """MB of payload a second. Raises OSError if the disk refuses."""
    deadline = time.monotonic() + seconds
    began = time.monotonic()
    with ThreadPoolExecutor(BOOKIES) as bookies:
        written = list(bookies.map(lambda number: _bookie(directory / f"ceiling{number}", deadline), range(BOOKIES)))
    return min(written) / (time.monotonic() - began) / 1e6


def _bookie(directory: Path, deadline: float) -> int:
    """Bytes that one bookie took until the deadline, one chunk at least; its files are removed."""
    directory.mkdir()
    chunk = os.urandom(CHUNK)
    paths = [directory / "journal", directory / "log"]
    journal, log = (os.open(path, os.O_RDWR | os.O_CREAT) for path in paths)
    written = 0
    try:
        while not written or time.monotonic() < deadline:
            os.pwrite(journal, chunk, written % FILE)
            os.fdatasync(journal)
            os.pwrite(log, chunk, written % FILE)
            written += CHUNK
            if written % FLUSH == 0:
                os.fdatasync(log)
        os.fdatasync(log)
    finally:
        os.close(journal)
        os.close(log)
        for path in paths:
            path.unlink()
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
