from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import ProtocolError
from bookkeeper.protocol import v2
from bookkeeper.protocol.digest import digest_for, master_key
from bookkeeper.protocol.frames import frame
from bookkeeper.protocol.messages import (
    V2,
    AddRequest,
    AddResponse,
    AddRun,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    Flags,
    ForceLedgerRequest,
    HeaderOnlyResponse,
    ReadRequest,
    ReadResponse,
    ReadRun,
    Request,
    Response,
    Status,
)
from bookkeeper.types import DigestType
from tests.support.wire import damaged_bodies, entries, recorded, v2_requests, v2_responses

from .vectors import ENTRY, ENTRY_6, KEY, LEDGER, bytes_of

RECOVERY = Flags.RECOVERY_ADD | Flags.HIGH_PRIORITY
RECOVERY_READ = Flags.DO_FENCING | Flags.HIGH_PRIORITY

REQUESTS: list[tuple[str, Request]] = [
    ("00000041 02010000 K E", AddRequest(LEDGER, 5, ENTRY, KEY)),
    ("00000041 02010006 K E", AddRequest(LEDGER, 5, ENTRY, KEY, RECOVERY)),
    ("00000014 02020000 0000000000001234 0000000000000005", ReadRequest(LEDGER, 5)),
    ("00000028 02020001 0000000000001234 ffffffffffffffff K", ReadRequest(LEDGER, -1, Flags.DO_FENCING, KEY)),
    ("00000028 02020005 0000000000001234 0000000000000005 K", ReadRequest(LEDGER, 5, RECOVERY_READ, KEY)),
    (
        "00000028 02070000 0000000000001234 0000000000000005 0000000000000007 0000000a 0000000000500000",
        BatchReadRequest(LEDGER, 5, 7, 10, 5242880),
    ),
    (
        "0000003c 02070005 0000000000001234 0000000000000005 0000000000000007 0000000a 0000000000500000 K",
        BatchReadRequest(LEDGER, 5, 7, 10, 5242880, RECOVERY_READ, KEY),
    ),
    ("0000000c 02030000 0a 04 7361736c 12 00", AuthRequest("sasl", b"")),
]

RESPONSES: list[tuple[str, Response]] = [
    ("00000018 02010000 00000000 0000000000001234 0000000000000005", AddResponse(Status.EOK, LEDGER, 5)),
    ("00000018 02010000 00000068 0000000000001234 0000000000000005", AddResponse(Status.EFENCED, LEDGER, 5)),
    ("00000041 02020000 00000000 0000000000001234 0000000000000005 E", ReadResponse(Status.EOK, LEDGER, 5, ENTRY)),
    ("00000018 02020000 00000002 0000000000001234 0000000000000005", ReadResponse(Status.ENOENTRY, LEDGER, 5)),
    (
        "00000077 02070000 00000000 0000000000001234 0000000000000005 0000000000000007 00000029 E 00000026 E6",
        BatchReadResponse(Status.EOK, LEDGER, 5, 7, b"\0\0\0\x29" + ENTRY + b"\0\0\0\x26" + ENTRY_6),
    ),
    (
        "00000020 02070000 00000001 0000000000001234 0000000000000005 0000000000000007",
        BatchReadResponse(Status.ENOLEDGER, LEDGER, 5, 7),
    ),
    (
        "0000001a 02030000 0a 12 4175746844697361626c6564506c7567696e 12 00",
        AuthResponse(Status.EOK, "AuthDisabledPlugin", b""),
    ),
]

CODES = {0: 0, 1: 402, 2: 403, 100: 404, 101: 501, 102: 502, 103: 503, 104: 504, 105: 505, 106: 506, 107: 507}


@pytest.mark.parametrize(("text", "message"), REQUESTS)
def test_request_vectors(text: str, message: Request) -> None:
    assert v2.decode_request(bytes_of(text)[4:]) == message
    assert v2.encode_request(message) == bytes_of(text)


@pytest.mark.parametrize(("text", "message"), RESPONSES)
def test_response_vectors(text: str, message: Response) -> None:
    assert v2.decode_response(bytes_of(text)[4:]) == message
    assert v2.encode_response(message) == bytes_of(text)


