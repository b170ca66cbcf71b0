"""Entries that are read by themselves, when there are no threads any more to read them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from bookkeeper.bookie.storage.scattered_reads import ENTRIES_AT_ONCE, ScatteredReads
from bookkeeper.runtime.real import RealRuntime


async def test_reads_fail_that_find_the_threads_closed() -> None:
    """They wait for a thread while others are busy, and would wait for ever."""
    runtime = RealRuntime()
    readers = runtime.workers("readers", 1)
    nothing = cast(Any, None)
    caches = cast(Any, SimpleNamespace(epoch=0))
    reads = ScatteredReads(readers, runtime.files, "", caches, nothing, nothing, {}, nothing)
    await readers.close()
    wanted = range(3 * ENTRIES_AT_ONCE)
    async with asyncio.timeout(60):
        found = await reads.read(1, wanted, 1 << 20)
    assert len(found) == len(wanted)
    assert {type(each) for each in found} == {RuntimeError}
