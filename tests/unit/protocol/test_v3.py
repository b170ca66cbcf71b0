from __future__ import annotations

import itertools
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import ProtocolError
from bookkeeper.protocol import v3
from bookkeeper.protocol.frames import frame
from bookkeeper.protocol.messages import (
    V3,
    AddRequest,
    AddResponse,
    AddRun,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    Flags,
    ForceLedgerRequest,
    ForceLedgerResponse,
    GetBookieInfoRequest,
    GetBookieInfoResponse,
    GetListOfEntriesRequest,
    HeaderOnlyResponse,
    Operation,
    ReadLacRequest,
    ReadLacResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    StartTlsRequest,
    StartTlsResponse,
    Status,
    UnsupportedRequest,
    WriteLacRequest,
    WriteLacResponse,
)
from bookkeeper.protocol.protobuf import unvarint, varint
from bookkeeper.protocol.schema import Request as WireRequest
from bookkeeper.protocol.schema import Response as WireResponse
from tests.support.wire import INT64, damaged_bodies, recorded, v3_add_requests, v3_requests, v3_responses

from .vectors import ENTRY, KEY, LAC_PACKET, LEDGER, bytes_of

RECOVERY = Flags.RECOVERY_ADD | Flags.HIGH_PRIORITY

REQUESTS: list[tuple[str, Request]] = [
    ("00000051 0a06 0803 1002 1801 aa0646 08b424 1005 1a14 K 2229 E", AddRequest(LEDGER, 5, ENTRY, KEY, txn_id=1)),
    (
        "00000053 0a06 0803 1002 1801 aa0648 08b424 1005 1a14 K 2229 E 2801",
        AddRequest(LEDGER, 5, ENTRY, KEY, write_flags=1, txn_id=1),
    ),
    (
        "00000056 0a08 0803 1002 1801 2064 aa0649 08b424 1005 1a14 K 2229 E a00601",
        AddRequest(LEDGER, 5, ENTRY, KEY, RECOVERY, txn_id=1, priority=100),
    ),
    ("00000010 0a06 0803 1001 1802 a20605 08b424 1005", ReadRequest(LEDGER, 5, txn_id=2)),
    (
        "00000032 0a06 0803 1001 1802 a20627 08b424 10ffffffffffffffffff01 1a14 K a00601",
        ReadRequest(LEDGER, -1, Flags.DO_FENCING, KEY, txn_id=2),
    ),
    (
        "00000021 0a06 0803 1001 1803 a20616 08b424 10ffffffffffffffffff01 2004 28e807 a00602",
        ReadRequest(LEDGER, -1, Flags.ENTRY_PIGGYBACK, previous_lac=4, timeout_ms=1000, txn_id=3),
    ),
    ("0000000b 0a06 0803 1009 1801 d20600", StartTlsRequest(txn_id=1)),
    ("00000013 0a06 0803 1005 1802 b20608 0a047361736c 1200", AuthRequest("sasl", b"", txn_id=2)),
    (
        "0000003c 0a06 0803 1006 1804 ba0631 08b424 1005 1a14 K 2214 L",
        WriteLacRequest(LEDGER, 5, KEY, LAC_PACKET, txn_id=4),
    ),
    ("0000000e 0a06 0803 1007 1805 c20603 08b424", ReadLacRequest(LEDGER, txn_id=5)),
    ("0000000e 0a06 0803 100a 1806 da0603 08b424", ForceLedgerRequest(LEDGER, txn_id=6)),
    ("0000000d 0a06 0803 1008 1807 ca0602 0803", GetBookieInfoRequest(3, txn_id=7)),
    ("0000000e 0a06 0803 100b 1808 e20603 08b424", GetListOfEntriesRequest(LEDGER, txn_id=8)),
    ("00000008 0a06 0803 100c 1809", UnsupportedRequest(Operation.BATCH_READ_ENTRY, txn_id=9)),
]

