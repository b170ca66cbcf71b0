"""Protocol version 2: fixed binary layouts (spec wire-protocol §2).

Every body starts with the packet header, one big-endian int32:

    bits    field
    31..24  version: 2; 0 and 1 are legacy; a bookie answers anything above 2 with EBADVERSION
    23..16  opcode: 1 ADDENTRY, 2 READENTRY, 3 AUTH, 7 BATCH_READ_ENTRY
    15..0   flags: 1 DO_FENCING, 2 RECOVERY_ADD, 4 HIGH_PRIORITY; unknown bits are ignored; 0 in responses

In version 0 the header is the opcode alone, in the low byte.

Requests, offsets in the body:

    ADDENTRY          4 master key (20), 24 packaged entry: ledger and entry id are read from there
    READENTRY         4 ledger id (8), 12 entry id (8), 20 master key (20) if DO_FENCING and version >= 2
    BATCH_READ_ENTRY  4 ledger id (8), 12 entry id (8), 20 request id (8), 28 max count (4), 32 max size (8),
                      40 master key (20) if DO_FENCING and version >= 2
    AUTH              4 AuthMessage (see `auth`)

Responses: 4 error code (4), 8 ledger id (8), 16 entry id (8), then at 24

    ADDENTRY          nothing
    READENTRY         the packaged entry, when EOK
    BATCH_READ_ENTRY  request id (8), then, when EOK, for each entry its size (4) and the packaged entry

except AUTH: 4 AuthMessage, with no error code and no ids. There is no transaction id: a response belongs to the request
with the same ledger id, entry id and opcode (a batch read: the same request id).

The first half of this module handles any message. The second half is the data path: the forms that exist once
for every entry, in bulk, and nothing else.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import takewhile
from struct import Struct

from ..errors import ProtocolError
from ..types import MASTER_KEY_LENGTH
from . import entry as packaged
from .auth import decode_auth_message, encode_auth_message
from .digest import JOIN_BELOW, Digest
from .entry import HEADER, HEADER_SIZE
from .frames import PackedAcks, ResponseStream, are_mixed, begin_alike, frame
from .messages import (
    V2,
    AddRequest,
    AddResponse,
    AddRun,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    Flags,
    MixedAdds,
    ReadRequest,
    ReadResponse,
    ReadRun,
    Request,
    Response,
    Status,
)

OP_ADD = 1
OP_READ = 2
OP_AUTH = 3
OP_BATCH_READ = 7

_STATUS_BY_CODE = {
    0: Status.EOK,
    1: Status.ENOLEDGER,
    2: Status.ENOENTRY,
    100: Status.EBADREQ,
    101: Status.EIO,
    102: Status.EUA,
    103: Status.EBADVERSION,
    104: Status.EFENCED,
    105: Status.EREADONLY,
    106: Status.ETOOMANYREQUESTS,
    107: Status.EUNKNOWNLEDGERSTATE,
}
_CODE_BY_STATUS = {int(status): code for code, status in _STATUS_BY_CODE.items()}

_HEADER = Struct(">I")
_HEADER_SIZE = 4
_FLAG_BITS = 0xFFFF
_DO_FENCING = int(Flags.DO_FENCING)  # an `IntFlag` takes a microsecond to combine

_ADD_HEAD = Struct(">I20sqq")
_ENTRY_AT = 24
_LEDGER_ID_AT = slice(24, 32)
_READ_REQUEST = Struct(">Iqq")
_BATCH_REQUEST = Struct(">Iqqqiq")
_RESPONSE_HEAD = Struct(">Iiqq")
_BATCH_RESPONSE_HEAD = Struct(">Iiqqq")
_MASTER_KEY = Struct(f">{MASTER_KEY_LENGTH}s")


# --- any message -----------------------------------------------------------------------------------------------


def decode_request(body: bytes) -> Request:
    """Raises `ProtocolError` for an unknown opcode and for a body that is too short; trailing bytes are ignored."""
    version, opcode, flags = decode_header(body)
    decode = _REQUEST_DECODERS.get(opcode)
    if decode is None:
        raise ProtocolError(f"unknown v2 opcode {opcode}")
    try:
        return decode(body, version, flags)
    except struct.error:
        raise ProtocolError(f"v2 request with opcode {opcode} is cut short at {len(body)} bytes") from None


def encode_request(message: Request) -> bytes:
    """The frame, length included. Raises `ValueError` for what v2 cannot say."""
    version = message.version
    if isinstance(message, AddRequest):
        _refuse(message.write_flags != 0, "write flags")
        key = _checked_key(message.master_key)
        return frame(_encode_header(version, OP_ADD, message.flags) + key + message.entry)
    if isinstance(message, ReadRequest):
        _refuse(message.previous_lac is not None or message.timeout_ms is not None, "a long poll")
        return frame(
            _encode_header(version, OP_READ, message.flags)
            + packaged.LAC_HEADER.pack(message.ledger_id, message.entry_id)
            + _fencing_key(message)
        )
    if isinstance(message, BatchReadRequest):
        head = int.from_bytes(_encode_header(version, OP_BATCH_READ, message.flags), "big")
        return frame(
            _BATCH_REQUEST.pack(
                head, message.ledger_id, message.entry_id, message.request_id, message.max_count, message.max_size
            )
            + _fencing_key(message)
        )
    if isinstance(message, AuthRequest):
        return frame(_encode_header(version, OP_AUTH, 0) + encode_auth_message(message.plugin, message.payload))
    raise ValueError(f"v2 has no {type(message).__name__}")


def decode_response(body: bytes) -> Response:
    """Raises `ProtocolError` for an unknown opcode or error code, and for a body that is too short."""
    version, opcode, _ = decode_header(body)
    if opcode == OP_AUTH:
        plugin, payload = decode_auth_message(body[_HEADER_SIZE:])
        return AuthResponse(Status.EOK, plugin, payload, version=version)
    try:
        _, code, ledger_id, entry_id = _RESPONSE_HEAD.unpack_from(body)
        status = _STATUS_BY_CODE[code]
        if opcode == OP_ADD:
            return AddResponse(status, ledger_id, entry_id, version=version)
        if opcode == OP_READ:
            entry = body[_RESPONSE_HEAD.size :] if status is Status.EOK else None
            return ReadResponse(status, ledger_id, entry_id, entry, version=version)
        if opcode == OP_BATCH_READ:
            request_id = _BATCH_RESPONSE_HEAD.unpack_from(body)[4]
            entries = memoryview(body)[_BATCH_RESPONSE_HEAD.size :] if status is Status.EOK else b""
            return BatchReadResponse(status, ledger_id, entry_id, request_id, entries, version=version)
    except struct.error:
        raise ProtocolError(f"v2 response with opcode {opcode} is cut short at {len(body)} bytes") from None
    except KeyError as error:
        raise ProtocolError(f"unknown v2 error code {error}") from None
    raise ProtocolError(f"unknown v2 opcode {opcode}")


def encode_response(message: Response) -> bytes:
    """The frame, length included. `message.version` is the request's. Raises `ValueError` for what v2 cannot say."""
    if isinstance(message, AddResponse):
        return frame(_encode_response_head(message, OP_ADD))
    if isinstance(message, ReadResponse):
        return frame(_encode_response_head(message, OP_READ) + (message.entry or b""))
    if isinstance(message, BatchReadResponse):
        request_id = message.request_id.to_bytes(8, "big", signed=True)
        return frame(_encode_response_head(message, OP_BATCH_READ) + request_id + message.body)
    if isinstance(message, AuthResponse):
        _refuse(message.status != Status.EOK, "a failed AUTH: the connection is closed instead")
        return frame(_encode_header(message.version, OP_AUTH, 0) + encode_auth_message(message.plugin, message.payload))
    raise ValueError(f"v2 has no {type(message).__name__}")


