"""Reads, fencing, LAC requests and the other questions, over real sockets, storage and journal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.bookie.requests.reads import RUN_READS_BESIDE_LIGHT, limit_run
from bookkeeper.bookie.sharing.turns import Turns
from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.availability import decode_availability
from bookkeeper.protocol.messages import Flags, Status
from bookkeeper.runtime.real import RealRuntime
from tests.support.bookie import DIGEST, KEY, GatedRuntime, RawClient, add, entry, fence, read, running_bookie

OTHER_KEY = b"x" * 20


async def fill(client: RawClient, ledger_id: int, count: int, payload: bytes = b"payload") -> None:
    """Add entries 0 to count - 1."""
    client.send(b"".join(v2.encode_add_request(KEY, entry(ledger_id, i, payload)) for i in range(count)))
    for _ in range(count):
        assert v2.decode_response(await client.body()).status == Status.EOK  # type: ignore[union-attr]


async def forget_caches(bookie: Bookie) -> None:
    """Bring everything to disk, so that reads have to go there."""
    await bookie.storage.flush()


async def both(client: RawClient, request: m.ReadRequest) -> tuple[Any, Any]:
    second = await client.v2(request)
    request.txn_id = 5
    third = await client.v3(request)
    assert third.txn_id == 5
    for answer in (second, third):
        assert (answer.ledger_id, answer.entry_id) == (request.ledger_id, request.entry_id)
    return second, third


@pytest.mark.parametrize("flushed", [False, True])
async def test_entries_and_the_last_entry(tmp_path: Path, flushed: bool) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await fill(client, 1, 20)
        if flushed:
            await forget_caches(bookie)
        for entry_id in (0, 7, 19):
            second, third = await both(client, read(1, entry_id))
            assert second.entry == third.entry == entry(1, entry_id)
            assert third.max_lac == 18
        second, third = await both(client, read(1, -1))
        assert second.entry == third.entry == entry(1, 19)
        assert third.max_lac == 18


@pytest.mark.parametrize(
    ("ledger_id", "entry_id", "expected"),
    [
        (2, 0, Status.ENOLEDGER),
        (2, -1, Status.ENOLEDGER),
        (-7, 0, Status.ENOLEDGER),
        (1, 20, Status.ENOENTRY),
        (1, -2, Status.ENOENTRY),
        (1, -0x1000, Status.ENOENTRY),
        (1, -(2**63), Status.ENOENTRY),
        (2, -2, Status.ENOLEDGER),
    ],
)
async def test_what_is_not_there(tmp_path: Path, ledger_id: int, entry_id: int, expected: Status) -> None:
    """SEC-8: reads may ask for any id."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await fill(client, 1, 3)
        second, third = await both(client, read(ledger_id, entry_id))
        assert (second.status, third.status) == (expected, expected)
        assert third.entry is None
        assert third.max_lac is None