LIGHTPROTO: list[tuple[str, Request]] = [
    (
        "00000056 0a08 0803 1002 1801 2064 aa0649 a00601 08b424 1005 1a14 K 2229 E",
        AddRequest(LEDGER, 5, ENTRY, KEY, RECOVERY, txn_id=1, priority=100),
    ),
    (
        "00000032 0a06 0803 1001 1802 a20627 a00601 08b424 10ffffffffffffffffff01 1a14 K",
        ReadRequest(LEDGER, -1, Flags.DO_FENCING, KEY, txn_id=2),
    ),
    (
        "00000021 0a06 0803 1001 1803 a20616 a00602 08b424 10ffffffffffffffffff01 2004 28e807",
        ReadRequest(LEDGER, -1, Flags.ENTRY_PIGGYBACK, previous_lac=4, timeout_ms=1000, txn_id=3),
    ),
    ("00000017 0a06 0803 1007 1805 c20603 08b424 c20c06 0a016b 120176", ReadLacRequest(LEDGER, txn_id=5)),
]
"""The same messages as newer Java clients write them, and one with a logging context."""

RESPONSES: list[tuple[str, Response]] = [
    ("00000014 0a06 0803 1002 1801 1000 aa0607 0800 10b424 1805", AddResponse(Status.EOK, LEDGER, 5, txn_id=1)),
    ("00000016 0a06 0803 1002 1801 10f803 aa0608 08f803 10b424 1805", AddResponse(Status.EFENCED, LEDGER, 5, txn_id=1)),
    (
        "00000048 0a06 0803 1001 1802 1000 a2063b 0800 10b424 18ffffffffffffffffff01 2229 E",
        ReadResponse(Status.EOK, LEDGER, -1, ENTRY, txn_id=2),
    ),
    (
        "00000041 0a06 0803 1001 1802 1000 a20634 0800 10b424 1805 2229 E 2804",
        ReadResponse(Status.EOK, LEDGER, 5, ENTRY, 4, txn_id=2),
    ),
    (
        "00000016 0a06 0803 1001 1802 109303 a20608 089303 10b424 1805",
        ReadResponse(Status.ENOENTRY, LEDGER, 5, txn_id=2),
    ),
    ("0000000d 0a06 0803 1009 1801 1000 d20600", StartTlsResponse(Status.EOK, txn_id=1)),
    ("0000000b 0a06 0803 1009 1801 109403", HeaderOnlyResponse(Status.EBADREQ, Operation.START_TLS, txn_id=1)),
    (
        "00000023 0a06 0803 1005 1802 1000 b20616 0a124175746844697361626c6564506c7567696e 1200",
        AuthResponse(Status.EOK, "AuthDisabledPlugin", b"", txn_id=2, version=V3),
    ),
    ("0000000b 0a06 0803 1005 1802 10f603", HeaderOnlyResponse(Status.EUA, Operation.AUTH, txn_id=2)),
    ("00000012 0a06 0803 1006 1804 1000 ba0605 0800 10b424", WriteLacResponse(Status.EOK, LEDGER, txn_id=4)),
    (
        "00000053 0a06 0803 1007 1805 1000 c20646 0800 10b424 1a14 L 2229 E",
        ReadLacResponse(Status.EOK, LEDGER, LAC_PACKET, ENTRY, txn_id=5),
    ),
    ("00000012 0a06 0803 100a 1806 1000 da0605 0800 10b424", ForceLedgerResponse(Status.EOK, LEDGER, txn_id=6)),
    (
        "0000001d 0a06 0803 1008 1807 1000 ca0610 0800 10808080808020 18808080808010",
        GetBookieInfoResponse(Status.EOK, 2**40, 2**39, txn_id=7),
    ),
    ("0000000b 0a06 0803 100c 1809 109403", HeaderOnlyResponse(Status.EBADREQ, Operation.BATCH_READ_ENTRY, txn_id=9)),
]


Message = TypeVar("Message", Request, Response)


def _as_v3(message: Message) -> Message:
    message.version = V3
    return message


@pytest.mark.parametrize(("text", "message"), REQUESTS)
def test_request_vectors(text: str, message: Request) -> None:
    assert v3.decode_request(bytes_of(text)[4:]) == _as_v3(message)
    assert v3.encode_request(message) == bytes_of(text)


@pytest.mark.parametrize(("text", "message"), LIGHTPROTO)
def test_fields_in_another_order_are_understood(text: str, message: Request) -> None:
    assert v3.decode_request(bytes_of(text)[4:]) == _as_v3(message)


@pytest.mark.parametrize(("text", "message"), RESPONSES)
def test_response_vectors(text: str, message: Response) -> None:
    assert v3.decode_response(bytes_of(text)[4:]) == _as_v3(message)
    assert v3.encode_response(message) == bytes_of(text)


