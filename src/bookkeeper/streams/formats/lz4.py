"""Blocks of LZ4: no frame, no size in front (spec streams §5.1).

A block is a row of sequences; each copies some new bytes, then some that are there already:

    token     1       high 4 bits: number of literals; low 4: length of the match - 4
    more      0...    if the number is 15: bytes that are added to it, up to and with the first below 255
    literals
    distance  2       little-endian: how far back the match begins; 1 or more. May reach into the match itself
    more      0...    if the length is 15, as above

The last sequence ends behind its literals. It has at least 5 of them, and the last match begins at least 12 bytes
before the end.

In plain Python, so that every stream can be read without another package. A block that claims more than its size is
stopped there: what is made is never larger than what the caller expects.
"""

from __future__ import annotations

from ..errors import CorruptEntryError

_LAST_LITERALS = 5
_NO_MATCH_AT_END = 12
_MIN_MATCH = 4
_FARTHEST = 0xFFFF


def decompress(block: bytes, size: int) -> bytes:
    """The `size` bytes that a block stands for. Raises `CorruptEntryError`, with the place in the block."""
    out = bytearray()
    at, end = 0, len(block)
    while True:
        if at >= end:
            raise CorruptEntryError("the block of LZ4 has no end", at)
        token = block[at]
        at += 1
        count = token >> 4
        if count == 15:
            count, at = _more(block, at, count)
        if at + count > end or len(out) + count > size:
            raise CorruptEntryError(f"{count} literals of LZ4 do not fit", at)
        out += block[at : at + count]
        at += count
        if at == end:
            break
        at = _match(block, at, token & 15, out, size)
    if len(out) != size:
        raise CorruptEntryError(f"the block of LZ4 gives {len(out)} bytes in place of {size}", end)
    return bytes(out)


def _match(block: bytes, at: int, length: int, out: bytearray, size: int) -> int:
    """Copy what is there already; returns where the next sequence begins."""
    if at + 2 > len(block):
        raise CorruptEntryError("a distance of LZ4 is cut", at)
    distance = block[at] | block[at + 1] << 8
    if not 1 <= distance <= len(out):
        raise CorruptEntryError(f"LZ4 looks {distance} bytes back, where {len(out)} are", at)
    at += 2
    if length == 15:
        length, at = _more(block, at, length)
    length += _MIN_MATCH
    if len(out) + length > size:
        raise CorruptEntryError(f"a match of LZ4 with {length} bytes does not fit", at)
    start = len(out) - distance
    if distance >= length:
        out += out[start : start + length]
    else:  # it runs into itself: the bytes repeat
        pattern = bytes(out[start:])
        out += (pattern * (length // distance + 1))[:length]
    return at


def _more(block: bytes, at: int, count: int) -> tuple[int, int]:
    """The rest of a long number, and where it ends."""
    while at < len(block):
        byte = block[at]
        count += byte
        at += 1
        if byte != 255:
            return count, at
    raise CorruptEntryError("a length of LZ4 is cut", at)


def compress(data: bytes) -> bytes:
    """A block that stands for `data`. It may be larger: by 1/255 and a few bytes at most."""
    out = bytearray()
    seen: dict[bytes, int] = {}
    anchor = at = 0
    last = len(data) - _NO_MATCH_AT_END
    while at <= last:
        word = data[at : at + _MIN_MATCH]
        before = seen.get(word, -1)
        seen[word] = at
        if before < 0 or at - before > _FARTHEST:
            at += 1
            continue
        length = _common(data, before, at)
        _put(out, data[anchor:at], at - before, length)
        at += length
        anchor = at
    _put(out, data[anchor:], 0, _MIN_MATCH)
    return bytes(out)


def _common(data: bytes, before: int, at: int) -> int:
    """How long both places agree; the last literals are left alone."""
    most = len(data) - _LAST_LITERALS - at
    length = _MIN_MATCH
    step = 16
    while (
        length + step <= most
        and data[before + length : before + length + step] == data[at + length : at + length + step]
    ):
        length += step
    while length < most and data[before + length] == data[at + length]:
        length += 1
    return length


def _put(out: bytearray, literals: bytes, distance: int, length: int) -> None:
    """One sequence; without a distance the last one."""
    count, rest = len(literals), length - _MIN_MATCH
    out.append(min(count, 15) << 4 | (min(rest, 15) if distance else 0))
    _put_more(out, count)
    out += literals
    if distance:
        out += distance.to_bytes(2, "little")
        _put_more(out, rest)


def _put_more(out: bytearray, count: int) -> None:
    if count >= 15:
        full, last = divmod(count - 15, 255)
        out += b"\xff" * full
        out.append(last)
