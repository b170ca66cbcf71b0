from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import ProtocolError
from bookkeeper.protocol.frames import SMALL_PIECE, FrameSplitter, frame, version_of
from bookkeeper.protocol.messages import V2, V3


@st.composite
def chunked(draw: st.DrawFn, bodies: st.SearchStrategy[list[bytes]]) -> tuple[list[bytes], list[bytes]]:
    """Bodies, and their frames as one stream cut into chunks anywhere."""
    sent = draw(bodies)
    stream = b"".join(map(frame, sent))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    return sent, [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(chunked(st.lists(st.binary(max_size=60))))
def test_any_chunking_gives_the_same_frames(case: tuple[list[bytes], list[bytes]]) -> None:
    sent, chunks = case
    splitter = FrameSplitter(64)
    assert [body for chunk in chunks for body in splitter.feed(chunk)] == sent
    assert splitter.pending == 0
    assert splitter.error is None


def test_a_stream_byte_by_byte_gives_the_same_frames() -> None:
    sent = [b"", b"a", b"bc" * 100]
    splitter = FrameSplitter()
    stream = b"".join(map(frame, sent))
    assert [body for at in range(len(stream)) for body in splitter.feed(stream[at : at + 1])] == sent


def test_a_frame_in_tiny_pieces_takes_no_more_memory_than_it_has_bytes() -> None:
    """SEC-3."""
    splitter = FrameSplitter()
    stream = frame(bytes(400_000))
    for at in range(0, len(stream) - 2, 2):
        assert splitter.feed(stream[at : at + 2]) == []
    assert len(splitter._pieces) <= len(stream) // SMALL_PIECE + 1
    assert (splitter.pending, splitter.needed) == (len(stream) - 2, len(stream))
    assert splitter.feed(stream[-2:]) == [bytes(400_000)]
    assert splitter.needed == 0


def test_the_limit_counts_the_length_field() -> None:
    """SEC-1, SEC-28."""
    assert FrameSplitter(100).feed(frame(bytes(96))) == [bytes(96)]
    splitter = FrameSplitter(100)
    assert splitter.feed(frame(bytes(97))) == []
    assert splitter.error is not None


@pytest.mark.parametrize("length", ["005000fd", "7fffffff", "80000000", "ffffffff"])
def test_a_length_beyond_the_default_limit_is_refused_with_its_fourth_byte(length: str) -> None:
    """SEC-1: nothing is allocated."""
    splitter = FrameSplitter()
    assert splitter.feed(bytes.fromhex(length)[:3]) == []
    assert splitter.error is None
    assert splitter.feed(bytes.fromhex(length)[3:]) == []
    assert splitter.error is not None


def test_the_largest_default_frame_is_accepted() -> None:
    body = bytes(5242876)
    splitter = FrameSplitter()
    stream = frame(body)
    bodies = [found for at in range(0, len(stream), 65536) for found in splitter.feed(stream[at : at + 65536])]
    assert bodies == [body]


def test_good_frames_in_front_of_a_bad_one_are_delivered_and_the_stream_is_broken_after() -> None:
    """FX-63."""
    splitter = FrameSplitter(100)
    assert splitter.feed(frame(b"one") + frame(b"two") + b"\xff\xff\xff\xff" + frame(b"never")) == [b"one", b"two"]
    assert isinstance(splitter.error, ProtocolError)
    with pytest.raises(ProtocolError):
        splitter.feed(frame(b"more"))


def test_no_more_is_held_than_one_incomplete_frame() -> None:
    """SEC-3."""
    splitter = FrameSplitter(1000)
    splitter.feed(frame(bytes(100)) + frame(bytes(900))[:500])
    assert splitter.pending == 500


def test_pending_bytes_can_be_taken_for_another_protocol() -> None:
    splitter = FrameSplitter()
    hello = bytes.fromhex("160301020001")
    assert splitter.feed(frame(b"start") + hello) == [b"start"]
    assert splitter.take_pending() == hello
    assert splitter.pending == 0


def test_the_first_byte_tells_the_version() -> None:
    assert [version_of(bytes((first,))) for first in (0, 1, 2, 7)] == [V2] * 4
    assert [version_of(bytes((first,))) for first in (8, 0x0A, 0x80, 0xFF)] == [V3] * 4
    with pytest.raises(ProtocolError):
        version_of(b"")