@given(v3_requests)
def test_requests_round_trip(message: Request) -> None:
    assert v3.decode_request(v3.encode_request(message)[4:]) == message


@given(v3_responses)
def test_responses_round_trip(message: Response) -> None:
    assert v3.decode_response(v3.encode_response(message)[4:]) == message


@given(v3_requests)
def test_requests_written_by_hand_are_those_of_protobuf(message: Request) -> None:
    body = v3.encode_request(message)[4:]
    assert WireRequest.FromString(body).SerializeToString() == body


@given(v3_responses)
def test_responses_written_by_hand_are_those_of_protobuf(message: Response) -> None:
    body = v3.encode_response(message)[4:]
    assert WireResponse.FromString(body).SerializeToString() == body


@given(INT64 | st.integers(0, 2**64 - 1))
def test_varints_are_those_of_protobuf(value: int) -> None:
    wire = WireRequest()
    wire.header.txnId = value % 2**64
    assert unvarint(varint(value)) % 2**64 == value % 2**64
    assert wire.header.SerializePartialToString() == b"\x18" + varint(value)


@pytest.mark.parametrize("shift", range(64))
def test_varints_at_their_size_limits(shift: int) -> None:
    for value in (2**shift - 1, 2**shift):
        wire = WireRequest()
        wire.header.txnId = value
        assert wire.header.SerializePartialToString() == b"\x18" + varint(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0a06 0803 100d 1801",  # operation 13
        "0a06 0803 1063 1801",  # operation 99
        "0a06 0803 1000 1801",  # operation 0, which our schema knows as unset
        "0a06 0804 1002 1801 aa0646 08b424 1005 1a14 K 2229 E",  # version 4
        "0a06 0800 1002 1801 aa0646 08b424 1005 1a14 K 2229 E",  # version 0
        "a20605 08b424 1005",  # no header
        "0a04 0803 1001 a20605 08b424 1005",  # no txn id
        "0a06 0803 1001 1801 a20603 08b424",  # no entry id
        "0a06 0803 1001 1801 a20602 1005",  # no ledger id
        "0a06 0803 1002 1801 aa0642 08b424 1a14 K 2229 E",  # add without entry id
        "0a06 0803 1002 1801 aa0630 08b424 1005 2229 E",  # add without key
        "0a06 0803 1002 1801 aa061b 08b424 1005 1a14 K",  # add without body
        "0a06 0803 1005 1802 b20602 1200",  # AUTH without a plug-in name
        "0a06 0803 1005 1802 b20606 0a02fffe 1200",  # AUTH with a name that is no UTF-8
        "0a06 0803 1001 1801 a20605 08b424",  # cut short
        "1603010200",
        "474554202f20485454502f312e310d0a",
    ],
)
def test_incomplete_and_unknown_requests_break_the_connection(text: str) -> None:
    """SEC-4, SEC-5."""
    body = bytes_of(text)
    with pytest.raises(ProtocolError):
        v3.decode_request(body)
    assert v3.decode_add_runs([body]) == ([], 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0a06 0803 1001 1801",  # no status
        "0a06 0803 1001 1801 1001",  # status 1
        "0a06 0803 1001 1801 10ffffffffffffffffff01",  # status -1, which our schema knows as unset
        "0a06 0803 1001 1801 1000 a20608 08ffffffffffffffffff01 10b424 1805",  # the same, inside
        "0a06 0803 1001 1801 1000 a20605 10b424 1805",  # no status inside
        "0a06 0803 1002 1801 1000 aa0605 10b424 1805",
        "0a06 0803 1001 1801 1000",  # success without its message
        "0a06 0803 1063 1801 1000",
    ],
)
def test_incomplete_and_unknown_responses_break_the_connection(text: str) -> None:
    with pytest.raises(ProtocolError):
        v3.decode_response(bytes_of(text))


