"""Adds of v3 in bulk: writing requests, reading them, answering them.

What is written here is always the canonical form: fields in the order of their numbers, shortest varints. What is read
by hand must be that form too, byte for byte; everything else is left to protobuf, which knows every legal encoding.
Peers do differ: newer Java clients write `flag` in front of the other fields.

    request   0a h 08 03 10 02 18 txn [20 priority]   aa 06 n
              08 ledger 10 entry 1a k key 22 m entry [28 write flags] [a0 06 01]
    response  0a h 08 03 10 02 18 txn   10 status   aa 06 n   08 status 10 ledger 18 entry

h, n, k and m are the sizes of what follows them: of the header, of the add, of the key and of the packaged entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct

from google.protobuf.message import DecodeError

from ...types import MASTER_KEY_LENGTH
from .. import entry as packaged
from ..messages import V3, AddRun, Flags, MixedAdds, Operation, Status
from ..protobuf import BYTES, VARINT, size_behind_its_varint, tag, unvarint, varint
from ..schema import VERSION_THREE
from ..schema import Request as WireRequest
from .flags import ADD_FLAGS, priority_flag, priority_of

ADD_HEADER = b"\x08\x03\x10\x02\x18"
"""BKPacketHeader up to its txn id: version 3, operation ADD_ENTRY."""

ADD_TAG = tag(101, BYTES)
"""`addRequest` in a request, `addResponse` in a response."""

_ENTRY_TAG = b"\x18"
"""`entryId` in a response, which follows the ledger id."""

_PRIORITY_TAG = tag(4, VARINT)
_RECOVERY_ADD_FIELD = b"\xa0\x06\x01"
_ADD_ENTRY = int(Operation.ADD_ENTRY)
_RECOVERY_ADD = int(Flags.RECOVERY_ADD)
_pack_length = Struct(">I").pack


# --- writing ---------------------------------------------------------------------------------------------------


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

    __slots__ = ("_end", "_ids", "_key", "_middle", "_priority", "_shape", "_start", "_with_size")

    def __init__(
        self, ledger_id: int, master_key: bytes, flags: int = 0, write_flags: int = 0, priority: int = 0
    ) -> None:
        priority = priority or priority_of(flags)
        self._priority = _PRIORITY_TAG + varint(priority) if priority else b""
        self._ids = b"\x08" + varint(ledger_id) + b"\x10"
        self._key = b"\x1a" + varint(len(master_key)) + master_key + b"\x22"
        self._end = (b"\x28" + varint(write_flags) if write_flags else b"") + (
            _RECOVERY_ADD_FIELD if flags & _RECOVERY_ADD else b""
        )
        self._shape = (0, 0, 0)
        # The frame is _start, txn id, _middle, entry id, _with_size, entry, _end; the first two hold for _shape only.
        self._start = self._middle = self._with_size = b""

    def encode(self, token: bytes, entry_id: int, entry: bytes) -> bytes:
        """The frame that stores a packaged entry; the same for every bookie. `token` is the txn id's `txn_token`."""
        number = varint(entry_id)
        shape = (len(token), len(number), len(entry))
        if shape != self._shape:
            self._lay_out(shape)
        return b"".join((self._start, token, self._middle, number, self._with_size, entry, self._end))

    def _lay_out(self, shape: tuple[int, int, int]) -> None:
        token_size, number_size, entry_size = shape
        self._with_size = self._key + varint(entry_size)
        add_size = len(self._ids) + number_size + len(self._with_size) + entry_size + len(self._end)
        self._middle = self._priority + ADD_TAG + varint(add_size) + self._ids
        header_size = len(ADD_HEADER) + token_size + len(self._priority)
        header = b"\x0a" + varint(header_size) + ADD_HEADER
        size = len(header) + token_size + len(self._middle) - len(self._ids) + add_size
        self._start = _pack_length(size) + header
        self._shape = shape


def encode_add_response(txn_id: int, ledger_id: int, entry_id: int, status: int = Status.EOK) -> bytes:
    """The frame that answers one add."""
    return _encode_answer(varint(txn_id), ledger_id, entry_id, status)


def _encode_answer(token: bytes, ledger_id: int, entry_id: int, status: int) -> bytes:
    number = varint(entry_id)
    ledger = varint(ledger_id) + _ENTRY_TAG
    start, middle = _add_response_around(len(token), len(number), len(ledger), status)
    return b"%b%b%b%b%b" % (start, token, middle, ledger, number)


def encode_add_responses(run: AddRun, status: int = Status.EOK) -> bytes:
    """The frames that answer all adds of a run alike."""
    return encode_adds_answered((run,), status)


