"""Plain reads of v3 in bulk are what the codec for single messages says they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import ProtocolError
from bookkeeper.protocol import v3
from bookkeeper.protocol.frames import FrameSplitter
from bookkeeper.protocol.messages import V3, Flags, ReadRequest, ReadResponse, ReadRun, Status
from bookkeeper.protocol.protobuf import varint, varints
from tests.support.wire import v3_read_requests

from .vectors import KEY, bytes_of

NUMBERS = st.sampled_from(
    [0, 1, 5, *(n + d for n in (2**7, 2**14, 2**21, 2**28, 2**56) for d in (-1, 0, 1)), 2**63 - 1]
)
LEDGERS = st.sampled_from([0, 77, 300, 2**40])
ANSWERS = st.tuples(NUMBERS, NUMBERS, st.sampled_from([0, 1, 100, 127, 128, 129, 16_383, 16_400]))
LACS = st.sampled_from([None, -1, 0, 5, 2**20, 2**63 - 1])


def body_of(request: ReadRequest) -> bytes:
    return v3.encode_request(request)[4:]


def reads_of(run: ReadRun) -> list[tuple[int, int, int]]:
    assert run.version == V3
    return [(run.ledger_id, i, v3.txn_id(t)) for i, t in zip(run.entry_ids, run.txn_tokens, strict=True)]


# --- requests ---


@given(LEDGERS, st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12))
def test_requests_in_bulk_are_those_written_one_by_one(ledger: int, reads: list[tuple[int, int]]) -> None:
    frames = v3.encode_read_requests(ledger, [varint(i) for i, _ in reads], [v3.txn_token(txn) for _, txn in reads])
    assert frames == b"".join(v3.encode_request(ReadRequest(ledger, i, txn_id=txn)) for i, txn in reads)


@given(st.lists(st.tuples(LEDGERS, NUMBERS, NUMBERS), min_size=1, max_size=12), st.integers(0, 3))
def test_a_run_is_the_reads_of_one_ledger_that_stand_together(reads: list[tuple[int, int, int]], start: int) -> None:
    start = min(start, len(reads) - 1)
    bodies = [body_of(ReadRequest(ledger, entry, txn_id=txn)) for ledger, entry, txn in reads]
    expected = []
    for read in reads[start:]:
        if read[0] != reads[start][0]:
            break
        expected.append(read)
    run = v3.decode_read_run(bodies, start, len(bodies))
    assert run is not None
    assert reads_of(run) == expected
    shorter = v3.decode_read_run(bodies, start, start + 1)
    assert shorter is not None
    assert reads_of(shorter) == expected[:1]


@pytest.mark.parametrize(
    "odd",
    [
        ReadRequest(1, -1, txn_id=2),
        ReadRequest(1, 5, Flags.HIGH_PRIORITY, txn_id=2),
        ReadRequest(1, 5, Flags.DO_FENCING, KEY, txn_id=2),
        ReadRequest(1, 5, Flags.ENTRY_PIGGYBACK, previous_lac=4, timeout_ms=1, txn_id=2),
        ReadRequest(-1, 5, txn_id=2),
        ReadRequest(1, 5, txn_id=2**63),
    ],
    ids=str,
)
def test_other_reads_are_left_to_the_single_decoder(odd: ReadRequest) -> None:
    plain = body_of(ReadRequest(1, 4, txn_id=1))
    assert v3.decode_read_run([body_of(odd), plain], 0, 2) is None
    run = v3.decode_read_run([plain, plain, body_of(odd), plain], 0, 4)
    assert run is not None
    assert run.entry_ids == [4, 4]


@given(v3_read_requests(), v3_read_requests())
def test_a_read_is_taken_exactly_if_it_is_plain(first: ReadRequest, second: ReadRequest) -> None:
    for request in (first, second):
        run = v3.decode_read_run([body_of(request)], 0, 1)
        usual = v3.decode_request(body_of(request))
        assert isinstance(usual, ReadRequest)
        plain = ReadRequest(usual.ledger_id, usual.entry_id, txn_id=usual.txn_id, version=V3)
        is_plain = usual == plain and min(usual.ledger_id, usual.entry_id) >= 0 and usual.txn_id < 2**63
        assert (run is not None) == is_plain
        if run is not None:
            assert reads_of(run) == [(usual.ledger_id, usual.entry_id, usual.txn_id)]


@given(NUMBERS, NUMBERS, st.integers(0, 40), st.integers(1, 255))
def test_a_request_like_the_one_before_except_for_a_byte_is_not_mistaken(
    entry_id: int, txn: int, at: int, change: int
) -> None:
    good = body_of(ReadRequest(300, entry_id, txn_id=txn))
    odd = bytearray(good)
    odd[at % len(good)] ^= change
    run = v3.decode_read_run([good, bytes(odd), good], 0, 3)
    assert run is not None
    if len(run.entry_ids) == 1:
        return
    usual = v3.decode_request(bytes(odd))
    assert usual == ReadRequest(300, run.entry_ids[1], txn_id=v3.txn_id(run.txn_tokens[1]), version=V3)


# --- answers ---


@given(LEDGERS, st.lists(ANSWERS, max_size=8), LACS)
def test_answers_in_bulk_are_those_written_one_by_one(
    ledger: int, reads: list[tuple[int, int, int]], lac: int | None
) -> None:
    run = ReadRun(ledger, V3, [i for i, _, _ in reads], [v3.txn_token(txn) for _, txn, _ in reads])
    entries = [bytes(size) for _, _, size in reads]
    singly = [
        v3.encode_response(ReadResponse(Status.EOK, ledger, i, bytes(size), lac, txn_id=txn)) for i, txn, size in reads
    ]
    assert v3.encode_read_responses(run, entries, lac) == b"".join(singly)
    assert v3.encode_read_responses(run, entries[:1], lac) == b"".join(singly[:1])


@given(st.lists(st.tuples(LEDGERS, ANSWERS, LACS), max_size=12))
def test_a_client_reads_in_bulk_what_was_answered(answers: list[tuple[int, tuple[int, int, int], int | None]]) -> None:
    decode = v3.ReadAnswers().decode
    for ledger, (entry_id, txn, size), lac in answers:
        entry = b"\x5a" * size
        body = v3.encode_response(ReadResponse(Status.EOK, ledger, entry_id, entry, lac, txn_id=txn))[4:]
        assert decode(body) == (v3.txn_token(txn), v3.txn_token(entry_id), entry, lac)


@pytest.mark.parametrize(
    "odd",
    [
        ReadResponse(Status.ENOENTRY, 1, 5, txn_id=2),
        ReadResponse(Status.EOK, 1, -1, b"entry", 4, txn_id=2),
        ReadResponse(Status.EOK, 1, 5, None, 4, txn_id=2),
        ReadResponse(Status.EOK, 1, 5, b"entry", 4, 123456, txn_id=2),
    ],
    ids=str,
)
def test_other_answers_are_left_to_the_single_decoder(odd: ReadResponse) -> None:
    answers = v3.ReadAnswers()
    for response in (odd, ReadResponse(Status.EOK, 1, 4, b"entry", 4, txn_id=1), odd):
        found = answers.decode(v3.encode_response(response)[4:])
        assert (found is None) == (response is odd)


@given(ANSWERS, LACS, st.integers(0, 2**31), st.integers(1, 255))
def test_an_answer_like_the_one_before_except_for_a_byte_is_not_mistaken(
    read: tuple[int, int, int], lac: int | None, at: int, change: int
) -> None:
    entry_id, txn, size = read
    good = v3.encode_response(ReadResponse(Status.EOK, 300, entry_id, bytes(size), lac, txn_id=txn))[4:]
    odd = bytearray(good)
    odd[at % len(good)] ^= change
    answers = v3.ReadAnswers()
    assert answers.decode(good) is not None
    found = answers.decode(bytes(odd))
    if found is None or found[:2] != (v3.txn_token(txn), v3.txn_token(entry_id)):
        return  # to the single decoder; or no answer to this request
    usual = v3.decode_response(bytes(odd))
    assert isinstance(usual, ReadResponse)
    assert (usual.status, usual.txn_id, usual.entry_id) == (Status.EOK, txn, entry_id)
    assert (usual.entry, usual.max_lac) == found[2:]


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6),
    st.sampled_from([0, 1, 100, 127, 128]),
    LACS,
    st.one_of(st.none(), st.tuples(st.integers(0, 5), st.integers(0, 2**31), st.integers(1, 255))),
)
def test_answers_taken_together_are_those_taken_one_by_one(
    reads: list[tuple[int, int]], size: int, lac: int | None, odd: tuple[int, int, int] | None
) -> None:
    bodies = [
        v3.encode_response(ReadResponse(Status.EOK, 300, i, bytes(size), lac, txn_id=txn))[4:] for i, txn in reads
    ]
    answers = v3.ReadAnswers()
    assert answers.decode_row(bodies) is None  # nothing was seen yet
    assert answers.decode(bodies[0]) is not None
    if odd is not None:
        which, at, change = odd
        changed = bytearray(bodies[which % len(bodies)])
        changed[at % len(changed)] ^= change
        bodies[which % len(bodies)] = bytes(changed)
    row = answers.decode_row(bodies)
    if row is None:
        sizes = {len(body) for body in bodies}
        assert odd is not None or len(sizes) > 1 or len({(len(varint(i)), len(varint(txn))) for i, txn in reads}) > 1
        return
    tokens, numbers, entries, its_lac = row
    found = [(token, number, entry, its_lac) for token, number, entry in zip(tokens, numbers, entries, strict=True)]
    assert found == [answers.decode(body) for body in bodies]


def test_any_bytes_are_refused_without_an_exception() -> None:
    answers = v3.ReadAnswers()
    good = bytes_of("0a06 0803 1001 1802 1000 a20610 0800 10b424 1805 2205 68656c6c6f 2804")
    assert answers.decode(good) == (b"\x02", b"\x05", b"hello", 4)
    for cut in range(len(good)):
        assert answers.decode(good[:cut]) is None
        assert v3.decode_read_run([good[:cut]], 0, 1) is None


def test_a_run_answered_by_a_bookie_is_understood_by_a_client() -> None:
    tokens = list(map(v3.txn_token, range(120, 140)))
    bodies = FrameSplitter().feed(v3.encode_read_requests(9, varints(range(120, 140)), tokens))
    run = v3.decode_read_run(bodies, 0, len(bodies))
    assert run == ReadRun(9, V3, list(range(120, 140)), tokens)
    answers = v3.ReadAnswers()
    frames = FrameSplitter().feed(v3.encode_read_responses(run, [b"%d" % i for i in run.entry_ids], 200))
    found = [answers.decode(body) for body in frames]
    assert found == [(v3.txn_token(i), v3.txn_token(i), b"%d" % i, 200) for i in range(120, 140)]


def test_a_broken_message_is_still_refused() -> None:
    with pytest.raises(ProtocolError):
        v3.decode_request(bytes_of("0a06 0803 1001 1802 a20606 08b424 1005"))
    assert v3.decode_read_run([bytes_of("0a06 0803 1001 1802 a20606 08b424 1005")], 0, 1) is None
