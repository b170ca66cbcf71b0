"""Add requests of v3, written by hand.

What is written is always the canonical form: fields in the order of their numbers, shortest varints. What is read by
hand (`layout`, `runs`, `mixed`) must be that form too, byte for byte; everything else is left to protobuf, which knows
every legal encoding. Peers do differ: newer Java clients write `flag` in front of the other fields.

    0a h 08 03 10 02 18 txn [20 priority]   aa 06 n
    08 ledger 10 entry 1a k key 22 m entry [28 write flags] [a0 06 01]

h, n, k and m are the sizes of what follows them: of the header, of the add, of the key and of the packaged entry.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from ..digest import JOIN_BELOW, Digest
from ..entry import HEADER, HEADER_SIZE
from ..messages import Flags
from ..protobuf import BITS, BYTES, LAST, MASK, MORE, ONE_BYTE, VARINT, tag, unvarint, varint
from .flags import priority_of

ADD_HEADER = b"\x08\x03\x10\x02\x18"
"""BKPacketHeader up to its txn id: version 3, operation ADD_ENTRY."""

ADD_TAG = tag(101, BYTES)
"""`addRequest` in a request, `addResponse` in a response."""

_PRIORITY_TAG = tag(4, VARINT)
_RECOVERY_ADD_FIELD = b"\xa0\x06\x01"
_RECOVERY_ADD = int(Flags.RECOVERY_ADD)
_pack_length = Struct(">I").pack


def txn_token(txn_id: int) -> bytes:
    """A transaction id as it stands on the wire: what `AddRequestEncoder` takes and `AddRun` holds."""
    return varint(txn_id)


def txn_id(token: bytes) -> int:
    """The transaction id that a token stands for; of an empty one, 0."""
    return unvarint(token)


class AddRequestEncoder:
    """Writes the add requests of one ledger.

    Between two adds only txn id, entry id and entry differ. The bytes around them are kept for the last *shape* (the
    sizes of these three) and laid out again when it changes.
    """

    __slots__ = ("_around", "_ids", "_key", "_priority", "_shape", "end")

    def __init__(
        self, ledger_id: int, master_key: bytes, flags: int = 0, write_flags: int = 0, priority: int = 0
    ) -> None:
        priority = priority or priority_of(flags)
        self._priority = _PRIORITY_TAG + varint(priority) if priority else b""
        self._ids = b"\x08" + varint(ledger_id) + b"\x10"
        self._key = b"\x1a" + varint(len(master_key)) + master_key + b"\x22"
        self.end = (b"\x28" + varint(write_flags) if write_flags else b"") + (
            _RECOVERY_ADD_FIELD if flags & _RECOVERY_ADD else b""
        )
        """The bytes behind the entry."""
        self._shape = (0, 0, 0)
        self._around = (b"", b"", b"")

    def encode(self, token: bytes, entry_id: int, entry: bytes) -> bytes:
        """The frame that stores a packaged entry; the same for every bookie. `token` is the txn id's `txn_token`."""
        number = varint(entry_id)
        shape = (len(token), len(number), len(entry))
        if shape != self._shape:
            self._around = self.around(*shape)
            self._shape = shape
        start, middle, with_size = self._around
        return b"".join((start, token, middle, number, with_size, entry, self.end))

    def around(self, token_size: int, number_size: int, entry_size: int) -> tuple[bytes, bytes, bytes]:
        """The bytes in front of the txn id, between it and the entry id, and between that and the entry."""
        with_size = self._key + varint(entry_size)
        add_size = len(self._ids) + number_size + len(with_size) + entry_size + len(self.end)
        middle = self._priority + ADD_TAG + varint(add_size) + self._ids
        header_size = len(ADD_HEADER) + token_size + len(self._priority)
        header = b"\x0a" + varint(header_size) + ADD_HEADER
        size = len(header) + token_size + len(middle) - len(self._ids) + add_size
        return _pack_length(size) + header, middle, with_size


def add_request_encoder(
    ledger_id: int,
    master_key: bytes,
    digest: Digest,
    flags: int = 0,
    write_flags: int = 0,
    priority: int = 0,
    *,
    first_txn: int,
) -> Callable[[int, int, int, int, bytes], bytes]:
    """A function that packages and frames the entries of one ledger: (its id, entry id, LAC, length of the ledger,
    payload).

    The same bytes as `AddRequestEncoder.encode` of `Digest.package`, with `first_txn` + entry id as transaction id, in
    one call and with one copy less. `first_txn` is a multiple of 2**14, not 0, so both ids have the same lowest bits:
    what is around these is kept for as long as the other bits, and the size of the payload, are the same.
    """
    assert first_txn > 0
    assert not first_txn & MASK
    encoder = AddRequestEncoder(ledger_id, master_key, flags, write_flags, priority)
    pack_header, pack_digest = HEADER.pack, digest.field.pack
    digest_of, digest_of_pieces = digest.sum, digest.sum_pieces
    overhead = HEADER_SIZE + digest.size
    end = encoder.end
    block = laid_out = -1
    start = middle = behind = b""
    number_starts = LAST

    def encode(ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes) -> bytes:
        nonlocal block, laid_out, start, middle, behind, number_starts
        if entry_id < ONE_BYTE:
            entry = digest.package(ledger_id, entry_id, lac, length, payload)
            return encoder.encode(varint(first_txn + entry_id), entry_id, entry)
        size = len(payload)
        if entry_id >> BITS != block or size != laid_out:
            block, laid_out = entry_id >> BITS, size
            token_end, number_end = varint((first_txn >> BITS) + block), varint(block) if block else b""
            start, middle, behind = encoder.around(2 + len(token_end), 2 + len(number_end), overhead + size)
            middle, behind = token_end + middle, number_end + behind
            number_starts = MORE if block else LAST
        header = pack_header(ledger_id, entry_id, lac, length)
        total = digest_of(header + payload) if size < JOIN_BELOW else digest_of_pieces(header, payload)
        low = entry_id & MASK
        return b"".join(
            (start, MORE[low], middle, number_starts[low], behind, header, pack_digest(total), payload, end)
        )

    return encode
