"""Whether a stream is whole (spec streams §4.3, §5.4, §9.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bookkeeper.runtime.real import RealRuntime
from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.formats.entry import decode_entry
from bookkeeper.streams.formats.records import CONTROL
from bookkeeper.streams.formats.segment import SegmentMetadata
from bookkeeper.streams.policy import WritePolicy
from bookkeeper.streams.reading.verify import CheckedSegment, check_order, verify_stream
from bookkeeper.streams.writer import open_writer
from tests.support.segment_store import StoreUnderTest


async def fill(store: StoreUnderTest, *, seal: bool = False, leave_open: bool = False) -> None:
    """Three segments of four records, and one with two."""
    writer = await open_writer(RealRuntime(), store, WritePolicy(roll_records=4, buffer_bytes=30))
    for n in range(14):
        await writer.append(b"%d" % n, txid=n)
    await writer.flush()
    if seal:
        await writer.mark_end()
    elif leave_open:
        await writer.abort()
    else:
        await writer.close()


async def leave_to_another(store: StoreUnderTest) -> None:
    """The writer dies with a control record behind its last record; the next one ends the segment there."""
    await fill(store, leave_open=True)
    await (await open_writer(RealRuntime(), store)).close()


async def check(store: StoreUnderTest) -> list[CheckedSegment]:
    return [checked async for checked in verify_stream(store)]


@pytest.mark.parametrize("end", [{}, {"seal": True}, {"leave_open": True}], ids=str)
async def test_what_writers_leave_is_whole(store: StoreUnderTest, end: dict[str, bool]) -> None:
    await fill(store, **end)
    found = await check(store)
    assert [(each.records, each.findings) for each in found] == [(4, []), (4, []), (4, []), (2, [])]


async def test_a_segment_that_was_recovered_may_end_with_a_control_record(store: StoreUnderTest) -> None:
    await leave_to_another(store)
    segment = (await store.load()).segments[-1]
    async with await store.open(segment) as ledger:
        last = decode_entry((await ledger.read_last_entry()).data)[-1]
    assert last.flags == CONTROL
    assert segment.last_entry == ledger.last_add_confirmed
    assert [(each.records, each.findings) for each in await check(store)] == [(4, []), (4, []), (4, []), (2, [])]


WRONG: dict[str, tuple[Callable[[SegmentMetadata], SegmentMetadata], str]] = {
    "count": (lambda s: replace(s, records=5), "has 4 records, its metadata says 5"),
    "last entry": (lambda s: replace(s, last_entry=s.last_entry + 2), "its metadata says entry"),
    "last slot": (lambda s: replace(s, last_slot=s.last_slot + 1), "its metadata says entry"),
    "last txid": (lambda s: replace(s, last_txid=s.last_txid + 1), "ends with transaction id 7"),
    "first txid": (lambda s: replace(s, first_txid=0), "begins with transaction id 0"),
    "sequence": (lambda s: replace(s, start_sequence_id=7), "begins with record 7 of the stream, not 4"),
    "ledger": (lambda s: replace(s, ledger_id=987654), "its ledger 987654 does not exist"),
    "truncation": (lambda s: s.truncate(None), "is truncated, and segment 1 before it is not"),
    "half truncated": (lambda s: s.truncate(DLSN(2, 1, 0)), "is truncated, and segment 1 before it is not"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_metadata_that_does_not_fit_is_found(store: StoreUnderTest, wrong: str) -> None:
    await fill(store)
    change, finding = WRONG[wrong]
    segment = (await store.now()).segments[1]
    await store.replace(change(segment))
    findings = [(each.segment.number, text) for each in await check(store) for text in each.findings]
    assert any(number == 2 and finding in text for number, text in findings), findings


def test_missing_segments_are_found() -> None:
    one = SegmentMetadata(ledger_id=1, first_txid=0, number=1)
    assert "segments between them are missing" in check_order(one, replace(one, number=3))[0]
    assert "is completed, and segment 1 before it is not" in str(
        check_order(one, replace(one, number=2, completed=True))
    )
    assert check_order(None, one) == []
