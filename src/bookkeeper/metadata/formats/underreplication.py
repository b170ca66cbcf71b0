r"""Values of under-replication and auditor election, as stored bytes (spec metadata §9.1).

| value | form |
|---|---|
| layout of the subtree | `LedgerRereplicationLayoutFormat`, text: `type: "BASIC"`, `version: 1` |
| mark of a ledger | `UnderreplicatedLedgerFormat`, text |
| lock of a ledger | `LockDataFormat`, text; Java puts its host name there, not the bookie id |
| auditor's vote | `AuditorVoteFormat`, text |
| lost bookie recovery delay | decimal seconds, text |
| time of the last check | one message per kind, one int64 field 1, **binary** |

All parsers raise `CorruptMetadata`, `check_layout` also `UnderreplicationIncompatible`.
"""

from __future__ import annotations

import re

from ...errors import CorruptMetadata, UnderreplicationIncompatible
from ..api import CheckKind, UnderreplicatedLedger
from . import text as text_format
from . import wire as wire_format
from .messages import (
    AUDITOR_VOTE,
    CHECK_ALL_LEDGERS,
    LOCK_DATA,
    PLACEMENT_POLICY_CHECK,
    REPLICAS_CHECK,
    REREPLICATION_LAYOUT,
    UNDERREPLICATED_LEDGER,
)
from .schema import Values

_LAYOUT: Values = {"type": "BASIC", "version": 1}
LAYOUT = text_format.print_message(REREPLICATION_LAYOUT, _LAYOUT).encode()

_CHECKS = {
    CheckKind.ALL_LEDGERS: CHECK_ALL_LEDGERS,
    CheckKind.PLACEMENT_POLICY: PLACEMENT_POLICY_CHECK,
    CheckKind.REPLICAS: REPLICAS_CHECK,
}
_SECONDS = re.compile(rb"-?[0-9]{1,10}")


def check_layout(data: bytes) -> None:
    """Raises `UnderreplicationIncompatible` unless this is the layout we know."""
    try:
        found = text_format.parse_message(REREPLICATION_LAYOUT, data)
    except CorruptMetadata as error:
        raise UnderreplicationIncompatible(f"the layout of under-replication is unreadable: {error}") from None
    if found != _LAYOUT:
        raise UnderreplicationIncompatible(
            f"under-replication has layout {found['type']} version {found['version']}; BASIC version 1 is supported"
        )


def encode_mark(mark: UnderreplicatedLedger) -> bytes:
    values: Values = {"replica": list(mark.replicas)}
    if mark.ctime >= 0:
        values["ctime"] = mark.ctime
    return text_format.print_message(UNDERREPLICATED_LEDGER, values).encode()


def parse_mark(data: bytes, ledger_id: int) -> UnderreplicatedLedger:
    values = text_format.parse_message(UNDERREPLICATED_LEDGER, data)
    return UnderreplicatedLedger(ledger_id, tuple(values.get("replica", ())), values.get("ctime", -1))


def encode_lock(owner: str) -> bytes:
    return text_format.print_message(LOCK_DATA, {"bookieId": owner}).encode()


def parse_lock(data: bytes) -> str:
    return str(text_format.parse_message(LOCK_DATA, data).get("bookieId", ""))


def encode_vote(bookie_id: str) -> bytes:
    return text_format.print_message(AUDITOR_VOTE, {"bookieId": bookie_id}).encode()


def parse_vote(data: bytes) -> str:
    return str(text_format.parse_message(AUDITOR_VOTE, data).get("bookieId", ""))


def encode_delay(seconds: int) -> bytes:
    return b"%d" % seconds


def parse_delay(data: bytes) -> int:
    if not _SECONDS.fullmatch(data):
        raise CorruptMetadata(f"lost bookie recovery delay {data[:40]!r} is not a number")
    return int(data)


def encode_check_time(kind: CheckKind, ms: int) -> bytes:
    message = _CHECKS[kind]
    return wire_format.encode(message, {message.fields[0].name: ms})


def parse_check_time(kind: CheckKind, data: bytes) -> int:
    """Milliseconds; -1 if unset."""
    message = _CHECKS[kind]
    return int(wire_format.decode(message, data).get(message.fields[0].name, -1))