@pytest.mark.parametrize("ledger", ["08b424", "0800"])
@pytest.mark.parametrize("entry", ["1005", "1000"])
@pytest.mark.parametrize("txn", ["1802", "1800"])
def test_numbers_that_are_zero_are_not_missing(ledger: str, entry: str, txn: str) -> None:
    size = len(bytes.fromhex(ledger + entry))
    read = v3.decode_request(bytes.fromhex(f"0a06 0803 1001 {txn} a206{size:02x} {ledger} {entry}"))
    assert isinstance(read, ReadRequest)
    assert (read.ledger_id == 0, read.entry_id == 0, read.txn_id == 0) == (
        ledger == "0800",
        entry == "1000",
        txn == "1800",
    )
    response = v3.decode_response(
        bytes.fromhex(f"0a06 0803 1001 {txn} 1000 a206{size + 2:02x} 0800 10{ledger[2:]} 18{entry[2:]}")
    )
    assert isinstance(response, ReadResponse)
    assert (response.ledger_id, response.entry_id, response.txn_id) == (read.ledger_id, read.entry_id, read.txn_id)


def test_an_unknown_flag_is_no_flag_and_unknown_fields_are_skipped() -> None:
    """SEC-5."""
    read = v3.decode_request(bytes_of("0a06 0803 1001 1802 a2060b 08b424 1005 a00609 aa1f00 c01f01"))
    assert read == ReadRequest(LEDGER, 5, txn_id=2, version=V3)


def test_a_repeated_header_merges_and_its_last_value_wins() -> None:
    read = v3.decode_request(bytes_of("0a06 0803 1001 1802 a20605 08b424 1005 0a06 0803 1001 1807"))
    assert read == ReadRequest(LEDGER, 5, txn_id=7, version=V3)


def test_an_operation_without_its_message_is_unsupported() -> None:
    """SEC-4."""
    for operation in Operation:
        header = bytes.fromhex("0803 10") + varint(operation) + bytes.fromhex("1801 2005")
        body = bytes((0x0A, len(header))) + header
        assert v3.decode_request(body) == UnsupportedRequest(operation, txn_id=1, priority=5, version=V3)


def test_the_status_of_the_response_counts_unless_it_is_success() -> None:
    inner = v3.decode_response(bytes_of("0a06 0803 1001 1802 1000 a20608 089303 10b424 1805"))
    outer = v3.decode_response(bytes_of("0a06 0803 1001 1802 10f603 a20608 089303 10b424 1805"))
    assert (inner.status, outer.status) == (Status.ENOENTRY, Status.EUA)
    inner = v3.decode_response(bytes_of("0a06 0803 1002 1802 1000 aa0608 08f803 10b424 1805"))
    assert inner.status == Status.EFENCED


def test_a_header_version_is_handed_on_for_the_bookie_to_refuse() -> None:
    request = v3.decode_request(bytes_of("0a06 0802 1001 1802 a20605 08b424 1005"))
    assert request.version == 2


def test_what_v3_cannot_say_is_refused_when_it_is_written() -> None:
    with pytest.raises(ValueError):
        v3.encode_request(BatchReadRequest(1, 2, 3, 4, 5))
    with pytest.raises(ValueError):
        v3.encode_response(BatchReadResponse(Status.EOK, 1, 2, 3))
    with pytest.raises(ValueError):
        v3.encode_request(ReadRequest(1, -1, Flags.DO_FENCING | Flags.ENTRY_PIGGYBACK, KEY))


def test_the_high_priority_flag_is_written_as_a_priority() -> None:
    request = v3.decode_request(v3.encode_request(ReadRequest(1, 2, Flags.HIGH_PRIORITY))[4:])
    assert request.priority == 100


NEAR_LIMITS = st.sampled_from([n + d for n in (1, 2**7, 2**14, 2**21, 2**28, 2**56, 2**63 - 2) for d in (-1, 0, 1)])

# --- the data path ---------------------------------------------------------------------------------------------


@st.composite
def plain_adds(draw: st.DrawFn) -> list[AddRequest]:
    """What a writer or two send: mostly alike, with numbers on both sides of where their encoding grows."""
    adds = []
    for _ in range(draw(st.integers(1, 12))):
        ledger_id, entry_id = draw(NEAR_LIMITS), draw(NEAR_LIMITS)
        entry = ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big") + bytes(draw(st.sampled_from([8, 90, 120])))
        flags = Flags.RECOVERY_ADD if draw(st.integers(0, 9)) == 0 else 0
        key = draw(st.sampled_from([KEY, bytes(20)]))
        adds.append(
            AddRequest(ledger_id, entry_id, entry, key, flags, 0, txn_id=draw(NEAR_LIMITS), priority=0, version=V3)
        )
    return adds


