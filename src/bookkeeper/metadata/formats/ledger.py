r"""Ledger metadata as stored bytes: three format versions behind one header (spec metadata §2).

    "BookieMetadataFormatVersion" TAB <version> LF body

| version | body |
|---|---|
| 1 | lines: write quorum; ensemble size; length; per ensemble `first TAB bookie TAB bookie ...`; at the end `-102 TAB CLOSED` if in recovery, `last TAB CLOSED` if closed, without LF |
| 2 | `LedgerMetadataFormat` in text form, without the creation token |
| 3 | varint size, then `LedgerMetadataFormat` in binary form |

A record read as version N is written back as version N. Version 1 keeps neither digest, password, ack quorum nor custom
metadata. The creation time is part of the record only if `store_ctime` says so; otherwise the store's own is shown.
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterable

from ...errors import ConfigurationError, CorruptMetadata, SerializationError
from ...protocol import protobuf
from ...types import BookieId, DigestType, LedgerState, parse_bookie_id
from ..ledger_metadata import LedgerMetadata
from . import text as text_format
from . import wire as wire_format
from .messages import DIGEST_TYPES, LEDGER_METADATA
from .schema import Values

MAGIC = b"BookieMetadataFormatVersion\t"

_MAX_VERSION_BYTES = 10
"""The version's LF must be among this many bytes behind the magic."""

_MAX_SIZE_VARINT = 5

_V1_IN_RECOVERY = -102

_DIGEST_NUMBERS = {digest: DIGEST_TYPES["HMAC" if digest is DigestType.MAC else digest.value] for digest in DigestType}
_DIGESTS = {number: digest for digest, number in _DIGEST_NUMBERS.items()}
_DECIMAL = re.compile(r"[+-]?[0-9]{1,19}")
_LINE_END = re.compile(r"\r\n|\r|\n")


def serialize(metadata: LedgerMetadata) -> bytes:
    """The stored bytes of a record, in its own format version.

    Raises `SerializationError` for an unknown version, or versions 2 and 3 without digest and password.
    """
    version = metadata.format_version
    if version == 1:
        body = _serialize_v1(metadata)
    elif version == 2:
        body = text_format.print_message(LEDGER_METADATA, _to_values(metadata)).encode()
    elif version == 3:
        values = _to_values(metadata)
        values["cToken"] = metadata.ctoken
        message = wire_format.encode(LEDGER_METADATA, values)
        body = protobuf.sized(message)
    else:
        raise SerializationError(f"ledger {metadata.ledger_id}: metadata format version {version} is unknown")
    return MAGIC + b"%d\n" % version + body


def parse(data: bytes, ledger_id: int, store_ctime: int | None = None) -> LedgerMetadata:
    """The record in `data`. `store_ctime` is the creation time (ms) that the store knows, if it does.

    Raises `CorruptMetadata`.
    """
    try:
        version, body = _split_header(data)
        if version == 1:
            return _parse_v1(body, ledger_id)
        if version == 2:
            values = text_format.parse_message(LEDGER_METADATA, body)
        else:
            values = wire_format.decode(LEDGER_METADATA, _delimited(body))
        return _from_values(values, ledger_id, version, store_ctime)
    except CorruptMetadata as error:
        raise CorruptMetadata(f"metadata of ledger {ledger_id}: {error}") from None


def _split_header(data: bytes) -> tuple[int, bytes]:
    if not data.startswith(MAGIC):
        raise CorruptMetadata("the header is missing")
    end = data.find(b"\n", len(MAGIC), len(MAGIC) + _MAX_VERSION_BYTES)
    if end < 0:
        raise CorruptMetadata("the header's version does not end")
    version = _decimal(data[len(MAGIC) : end].decode("latin-1"))
    if version not in (1, 2, 3):
        raise CorruptMetadata(f"metadata format version {version} is unknown; 1 to 3 are supported")
    return version, data[end + 1 :]


def _decimal(text: str) -> int:
    if not _DECIMAL.fullmatch(text):
        raise CorruptMetadata(f"{text[:40]!r} is not a number")
    return int(text)


def _bookies(names: Iterable[str]) -> tuple[BookieId, ...]:
    try:
        return tuple(map(parse_bookie_id, names))
    except ConfigurationError as error:
        raise CorruptMetadata(str(error)) from None


def _add_ensemble(ensembles: dict[int, tuple[BookieId, ...]], first: int, names: Iterable[str]) -> None:
    if ensembles and first <= next(reversed(ensembles)):
        raise CorruptMetadata(f"the ensemble at {first} is not in ascending order")
    ensembles[first] = _bookies(names)


# --- version 1 -------------------------------------------------------------------------------------


