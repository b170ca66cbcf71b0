"""Frames: how messages are cut out of a byte stream (spec wire-protocol §1.1).

    offset  size  field
    0       4     L, the size of the body, unsigned, big-endian
    4       L     body: one message of v2 or v3

The limit `nettyMaxFrameSizeBytes` counts the length field too: the largest legal body is four bytes smaller. A length
beyond it is refused as soon as it is seen, before any of the body is kept, so a peer can make us hold one frame and
one socket chunk, not more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, ClassVar

from ..errors import ProtocolError
from .messages import V2, V3

DEFAULT_MAX_FRAME_SIZE = 5 * 1024 * 1024
"""`nettyMaxFrameSizeBytes` where no setting says otherwise, on both sides."""

LENGTH_SIZE = 4

SMALL_PIECE = 4096
"""A piece of a frame that is shorter than this is joined with the next one."""

_LENGTH = Struct(">I")
_read_length = _LENGTH.unpack_from
_pack_length = _LENGTH.pack

_FIRST_V3_BYTE = 0x08
"""A protobuf tag with a field number of 1 or more is never smaller; a v2 packet starts with its version, 0 to 2."""


def frame(body: bytes) -> bytes:
    """Put the length in front of a message."""
    return _pack_length(len(body)) + body


def version_of(body: bytes) -> int:
    """`V2` or `V3`: which protocol a request is written in (spec §1.2). Raises `ProtocolError` for an empty body."""
    if not body:
        raise ProtocolError("empty frame")
    return V2 if body[0] < _FIRST_V3_BYTE else V3


MIXED_FROM = 16
"""Adds of a row at least that are taken by columns: to find out costs as much as some adds."""

LOOKED_AT = 64
"""Bodies of a row that are looked at to see whether it is mixed."""


def begin_alike(bodies: Sequence[bytes], head_at: slice, head: bytes) -> bool:
    """Whether `MIXED_FROM` bodies at least have this at `head_at`, with nothing else between them."""
    first = bodies[:MIXED_FROM]
    return len(first) == MIXED_FROM and all(body[head_at] == head for body in first)


def are_mixed(bodies: Sequence[bytes], ledger_at: slice) -> bool:
    """Whether more than half of the first of these bodies, two at least, differ in what stands at `ledger_at`."""
    if bodies[0][ledger_at] == bodies[1][ledger_at]:
        return False
    first = bodies[:LOOKED_AT]
    return 2 * len({body[ledger_at] for body in first}) > len(first)


ALIKE_FROM = 8
"""Frames of one size at least that are cut at once."""


class FrameSplitter:
    """Cuts the chunks that a socket delivers into frame bodies.

    Only the incomplete frame at the end of a chunk is kept, as the pieces it came in, and joined once when it is
    complete: a frame of many chunks is not copied again and again. Small pieces are joined at once: each costs some 50
    bytes beside its own, and a peer may send a frame byte by byte.
    """

    __slots__ = ("_held", "_limit", "_needed", "_pieces", "error")

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        assert max_frame_size > LENGTH_SIZE
        self._limit = max_frame_size - LENGTH_SIZE
        self._pieces: list[bytes] = []
        self._held = 0  # == sum of the sizes of _pieces
        self._needed = 0  # bytes from the start of _pieces that `feed` needs to get any further; > _held if _pieces
        self.error: ProtocolError | None = None
        """Set when the stream broke. Frames returned by the same `feed` were good; the connection must be closed."""

    @property
    def pending(self) -> int:
        """Bytes held of a frame that is not complete yet."""
        return self._held

    @property
    def needed(self) -> int:
        """Size of the frame that is not complete yet, its length field included; what is known of it. 0 if none is."""
        return self._needed

    def start(self, size: int) -> bytes:
        """Up to `size` first bytes of the body of the frame that is not complete yet."""
        return self._pieces[0][LENGTH_SIZE : LENGTH_SIZE + size] if self._pieces else b""

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies of all frames that `data` completes, in order.

        A frame that is too long ends the stream: `error` is set, and the frames in front of it are returned as
        always. Feeding a broken stream raises that `ProtocolError`.
        """
        if self.error is not None:
            raise self.error
        bodies: list[bytes] = []
        if self._pieces:
            if len(self._pieces[-1]) < SMALL_PIECE:
                self._pieces[-1] += data
            else:
                self._pieces.append(data)
            self._held += len(data)
            if self._held < self._needed:
                return []
            if self._needed > LENGTH_SIZE:
                first, data = self._take_frame()
                bodies.append(first)
            else:
                data = self.take_pending()
        start = _cut_alike(data, self._limit, bodies)
        add = bodies.append
        read_length = _read_length
        limit = self._limit
        size = len(data)
        last = size - LENGTH_SIZE
        needed = LENGTH_SIZE
        while start <= last:
            (length,) = read_length(data, start)
            if length > limit:
                self.error = ProtocolError(f"frame of {length} bytes is larger than the limit of {limit}")
                break
            body = start + LENGTH_SIZE
            end = body + length
            if end > size:
                needed = LENGTH_SIZE + length
                break
            add(data[body:end])
            start = end
        self._keep(data, start, needed)
        return bodies

    def _take_frame(self) -> tuple[bytes, bytes]:
        """The body of the frame that the pieces complete, copied once, and what stands behind it."""
        pieces = self._pieces
        last, surplus = pieces[-1], self._held - self._needed
        end = len(last) - surplus
        if len(pieces) == 1:
            body = last[LENGTH_SIZE:end]
        else:
            body = b"".join((memoryview(pieces[0])[LENGTH_SIZE:], *pieces[1:-1], memoryview(last)[:end]))
        pieces.clear()
        return body, last[end:]

    def take_pending(self) -> bytes:
        """Take the bytes that were fed and are not a complete frame: what stands behind START_TLS, for example."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        self._held = self._needed = 0
        return rest

    def _keep(self, data: bytes, start: int, needed: int) -> None:
        self._held = len(data) - start
        if self._held:
            self._pieces.append(data[start:])
            self._needed = needed
            assert self.error is not None or needed > self._held
        else:
            self._needed = 0


def _cut_alike(data: bytes, limit: int, bodies: list[bytes]) -> int:
    """Cut data of which all whole frames are of one size, as where entries are; returns where the last of them ends.

    0 if they are not, or are few. By columns: each of the four bytes of a length must be the same in all.
    """
    if len(data) < LENGTH_SIZE:
        return 0
    length = int.from_bytes(data[:LENGTH_SIZE], "big")
    size = LENGTH_SIZE + length
    count = len(data) // size
    if count < ALIKE_FROM or length > limit:
        return 0
    end = count * size
    if any(data[at:end:size].count(data[at]) != count for at in range(LENGTH_SIZE)):
        return 0
    bodies += [body for (body,) in _body_of(length).iter_unpack(memoryview(data)[:end])]
    return end


@lru_cache(maxsize=256)
def _body_of(length: int) -> Struct:
    return Struct(f"{LENGTH_SIZE}x{length}s")


Acks = list[tuple[int, int]]
"""Ledger and entry ids of adds that succeeded."""

PackedAcks = Any
"""Acknowledgements as a stream gives them: a sequence that can be cut at multiples of the stream's `unit`, joined with
others of its kind and compared with them; read by the stream's `unpack`."""


