"""Rows of v3 adds and of their acknowledgements: by columns they say what they say one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bookkeeper.errors import ProtocolError
from bookkeeper.protocol import v3
from bookkeeper.protocol.digest import digest_for
from bookkeeper.protocol.frames import LENGTH_SIZE, FrameSplitter
from bookkeeper.protocol.messages import V3, AddRequest, AddResponse, AddRun, Flags, ReadRequest, Status
from bookkeeper.protocol.protobuf import unvarint, varint, varint_form, varints
from bookkeeper.types import DigestType

DIGEST = digest_for(DigestType.CRC32C, b"")
KEYS = [bytes(20), bytes(range(20))]

# Where the encoding of a number grows, and where the tables of it begin anew.
STARTS = st.sampled_from([0, 100, 120, 16_000, 16_380, 32_760, 50_000, (1 << 21) - 5, (1 << 28) - 5, 1 << 40])
TXNS = st.sampled_from([0, 120, 16_380, 1 << 62, (1 << 63) - 5])


@st.composite
def rows(draw: st.DrawFn) -> list[AddRequest]:
    """Twenty adds and more, mostly alike: in bursts of a few ledgers, with ids in order and sometimes not."""
    adds: list[AddRequest] = []
    txn_id, sizes = draw(TXNS), draw(st.sampled_from([[100], [100, 101], [0, 60, 200]]))
    next_id = {ledger_id: draw(STARTS) for ledger_id in draw(st.sets(st.integers(1, 300), min_size=1, max_size=3))}
    while len(adds) < 20:
        ledger_id, key = draw(st.sampled_from([*next_id])), draw(st.sampled_from([KEYS[0], *KEYS]))
        for number in range(draw(st.integers(1, 20))):
            entry_id = next_id[ledger_id]
            next_id[ledger_id] += draw(st.sampled_from([1] * 9 + [3]))
            entry = DIGEST.package(ledger_id, entry_id, entry_id - 1, 9, bytes(sizes[number % len(sizes)]))
            txn_id += draw(st.sampled_from([1] * 9 + [7]))
            adds.append(AddRequest(ledger_id, entry_id, entry, key, txn_id=txn_id, version=V3))
    return adds


def one_by_one(bodies: list[bytes]) -> tuple[list[AddRequest], int]:
    """The adds up to the first that has no place in a run, as protobuf reads them."""
    adds: list[AddRequest] = []
    for body in bodies:
        try:
            request = v3.decode_request(body)
        except ProtocolError:
            break
        if not isinstance(request, AddRequest) or len(request.entry) < 24:
            break
        if v3.decode_add_runs([body])[1] == 0:
            break
        adds.append(request)
    return adds, len(adds)


def told(adds: list[AddRequest]) -> list[tuple[object, ...]]:
    return sorted(
        (add.ledger_id, add.master_key, add.flags, add.entry_id, add.entry, v3.txn_token(add.txn_id)) for add in adds
    )


def told_of_runs(runs: list[AddRun]) -> list[tuple[object, ...]]:
    return sorted(
        (run.ledger_id, run.master_key, run.flags, *each)
        for run in runs
        for each in zip(run.entry_ids, run.entries, run.txn_tokens, strict=True)
    )


@given(rows(), st.data())
def test_a_row_of_adds_is_the_adds_one_by_one(adds: list[AddRequest], data: st.DataObject) -> None:
    bodies = [v3.encode_request(add)[LENGTH_SIZE:] for add in adds]
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(bodies) - 1))
        body = bytearray(bodies[at])
        body[data.draw(st.integers(0, min(len(body), 75) - 1))] ^= data.draw(st.integers(1, 255))
        bodies[at] = bytes(body)
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(bodies)))
        recovering = AddRequest(7, 1, DIGEST.package(7, 1, 0, 9, b"x"), KEYS[0], Flags.RECOVERY_ADD, version=V3)
        bodies.insert(at, data.draw(st.sampled_from([v3.encode_request(recovering)[LENGTH_SIZE:], b"", b"\x0a"])))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(bodies) - 1))
        bodies[at] = data.draw(st.sampled_from([bodies[at] + b"\0", bodies[at] + b"\xf8\x07\x01", bodies[at][:-1]]))
    runs, taken = v3.decode_add_runs(bodies)
    expected, count = one_by_one(bodies)
    assert taken == count
    assert all(run.entry_ids for run in runs)
    assert told_of_runs(runs) == told(expected)
    in_order = {(add.ledger_id, add.master_key, add.flags): None for add in expected}
    assert [(run.ledger_id, run.master_key, run.flags) for run in runs] == [*in_order]


@pytest.mark.parametrize("first", [0, 100, 16_370, 1 << 21, (1 << 63) - 30])
@pytest.mark.parametrize("at", [0, 13, 29])
def test_an_add_in_order_that_differs_in_a_byte_is_told_from_the_others(first: int, at: int) -> None:
    bodies = [
        v3.encode_request(
            AddRequest(300, n, DIGEST.package(300, n, n - 1, 9, bytes(10)), KEYS[0], txn_id=n + 7, version=V3)
        )[LENGTH_SIZE:]
        for n in range(first, min(first + 30, (1 << 63) - 1))
    ]
    at = min(at, len(bodies) - 1)
    for place in range(len(bodies[at])):
        for change in (1, 0x80):
            changed = bodies[at][:place] + bytes([bodies[at][place] ^ change]) + bodies[at][place + 1 :]
            row = [*bodies[:at], changed, *bodies[at + 1 :]]
            runs, taken = v3.decode_add_runs(row)
            expected, count = one_by_one(row)
            assert (taken, told_of_runs(runs)) == (count, told(expected)), place


@pytest.mark.parametrize("count", [3, 30], ids=["one by one", "a row"])
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(lambda body: body + b"\0", id="a byte behind it"),
        pytest.param(lambda body: body[:7] + bytes([body[7] ^ 0x80]) + body[8:], id="another txn id"),
    ],
)
def test_an_add_that_is_none_ends_the_runs_and_leaves_none_that_is_empty(
    count: int, odd: Callable[[bytes], bytes]
) -> None:
    """It looks like the ones before it, to the last byte or with another key."""
    adds = [
        AddRequest(1, n, DIGEST.package(1, n, n - 1, 9, bytes(100)), KEYS[0], txn_id=n + 1, version=V3)
        for n in range(count)
    ]
    last = AddRequest(1, count, DIGEST.package(1, count, 0, 9, bytes(100)), KEYS[1], txn_id=count + 1, version=V3)
    for request in (adds[-1], last):
        bodies = [v3.encode_request(add)[LENGTH_SIZE:] for add in (*adds, request)]
        bodies[-1] = odd(bodies[-1])
        runs, taken = v3.decode_add_runs(bodies)
        assert taken == count
        assert [run.entry_ids for run in runs] == [[*range(count)]]


@given(rows(), st.sampled_from([Status.EOK, Status.EFENCED]))
def test_rows_of_answers_are_the_answers_one_by_one(adds: list[AddRequest], status: Status) -> None:
    runs, _ = v3.decode_add_runs([v3.encode_request(add)[LENGTH_SIZE:] for add in adds])
    answers = [
        AddResponse(status, run.ledger_id, entry_id, txn_id=v3.txn_id(token) % (1 << 64), version=V3)
        for run in runs
        for entry_id, token in zip(run.entry_ids, run.txn_tokens, strict=True)
    ]
    written = v3.encode_adds_answered(runs, status)
    assert written == b"".join(map(v3.encode_response, answers))
    acks, others = v3.Responses().feed(written)
    if status is Status.EOK:
        assert (acks, others) == ([(each.ledger_id, each.entry_id) for each in answers], [])
    else:
        assert (acks, [v3.decode_response(body) for body in others]) == ([], answers)


@given(STARTS, TXNS, st.integers(0, 39), st.integers(0, 60), st.integers(1, 255))
def test_an_acknowledgement_in_a_row_that_differs_in_a_byte_is_not_mistaken(
    first: int, txn_id: int, at: int, place: int, change: int
) -> None:
    frames = [v3.encode_add_response(txn_id + n, 4660, first + n) for n in range(40)]
    odd = bytearray(frames[at])
    odd[LENGTH_SIZE + place % (len(odd) - LENGTH_SIZE)] ^= change
    acks, others = v3.Responses().feed(b"".join([*frames[:at], odd, *frames[at + 1 :]]))
    for body in others:
        try:
            answer = v3.decode_response(body)
        except ProtocolError:
            continue
        if isinstance(answer, AddResponse) and answer.status is Status.EOK:
            acks.append((answer.ledger_id, answer.entry_id))
    expected = {(4660, first + n) for n in range(40) if n != at}
    assert expected <= set(acks)
    assert len(set(acks) - expected) <= 1
    try:
        alone = v3.decode_response(bytes(odd[LENGTH_SIZE:]))
    except ProtocolError:
        assert set(acks) == expected
        return
    if isinstance(alone, AddResponse) and alone.status is Status.EOK:
        assert (alone.ledger_id, alone.entry_id) in acks
    else:
        assert set(acks) == expected


@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize(
    ("flags", "write_flags", "priority"), [(0, 0, 0), (int(Flags.RECOVERY_ADD), 0, 100), (0, 1, 0)]
)
@given(
    st.integers(0, 2**63 - 1),
    st.lists(st.tuples(STARTS, st.integers(0, 300), st.integers(1, 3)), min_size=1, max_size=5),
)
def test_a_writers_encoder_writes_what_a_single_request_would(
    kind: DigestType, flags: int, write_flags: int, priority: int, ledger_id: int, parts: list[tuple[int, int, int]]
) -> None:
    digest, first_txn = digest_for(kind, b"secret"), 1 << 62
    encode = v3.add_request_encoder(ledger_id, KEYS[1], digest, flags, write_flags, priority, first_txn=first_txn)
    plain = v3.AddRequestEncoder(ledger_id, KEYS[1], flags, write_flags, priority)
    for first, size, step in parts:
        for entry_id in range(first, first + 30 * step, step):
            entry = digest.package(ledger_id, entry_id, entry_id - 1, 77, bytes(size))
            expected = plain.encode(v3.txn_token(first_txn + entry_id), entry_id, entry)
            assert encode(ledger_id, entry_id, entry_id - 1, 77, bytes(size)) == expected


def test_large_payloads_are_framed_the_same() -> None:
    encode = v3.add_request_encoder(7, KEYS[1], DIGEST, first_txn=1 << 20)
    payload = bytes(range(256)) * 256
    for entry_id in (5, 300, 20_000):
        entry = DIGEST.package(7, entry_id, 4, 77, payload)
        request = AddRequest(7, entry_id, entry, KEYS[1], txn_id=(1 << 20) + entry_id, version=V3)
        assert encode(7, entry_id, 4, 77, payload) == v3.encode_request(request)


@given(
    st.lists(st.integers(-(2**63), 2**64 - 1), max_size=5)
    | st.builds(lambda n, m: [*range(n, n + m)], STARTS, TXNS.map(lambda n: n % 300))
)
@example([2**63 - 2, 2**63 - 1, 2**63])
@example([5, 7, 6, 8])
@example([-2, -1, 0])
def test_many_numbers_are_encoded_as_each_is(values: list[int]) -> None:
    assert varints(values) == [varint(value) for value in values]


@given(st.lists(st.binary(min_size=1, max_size=10), min_size=1, max_size=5) | st.lists(STARTS.map(varint), min_size=1))
@example([b"\x80\x00"])
@example([b"\x80" * 9 + b"\x02"])
@example([b"\xff" * 9 + b"\x01"])
def test_the_form_of_a_number_is_its_shortest_encoding(encoded: list[bytes]) -> None:
    shortest = [each == varint(unvarint(each)) for each in encoded]
    assert [varint_form(len(each)).fits(each) for each in encoded] == shortest
    for size in set(map(len, encoded)):
        alike = [place for place, each in enumerate(encoded) if len(each) == size]
        together = varint_form(size).fits_all([encoded[place] for place in alike])
        assert together == all(shortest[place] for place in alike)


@pytest.mark.parametrize("count", [3, 30], ids=["one by one", "a row"])
def test_a_transaction_id_with_a_byte_too_many_is_answered_with_the_shortest(count: int) -> None:
    adds = [
        AddRequest(1, n, DIGEST.package(1, n, n - 1, 9, bytes(100)), KEYS[0], txn_id=300, version=V3)
        for n in range(count)
    ]
    bodies = [v3.encode_request(add)[LENGTH_SIZE:] for add in adds]
    bodies[-1] = bodies[-1].replace(b"\x18\xac\x02", b"\x18\x87\x00", 1)
    (run,), taken = v3.decode_add_runs(bodies)
    assert taken == count
    assert run.txn_tokens == [v3.txn_token(300)] * (count - 1) + [v3.txn_token(7)]


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 40, 300]), st.integers(1, 30)), max_size=4),
    st.binary(max_size=400),
    st.lists(st.integers(1, 4000), max_size=3),
)
def test_frames_of_one_size_are_cut_as_any_are(parts: list[tuple[int, int]], tail: bytes, cuts: list[int]) -> None:
    bodies = [bytes([number % 256]) * size for size, count in parts for number in range(count)]
    frame_of = (len(tail) + 5).to_bytes(4, "big") + tail  # never whole
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies) + frame_of
    bounds = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})
    splitter = FrameSplitter()
    found = [body for at, end in itertools.pairwise(bounds) for body in splitter.feed(stream[at:end])]
    assert found == bodies
    assert splitter.pending == len(frame_of)


def test_a_length_beyond_the_limit_is_refused_behind_frames_of_one_size() -> None:
    splitter = FrameSplitter(100)
    small, large = (10).to_bytes(4, "big") + bytes(10), (97).to_bytes(4, "big") + bytes(97)
    assert splitter.feed(small * 20 + large * 20) == [bytes(10)] * 20
    assert splitter.error is not None
    splitter = FrameSplitter(100)
    assert splitter.feed(large * 20) == []
    assert splitter.error is not None


def test_no_more_is_looked_at_than_is_taken() -> None:
    """Where adds and other requests take turns, what stands behind is not looked at again and again."""

    class Looked(bytes):
        count = 0

        def startswith(self, *arguments: object) -> bool:
            Looked.count += 1
            return bytes.startswith(self, *arguments)  # type: ignore[arg-type]

    def add(entry_id: int) -> bytes:
        entry = DIGEST.package(7, entry_id, entry_id - 1, 9, bytes(10))
        return v3.encode_request(AddRequest(7, entry_id, entry, KEYS[0], txn_id=1, version=V3))[LENGTH_SIZE:]

    other = v3.encode_request(ReadRequest(7, 1, txn_id=1, version=V3))[LENGTH_SIZE:]
    bodies = [Looked(body) for _ in range(20) for body in (*map(add, range(10)), other)]
    runs, taken = v3.decode_add_runs(bodies)
    assert (taken, [run.entry_ids for run in runs]) == (10, [[*range(10)]])
    assert Looked.count <= 30
