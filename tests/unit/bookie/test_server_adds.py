"""Adds as a client sees them, over real sockets, storage and journal."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.ledgers import LedgerTable
from bookkeeper.bookie.requests.adds import AddBatch, greatest_lac, records
from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.messages import Flags, Status
from bookkeeper.runtime import File
from bookkeeper.runtime.disk.files import RealFile, RealFiles
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import WriteFlag
from tests.support.bookie import (
    DIGEST,
    KEY,
    CrashImage,
    GatedRuntime,
    RawClient,
    add,
    entry,
    fence,
    read,
    running_bookie,
)
from tests.support.waiting import until

OTHER_KEY = b"x" * 20


async def both(client: RawClient, request: m.AddRequest) -> tuple[Status, Status]:
    """The statuses of the same add in v2 and in v3."""
    second = await client.v2(request)
    request.txn_id = 77
    third = await client.v3(request)
    assert third.txn_id == 77
    assert (third.ledger_id, third.entry_id) == (request.ledger_id, request.entry_id)
    return second.status, third.status


async def test_an_entry_is_acknowledged_and_readable_at_once_on_any_connection(tmp_path: Path) -> None:
    """I6, SEC-25."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as one, RawClient.to(bookie) as other:
        assert await both(one, add(5, 0)) == (Status.EOK, Status.EOK)
        answer = await other.v2(read(5, 0))
        assert (answer.status, answer.entry) == (Status.EOK, entry(5, 0))