def decode_header(body: bytes) -> tuple[int, int, int]:
    """Version, opcode and flags."""
    if len(body) < _HEADER_SIZE:
        raise ProtocolError(f"v2 packet of {len(body)} bytes")
    version, opcode, high, low = body[:_HEADER_SIZE]
    if version == 0:
        return 0, low, 0
    return version, opcode, high << 8 | low


def _encode_header(version: int, opcode: int, flags: int) -> bytes:
    if version == 0:
        return _HEADER.pack(opcode)
    return _HEADER.pack(version << 24 | opcode << 16 | (flags & _FLAG_BITS))


def _encode_response_head(message: AddResponse | ReadResponse | BatchReadResponse, opcode: int) -> bytes:
    code = _CODE_BY_STATUS[message.status]
    header = _encode_header(message.version, opcode, 0)
    return header + struct.pack(">iqq", code, message.ledger_id, message.entry_id)


def _has_key(version: int, flags: int) -> bool:
    return version >= V2 and flags & _DO_FENCING != 0


def _decode_add(body: bytes, version: int, flags: int) -> AddRequest:
    _, key, ledger_id, entry_id = _ADD_HEAD.unpack_from(body)
    return AddRequest(ledger_id, entry_id, body[_ENTRY_AT:], key, flags, version=version)


