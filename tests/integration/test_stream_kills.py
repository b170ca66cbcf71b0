"""The short form of `make stream-kills`."""

from __future__ import annotations

from pathlib import Path

from bookkeeper.runtime.real import RealRuntime

from .stream_kills import campaign


async def test_a_stream_survives_kills_of_its_writer_its_reader_and_a_bookie(tmp_path: Path) -> None:
    assert await campaign(RealRuntime(), tmp_path, rounds=3, records=40_000, seed=1) >= 40_000