async def test_many_reads_in_one_segment_are_all_answered(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await fill(client, 1, 200)
        await fill(client, 2, 200)
        await forget_caches(bookie)
        wanted = [(ledger_id, i) for i in range(200) for ledger_id in (1, 2)]
        client.send(b"".join(v2.encode_request(read(*ids)) for ids in wanted))
        answers: list[Any] = [v2.decode_response(await client.body()) for _ in wanted]
        assert {(a.ledger_id, a.entry_id) for a in answers} == set(wanted)
        assert all(a.entry == entry(a.ledger_id, a.entry_id) for a in answers)


async def test_limbo_is_never_answered_as_absence(tmp_path: Path) -> None:
    """BI-5, gap G6, gap G7, gap G13."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await fill(client, 1, 3)
        bookie.storage.set_fenced(1)
        bookie.storage.set_limbo(1, True)
        second, third = await both(client, read(1, 1))
        assert second.entry == third.entry == entry(1, 1)
        for request in (read(1, 5), read(1, -1), fence(1), fence(1, 7), read(1, -5)):
            second, third = await both(client, request)
            assert second.status == Status.EIO, "Java's v2 client does not know the code"
            assert third.status == Status.EUNKNOWNLEDGERSTATE
        assert (await client.v3(m.ReadLacRequest(1))).status == Status.EUNKNOWNLEDGERSTATE
        poll = read(1, -1, previous_lac=7, timeout_ms=50, flags=Flags.ENTRY_PIGGYBACK)
        assert (await client.v3(poll)).status in (Status.EUNKNOWNLEDGERSTATE, Status.EOK)


@pytest.mark.parametrize("beside_light", [False, True])
async def test_who_wants_much_gets_short_batches_of_scattered_entries_beside_those_that_want_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside_light: bool
) -> None:
    monkeypatch.setattr(Turns, "must_spare", lambda *_: beside_light)
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        for entry_id in range(8):
            for ledger_id, payload in ((1, b"small"), (2, bytes(300_000))):
                client.send(v2.encode_add_request(KEY, entry(ledger_id, entry_id, payload)))
                await client.body()
            await forget_caches(bookie)
        answer = await client.v2(m.BatchReadRequest(1, 0, 1, 100, 1 << 20))
        assert len(answer.body) // (4 + len(entry(1, 0, b"small"))) == (RUN_READS_BESIDE_LIGHT if beside_light else 8)


async def test_batch_reads_return_a_run(tmp_path: Path) -> None:
    """SEC-20."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await fill(client, 1, 10)
        size = len(entry(1, 0))

        async def batch(first: int, count: int, max_size: int, **changes: Any) -> list[bytes]:
            answer = await client.v2(m.BatchReadRequest(1, first, 99, count, max_size, **changes))
            assert (answer.request_id, answer.entry_id) == (99, first)
            assert answer.status == Status.EOK
            entries = []
            body = answer.body
            while body:
                end = 4 + int.from_bytes(body[:4], "big")
                entries.append(body[4:end])
                body = body[end:]
            return entries

        everything = [entry(1, i) for i in range(10)]
        assert await batch(0, 5, 1 << 20) == everything[:5]
        assert await batch(0, 0, 1 << 20) == everything
        assert await batch(3, -1, 1 << 40) == everything[3:]
        for max_size in (0, -1, 10):
            assert await batch(2, 100, max_size) == everything[2:3]
        assert await batch(0, 100, 36 + 2 * (size + 4)) == everything[:2]
        assert await batch(0, 100, 36 + 2 * (size + 4) - 1) == everything[:1]
        assert await batch(8, 100, 1 << 20, flags=Flags.DO_FENCING, master_key=KEY) == everything[8:]
        assert bookie.storage.is_fenced(1)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (m.BatchReadRequest(9, 0, 1, 5, 1000), Status.ENOLEDGER),
        (m.BatchReadRequest(1, 50, 1, 5, 1000), Status.ENOENTRY),
        (m.BatchReadRequest(1, -1, 1, 5, 1000), Status.EBADREQ),
        (m.BatchReadRequest(1, 0, 1, 5, 1000, Flags.DO_FENCING, OTHER_KEY), Status.EUA),
        (m.BatchReadRequest(8, 0, 1, 5, 1000, Flags.DO_FENCING, KEY), Status.ENOENTRY),
        (m.BatchReadRequest(1, 0, 1, 5, 1000, version=3), Status.EBADVERSION),
    ],
)
async def test_batch_reads_that_fail_carry_the_request_id(
    tmp_path: Path, request_: m.BatchReadRequest, expected: Status
) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await fill(client, 1, 3)
        answer = await client.v2(request_)
        assert (answer.status, answer.request_id, answer.body) == (expected, 1, b"")


@pytest.mark.parametrize(
    ("sizes", "max_count", "max_size", "expected"),
    [
        ([1000] * 20, 100, 10000, 9),
        ([1000] * 20, 0, 10000, 9),
        ([1000] * 20, 100, 0, 1),
        ([9000] + [10] * 50, 100, 10000, 1),
        ([20000, 10], 10, 10000, 1),
        ([1000] * 20, 5, 1_000_000_000, 5),
        ([100, 5000, 5000], 10, 10000, 2),
    ],
)
async def test_the_first_entry_caps_a_batch(
    tmp_path: Path, sizes: list[int], max_count: int, max_size: int, expected: int
) -> None:
    """SEC-20."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        for i, size in enumerate(sizes):
            await client.v2(add(1, i, b"x" * (size - len(entry(1, i, b"")))))
        answer = await client.v2(m.BatchReadRequest(1, 0, 3, max_count, max_size))
        entries, body = 0, answer.body
        while body:
            body = body[4 + int.from_bytes(body[:4], "big") :]
            entries += 1
        assert entries == expected


def test_a_run_is_cut_between_entries() -> None:
    body = b"".join(len(e).to_bytes(4, "big") + e for e in (b"a" * 10, b"b" * 10, b"c" * 2, b"d" * 2))
    assert limit_run(body, 1000) == body
    assert limit_run(body, 28) == body[:28]
    assert limit_run(body, 0) == body[:14]


async def test_fencing_an_unknown_ledger_creates_it_fenced(tmp_path: Path) -> None:
    """PI-11."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        second, third = await both(client, fence(1))
        assert (second.status, third.status) == (Status.ENOENTRY, Status.ENOENTRY)
        assert (await client.v2(add(1, 0))).status == Status.EFENCED
        assert (await client.v2(add(1, 0, master_key=OTHER_KEY))).status == Status.EUA
        assert (await client.v2(add(1, 0, flags=Flags.RECOVERY_ADD))).status == Status.EOK
        assert (await client.v2(read(1, 3))).status == Status.ENOENTRY


