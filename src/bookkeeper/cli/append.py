"""What `bookkeeper ledger append` does: lines become entries as they come.

Theory of operation

- Standard input may be a pipe that says something once an hour, a terminal, or a file of many gigabytes. It is read on
  a thread of its own, as much as there is at a time; the event loop goes on meanwhile: it sends, takes
  acknowledgements, and keeps the session alive. A line is sent as soon as it is complete: nothing is held back.
- What was handed to the writer is waited for before the ledger is closed, whatever ends the command: the end of the
  input, a line that is too large, Ctrl-C or SIGTERM. So the ledger is closed with all that was accepted, and the
  command says how much that is. A second Ctrl-C does not wait.
- When the writer itself fails (fenced, too few bookies), what was acknowledged is what the ledger has.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..errors import BookKeeperError, IncorrectParameterError
from ..runtime import Runtime
from .output import progress_bar
from .session import Stop

APPEND_WINDOW = 10_000
"""Appends under way at a time: enough to keep the connections full, little enough to bound memory."""

CHUNK_BYTES = 256 * 1024
"""Read from the input at a time, at most."""


class BadInput(BookKeeperError):
    """A part of the input cannot become an entry. What was before it is stored."""


class Appends(Protocol):
    """The part of a writer that is used here."""

    @property
    def length(self) -> int: ...

    async def append_soon(self, data: bytes) -> asyncio.Future[int]: ...


@dataclass(frozen=True)
class LineSource:
    """Where entries come from: a file, or standard input."""

    path: Path | None = None

    def __str__(self) -> str:
        return "standard input" if self.path is None else str(self.path)

    def size(self) -> int | None:
        """Bytes, if that is known before it is read."""
        try:
            found = os.fstat(0) if self.path is None else self.path.stat()
        except OSError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def open(self) -> int:
        """A descriptor to read from."""
        return os.dup(0) if self.path is None else os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)


class Input:
    """The entries of one source, as they come. Used on one worker thread only.

    `limit` is a size that no entry has: where a line is longer already, there is no use in reading on.
    """

    def __init__(self, source: LineSource, *, raw: bool, limit: int) -> None:
        self._source = source
        self._raw = raw
        self._limit = limit
        self._fd = -1
        self._ended = False
        self._pieces: list[bytes] = []  # of a line that has no end yet
        self._pending = 0
        self._lines = 0

    def read(self) -> list[bytes]:
        """Entries that are complete now, one at least; none at the end. Blocks. Raises `BadInput`, `OSError`."""
        if self._fd < 0:
            self._fd = self._source.open()
        while not self._ended:
            data = os.read(self._fd, CHUNK_BYTES)
            if not data:
                self._ended = True
                os.close(self._fd)
                return self._rest()
            entries = self._keep(data) if self._raw or b"\n" not in data else self._split(data)
            if entries:
                self._lines += len(entries)
                return entries
        return []

    def _keep(self, data: bytes) -> list[bytes]:
        self._pieces.append(data)
        self._pending += len(data)
        if self._pending > self._limit:
            what = "" if self._raw else f", line {self._lines + 1}"
            raise BadInput(f"{self._source}{what}: more than {self._limit:,} bytes do not fit into an entry")
        return []

    def _split(self, data: bytes) -> list[bytes]:
        self._pieces.append(data)
        *entries, rest = b"".join(self._pieces).split(b"\n")
        self._pieces = [rest] if rest else []
        self._pending = len(rest)
        return entries

    def _rest(self) -> list[bytes]:
        """What follows the last newline; with `raw` everything, be it empty."""
        return [b"".join(self._pieces)] if self._pieces or self._raw else []


async def append_all(
    runtime: Runtime, writer: Appends, sources: Sequence[LineSource], *, raw: bool, limit: int, stop: Stop
) -> None:
    """Append everything, until the end or until `stop`; what was appended is acknowledged on return.

    Raises the error of the first append that failed; else, after all others are acknowledged, `BadInput` or `OSError`.
    """
    window = _Window(writer)
    lane = runtime.workers("input")
    sizes = [source.size() for source in sources]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    with progress_bar() as progress:
        task = progress.add_task("appending", total=total)
        try:
            for source in sources:
                number = 0
                lines = Input(source, raw=raw, limit=limit)
                while entries := await window.meanwhile(lane.submit(lines.read), stop):
                    for entry in entries:
                        if stop.asked.is_set():
                            return
                        number += 1
                        where = str(source) if raw else f"{source}, line {number}"
                        await window.append(entry, where)
                    progress.update(task, completed=writer.length)
                if stop.asked.is_set():
                    return
            await lane.close()  # not after `stop`: it may sit in a read without an end, and does not keep the process
        finally:
            await window.drain()


class _Window:
    """The appends under way."""

    def __init__(self, writer: Appends) -> None:
        self._writer = writer
        self._futures: deque[asyncio.Future[int]] = deque()

    async def append(self, entry: bytes, where: str) -> None:
        """Append, when there is room. Raises `BadInput` for an entry that can never be one."""
        futures = self._futures
        if len(futures) >= APPEND_WINDOW:
            await asyncio.wait([futures[APPEND_WINDOW // 2]])
            while futures and futures[0].done():
                futures[0].result()
                futures.popleft()
        try:
            futures.append(await self._writer.append_soon(entry))
        except IncorrectParameterError as error:
            raise BadInput(f"{where}: {error}") from None

    async def meanwhile(self, reading: asyncio.Future[list[bytes]], stop: Stop) -> list[bytes]:
        """What is read; nothing if `stop` comes first. Raises when an append fails meanwhile."""
        asked = asyncio.ensure_future(stop.asked.wait())
        try:
            while not reading.done() and not asked.done():
                waited: set[asyncio.Future[Any]]
                waited = {reading, asked}
                if self._futures and not self._futures[-1].done():
                    waited.add(self._futures[-1])
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if self._futures and self._futures[-1].done():
                    self._futures[-1].result()  # acknowledgements come in order: the last one stands for all
            return reading.result() if reading.done() else []
        finally:
            asked.cancel()
            reading.cancel()

    async def drain(self) -> None:
        """Wait for all appends. Raises the error of the first that failed."""
        futures = self._futures
        if not futures:
            return
        try:
            await asyncio.wait(futures)
        except asyncio.CancelledError:
            for future in futures:
                future.add_done_callback(_looked_at)
            raise
        for future in futures:
            _looked_at(future)
        for future in futures:
            future.result()
        futures.clear()


def _looked_at(future: asyncio.Future[int]) -> None:
    """Marks the error as seen: only the first one is reported."""
    with contextlib.suppress(asyncio.CancelledError):
        future.exception()