async def test_many_adds_in_one_segment_are_all_answered(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        client.send(b"".join(v2.encode_add_request(KEY, entry(i % 3, i // 3)) for i in range(300)))
        answers = [v2.decode_response(await client.body()) for _ in range(300)]
        assert {(a.ledger_id, a.entry_id) for a in answers} == {(i % 3, i // 3) for i in range(300)}  # type: ignore[union-attr]
        assert {a.status for a in answers} == {Status.EOK}  # type: ignore[union-attr]
        client.send(b"".join(v3.encode_request(add(9, i, txn_id=1000 + i)) for i in range(300)))
        txns = [v3.decode_response(await client.body()).txn_id for _ in range(300)]  # type: ignore[union-attr]
        assert sorted(txns) == list(range(1000, 1300))


@pytest.mark.parametrize("version", [2, 3])
async def test_adds_of_many_ledgers_in_one_segment_are_judged_each_by_its_own_ledger(
    tmp_path: Path, version: int
) -> None:
    ledgers = range(20)
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await client.v2(fence(7))
        await client.v2(add(11, 0, master_key=OTHER_KEY))
        requests = [add(ledger_id, entry_id, txn_id=entry_id) for entry_id in (0, 1) for ledger_id in ledgers]
        codec: Any = v2 if version == 2 else v3
        client.send(b"".join(codec.encode_request(request) for request in requests))
        answers = [codec.decode_response(await client.body()) for _ in requests]
        expected = {7: Status.EFENCED, 11: Status.EUA}
        assert sorted((a.ledger_id, a.entry_id, a.status) for a in answers) == sorted(
            (r.ledger_id, r.entry_id, expected.get(r.ledger_id, Status.EOK)) for r in requests
        )
        for ledger_id in set(ledgers) - expected.keys():
            assert (await client.v2(read(ledger_id, 1))).entry == entry(ledger_id, 1)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("journals", [1, 2])
async def test_adds_of_many_ledgers_in_use_go_by_columns_until_one_wants_a_closer_look(
    tmp_path: Path, version: int, journals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_columns: list[int] = []
    gather = AddBatch._gather_mixed

    def counted(self: AddBatch, index: int, adds: m.MixedAdds, sizes: list[int]) -> None:
        by_columns.append(len(sizes))
        gather(self, index, adds, sizes)

    monkeypatch.setattr(AddBatch, "_gather_mixed", counted)
    codec: Any = v2 if version == 2 else v3
    ledgers = range(20)
    settings = {"journalDirectories": [str(tmp_path / f"j{i}") for i in range(journals)]}
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:

        async def statuses(entry_id: int, **others: Any) -> dict[int, Status]:
            by_columns.clear()
            requests = [add(ledger_id, entry_id, txn_id=ledger_id, **others) for ledger_id in ledgers]
            client.send(b"".join(codec.encode_request(request) for request in requests))
            answers = [codec.decode_response(await client.body()) for _ in requests]
            assert {answer.entry_id for answer in answers} == {entry_id}
            return {answer.ledger_id: answer.status for answer in answers}

        stored = dict.fromkeys(ledgers, Status.EOK)
        assert await statuses(0) == stored
        assert not by_columns  # the bookie had not heard of them
        assert await statuses(1) == stored
        assert sum(by_columns) == len(ledgers)
        assert len(by_columns) == journals
        assert await statuses(2, master_key=OTHER_KEY) == dict.fromkeys(ledgers, Status.EUA)
        await client.v2(fence(7))
        assert await statuses(3) == {**stored, 7: Status.EFENCED}
        assert not by_columns
        assert [handle.lac for handle in map(bookie_ledgers(bookie).find, ledgers)] == [
            0 if ledger_id == 7 else 2 for ledger_id in ledgers
        ]
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        for ledger_id in ledgers:
            for entry_id, expected in ((1, Status.EOK), (2, Status.ENOENTRY)):
                assert (await client.v2(read(ledger_id, entry_id))).status == expected


def bookie_ledgers(bookie: Bookie) -> LedgerTable:
    assert bookie.service is not None
    return bookie.service.adds.ledgers


async def test_adds_of_many_ledgers_that_have_no_room_together_are_taken_one_after_the_other(tmp_path: Path) -> None:
    settings = {"maxAddsInProgressLimit": 3}
    async with running_bookie(tmp_path, **settings) as bookie, RawClient.to(bookie) as client:
        client.send(b"".join(v2.encode_add_request(KEY, entry(ledger_id, 0)) for ledger_id in range(30)))
        answers = [v2.decode_response(await client.body()) for _ in range(30)]
        assert [(a.ledger_id, a.status) for a in answers] == [(i, Status.EOK) for i in range(30)]  # type: ignore[union-attr]
        assert bookie.service is not None
        assert bookie.service.adds.permits.used == 0


async def test_v2_and_v3_may_alternate_on_one_connection(tmp_path: Path) -> None:
    """SEC-6."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        client.send(v2.encode_request(add(1, 0)) + v3.encode_request(add(1, 1)) + v2.encode_request(add(1, 2)))
        for _ in range(3):
            body = await client.body()
            codec: Any = v2 if body[0] < 8 else v3
            assert codec.decode_response(body).status == Status.EOK


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (add(1, -1), Status.EBADREQ),  # SEC-8, as are the next three
        (add(1, -0x1000), Status.EBADREQ),
        (add(1, -0x8000), Status.EBADREQ),
        (add(-7, 0), Status.EBADREQ),
        (add(1, 2**63 - 1), Status.EOK),  # SEC-11
        (add(1, 5, lac=9), Status.EOK),
        (add(1, 5, payload=b""), Status.EOK),  # SEC-28
    ],
)
async def test_ids_out_of_range_are_refused(tmp_path: Path, request_: m.AddRequest, expected: Status) -> None:
    """SEC-8, SEC-11, SEC-28, JH-12, gap G19."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        assert await both(client, request_) == (expected, expected)
        if expected is Status.EBADREQ:
            assert not bookie.storage.ledgers(), "a refused add leaves no trace"


async def test_an_entry_needs_ids_and_lac(tmp_path: Path) -> None:
    """SEC-7; SEC-27: a bookie does not look at the digest."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        for size in (16, 20, 23):
            short = add(1, 0, entry=entry(1, 0)[:size])
            assert await both(client, short) == (Status.EBADREQ, Status.EBADREQ)
        assert (await client.v3(add(1, 0, entry=b"12345678"))).status == Status.EBADREQ
        assert not bookie.storage.ledgers()
        assert await both(client, add(1, 0, entry=entry(1, 0)[:24])) == (Status.EOK, Status.EOK)


async def test_ids_that_differ_from_those_in_the_entry_are_refused(tmp_path: Path) -> None:
    """SEC-9, JH-11."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        answer = await client.v3(add(1, 0, entry=entry(1, 1)))
        assert answer.status == Status.EBADREQ
        assert (await client.v3(add(1, 0, entry=entry(2, 0)))).status == Status.EBADREQ
        assert not bookie.storage.ledgers()


async def test_the_first_key_is_the_ledgers_key(tmp_path: Path) -> None:
    """SEC-12, SEC-13."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        assert await both(client, add(1, 0)) == (Status.EOK, Status.EOK)
        assert await both(client, add(1, 1, master_key=OTHER_KEY)) == (Status.EUA, Status.EUA)
        for short in (b"", KEY[:19], KEY + b"x"):
            assert (await client.v3(add(1, 1, master_key=short))).status == Status.EUA
        assert (await client.v2(read(1, 1))).status == Status.ENOENTRY
        assert await both(client, add(1, 1)) == (Status.EOK, Status.EOK)


async def test_an_all_zero_key_is_a_placeholder(tmp_path: Path) -> None:
    """R7, gap G11."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        assert await both(client, add(1, 0, master_key=bytes(20))) == (Status.EOK, Status.EOK)
        assert await both(client, add(1, 1)) == (Status.EOK, Status.EOK)
        assert await both(client, add(1, 2, master_key=bytes(20))) == (Status.EUA, Status.EUA)


async def test_a_fenced_ledger_takes_recovery_adds_only(tmp_path: Path) -> None:
    """LV-4, PI-11."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await client.v2(add(1, 0))
        await client.v2(fence(1))
        assert await both(client, add(1, 1)) == (Status.EFENCED, Status.EFENCED)
        assert await both(client, add(1, 1, master_key=OTHER_KEY)) == (Status.EUA, Status.EUA)
        assert await both(client, add(1, 1, flags=Flags.RECOVERY_ADD)) == (Status.EOK, Status.EOK)


async def test_a_later_copy_of_an_entry_wins(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await client.v2(add(1, 0, b"first"))
        await client.v2(add(1, 0, b"second"))
        assert (await client.v2(read(1, 0))).entry == entry(1, 0, b"second")


async def test_unsupported_versions_are_refused_with_the_requests_version(tmp_path: Path) -> None:
    """SEC-4."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        answer = await client.v2(add(1, 0, version=5))
        assert (answer.status, answer.version) == (Status.EBADVERSION, 5)
        assert (await client.v2(read(1, 0, version=3))).status == Status.EBADVERSION
        for version in (0, 1):
            answer = await client.v2(add(1, 0, version=version))
            assert (answer.status, answer.version) == (Status.EOK, version)
        frame = v3.encode_request(add(1, 0, txn_id=4)).replace(b"\x08\x03\x10\x02", b"\x08\x02\x10\x02", 1)
        client.send(frame)
        third: Any = v3.decode_response(await client.body())
        assert (third.status, third.version, third.ledger_id, third.txn_id) == (Status.EBADVERSION, 3, 1, 4)


async def test_a_read_only_bookie_takes_high_priority_adds_only(tmp_path: Path) -> None:
    """BI-18."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await client.v2(add(1, 0))
        bookie.state.to_read_only("test")
        assert await both(client, add(1, 1)) == (Status.EREADONLY, Status.EREADONLY)
        assert await both(client, add(1, 1, master_key=OTHER_KEY)) == (Status.EREADONLY, Status.EREADONLY)
        assert await both(client, add(1, -1)) == (Status.EREADONLY, Status.EREADONLY)
        assert await both(client, add(1, 1, flags=Flags.RECOVERY_ADD)) == (Status.EREADONLY, Status.EREADONLY)
        assert await both(client, add(1, 1, flags=Flags.HIGH_PRIORITY)) == (Status.EOK, Status.EOK)
        assert (await client.v2(read(1, 0))).status == Status.EOK
        bookie.state.high_priority_available = False
        assert (await client.v2(add(1, 2, flags=Flags.HIGH_PRIORITY))).status == Status.EREADONLY
        bookie.state.to_writable("test")
        assert await both(client, add(1, 1)) == (Status.EOK, Status.EOK)


async def test_adds_that_are_refused_leave_nothing_taken(tmp_path: Path) -> None:
    """FX-62."""
    async with running_bookie(tmp_path, maxAddsInProgressLimit=2) as bookie, RawClient.to(bookie) as client:
        bookie.state.to_read_only("test")
        client.send(b"".join(v2.encode_add_request(KEY, entry(1, i)) for i in range(50)))
        for _ in range(50):
            assert v2.decode_response(await client.body()).status == Status.EREADONLY  # type: ignore[union-attr]
        await until(lambda: bookie.service.memory.used == 0)
        assert bookie.service.adds.permits.used == 0
        bookie.state.to_writable("test")
        assert await both(client, add(1, 0)) == (Status.EOK, Status.EOK)


async def test_keys_are_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SEC-12."""
    mine, wrong = b"key-of-the-ledger-01", b"key-of-somebody-else"
    with caplog.at_level(logging.DEBUG):
        async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
            assert await both(client, add(1, 0, master_key=mine)) == (Status.EOK, Status.EOK)
            assert await both(client, add(1, 1, master_key=wrong)) == (Status.EUA, Status.EUA)
            assert (await client.v2(fence(1, key=wrong))).status == Status.EUA
            body = DIGEST.package_lac(1, 0)
            assert (await client.v3(m.WriteLacRequest(1, 0, wrong, body))).status == Status.EUA
    assert caplog.text
    for key in (mine, wrong):
        assert key.decode() not in caplog.text
        assert key.hex() not in caplog.text


async def test_nothing_is_acknowledged_before_the_sync(tmp_path: Path) -> None:
    """I5, BI-1."""
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime) as bookie, RawClient.to(bookie) as client:
        runtime.hold_syncs()
        answer = asyncio.ensure_future(client.v2(add(1, 0)))
        await runtime.sync_is_held()
        async with RawClient.to(bookie) as other:
            assert (await other.v2(read(1, 0))).status == Status.EOK, "readable already"
            assert not answer.done()
        runtime.sync_gate.set()
        assert (await answer).status == Status.EOK


async def test_deferred_sync_is_acknowledged_when_written_and_force_makes_it_durable(tmp_path: Path) -> None:
    """I7, BI-1, RI-14."""
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime) as bookie, RawClient.to(bookie) as client:
        runtime.hold_syncs()
        deferred = add(1, 0, write_flags=int(WriteFlag.DEFERRED_SYNC))
        assert (await client.v3(deferred)).status == Status.EOK
        async with RawClient.to(bookie) as other:
            recovery = add(1, 1, write_flags=int(WriteFlag.DEFERRED_SYNC), flags=Flags.RECOVERY_ADD)
            waits = asyncio.ensure_future(other.v3(recovery))
            force = asyncio.ensure_future(client.v3(m.ForceLedgerRequest(1)))
            await runtime.sync_is_held()
            async with RawClient.to(bookie) as third:
                assert (await third.v2(read(1, 1))).status == Status.EOK, "the add has been handled"
            assert not waits.done()
            assert not force.done()
            runtime.sync_gate.set()
            assert (await force).status == Status.EOK
            assert (await waits).status == Status.EOK


async def test_force_is_answered_for_any_ledger(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        bookie.state.to_read_only("test")
        assert (await client.v3(m.ForceLedgerRequest(4711, txn_id=3))).status == Status.EOK


async def test_without_journaled_data_force_flushes_the_storage(tmp_path: Path) -> None:
    runtime = GatedRuntime()
    settings = {"journalWriteData": False, "dataIntegrityChecking": True, "flushInterval": 3_600_000}
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        assert (await client.v2(add(1, 0))).status == Status.EOK
        assert (await client.v3(m.ForceLedgerRequest(1))).status == Status.EOK
        image = CrashImage(tmp_path)
    image.restore()
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        assert (await client.v2(read(1, 0))).entry == entry(1, 0)


async def test_adds_of_several_journals_and_ledger_directories(tmp_path: Path) -> None:
    settings = {
        "journalDirectories": [str(tmp_path / f"j{i}") for i in range(2)],
        "ledgerDirectories": [str(tmp_path / f"l{i}") for i in range(3)],
    }
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        client.send(b"".join(v2.encode_add_request(KEY, entry(i, 0)) for i in range(12)))
        for _ in range(12):
            assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]
        assert all(journal.stats.records for journal in bookie.journals)
    async with running_bookie(tmp_path, runtime, **settings) as bookie, RawClient.to(bookie) as client:
        for i in range(12):
            assert (await client.v2(read(i, 0))).entry == entry(i, 0)


async def test_entry_logs_may_be_written_past_the_page_cache(tmp_path: Path) -> None:
    through: list[int] = []

    class Telling(RealFile):
        def write_through(self, pieces: Any, offset: int) -> None:
            through.append(sum(map(len, pieces)))
            super().write_through(pieces, offset)

    class Files(RealFiles):
        def open(self, path: str, mode: str = "r") -> File:
            return Telling(path, mode)

    payloads = [bytes([i % 256]) * (5000 + i) for i in range(300)]
    runtime = RealRuntime()
    runtime.files = Files()
    async with running_bookie(tmp_path, runtime, dbStorage_directIOEntryLogger=True) as bookie:
        async with RawClient.to(bookie) as client:
            for entry_id, each in enumerate(payloads):
                assert (await client.v2(add(1, entry_id, each))).status == Status.EOK
        await bookie.storage.flush()
        assert sum(through) > 300 * 5000
    async with running_bookie(tmp_path, runtime) as bookie, RawClient.to(bookie) as client:
        for entry_id, each in enumerate(payloads):
            assert (await client.v2(read(1, entry_id))).entry == entry(1, entry_id, each)


def test_records_are_length_and_entry_whatever_the_sizes() -> None:
    for entries in ([b"a" * 30] * 3, [b"a" * 5000] * 3, [b"a" * 30, b"b" * 31], [b"a" * 9000, b"b"]):
        joined = b"".join(records(entries, [*map(len, entries)]))
        assert joined == b"".join(len(e).to_bytes(4, "big") + e for e in entries)


def test_the_greatest_lac_is_found_among_negative_ones() -> None:
    assert greatest_lac([entry(1, i, lac=lac) for i, lac in enumerate((-1, -1))]) == -1
    assert greatest_lac([entry(1, i, lac=lac) for i, lac in enumerate((-1, 5, 3))]) == 5
    assert greatest_lac([entry(1, i, lac=lac) for i, lac in enumerate((300, 2**40, 7))]) == 2**40