def _decode_read(body: bytes, version: int, flags: int) -> ReadRequest:
    _, ledger_id, entry_id = _READ_REQUEST.unpack_from(body)
    key = _MASTER_KEY.unpack_from(body, _READ_REQUEST.size)[0] if _has_key(version, flags) else None
    return ReadRequest(ledger_id, entry_id, flags, key, version=version)


def _decode_batch_read(body: bytes, version: int, flags: int) -> BatchReadRequest:
    _, ledger_id, entry_id, request_id, max_count, max_size = _BATCH_REQUEST.unpack_from(body)
    key = _MASTER_KEY.unpack_from(body, _BATCH_REQUEST.size)[0] if _has_key(version, flags) else None
    return BatchReadRequest(ledger_id, entry_id, request_id, max_count, max_size, flags, key, version=version)


def _decode_auth(body: bytes, version: int, _flags: int) -> AuthRequest:
    plugin, payload = decode_auth_message(body[_HEADER_SIZE:])
    return AuthRequest(plugin, payload, version=version)


_REQUEST_DECODERS: dict[int, Callable[[bytes, int, int], Request]] = {
    OP_ADD: _decode_add,
    OP_READ: _decode_read,
    OP_AUTH: _decode_auth,
    OP_BATCH_READ: _decode_batch_read,
}


def _fencing_key(message: ReadRequest | BatchReadRequest) -> bytes:
    if not _has_key(message.version, message.flags):
        return b""
    if message.master_key is None:
        raise ValueError("a fencing read needs the master key")
    return _checked_key(message.master_key)


def _checked_key(key: bytes) -> bytes:
    if len(key) != MASTER_KEY_LENGTH:
        raise ValueError(f"a v2 master key has {MASTER_KEY_LENGTH} bytes, not {len(key)}")
    return key


def _refuse(impossible: bool, what: str) -> None:
    if impossible:
        raise ValueError(f"v2 cannot say {what}")


# --- the data path ---------------------------------------------------------------------------------------------

_add_prefix = Struct(">II20s").pack
ADD_WORD = 0x02010000
_PLAIN_ADD = ADD_WORD.to_bytes(4, "big")
_HEAD_AT = slice(0, 4)

_RUN_MEMBER = Struct(">32sqq")
"""Packet header, master key and ledger id, which are equal within a run; entry id; LAC."""
_MIXED = Struct(">I20sqqq")
_Add = tuple[int, bytes, int, int, int]
"""Packet header, master key, ledger id, entry id, LAC."""
_RUN_START = Struct(">BBH20sq")