def encode_adds_answered(runs: Iterable[AddRun | MixedAdds], status: int = Status.EOK) -> bytes:
    """The frames that answer all adds of these runs alike; as cheap for many runs as for one."""
    pieces: list[bytes] = []
    add = pieces.append
    for run in runs:
        if isinstance(run, MixedAdds):
            pieces += map(_encode_answer, run.txn_tokens, run.ledger_ids, run.entry_ids, repeat(status))
            continue
        ledger = varint(run.ledger_id) + _ENTRY_TAG
        token_size = number_size = 0
        start = middle = b""
        for token, entry_id in zip(run.txn_tokens, run.entry_ids, strict=True):
            number = varint(entry_id)
            if len(token) != token_size or len(number) != number_size:
                token_size = len(token)
                number_size = len(number)
                start, middle = _add_response_around(token_size, number_size, len(ledger), status)
                middle += ledger
            add(b"%b%b%b%b" % (start, token, middle, number))
    return b"".join(pieces)


@functools.lru_cache(maxsize=1024)
def _add_response_around(token_size: int, number_size: int, ledger_size: int, status: int) -> tuple[bytes, bytes]:
    """The bytes in front of the txn id, and those between it and the ledger id.

    The ledger id, with the tag behind it of `ledger_size` bytes, and the entry id end the frame.
    """
    code = varint(status)
    ids = b"\x08" + code + b"\x10"
    middle = b"\x10" + code + ADD_TAG + varint(len(ids) + ledger_size + number_size) + ids
    header = b"\x0a" + varint(len(ADD_HEADER) + token_size) + ADD_HEADER
    return _pack_length(len(header) + token_size + len(middle) + ledger_size + number_size) + header, middle


# --- reading ---------------------------------------------------------------------------------------------------


def decode_add_runs(bodies: Sequence[bytes], start: int = 0) -> tuple[list[AddRun], int]:
    """Take the adds that stand at `bodies[start:]`, up to the first body that is something else.

    Returns one run per ledger, key and flags, in the order in which they begin, and the index of the first body not
    taken. That one goes through `decode_request`, which knows every form; never raises.

    Protobuf reads the first add. From then on an add that is laid out as that one was, canonical and with numbers of
    the same sizes, is read by hand; one that is not goes through protobuf again, and becomes the new example.
    """
    runs: dict[_RunKey, AddRun] = {}
    shape: AddShape | None = None
    layouts: dict[int, AddLayout | None] = {}  # by size of the body, for `shape`
    proven: dict[tuple[bytes, bytes], AddRun] = {}  # pairs of `middle` and `key` that fit, and the run they belong to
    run: AddRun | None = None
    run_middle = run_key = b""
    number_of = int.from_bytes
    taken = start
    for body in bodies[start:] if start else bodies:
        size = len(body)
        layout = layouts.get(size)
        if layout is None and shape is not None:
            layout = layouts[size] = add_layout(size, shape)
        if layout is not None:
            head, token, middle, number, key, ledger_id, entry_id, _ = layout.unpack(body)
            if middle != run_middle or key != run_key:
                run = proven.get((middle, key))
                if run is None and layout.fits(middle, key, ledger_id):
                    run = proven[middle, key] = _run_of(runs, ledger_id, key[2:22], 0, 0)
                run_middle, run_key = middle, key
            if (
                run is not None
                and ledger_id == run.ledger_id
                and head == layout.head
                and number == varint(entry_id)
                and number_of(token, "little") & layout.token_mask == layout.token_tops
            ):
                run.entry_ids.append(entry_id)
                run.entries.append(body[layout.entry_at :])
                run.txn_tokens.append(token)
                taken += 1
                continue
        example = _take_by_protobuf(runs, body)
        if example is None:
            break
        run, example_shape = example
        run_middle = run_key = b""
        taken += 1
        if example_shape is not None:
            shape = example_shape
            layouts.clear()
            proven.clear()
    return list(runs.values()), taken


_RunKey = tuple[int, bytes, int, int]
"""Ledger id, master key, flags and write flags."""

AddShape = tuple[int, int, int]
"""Bytes of the varints of an add request: txn id, ledger id, entry id."""

Add = tuple[int, int, bytes, int, int, bytes, bytes]
"""Ledger id, entry id, master key, flags, write flags, txn token and entry of an add request."""


def _run_of(runs: dict[_RunKey, AddRun], ledger_id: int, key: bytes, flags: int, write_flags: int) -> AddRun:
    run = runs.get((ledger_id, key, flags, write_flags))
    if run is None:
        run = runs[ledger_id, key, flags, write_flags] = AddRun(ledger_id, key, flags, write_flags, V3)
    return run


