"""Digests: how entries are packaged by writers and checked by readers (spec wire-protocol §6).

    type    size  digest of d = header followed by payload
    DUMMY   0     nothing
    CRC32C  4     Castagnoli CRC, big-endian
    CRC32   8     zlib's CRC, widened with zeros to 8 bytes, big-endian
    MAC     20    HMAC-SHA1 of d with the key SHA1("mac" + password)

The layouts of entry and LAC packet are in `entry`. A reader trusts nothing that it has not checked: digest, ledger id
and, except for a bookie's last entry, entry id. Bookies never look at digests.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache, lru_cache
from struct import Struct
from typing import ClassVar

import google_crc32c
from isal import isal_zlib

from ..errors import DigestMismatchError
from ..types import DigestType
from .entry import HEADER, HEADER_SIZE, LAC_HEADER, LAC_HEADER_SIZE
from .messages import Packed

Verified = tuple[int, int, bytes]
"""LAC, length and payload of an entry whose digest and ids are right."""

VerifiedRunEntry = tuple[int, int, int, bytes]
"""Entry id, LAC, length and payload."""

_pack_header = HEADER.pack
_SIZE = 4
"""Of the size in front of each entry of a batch read."""

CHECKED_TOGETHER = 256
"""Entries of a run whose columns are in memory at once, so that they are in the processor's cache."""

JOIN_BELOW = 4096
"""A small payload is cheaper to join to its header and sum in one call; a large one is not copied for that."""


def master_key(password: bytes) -> bytes:
    """What proves to a bookie that a client may write or fence; the same for all digest types (§6.2)."""
    return hashlib.sha1(b"ledger" + password).digest()


def mac_key(password: bytes) -> bytes:
    """The key of the MAC digest; never sent."""
    return hashlib.sha1(b"mac" + password).digest()


def digest_for(digest_type: DigestType, password: bytes) -> Digest:
    """The digest of a ledger with this type and password."""
    return HmacDigest(password) if digest_type is DigestType.MAC else _without_key(digest_type)


@cache
def _without_key(digest_type: DigestType) -> Digest:
    """One for all ledgers."""
    match digest_type:
        case DigestType.CRC32C:
            return Crc32cDigest()
        case DigestType.CRC32:
            return Crc32Digest()
        case DigestType.DUMMY:
            return DummyDigest()
        case DigestType.MAC:
            raise AssertionError("it has a key")


