"""The decoders against bytes that nobody should send: a ProtocolError is the only way to refuse them.

`BOOKKEEPER_FUZZ_COUNT` is how many bodies each decoder gets, `BOOKKEEPER_FUZZ_SEED` which.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from bookkeeper.errors import ProtocolError
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.auth import decode_auth_message
from bookkeeper.protocol.availability import decode_availability, encode_availability
from bookkeeper.protocol.digest import digest_for
from bookkeeper.protocol.frames import FrameSplitter, frame
from bookkeeper.protocol.messages import AddRequest, ReadRequest, ReadResponse, Request, Response, Status
from bookkeeper.protocol.protobuf import unvarint, varint
from bookkeeper.types import DigestType
from tests.support.wire import damaged_bodies, recorded

COUNT = int(os.environ.get("BOOKKEEPER_FUZZ_COUNT", "100000"))
SEED = int(os.environ.get("BOOKKEEPER_FUZZ_SEED", "1"))

V2_BODIES = [item.body for item in recorded(2)]
V3_BODIES = [item.body for item in recorded(3)]
MESSAGES = [body[4:] for body in V2_BODIES] + V3_BODIES
LISTS = [encode_availability(range(0, 50, step)) for step in (1, 2, 3)]


def _bodies(good: list[bytes], decoder: str) -> list[bytes]:
    seed = SEED * 1000 + sum(decoder.encode())
    return list(damaged_bodies(good, COUNT, seed))


@pytest.mark.parametrize(
    ("decode", "good"),
    [
        (v2.decode_request, V2_BODIES),
        (v2.decode_response, V2_BODIES),
        (v3.decode_request, V3_BODIES),
        (v3.decode_response, V3_BODIES),
        (decode_auth_message, MESSAGES),
        (decode_availability, LISTS),
    ],
    ids=["v2 request", "v2 response", "v3 request", "v3 response", "auth", "availability"],
)
def test_a_decoder_raises_protocol_errors_only(
    decode: Callable[[bytes], object], good: list[bytes], request: pytest.FixtureRequest
) -> None:
    """SEC-4, SEC-5, SEC-30."""
    refused = 0
    for body in _bodies(good, request.node.name):
        try:
            decode(body)
        except ProtocolError:
            refused += 1
    assert 0 < refused < COUNT


@pytest.mark.parametrize("codec", [v2, v3], ids=["v2", "v3"])
def test_adds_taken_in_bulk_are_those_that_the_single_decoder_sees(codec: object) -> None:
    decode_add_runs = codec.decode_add_runs  # type: ignore[attr-defined]
    decode_request: Callable[[bytes], Request] = codec.decode_request  # type: ignore[attr-defined]
    bodies = V2_BODIES if codec is v2 else V3_BODIES
    adds = [body for body in bodies if decode_add_runs([body])[1]]
    example = max(adds, key=adds.count)
    taken_in_all = 0
    for body in _bodies([example, *adds], "runs"):
        runs, taken = decode_add_runs([example, body])  # the first teaches the decoder how adds look here
        if taken == 1:
            continue
        taken_in_all += 1
        add = decode_request(body)
        assert isinstance(add, AddRequest)
        run = runs[-1]
        assert (run.ledger_id, run.master_key, run.flags, run.write_flags) == (
            add.ledger_id,
            add.master_key,
            add.flags,
            add.write_flags,
        )
        assert (run.entry_ids[-1], run.entries[-1]) == (add.entry_id, add.entry)
        if codec is v3:
            assert unvarint(run.txn_tokens[-1]) % 2**64 == add.txn_id
    assert taken_in_all > 0


@pytest.mark.parametrize("codec", [v2, v3], ids=["v2", "v3"])
def test_reads_taken_in_bulk_are_those_that_the_single_decoder_sees(codec: object) -> None:
    decode_read_run = codec.decode_read_run  # type: ignore[attr-defined]
    decode_request: Callable[[bytes], Request] = codec.decode_request  # type: ignore[attr-defined]
    bodies = V2_BODIES if codec is v2 else V3_BODIES
    reads = [body for body in bodies if decode_read_run([body], 0, 1) is not None]
    example = max(reads, key=len)
    taken_in_all = 0
    for body in _bodies([example, *reads], "reads"):
        alone = decode_read_run([body], 0, 1)
        run = decode_read_run([example, body], 0, 2)
        read = decode_request(body) if alone is not None or len(run.entry_ids) == 2 else None
        for found in (alone, run if len(run.entry_ids) == 2 else None):
            if found is not None:
                taken_in_all += 1
                txn_id = unvarint(found.txn_tokens[-1]) if codec is v3 else 0
                version = 3 if codec is v3 else 2
                assert read == ReadRequest(found.ledger_id, found.entry_ids[-1], txn_id=txn_id, version=version)
    assert taken_in_all > 0


def test_answers_to_reads_taken_in_bulk_are_those_that_the_single_decoder_sees() -> None:
    answers = v3.ReadAnswers()
    good = [item.body for item in recorded(3) if not item.is_request and answers.decode(item.body) is not None]
    example = max(good, key=len)
    taken = 0
    for body in _bodies([example, *good], "answers"):
        answers.decode(example)
        found = answers.decode(body)
        if found is None:
            continue
        token, number, entry, lac = found
        txn_id, entry_id = unvarint(token), unvarint(number)
        if (varint(txn_id), varint(entry_id)) != (token, number):
            continue  # nobody asked for that
        taken += 1
        response = decode_v3_read(body)
        assert response == ReadResponse(
            Status.EOK, response.ledger_id, entry_id, entry, lac, None, txn_id=txn_id, version=3
        )
    assert taken > 0


def decode_v3_read(body: bytes) -> ReadResponse:
    response = v3.decode_response(body)
    assert isinstance(response, ReadResponse)
    return response


@pytest.mark.parametrize("codec", [v2, v3], ids=["v2", "v3"])
def test_acknowledgements_taken_in_bulk_are_those_that_the_single_decoder_sees(codec: object) -> None:
    decode_response: Callable[[bytes], Response] = codec.decode_response  # type: ignore[attr-defined]
    for body in _bodies([item.body for item in recorded(2 if codec is v2 else 3) if not item.is_request], "acks"):
        packed, bodies = codec.Responses().feed(frame(body))  # type: ignore[attr-defined]
        acks = [*codec.Responses.unpack(packed)]  # type: ignore[attr-defined]
        if not acks:
            assert bodies == [body]
            continue
        response = decode_response(body)
        assert codec.encode_response(response) == frame(body)  # type: ignore[attr-defined]
        assert (acks, bodies) == ([(response.ledger_id, response.entry_id)], [])  # type: ignore[union-attr]


def test_a_splitter_never_holds_more_than_a_frame() -> None:
    """SEC-1, SEC-3."""
    for body in _bodies(V2_BODIES + V3_BODIES, "splitter"):
        splitter = FrameSplitter(200)
        for chunk in (body[:17], body[17:]):
            splitter.feed(chunk)
            if splitter.error is not None:
                break
            assert splitter.pending < 200


@pytest.mark.parametrize("kind", DigestType)
def test_a_batch_of_damaged_entries_is_read_up_to_the_damage(kind: DigestType) -> None:
    """SEC-31, RI-12."""
    digest = digest_for(kind, b"secret")
    entries = [digest.package(7, entry_id, entry_id - 1, 10 * entry_id, b"payload") for entry_id in range(3)]
    good = b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries)
    for body in _bodies([good], kind.value):
        verified, damaged = digest.verify_run(7, 0, body)
        assert damaged or verified or not body
        assert [found[0] for found in verified] == list(range(len(verified)))
