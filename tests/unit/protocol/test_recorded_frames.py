"""Every frame recorded between Java's client and Java bookies: decoded, and encoded back to the same bytes."""

from __future__ import annotations

from types import ModuleType

import pytest

from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.digest import digest_for
from bookkeeper.protocol.frames import FrameSplitter, version_of
from bookkeeper.protocol.messages import (
    AddRequest,
    AddResponse,
    HeaderOnlyResponse,
    ReadRequest,
    ReadResponse,
    UnsupportedRequest,
)
from bookkeeper.types import DigestType
from tests.support.wire import Recorded, recorded

CODECS = {2: v2, 3: v3}
FRAMES = [(CODECS[version], item) for version in (2, 3) for item in recorded(version)]


@pytest.mark.parametrize(("codec", "item"), FRAMES, ids=lambda value: "" if isinstance(value, Recorded) else None)
def test_a_recorded_frame_is_encoded_back_to_the_same_bytes(codec: ModuleType, item: Recorded) -> None:
    assert version_of(item.body) == item.version
    if item.is_request:
        request = codec.decode_request(item.body)
        assert not isinstance(request, UnsupportedRequest)
        assert codec.encode_request(request) == item.frame
    else:
        response = codec.decode_response(item.body)
        assert not isinstance(response, HeaderOnlyResponse)
        assert codec.encode_response(response) == item.frame


@pytest.mark.parametrize("version", [2, 3])
def test_the_bulk_forms_agree_with_the_single_ones(version: int) -> None:
    codec = CODECS[version]
    for item in recorded(version):
        if item.is_request:
            message = codec.decode_request(item.body)
            runs, taken = codec.decode_add_runs([item.body])
            assert taken == isinstance(message, AddRequest)
            for run in runs:
                assert (run.ledger_id, run.master_key, run.flags, run.write_flags) == (
                    message.ledger_id,
                    message.master_key,
                    message.flags,
                    message.write_flags,
                )
                assert run.entry_ids == [message.entry_id]
                assert run.entries == [message.entry]
            plain_read = isinstance(message, ReadRequest) and not message.flags and message.entry_id >= 0
            read_run = codec.decode_read_run([item.body], 0, 1)
            assert (read_run is not None) == plain_read
            if read_run is not None:
                assert (read_run.ledger_id, read_run.entry_ids) == (message.ledger_id, [message.entry_id])
        else:
            response = codec.decode_response(item.body)
            if codec is v3:
                is_entry = isinstance(response, ReadResponse) and not response.status and response.entry is not None
                usual = is_entry and response.entry_id >= 0 and response.lac_update_timestamp is None
                assert (v3.ReadAnswers().decode(item.body) is not None) == usual
            packed, bodies = codec.Responses().feed(item.frame)
            acks = [*codec.Responses.unpack(packed)]
            if isinstance(response, AddResponse) and response.status == 0:
                assert (acks, bodies) == ([(response.ledger_id, response.entry_id)], [])
            else:
                assert (acks, bodies) == ([], [item.body])


@pytest.mark.parametrize("version", [2, 3])
def test_a_recorded_tour_goes_through_the_client_splitter_whole(version: int) -> None:
    frames = [item.frame for item in recorded(version) if not item.is_request]
    stream = b"".join(frames)
    for step in (1, 7, 28, 100, len(stream)):
        splitter = CODECS[version].Responses()
        acks = bodies = 0
        for at in range(0, len(stream), step):
            some_acks, some_bodies = splitter.feed(stream[at : at + step])
            acks += len([*splitter.unpack(some_acks)])
            bodies += len(some_bodies)
        assert acks + bodies == len(frames)
        assert acks > 0


def test_recorded_entries_verify() -> None:
    digest = digest_for(DigestType.CRC32C, b"")
    verified = 0
    for item in recorded(2):
        if not item.is_request and isinstance(read := v2.decode_response(item.body), ReadResponse) and read.entry:
            entry_id = None if read.entry_id == -1 else read.entry_id
            lac, length, payload = digest.verify(read.ledger_id, entry_id, read.entry)
            assert lac >= -1
            assert length >= len(payload)
            verified += 1
    assert verified > 0


def test_the_splitter_cuts_a_recorded_stream_into_its_frames() -> None:
    items = recorded(3)
    assert FrameSplitter().feed(b"".join(item.frame for item in items)) == [item.body for item in items]