async def test_a_fence_needs_the_right_key(tmp_path: Path) -> None:
    """SEC-12, SEC-14."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await fill(client, 1, 1)
        second, third = await both(client, fence(1, key=OTHER_KEY))
        assert (second.status, third.status) == (Status.EUA, Status.EUA)
        assert (await client.v3(fence(1, key=None))).status == Status.EUA
        assert (await client.v2(fence(1, version=1))).status == Status.EUA, "version 1 carries no key"
        assert not bookie.storage.is_fenced(1)
        assert (await client.v2(add(1, 1))).status == Status.EOK
        assert (await client.v3(fence(-5))).status == Status.EBADREQ


async def test_a_fencing_read_returns_the_entry_without_a_lac(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        await fill(client, 1, 3)
        second, third = await both(client, fence(1))
        assert second.entry == third.entry == entry(1, 2)
        assert third.max_lac is None
        second, third = await both(client, fence(1, 1))
        assert second.entry == third.entry == entry(1, 1)
        bookie.state.to_read_only("test")
        assert (await client.v2(fence(2))).status == Status.ENOENTRY, "also on a read-only bookie"


@pytest.mark.parametrize("ledger_id", [1, 2])
async def test_a_fence_is_durable_before_any_answer(tmp_path: Path, ledger_id: int) -> None:
    """Also before the answer that there is no such entry: ledger 2 is new. BI-2, JH-2, gap G1."""
    runtime = GatedRuntime()
    async with running_bookie(tmp_path, runtime) as bookie, RawClient.to(bookie) as client:
        await fill(client, 1, 1)
        runtime.hold_syncs()
        first = asyncio.ensure_future(client.v2(fence(ledger_id)))
        await runtime.sync_is_held()
        async with RawClient.to(bookie) as other, RawClient.to(bookie) as third:
            assert (await third.v2(add(ledger_id, 1))).status == Status.EFENCED
            second = asyncio.ensure_future(other.v3(fence(ledger_id, 55)))
            assert (await third.v2(read(1, 0))).status == Status.EOK
            assert not first.done()
            assert not second.done(), "a fence that is on its way is shared, not answered early"
            runtime.sync_gate.set()
            assert (await first).status == (Status.EOK if ledger_id == 1 else Status.ENOENTRY)
            assert (await second).status == Status.ENOENTRY


async def test_explicit_lac_is_stored_as_written_and_read_back(tmp_path: Path) -> None:
    """Gap G6."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        body = DIGEST.package_lac(1, 7)
        answer = await client.v3(m.WriteLacRequest(1, 7, KEY, body, txn_id=3))
        assert (answer.status, answer.ledger_id, answer.txn_id) == (Status.EOK, 1, 3)
        answer = await client.v3(m.ReadLacRequest(1))
        assert (answer.status, answer.lac_body, answer.last_entry) == (Status.EOK, body, None)
        await fill(client, 1, 2)
        answer = await client.v3(m.ReadLacRequest(1))
        assert (answer.status, answer.lac_body, answer.last_entry) == (Status.EOK, body, entry(1, 1))
        assert (await client.v3(read(1, 0))).max_lac == 7
        lower = DIGEST.package_lac(1, 3)
        await client.v3(m.WriteLacRequest(1, 3, KEY, lower))
        assert (await client.v3(m.ReadLacRequest(1))).lac_body == lower
        assert (await client.v3(read(1, 0))).max_lac == 7, "the known LAC does not fall"


