"""What `bookkeeper ledger append` hands to the writer, and when."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bookkeeper.cli import append
from bookkeeper.cli.append import BadInput, Input, LineSource, append_all
from bookkeeper.cli.session import Stop
from bookkeeper.errors import IncorrectParameterError, LedgerFencedError
from bookkeeper.runtime.real import RealRuntime

LIMIT = 1000


def entries(path: Path, *, raw: bool = False, limit: int = LIMIT) -> list[bytes]:
    source = Input(LineSource(path), raw=raw, limit=limit)
    found: list[bytes] = []
    while batch := source.read():
        found += batch
    return found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"one", [b"one"]),
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"one\n\n\ntwo", [b"one", b"", b"", b"two"]),
        (b"\n", [b""]),
        (b"a\r\nb\0\n", [b"a\r", b"b\0"]),
        (b"a long line that spans many chunks\nshort\n", [b"a long line that spans many chunks", b"short"]),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 16])
def test_lines_are_the_same_however_the_input_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, expected: list[bytes], chunk: int
) -> None:
    monkeypatch.setattr(append, "CHUNK_BYTES", chunk)
    path = tmp_path / "input"
    path.write_bytes(data)
    assert entries(path) == expected
    assert entries(path, raw=True) == [data]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "CHUNK_BYTES", 100)
    path = tmp_path / "input"
    path.write_bytes(b"one\ntwo\n" + b"x" * 10 * LIMIT)
    source = Input(LineSource(path), raw=False, limit=LIMIT)
    assert source.read() == [b"one", b"two"]
    with pytest.raises(BadInput, match="line 3: more than 1,000 bytes"):
        source.read()
    with pytest.raises(BadInput, match="more than 1,000 bytes"):
        entries(path, raw=True)


class Writer:
    """Acknowledges when it is told to; refuses payloads above 100 bytes."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.payloads: list[bytes] = []
        self.futures: list[asyncio.Future[int]] = []
        self.more = asyncio.Event()

    @property
    def length(self) -> int:
        return sum(map(len, self.payloads))

    async def append_soon(self, data: bytes) -> asyncio.Future[int]:
        if len(data) > 100:
            raise IncorrectParameterError("too large")
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.at_once:
            future.set_result(len(self.payloads))
        self.payloads.append(data)
        self.futures.append(future)
        self.more.set()
        return future

    async def has(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.payloads) < count:
                self.more.clear()
                await self.more.wait()

    def acknowledge(self) -> None:
        for number, future in enumerate(self.futures):
            if not future.done():
                future.set_result(number)


class Pipe:
    """A named pipe whose writing end the test holds."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "pipe"
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR)  # to open the writing end alone would wait for a reader

    def say(self, data: bytes) -> None:
        os.write(self.fd, data)

    def close(self) -> None:
        os.close(self.fd)


def start(writer: Writer, stop: Stop, *paths: Path) -> asyncio.Future[None]:
    sources = [LineSource(path) for path in paths]
    return asyncio.ensure_future(append_all(RealRuntime(), writer, sources, raw=False, limit=LIMIT, stop=stop))


async def test_a_line_is_sent_while_the_next_one_is_waited_for(tmp_path: Path) -> None:
    pipe, writer, stop = Pipe(tmp_path), Writer(), Stop()
    running = start(writer, stop, pipe.path)
    for count in range(1, 4):
        pipe.say(b"line\n")
        await writer.has(count)
    assert not running.done()
    stop.by(signal.SIGINT)
    await running
    pipe.close()


async def test_one_who_stops_waits_for_what_was_taken(tmp_path: Path) -> None:
    pipe, writer, stop = Pipe(tmp_path), Writer(at_once=False), Stop()
    running = start(writer, stop, pipe.path)
    pipe.say(b"one\ntwo\nhalf a li")
    await writer.has(2)
    stop.by(signal.SIGINT)
    _, pending = await asyncio.wait([running], timeout=0.01)
    assert pending, "it ended before the appends were acknowledged"
    writer.acknowledge()
    await running
    assert writer.payloads == [b"one", b"two"]
    pipe.close()


async def test_lines_before_one_that_is_too_large_are_waited_for_and_the_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"one\ntwo\n" + b"x" * 101 + b"\nfour\n")
    writer = Writer(at_once=False)
    running = start(writer, Stop(), path)
    await writer.has(2)
    _, pending = await asyncio.wait([running], timeout=0.01)
    assert pending
    writer.acknowledge()
    with pytest.raises(BadInput, match="input, line 3: too large"):
        await running
    assert writer.payloads == [b"one", b"two"]


async def test_a_writer_that_fails_is_noticed_while_the_input_is_silent(tmp_path: Path) -> None:
    pipe, writer = Pipe(tmp_path), Writer(at_once=False)
    running = start(writer, Stop(), pipe.path)
    pipe.say(b"one\n")
    await writer.has(1)
    writer.futures[0].set_exception(LedgerFencedError())
    with pytest.raises(LedgerFencedError):
        await asyncio.wait_for(running, 60)
    pipe.close()


async def test_more_than_the_window_goes_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "APPEND_WINDOW", 10)
    path = tmp_path / "input"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(100)))
    writer = Writer(at_once=False)
    running = start(writer, Stop(), path, path)
    while not running.done():
        assert sum(not future.done() for future in writer.futures) <= 11
        writer.acknowledge()
        await asyncio.sleep(0)
    await running
    assert writer.payloads == [b"%d" % number for number in range(100)] * 2