def _take_by_protobuf(runs: dict[_RunKey, AddRun], body: bytes) -> tuple[AddRun, AddShape | None] | None:
    """Put an add into its run; None for anything that has no place in one.

    Returns the run, and the shape of the add if further ones like it may be read by hand.
    """
    add = parse_add(body)
    if add is None:
        return None
    ledger_id, entry_id, key, flags, write_flags, token, entry = add
    run = _run_of(runs, ledger_id, key, flags, write_flags)
    run.entry_ids.append(entry_id)
    run.entries.append(entry)
    run.txn_tokens.append(token)
    return run, shape_of(add) if is_plain(add) else None


def is_plain(add: Add) -> bool:
    """It has no flags, and a key of the usual size."""
    _, _, key, flags, write_flags, _, _ = add
    return len(key) == MASTER_KEY_LENGTH and not flags and not write_flags


def shape_of(add: Add) -> AddShape:
    """The shape of a plain add, if it is canonical."""
    ledger_id, entry_id, _, _, _, token, _ = add
    return len(token), len(varint(ledger_id)), len(varint(entry_id))


def parse_add(body: bytes) -> Add | None:
    """Read an add with protobuf; None for anything that has no place in a run."""
    try:
        wire = WireRequest.FromString(body)
    except DecodeError:
        return None
    header = wire.header
    if header.operation != _ADD_ENTRY or header.version != VERSION_THREE:
        return None
    add = wire.addRequest
    ledger_id, entry_id, entry = add.ledgerId, add.entryId, add.body
    if len(entry) < packaged.MIN_STORED_SIZE or ledger_id < 0 or entry_id < 0:
        return None
    if packaged.ids(entry) != (ledger_id, entry_id) or not wire.IsInitialized():
        return None
    flags = ADD_FLAGS[add.flag] | priority_flag(header.priority)
    return ledger_id, entry_id, add.masterKey, flags, add.writeFlags, varint(header.txnId), entry


@dataclass(frozen=True, slots=True)
class AddLayout:
    """Where everything is in a canonical add request of one size, without flags and with a 20-byte key.

    head    0a h 08 03 10 02 18
    token   txn id
    middle  aa 06 n 08 ledger 10
    number  entry id
    key     1a 14 key 22 m
    entry   m bytes, of which ids and LAC are read
    """

    unpack: Callable[[bytes], tuple[bytes, bytes, bytes, bytes, bytes, int, int, int]]
    """The fields above; of the entry its ledger and entry id, and its LAC."""
    head: bytes
    middle_start: bytes
    key_end: bytes
    entry_at: int
    token_mask: int
    """The top bits of the token's bytes, as a little-endian number, ..."""
    token_tops: int
    """... and how they must be for it to be one varint."""

    def fits(self, middle: bytes, key: bytes, ledger_id: int) -> bool:
        """Whether these fields are what a canonical request with the ledger id of its entry has there."""
        return (
            middle == self.middle_start + varint(ledger_id) + b"\x10"
            and key[:2] == b"\x1a\x14"
            and key[2 + MASTER_KEY_LENGTH :] == self.key_end
        )


@functools.lru_cache(maxsize=1024)
def add_layout(size: int, shape: AddShape) -> AddLayout | None:
    """The layout of a body of `size` bytes; None if no add of that size and shape has an entry that can be stored."""
    token_size, ledger_size, number_size = shape
    head = b"\x0a" + varint(len(ADD_HEADER) + token_size) + ADD_HEADER
    add_size = size_behind_its_varint(size - len(head) - token_size - len(ADD_TAG))
    entry_size = size_behind_its_varint(add_size - (1 + ledger_size + 1 + number_size + 2 + MASTER_KEY_LENGTH + 1))
    if entry_size < packaged.MIN_STORED_SIZE:
        return None
    middle_start = ADD_TAG + varint(add_size) + b"\x08"
    key_end = b"\x22" + varint(entry_size)
    fields = Struct(
        f">{len(head)}s{token_size}s{len(middle_start) + ledger_size + 1}s{number_size}s"
        f"{2 + MASTER_KEY_LENGTH + len(key_end)}sqqq"
    )
    entry_at = size - entry_size
    assert fields.size == entry_at + packaged.MIN_STORED_SIZE
    return AddLayout(
        fields.unpack_from,
        head,
        middle_start,
        key_end,
        entry_at,
        int.from_bytes(b"\x80" * token_size, "little"),
        int.from_bytes(b"\x80" * (token_size - 1) + b"\x00", "little"),
    )