@given(v2_requests)
def test_requests_round_trip(message: Request) -> None:
    assert v2.decode_request(v2.encode_request(message)[4:]) == message


@given(v2_responses)
def test_responses_round_trip(message: Response) -> None:
    assert v2.decode_response(v2.encode_response(message)[4:]) == message


@pytest.mark.parametrize(("code", "status"), CODES.items())
def test_error_codes_are_those_of_the_spec(code: int, status: int) -> None:
    body = bytes_of("02010000") + code.to_bytes(4, "big") + bytes(16)
    assert v2.decode_response(body) == AddResponse(status, 0, 0)
    assert v2.encode_response(AddResponse(status, 0, 0)) == frame(body)


def test_an_unknown_error_code_breaks_the_connection() -> None:
    with pytest.raises(ProtocolError, match="108"):
        v2.decode_response(bytes_of("02010000 0000006c") + bytes(16))


@pytest.mark.parametrize("opcode", [0, 4, 5, 6, 8, 200, 255])
def test_an_unknown_opcode_breaks_the_connection(opcode: int) -> None:
    body = bytes((2, opcode, 0, 0)) + bytes(100)
    with pytest.raises(ProtocolError):
        v2.decode_request(body)
    with pytest.raises(ProtocolError):
        v2.decode_response(body)


def test_version_0_has_its_opcode_in_the_low_byte_and_no_flags() -> None:
    request = v2.decode_request(bytes_of("00a5b602 0000000000001234 0000000000000005"))
    assert request == ReadRequest(LEDGER, 5, version=0)
    response = v2.encode_response(ReadResponse(Status.ENOENTRY, LEDGER, 5, version=0))
    assert response == bytes_of("00000018 00000002 00000002 0000000000001234 0000000000000005")


def test_version_1_reads_no_master_key() -> None:
    request = v2.decode_request(bytes_of("01020001 0000000000001234 0000000000000005"))
    assert request == ReadRequest(LEDGER, 5, Flags.DO_FENCING, None, version=1)


def test_a_version_from_the_future_is_decoded_and_echoed() -> None:
    request = v2.decode_request(bytes_of("05020000 0000000000001234 0000000000000005"))
    assert request.version == 5
    assert v2.encode_response(ReadResponse(Status.EBADVERSION, LEDGER, 5, version=5))[4] == 5


@pytest.mark.parametrize(("text", "message"), REQUESTS)
def test_a_request_cut_short_is_refused(text: str, message: Request) -> None:
    body = bytes_of(text)[4:]
    least = 40 if isinstance(message, AddRequest) else len(body)
    for size in range(least):
        with pytest.raises(ProtocolError):
            v2.decode_request(body[:size])


def test_bytes_behind_a_read_are_ignored() -> None:
    assert v2.decode_request(bytes_of("02020000 0000000000001234 0000000000000005 abcdef")) == ReadRequest(LEDGER, 5)


@pytest.mark.parametrize(
    "message",
    [
        AddRequest(1, 2, ENTRY, KEY, write_flags=1),
        AddRequest(1, 2, ENTRY, b"short"),
        ReadRequest(1, 2, previous_lac=3),
        ReadRequest(1, 2, Flags.DO_FENCING),
        ForceLedgerRequest(1),
    ],
)
def test_what_v2_cannot_say_is_refused_when_it_is_written(message: Request) -> None:
    with pytest.raises(ValueError):
        v2.encode_request(message)


def test_a_failed_auth_has_no_v2_answer() -> None:
    with pytest.raises(ValueError):
        v2.encode_response(AuthResponse(Status.EUA, "sasl", b""))
    with pytest.raises(ValueError):
        v2.encode_response(HeaderOnlyResponse(Status.EUA, 1, txn_id=1))


# --- the data path ---------------------------------------------------------------------------------------------


@given(entries(), st.binary(min_size=20, max_size=20), st.sampled_from([0, 2, 4, 6]))
def test_an_add_written_fast_is_the_add_written_slowly(entry: bytes, key: bytes, flags: int) -> None:
    body = v2.encode_add_request(key, entry, flags)[4:]
    request = v2.decode_request(body)
    assert isinstance(request, AddRequest)
    assert (request.entry, request.master_key, request.flags) == (entry, key, flags)
    assert v2.encode_request(request)[4:] == body


