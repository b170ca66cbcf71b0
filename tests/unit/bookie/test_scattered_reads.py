"""Entries that are read by themselves, when nobody can or need read them any more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from bookkeeper.bookie.storage.scattered_reads import ENTRIES_AT_ONCE, ScatteredReads, _Outcome
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


async def test_what_nobody_waits_for_any_more_is_not_read() -> None:
    """The reads of a reader that is gone."""
    jobs: list[tuple[Any, Any]] = []

    class OneThread:
        count = 1

        def post(self, _work: Any, args: tuple[Any, Any], done: Any) -> None:
            jobs.append((args[1], done))

    nothing = cast(Any, None)
    caches = cast(Any, SimpleNamespace(epoch=0, read_cache=SimpleNamespace(put_one=lambda *_: None)))
    reads = ScatteredReads(cast(Any, OneThread()), nothing, "", caches, nothing, nothing, {}, nothing)
    first, gone, last = (
        asyncio.ensure_future(reads.read(ledger_id, range(count), 1 << 20))
        for ledger_id, count in ((1, ENTRIES_AT_ONCE), (2, 3 * ENTRIES_AT_ONCE), (3, 3))
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    for number, count in enumerate((ENTRIES_AT_ONCE, 3)):
        requests, done = jobs[number]
        done(_Outcome([[b"x"] * count for _ in requests], {}), None)
    assert (await first, await last) == ([b"x"] * ENTRIES_AT_ONCE, [b"x"] * 3)
    assert [[request.ledger_id for request in requests] for requests, _ in jobs] == [[1], [3]]