async def test_write_lac_is_checked(tmp_path: Path) -> None:
    """SEC-8, SEC-12."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        body = DIGEST.package_lac(1, 7)
        assert (await client.v3(m.WriteLacRequest(1, 7, KEY, body[:15]))).status == Status.EBADREQ
        assert (await client.v3(m.WriteLacRequest(1, 7, KEY, DIGEST.package_lac(-5, 7)))).status == Status.EBADREQ
        assert not bookie.storage.ledgers()
        await fill(client, 1, 1)
        assert (await client.v3(m.WriteLacRequest(1, 7, OTHER_KEY, body))).status == Status.EUA
        await client.v2(fence(1))
        assert (await client.v3(m.WriteLacRequest(1, 7, KEY, body))).status == Status.EOK, "fencing does not matter"
        bookie.state.to_read_only("test")
        assert (await client.v3(m.WriteLacRequest(1, 8, KEY, body, priority=100))).status == Status.EREADONLY


async def test_read_lac_of_nothing(tmp_path: Path) -> None:
    """Gap G6."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        assert (await client.v3(m.ReadLacRequest(9))).status == Status.ENOENTRY
        await client.v2(fence(9))
        assert (await client.v3(m.ReadLacRequest(9))).status == Status.ENOENTRY


async def test_the_list_of_entries(tmp_path: Path) -> None:
    """SEC-30, gap G9."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        for entry_id in (0, 1, 5):
            await client.v2(add(1, entry_id))
        await forget_caches(bookie)
        for entry_id in (6, 10):
            await client.v2(add(1, entry_id))
        answer = await client.v3(m.GetListOfEntriesRequest(1))
        held = decode_availability(answer.availability)
        assert [i for i in range(12) if i in held] == [0, 1, 5, 6, 10]
        assert (await client.v3(m.GetListOfEntriesRequest(2))).status == Status.ENOLEDGER


async def test_bookie_info_gives_what_was_asked(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        total, free = await bookie.parts.disks.total_and_usable()
        answer = await client.v3(m.GetBookieInfoRequest(3))
        assert answer.total_disk_capacity == total
        assert 0 < answer.free_disk_space <= total
        assert free <= total
        for mask in (0, 4):
            answer = await client.v3(m.GetBookieInfoRequest(mask))
            assert (answer.status, answer.total_disk_capacity, answer.free_disk_space) == (Status.EOK, None, None)
        answer = await client.v3(m.GetBookieInfoRequest(1))
        assert answer.free_disk_space is None


async def test_without_authentication_auth_is_answered_as_disabled(tmp_path: Path) -> None:
    """SEC-16."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        answer = await client.v2(m.AuthRequest("sasl", b"token"))
        assert (answer.plugin, answer.payload, answer.version) == ("AuthDisabledPlugin", b"", 2)
        answer = await client.v3(m.AuthRequest("sasl", b"token", txn_id=8, priority=9))
        assert (answer.status, answer.plugin, answer.payload) == (Status.EOK, "AuthDisabledPlugin", b"")
        assert (answer.txn_id, answer.priority) == (8, 9)


async def test_tls_and_unsupported_operations_get_a_header_only(tmp_path: Path) -> None:
    """SEC-4."""
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        answer = await client.v3(m.StartTlsRequest(txn_id=4, priority=7))
        assert isinstance(answer, m.HeaderOnlyResponse)
        assert (answer.status, answer.txn_id, answer.priority) == (Status.EBADREQ, 4, 7)
        for operation in (3, 4, 12):
            answer = await client.v3(m.UnsupportedRequest(operation, txn_id=5, priority=100))
            assert isinstance(answer, m.HeaderOnlyResponse)
            assert (answer.status, answer.operation, answer.priority) == (Status.EBADREQ, operation, 100)


async def test_v3_failures_carry_the_operations_message(tmp_path: Path) -> None:
    async with running_bookie(tmp_path) as bookie, RawClient.to(bookie) as client:
        for request in (read(9, 3, txn_id=1), m.GetListOfEntriesRequest(9, txn_id=1)):
            client.send(v3.encode_request(request))
            answer = v3.decode_response(await client.body())
            assert not isinstance(answer, m.HeaderOnlyResponse)
            assert answer.ledger_id == 9  # type: ignore[union-attr]


async def test_a_batch_read_of_the_largest_id_there_is(tmp_path: Path) -> None:
    largest = 2**63 - 1
    runtime = RealRuntime()
    async with running_bookie(tmp_path, runtime) as bookie, RawClient.to(bookie) as client:
        assert (await client.v2(add(1, 0))).status == Status.EOK
        assert (await client.v2(m.BatchReadRequest(1, largest, 5, 10, 1 << 20))).status == Status.ENOENTRY
        assert (await client.v2(add(1, largest))).status == Status.EOK
    for count in (10, 0):
        async with running_bookie(tmp_path, runtime) as bookie, RawClient.to(bookie) as client:
            answer = await client.v2(m.BatchReadRequest(1, largest, 5, count, 1 << 20))
            assert answer.status == Status.EOK
            assert answer.body[4:] == entry(1, largest)