def _entry(ledger_id: int, entry_id: int, rest: bytes = bytes(16)) -> bytes:
    return ledger_id.to_bytes(8, "big", signed=True) + entry_id.to_bytes(8, "big", signed=True) + rest


def test_adds_are_grouped_by_ledger_key_and_flags_in_order() -> None:
    other = bytes(20)
    adds = [(KEY, 7, 0, 0), (KEY, 8, 0, 0), (KEY, 7, 1, 0), (other, 7, 2, 0), (KEY, 8, 1, 0), (KEY, 7, 1, 6)]
    bodies = [v2.encode_add_request(key, _entry(ledger, entry), flags)[4:] for key, ledger, entry, flags in adds]
    runs, taken = v2.decode_add_runs(bodies)
    assert taken == len(bodies)
    assert [(run.master_key, run.ledger_id, run.flags, run.entry_ids) for run in runs] == [
        (KEY, 7, 0, [0, 1]),
        (KEY, 8, 0, [0, 1]),
        (other, 7, 0, [2]),
        (KEY, 7, 6, [1]),
    ]
    assert runs[0].entries == [_entry(7, 0), _entry(7, 1)]


@pytest.mark.parametrize(
    "odd",
    [
        "02020000 0000000000001234 0000000000000005",
        "01010000 K E",
        "03010000 K E",
        "00000001 K E",
        "02010000 K 0000000000001234 0000000000000005",
        "02010000 K 0000000000001234 ffffffffffffffff 0000000000000000",
        "02010000 K ffffffffffffffff 0000000000000001 0000000000000000",
        "",
    ],
)
def test_a_run_ends_at_whatever_needs_a_closer_look(odd: str) -> None:
    good = v2.encode_add_request(KEY, ENTRY)[4:]
    runs, taken = v2.decode_add_runs([good, good, bytes_of(odd), good])
    assert taken == 2
    assert [run.entry_ids for run in runs] == [[5, 5]]
    assert v2.decode_add_runs([good, good, bytes_of(odd), good], 2) == ([], 2)
    assert v2.decode_add_runs([good, good, bytes_of(odd), good], 3)[1] == 4


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20), st.sampled_from([Status.EOK, Status.EFENCED]))
def test_a_run_is_answered_as_its_adds_would_be(entry_ids: list[int], status: Status) -> None:
    bodies = [v2.encode_add_request(KEY, _entry(LEDGER, entry_id))[4:] for entry_id in entry_ids]
    (run,), _ = v2.decode_add_runs(bodies)
    expected = b"".join(v2.encode_response(AddResponse(status, LEDGER, entry_id)) for entry_id in entry_ids)
    assert v2.encode_add_responses(run, status) == expected


@given(st.lists(v2_responses, max_size=30), st.lists(st.integers(0, 3000), max_size=10), st.integers(0, 5))
def test_a_client_gets_every_response_once_however_the_stream_is_cut(
    responses: list[Response], cuts: list[int], repeat: int
) -> None:
    acks = [AddResponse(Status.EOK, LEDGER, entry_id) for entry_id in range(repeat)]
    sent = [*acks, *responses, *acks]
    stream = b"".join(map(v2.encode_response, sent))
    bounds = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})
    splitter = v2.Responses()
    got: list[Response] = []
    for start, end in itertools.pairwise(bounds):
        some, bodies = splitter.feed(stream[start:end])
        got += [AddResponse(Status.EOK, ledger_id, entry_id) for ledger_id, entry_id in v2.Responses.unpack(some)]
        got += [_with_bytes(v2.decode_response(body)) for body in bodies]
    assert sorted(map(repr, got)) == sorted(map(repr, sent))


def _with_bytes(response: Response) -> Response:
    """The same, its body no view."""
    return replace(response, body=bytes(response.body)) if isinstance(response, BatchReadResponse) else response