class Digest(ABC):
    """One way to protect entries. Stateless after construction: one object serves any number of ledgers.

    A digest on the wire is one struct field, an integer or bytes, whichever its function gives: so it is written, read
    and compared without conversion.
    """

    __slots__ = ()

    size: ClassVar[int]
    """Bytes of the digest."""
    format: ClassVar[str]
    """The digest as a `struct` field."""

    field: ClassVar[Struct]
    """The digest alone."""
    _entry_head: ClassVar[Struct]
    """Header and digest of an entry."""
    _sized_entry_head: ClassVar[Struct]
    """The same behind the entry's size, as in a batch read."""
    _lac_packet: ClassVar[Struct]

    def __init_subclass__(cls, field: str) -> None:
        cls.format = field
        cls.field = Struct(">" + field)
        cls._entry_head = Struct(">qqqq" + field)
        cls._sized_entry_head = Struct(">iqqqq" + field)
        cls._lac_packet = Struct(">qq" + field)
        cls.size = cls.field.size

    @abstractmethod
    def sum(self, data: bytes, /) -> int | bytes:
        """The digest of header and payload in one piece."""

    @abstractmethod
    def sum_pieces(self, header: bytes, payload: bytes | memoryview, /) -> int | bytes:
        """The same, without joining them."""

    def package(self, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes) -> bytes:
        """The entry as it is sent and stored. `length` is that of the ledger, `payload` included."""
        header = _pack_header(ledger_id, entry_id, lac, length)
        if len(payload) < JOIN_BELOW:
            return header + self.field.pack(self.sum(header + payload)) + payload
        return header + self.field.pack(self.sum_pieces(header, payload)) + payload

    def verify(self, ledger_id: int, entry_id: int | None, entry: bytes) -> Verified:
        """Check an entry that a bookie returned; `entry_id` is None for a bookie's last entry, whatever it is.

        Raises `DigestMismatchError` if it is too short, its digest is wrong, or it is another entry.
        """
        head = self._entry_head
        if len(entry) < head.size:
            raise DigestMismatchError(
                f"entry of {len(entry)} bytes is too short", ledger_id=ledger_id, entry_id=entry_id
            )
        found_ledger, found_entry, lac, length, digest = head.unpack_from(entry)
        payload = entry[head.size :]
        header = entry[:HEADER_SIZE]
        if digest != (self.sum(header + payload) if len(payload) < JOIN_BELOW else self.sum_pieces(header, payload)):
            raise DigestMismatchError("the entry's digest is wrong", ledger_id=ledger_id, entry_id=entry_id)
        if found_ledger != ledger_id or (entry_id is not None and found_entry != entry_id):
            raise DigestMismatchError(
                f"the bookie returned entry {found_entry} of ledger {found_ledger}",
                ledger_id=ledger_id,
                entry_id=entry_id,
            )
        return lac, length, payload

    def verify_row(
        self, ledger_id: int, entry_ids: tuple[int, ...], entries: Sequence[bytes]
    ) -> tuple[Sequence[int], list[bytes]] | None:
        """Check entries, one at least, as `verify` does, but all at once.

        Returns the length of the ledger with each of them, and their payloads. None if one is bad.
        """
        head = self._entry_head
        size = head.size
        if min(map(len, entries)) < size:
            return None
        ledger_ids, found_ids, _, lengths, digests = zip(*map(head.unpack_from, entries), strict=True)
        if found_ids != entry_ids or set(ledger_ids) != {ledger_id}:
            return None
        payloads = [entry[size:] for entry in entries]
        headers = [entry[:HEADER_SIZE] for entry in entries]
        if max(map(len, payloads)) < JOIN_BELOW:
            sums = tuple([self.sum(header + payload) for header, payload in zip(headers, payloads, strict=True)])
        else:
            sums = tuple(map(self.sum_pieces, headers, payloads))
        return (lengths, payloads) if sums == digests else None

    def verify_even_run(
        self, ledger_id: int, first_entry_id: int, body: Packed
    ) -> tuple[list[int], list[bytes]] | None:
        """Check the entries of a batch read as `verify_run` does, where all have the same size, and all at once.

        Returns the length of the ledger with each of them, and their payloads. None if they have not, if one is bad, or
        if they are too large to be joined: for `verify_run` then.
        """
        size = int.from_bytes(body[:_SIZE], "big")
        pitch = _SIZE + size
        payload_size = size - self._entry_head.size
        if not 0 <= payload_size < JOIN_BELOW or len(body) % pitch:
            return None
        all_fields, headers_alone = _even_layout(self.format, payload_size)
        all_lengths: list[int] = []
        all_payloads: list[bytes] = []
        view = memoryview(body)
        for at in range(0, len(body), CHECKED_TOGETHER * pitch):
            piece = view[at : at + CHECKED_TOGETHER * pitch]
            sizes, ledger_ids, entry_ids, _, lengths, digests, payloads = zip(
                *all_fields.iter_unpack(piece), strict=True
            )
            first = first_entry_id + len(all_lengths)
            if entry_ids != (*range(first, first + len(sizes)),) or {*sizes, *ledger_ids} != {size, ledger_id}:
                return None
            headers = headers_alone.iter_unpack(piece)
            sums = [self.sum(header + payload) for (header,), payload in zip(headers, payloads, strict=True)]
            if (*sums,) != digests:
                return None
            all_lengths += lengths
            all_payloads += payloads
        return all_lengths, all_payloads

    def verify_run(self, ledger_id: int, first_entry_id: int, body: bytes) -> tuple[list[VerifiedRunEntry], bool]:
        """Check the entries of a batch read, each an int32 size and the entry, with ids from `first_entry_id` on.

        Returns the entries up to the first bad one, and whether there is a bad one (or bytes that are no entry).
        """
        head = self._sized_entry_head
        head_size = head.size
        smallest = head_size - _SIZE
        unpack = head.unpack_from
        digest_of = self.sum
        verified: list[VerifiedRunEntry] = []
        add = verified.append
        end = len(body)
        last = end - head_size
        expected = first_entry_id
        at = 0
        while at <= last:
            size, found_ledger, entry_id, lac, length, digest = unpack(body, at)
            start = at + _SIZE
            stop = start + size
            if size < smallest or stop > end or entry_id != expected or found_ledger != ledger_id:
                return verified, True
            payload = body[at + head_size : stop]
            header = body[start : start + HEADER_SIZE]
            if digest != (digest_of(header + payload) if size < JOIN_BELOW else self.sum_pieces(header, payload)):
                return verified, True
            add((entry_id, lac, length, payload))
            expected += 1
            at = stop
        return verified, at != end

    def package_lac(self, ledger_id: int, lac: int) -> bytes:
        """The body of a WRITE_LAC request."""
        header = LAC_HEADER.pack(ledger_id, lac)
        return header + self.field.pack(self.sum(header))

    def verify_lac(self, ledger_id: int, body: bytes) -> int:
        """The LAC in a body that some writer sent with WRITE_LAC. Raises `DigestMismatchError`."""
        packet = self._lac_packet
        if len(body) < packet.size:
            raise DigestMismatchError(f"LAC packet of {len(body)} bytes is too short", ledger_id=ledger_id)
        found_ledger, lac, digest = packet.unpack_from(body)
        if digest != self.sum(body[:LAC_HEADER_SIZE]):
            raise DigestMismatchError("the LAC packet's digest is wrong", ledger_id=ledger_id)
        if found_ledger != ledger_id:
            raise DigestMismatchError(f"the LAC packet is of ledger {found_ledger}", ledger_id=ledger_id)
        return int(lac)