def _serialize_v1(metadata: LedgerMetadata) -> bytes:
    lines = [str(metadata.write_quorum), str(metadata.ensemble_size), str(metadata.length)]
    lines += ["\t".join([str(first), *members]) for first, members in metadata.ensembles.items()]
    end = ""
    if metadata.state is LedgerState.IN_RECOVERY:
        end = f"{_V1_IN_RECOVERY}\tCLOSED"
    elif metadata.state is LedgerState.CLOSED:
        end = f"{metadata.last_entry_id}\tCLOSED"
    return ("\n".join(lines) + "\n" + end).encode()


def _parse_v1(body: bytes, ledger_id: int) -> LedgerMetadata:
    try:
        lines = _LINE_END.split(body.decode())
    except UnicodeDecodeError:
        raise CorruptMetadata("it is not text") from None
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 3:
        raise CorruptMetadata("it has less than three lines")
    write_quorum, ensemble_size, length = map(_decimal, lines[:3])
    ensembles: dict[int, tuple[BookieId, ...]] = {}
    state, last_entry_id = LedgerState.OPEN, -1
    for line in lines[3:]:
        parts = line.rstrip("\t").split("\t")
        if len(parts) < 2:
            raise CorruptMetadata(f"line {line[:40]!r} is not an ensemble")
        number = _decimal(parts[0])
        if parts[1] == "CLOSED":
            closed = number != _V1_IN_RECOVERY
            state = LedgerState.CLOSED if closed else LedgerState.IN_RECOVERY
            last_entry_id = number if closed else -1
            break
        _add_ensemble(ensembles, number, parts[1:])
    return LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=write_quorum,
        ensembles=ensembles,
        state=state,
        last_entry_id=last_entry_id,
        length=length if state is LedgerState.CLOSED else 0,
        digest_type=None,
        password=None,
        format_version=1,
    )


# --- versions 2 and 3 ------------------------------------------------------------------------------


def _to_values(metadata: LedgerMetadata) -> Values:
    if metadata.digest_type is None or metadata.password is None:
        raise SerializationError(
            f"ledger {metadata.ledger_id} has no digest type and password: only format version 1 can hold it"
        )
    values: Values = {
        "quorumSize": metadata.write_quorum,
        "ensembleSize": metadata.ensemble_size,
        "length": metadata.length,
        "lastEntryId": metadata.last_entry_id,
        "state": int(metadata.state),
        "segment": [
            {"ensembleMember": list(members), "firstEntryId": first} for first, members in metadata.ensembles.items()
        ],
        "digestType": _DIGEST_NUMBERS[metadata.digest_type],
        "password": metadata.password,
        "ackQuorumSize": metadata.ack_quorum,
        "customMetadata": [{"key": key, "value": value} for key, value in metadata.custom_metadata.items()],
    }
    if metadata.store_ctime:
        values["ctime"] = metadata.ctime
    return values


def _delimited(body: bytes) -> bytes:
    try:
        size, offset = protobuf.read_varint(body, 0, _MAX_SIZE_VARINT)
    except protobuf.NotProtobuf as error:
        raise CorruptMetadata(f"its size: {error}") from None
    if size > len(body) - offset:
        raise CorruptMetadata(f"it is cut: {size} bytes announced, {len(body) - offset} there")
    return body[offset : offset + size]


def _from_values(values: Values, ledger_id: int, version: int, store_ctime: int | None) -> LedgerMetadata:
    ensembles: dict[int, tuple[BookieId, ...]] = {}
    for segment in values.get("segment", ()):
        _add_ensemble(ensembles, segment["firstEntryId"], segment.get("ensembleMember", ()))
    state = LedgerState(values["state"])
    closed = state is LedgerState.CLOSED
    if closed and "lastEntryId" not in values:
        raise CorruptMetadata("closed without a last entry id")
    password = values.get("password")
    return LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=values["ensembleSize"],
        write_quorum=values["quorumSize"],
        ack_quorum=values["ackQuorumSize"] if "ackQuorumSize" in values else values["quorumSize"],
        ensembles=ensembles,
        state=state,
        last_entry_id=values["lastEntryId"] if closed else -1,
        length=values["length"] if closed else 0,
        digest_type=None if password is None else _DIGESTS[values.get("digestType", DIGEST_TYPES["CRC32"])],
        password=password,
        ctime=values.get("ctime", -1 if store_ctime is None else store_ctime),
        store_ctime="ctime" in values,
        ctoken=values.get("cToken", 0),
        custom_metadata={entry.get("key", ""): entry.get("value", b"") for entry in values.get("customMetadata", ())},
        format_version=version,
    )