def test_a_broken_response_stream_is_reported_after_what_was_good() -> None:
    ack = v2.encode_response(AddResponse(Status.EOK, LEDGER, 5))
    splitter = v2.Responses(1000)
    acks, bodies = splitter.feed(ack + b"\xff\xff\xff\xff")
    assert ([*v2.Responses.unpack(acks)], bodies) == ([(LEDGER, 5)], [])
    assert splitter.error is not None
    with pytest.raises(ProtocolError):
        splitter.feed(ack)


def test_damaged_frames_raise_protocol_errors_and_nothing_else() -> None:
    bodies = [item.body for item in recorded(2)]
    for body in damaged_bodies(bodies, 5_000, seed=1):
        for decode in (v2.decode_request, v2.decode_response):
            try:
                decode(body)
            except ProtocolError:
                continue
        v2.decode_add_runs([body])


@given(
    st.sampled_from(list(DigestType)),
    st.integers(0, 2**62),
    st.integers(-1, 2**62),
    st.binary(max_size=100) | st.just(bytes(5000)),
    st.sampled_from([0, int(Flags.RECOVERY_ADD | Flags.HIGH_PRIORITY)]),
)
def test_the_fused_add_encoder_writes_what_the_two_steps_write(
    kind: DigestType, entry_id: int, lac: int, payload: bytes, flags: int
) -> None:
    digest = digest_for(kind, b"pw")
    key = master_key(b"pw")
    encode = v2.add_request_encoder(key, digest, flags)
    packaged = digest.package(77, entry_id, lac, 1000, payload)
    assert encode(77, entry_id, lac, 1000, payload) == v2.encode_add_request(key, packaged, flags)


@given(
    st.lists(st.tuples(st.sampled_from([0, 7, 2**63 - 1]), st.integers(0, 2**63 - 1)), min_size=1), st.integers(0, 3)
)
def test_a_run_is_the_plain_reads_of_one_ledger_that_stand_together(reads: list[tuple[int, int]], start: int) -> None:
    start = min(start, len(reads) - 1)
    plain = [v2.encode_request(ReadRequest(*ids))[4:] for ids in reads]
    expected = list(takewhile(lambda ids: ids[0] == reads[start][0], reads[start:]))
    others = [
        v2.encode_request(ReadRequest(1, -1))[4:],
        v2.encode_request(ReadRequest(-1, 2))[4:],
        v2.encode_request(ReadRequest(1, 2, Flags.DO_FENCING, KEY))[4:],
        plain[0] + b"\0",
    ]
    for other in others:
        run = v2.decode_read_run([*plain, other, *plain], start, start + len(plain) + 1)
        assert run == ReadRun(reads[start][0], V2, [entry_id for _, entry_id in expected])
        assert v2.decode_read_run([other, *plain], 0, 2) is None


@given(st.integers(0, 2**63 - 1), st.lists(st.tuples(st.integers(0, 2**63 - 1), st.binary(max_size=50))))
def test_answers_to_reads_in_bulk_are_the_usual_ones(ledger_id: int, reads: list[tuple[int, bytes]]) -> None:
    usual = [v2.encode_response(ReadResponse(Status.EOK, ledger_id, entry_id, entry)) for entry_id, entry in reads]
    run = ReadRun(ledger_id, V2, [entry_id for entry_id, _ in reads])
    assert v2.encode_read_responses(run, [entry for _, entry in reads]) == b"".join(usual)


def test_what_says_that_adds_of_several_ledgers_are_stored_is_the_answers_of_each_run_in_a_row() -> None:
    runs = [
        AddRun(ledger_id, bytes(20), 0, 0, V2, ids, [struct.pack(">qqqq", ledger_id, e, e - 1, 0) for e in ids])
        for ledger_id, ids in ((7, [3]), (1 << 40, [0, 1, 2]), (8, [5]))
    ]
    expected = b"".join(v2.encode_add_responses(run) for run in runs)
    assert v2.encode_adds_stored(runs) == expected
    acks, _ = v2.Responses().feed(expected)
    assert [*v2.Responses.unpack(acks)] == [(run.ledger_id, e) for run in runs for e in run.entry_ids]