@given(st.lists(v3_add_requests(stored=True), min_size=1, max_size=8) | plain_adds())
def test_adds_in_runs_are_the_adds_decoded_one_by_one(adds: list[AddRequest]) -> None:
    runs, taken = v3.decode_add_runs([v3.encode_request(add)[4:] for add in adds])
    assert taken == len(adds)
    in_runs = [
        (run.ledger_id, run.master_key, run.flags, run.write_flags, *each)
        for run in runs
        for each in zip(run.entry_ids, run.entries, run.txn_tokens, strict=True)
    ]
    singly = [
        (add.ledger_id, add.master_key, add.flags, add.write_flags, add.entry_id, add.entry, v3.txn_token(add.txn_id))
        for add in adds
    ]
    assert sorted(in_runs) == sorted(singly)


@pytest.mark.parametrize(
    "odd",
    [
        "0a06 0803 1002 1801 aa0646 08b424 1006 1a14 K 2229 E",  # another entry id than the entry's
        "0a06 0803 1002 1801 aa0646 08b524 1005 1a14 K 2229 E",  # another ledger id
        "0a06 0802 1002 1801 aa0646 08b424 1005 1a14 K 2229 E",  # version 2
        "0a06 0803 1001 1802 a20605 08b424 1005",
        "ffff",
    ],
)
def test_a_run_ends_at_whatever_needs_a_closer_look(odd: str) -> None:
    good = bytes_of("0a06 0803 1002 1801 aa0646 08b424 1005 1a14 K 2229 E")
    runs, taken = v3.decode_add_runs([good, good, bytes_of(odd), good])
    assert taken == 2
    assert [(run.entry_ids, run.txn_tokens, run.version) for run in runs] == [([5, 5], [b"\x01"] * 2, V3)]
    assert v3.decode_add_runs([good, good, bytes_of(odd), good], 3)[1] == 4


@given(st.integers(0, 71), st.integers(1, 255), st.sampled_from([1, 300]))
def test_an_add_like_the_one_before_it_except_for_a_byte_is_not_mistaken(at: int, change: int, entry_id: int) -> None:
    entry = LEDGER.to_bytes(8, "big") + entry_id.to_bytes(8, "big") + bytes(20)
    good = v3.encode_request(AddRequest(LEDGER, entry_id, entry, KEY, txn_id=entry_id))[4:]
    odd = bytearray(good)
    odd[at] ^= change
    runs, taken = v3.decode_add_runs([good, good, bytes(odd), good])
    assert taken in (2, 4)
    if taken == 2:
        return
    add = v3.decode_request(bytes(odd))
    assert isinstance(add, AddRequest)
    run = next(
        run
        for run in runs
        if (run.master_key, run.flags) == (add.master_key, add.flags) and run.ledger_id == add.ledger_id
    )
    index = -1 if run is not runs[0] else 2
    assert (run.entry_ids[index], run.entries[index], run.txn_tokens[index]) == (
        add.entry_id,
        add.entry,
        v3.txn_token(add.txn_id),
    )


def test_both_field_orders_of_a_recovery_add_are_in_the_run() -> None:
    bodies = [bytes_of(text)[4:] for text, _ in (REQUESTS[2], LIGHTPROTO[0])]
    (run,), taken = v3.decode_add_runs(bodies)
    assert taken == 2
    assert (run.flags, run.entries) == (RECOVERY, [ENTRY, ENTRY])


@given(
    INT64,
    st.lists(st.tuples(st.integers(0, 2**64 - 1), INT64), min_size=1, max_size=20),
    st.sampled_from([Status.EOK, Status.EFENCED]),
)
def test_a_run_is_answered_as_its_adds_would_be(ledger: int, adds: list[tuple[int, int]], status: Status) -> None:
    run = AddRun(ledger, KEY, 0, 0, V3, [e for _, e in adds], [b""] * len(adds), [v3.txn_token(t) for t, _ in adds])
    expected = b"".join(v3.encode_response(AddResponse(status, ledger, entry, txn_id=txn)) for txn, entry in adds)
    assert v3.encode_add_responses(run, status) == expected
    others = [AddRun(ledger_id, KEY, 0, 0, V3, [1, 300], [b""] * 2, [b"\x01", b"\x02"]) for ledger_id in (0, 127, 128)]
    together = b"".join(v3.encode_add_responses(each, status) for each in (*others, run, *others))
    assert v3.encode_adds_answered((*others, run, *others), status) == together