@lru_cache(maxsize=1024)
def _even_layout(digest_format: str, payload_size: int) -> tuple[Struct, Struct]:
    """An entry of a run, behind its size: all of its fields, and its header alone."""
    digest_size = Struct(">" + digest_format).size
    return (
        Struct(f">iqqqq{digest_format}{payload_size}s"),
        Struct(f"{_SIZE}x{HEADER_SIZE}s{digest_size + payload_size}x"),
    )


class DummyDigest(Digest, field="0s"):
    """No protection."""

    __slots__ = ()

    def sum(self, _data: bytes, /) -> bytes:
        return b""

    def sum_pieces(self, _header: bytes, _payload: bytes | memoryview, /) -> bytes:
        return b""


class Crc32cDigest(Digest, field="I"):
    """CRC-32C, computed by the processor."""

    __slots__ = ()
    sum = staticmethod(google_crc32c.value)

    def sum_pieces(self, header: bytes, payload: bytes | memoryview, /) -> int:
        return int(google_crc32c.extend(google_crc32c.value(header), bytes(payload)))  # it takes no views


class Crc32Digest(Digest, field="Q"):
    """zlib's CRC-32, in eight bytes, computed by ISA-L: zlib itself takes three times as long."""

    __slots__ = ()
    sum = staticmethod(isal_zlib.crc32)

    def sum_pieces(self, header: bytes, payload: bytes | memoryview, /) -> int:
        return isal_zlib.crc32(payload, isal_zlib.crc32(header))


class HmacDigest(Digest, field="20s"):
    """HMAC-SHA1 (RFC 2104).

    The hash states after the padded keys are kept and copied for each entry, which halves the cost of `hmac.digest`.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, password: bytes) -> None:
        key = mac_key(password).ljust(64, b"\0")
        self._inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in key))
        self._outer = hashlib.sha1(bytes(byte ^ 0x5C for byte in key))

    def sum(self, data: bytes, /) -> bytes:
        inner = self._inner.copy()
        inner.update(data)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()

    def sum_pieces(self, header: bytes, payload: bytes | memoryview, /) -> bytes:
        inner = self._inner.copy()
        inner.update(header)
        inner.update(payload)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()