_PLAIN_READ = Struct(">Iqq")
"""Packet header, which is that of the answer; ledger id; entry id."""
_read_response_head = Struct(">IIIqq").pack

_ACK_PREFIX = bytes.fromhex("00000018 02010000 00000000")
_ACK_SIZE = 28
_ack_ids = Struct(">12xqq").iter_unpack
_match_acks = re.compile(b"(?:" + re.escape(_ACK_PREFIX) + b".{16})*+", re.DOTALL).match


def encode_add_request(master_key: bytes, entry: bytes, flags: int = 0) -> bytes:
    """The frame that stores a packaged entry; the same for every bookie. `master_key` has 20 bytes."""
    return _add_prefix(_ENTRY_AT + len(entry), ADD_WORD | flags, master_key) + entry


@lru_cache(maxsize=64)
def add_request_encoder(
    master_key: bytes, digest: Digest, flags: int = 0
) -> Callable[[int, int, int, int, bytes], bytes]:
    """A function that packages and frames entries: (ledger id, entry id, LAC, length of the ledger, payload).

    The same bytes as `encode_add_request` of `Digest.package`, in one call and with one copy less. Writers with the
    same key and digest share it: one of its own for each of thousands of writers is a dozen objects, which are in no
    cache of the processor any more when the writer has its turn.
    """
    key = _checked_key(master_key)
    pack = Struct(f">II20s{HEADER_SIZE}s{digest.format}").pack
    pack_header = HEADER.pack
    digest_of = digest.sum
    digest_of_pieces = digest.sum_pieces
    word = ADD_WORD | flags
    overhead = _ENTRY_AT + HEADER_SIZE + digest.size

    def encode(ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes) -> bytes:
        header = pack_header(ledger_id, entry_id, lac, length)
        size = len(payload)
        total = digest_of(header + payload) if size < JOIN_BELOW else digest_of_pieces(header, payload)
        return pack(overhead + size, word, key, header, total) + payload

    return encode


def decode_add_runs(bodies: Sequence[bytes], start: int = 0) -> tuple[list[AddRun], int]:
    """Take the adds that stand at `bodies[start:]`, up to the first body that is something else.

    Returns one run per ledger, key and flags, in the order in which they begin, and the index of the first body not
    taken. That one goes through `decode_request`, which knows every form; never raises.
    """
    runs: dict[bytes, AddRun] = {}
    unpack = _RUN_MEMBER.unpack_from
    taken = start
    head = b""
    for body in bodies[start:] if start else bodies:
        try:
            its_head, entry_id, _ = unpack(body)
        except struct.error:
            break
        if entry_id < 0:
            break
        if its_head != head:
            run = runs.get(its_head)
            if run is None:
                run = _begin_run(its_head)
                if run is None:
                    break
                runs[its_head] = run
            head = its_head
            entry_ids, entries = run.entry_ids, run.entries
        entry_ids.append(entry_id)
        entries.append(body[_ENTRY_AT:])
        taken += 1
    return list(runs.values()), taken


def decode_mixed_adds(bodies: Sequence[bytes]) -> MixedAdds | None:
    """Take the plain adds that `bodies` begin with, if they are of many ledgers, hardly two of one.

    None if they are not, or are few: then `decode_add_runs` takes them. Never raises.
    """
    if not (begin_alike(bodies, _HEAD_AT, _PLAIN_ADD) and are_mixed(bodies, _LEDGER_ID_AT)):
        return None
    adds: list[_Add] = []
    with suppress(struct.error):  # of a body that is too short; what stands in front of it is in the list then
        adds.extend(takewhile(_is_plain, map(_MIXED.unpack_from, bodies)))
    if not adds:
        return None
    _, keys, ledger_ids, entry_ids, lacs = zip(*adds, strict=True)
    return MixedAdds(V2, ledger_ids, keys, entry_ids, lacs, [body[_ENTRY_AT:] for body in bodies[: len(adds)]], ())


def _is_plain(add: _Add) -> bool:
    return add[0] == ADD_WORD and add[2] >= 0 and add[3] >= 0