@given(
    st.integers(0, 2**63 - 1),
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1), st.binary(max_size=300)), max_size=8),
)
def test_a_ledgers_encoder_writes_what_a_single_request_would(ledger: int, adds: list[tuple[int, int, bytes]]) -> None:
    encoder = v3.AddRequestEncoder(ledger, KEY)
    for txn_id, entry_id, entry in adds:
        written = encoder.encode(v3.txn_token(txn_id), entry_id, entry)
        assert written == v3.encode_request(AddRequest(ledger, entry_id, entry, KEY, txn_id=txn_id))


ACKS = st.builds(
    AddResponse,
    st.just(Status.EOK),
    NEAR_LIMITS,
    NEAR_LIMITS | INT64,
    txn_id=NEAR_LIMITS,
    version=st.just(V3),
)


@given(st.lists(ACKS | v3_responses, max_size=30), st.lists(st.integers(0, 3000), max_size=10))
def test_a_client_gets_every_response_once_however_the_stream_is_cut(
    responses: list[Response], cuts: list[int]
) -> None:
    stream = b"".join(map(v3.encode_response, responses))
    bounds = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})
    splitter = v3.Responses()
    acks: list[tuple[int, int]] = []
    others: list[Response] = []
    for start, end in itertools.pairwise(bounds):
        some, bodies = splitter.feed(stream[start:end])
        acks += some
        others += [v3.decode_response(body) for body in bodies]
    for response in others:
        responses.remove(response)
    assert all(isinstance(response, AddResponse) and response.status == Status.EOK for response in responses)
    assert sorted(acks) == sorted((response.ledger_id, response.entry_id) for response in responses)  # type: ignore[union-attr]


@given(st.lists(ACKS, min_size=1, max_size=40))
def test_a_row_of_acknowledgements_is_taken_whole(acks: list[AddResponse]) -> None:
    stream = b"".join(map(v3.encode_response, acks))
    assert v3.Responses().feed(stream) == ([(ack.ledger_id, ack.entry_id) for ack in acks], [])


@pytest.mark.parametrize(
    "text",
    [
        "00000015 0a07 0803 1002 188100 1000 aa0607 0800 10b424 1805",  # txn id with a byte too many
        "00000015 0a06 0803 1002 1801 1000 aa0608 0800 10b42400 1805",  # a byte too many behind the ledger id
        "00000014 0a06 0803 1002 1801 aa0607 0800 10b424 1805 1000",  # another order
        "00000014 0a06 0803 1002 1801 1000 aa0607 10b424 0800 1805",
        "00000014 0a06 0803 1002 1801 1000 aa0606 0800 10b424 1805",  # an inner size that does not fit
        "00000016 0a06 0803 1002 1801 10f803 aa0608 08f803 10b424 1805",  # a failure
        "00000017 0a06 0803 1002 1801 1000 aa0607 0800 10b424 1805 f80600",  # an unknown field
    ],
)
def test_anything_but_the_canonical_acknowledgement_is_left_to_protobuf(text: str) -> None:
    good = bytes_of("00000014 0a06 0803 1002 1801 1000 aa0607 0800 10b424 1805")
    odd = bytes_of(text)
    assert v3.Responses().feed(odd) == ([], [odd[4:]])
    assert v3.Responses().feed(good + odd + good) == ([(LEDGER, 5)], [odd[4:], good[4:]])


def test_a_broken_response_stream_is_reported_after_what_was_good() -> None:
    good = bytes_of("00000014 0a06 0803 1002 1801 1000 aa0607 0800 10b424 1805")
    splitter = v3.Responses(1000)
    assert splitter.feed(good + b"\xff\xff\xff\xff") == ([(LEDGER, 5)], [])
    assert splitter.error is not None
    with pytest.raises(ProtocolError):
        splitter.feed(good)


def test_damaged_frames_raise_protocol_errors_and_nothing_else() -> None:
    bodies = [item.body for item in recorded(3)]
    for body in damaged_bodies(bodies, 5_000, seed=3):
        for decode in (v3.decode_request, v3.decode_response):
            try:
                decode(body)
            except ProtocolError:
                continue
        v3.decode_add_runs([body])
        v3.Responses().feed(frame(body))