class ResponseStream(ABC):
    """What a bookie sends to a client: acknowledgements of adds, taken out by the hundred, and the rest in frames.

    A bookie answers the adds of one journal write together, so a chunk mostly is a row of frames that differ in their
    numbers only. How such a row is recognised and read is each version's.
    """

    __slots__ = ("_splitter",)

    unit: ClassVar[int]
    """Items of packed acknowledgements that are one."""
    _no_acks: ClassVar[PackedAcks]
    _max_ack_size: ClassVar[int]
    """No acknowledgement is longer, its length field included."""

    def __init__(self, max_frame_size: int = DEFAULT_MAX_FRAME_SIZE) -> None:
        self._splitter = FrameSplitter(max_frame_size)

    @property
    def error(self) -> ProtocolError | None:
        """As in `FrameSplitter`: set when the stream broke; what was returned so far is good."""
        return self._splitter.error

    def feed(self, data: bytes) -> tuple[PackedAcks, list[bytes]]:
        """The adds that succeeded, packed, and the bodies of all other responses.

        `bodies` may hold add responses too: failed ones, and those behind other responses. Order within each list is
        that of arrival. Raises the `ProtocolError` of a stream that is broken already.
        """
        splitter = self._splitter
        held = splitter.pending
        if splitter.error is not None or held >= self._max_ack_size:
            return self._no_acks, splitter.feed(data)
        if held:
            data = splitter.take_pending() + data
        acks, end = self._leading_acks(data)
        rest = data[end:]
        return acks, splitter.feed(rest) if rest else []

    @staticmethod
    @abstractmethod
    def unpack(packed: PackedAcks) -> Iterator[tuple[int, int]]:
        """The same as `Acks`, one by one."""

    @abstractmethod
    def _leading_acks(self, data: bytes) -> tuple[PackedAcks, int]:
        """The complete acknowledgements that `data` begins with, and where they end."""