def decode_read_run(bodies: Sequence[bytes], start: int, end: int) -> ReadRun | None:
    """The plain reads of one ledger that stand at `bodies[start:end]`, up to the first body that is something else.

    A plain read has no flags and asks for an entry by its id. None if there is none; never raises.
    """
    entry_ids: list[int] = []
    unpack = _PLAIN_READ.unpack
    size = _PLAIN_READ.size
    run_ledger = -1
    for body in bodies[start:end]:
        if len(body) != size:
            break
        word, ledger_id, entry_id = unpack(body)
        if word != READ_WORD or entry_id < 0 or ledger_id < 0 or (entry_ids and ledger_id != run_ledger):
            break
        run_ledger = ledger_id
        entry_ids.append(entry_id)
    return ReadRun(run_ledger, V2, entry_ids) if entry_ids else None


def encode_read_responses(run: ReadRun, entries: Sequence[bytes]) -> bytes:
    """The frames that answer the first reads of a run with their entries."""
    head = _read_response_head
    ledger_id = run.ledger_id
    pieces: list[bytes] = []
    for entry_id, entry in zip(run.entry_ids, entries, strict=False):
        pieces += (head(RESPONSE_HEAD_SIZE + len(entry), READ_WORD, 0, ledger_id, entry_id), entry)
    return b"".join(pieces)


def encode_add_responses(run: AddRun, status: int = Status.EOK) -> bytes:
    """The frames that answer all adds of a run alike."""
    prefix = _ACK_PREFIX[:8] + _CODE_BY_STATUS[status].to_bytes(4, "big")
    return prefix + prefix.join([entry[:16] for entry in run.entries])


def encode_adds_stored(runs: Iterable[AddRun | MixedAdds]) -> bytes:
    """The frames that say that all adds of these runs, one at least, are stored; as cheap for many runs as for one."""
    return _ACK_PREFIX + _ACK_PREFIX.join([entry[:16] for run in runs for entry in run.entries])


class Responses(ResponseStream):
    """The stream of v2: acknowledgements have 28 bytes, which one pattern finds and one `Struct` reads. Packed they are
    these bytes."""

    __slots__ = ()
    unit = _ACK_SIZE
    _no_acks = b""
    _max_ack_size = _ACK_SIZE

    @staticmethod
    def unpack(packed: PackedAcks) -> Iterator[tuple[int, int]]:
        return _ack_ids(packed)

    def _leading_acks(self, data: bytes) -> tuple[PackedAcks, int]:
        end = _match_acks(data).end()  # type: ignore[union-attr]
        return data[:end], end


READ_WORD = 0x02020000
"""Packet header of the answer to an entry read."""

RESPONSE_HEAD_SIZE = _RESPONSE_HEAD.size
unpack_response_head = _RESPONSE_HEAD.unpack_from
"""Packet header, error code, ledger id and entry id of any response but AUTH; what follows begins at
`RESPONSE_HEAD_SIZE`."""

_pack_read = Struct(">IIqq").pack


def status_of(code: int) -> Status:
    """The status that an error code means. Raises `ProtocolError` for an unknown one."""
    status = _STATUS_BY_CODE.get(code)
    if status is None:
        raise ProtocolError(f"unknown v2 error code {code}")
    return status


def encode_read_requests(ledger_id: int, entry_ids: Iterable[int]) -> bytes:
    """The frames of plain reads of entries."""
    pack = _pack_read
    return b"".join([pack(20, READ_WORD, ledger_id, entry_id) for entry_id in entry_ids])


def _begin_run(head: bytes) -> AddRun | None:
    """The run that starts with these 32 bytes, if they are the head of an add of version 2."""
    version, opcode, flags, key, ledger_id = _RUN_START.unpack(head)
    if version != V2 or opcode != OP_ADD or ledger_id < 0:
        return None
    return AddRun(ledger_id, key, flags, 0, V2, [], [], [])
