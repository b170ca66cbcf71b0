"""How one writer's entries become frames (spec wire-protocol §2, §3)."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol import v2, v3
from ...protocol.digest import Digest
from ...protocol.messages import HIGH_PRIORITY, V2, Flags
from ...protocol.protobuf import varint
from ...types import WriteFlag

_V3_ADD_TXN = 1 << 62
"""Added to the entry id it is an add's transaction id: the same for all bookies, and never that of another request."""

RECOVERY_FLAGS = int(Flags.RECOVERY_ADD | Flags.HIGH_PRIORITY)
"""Of adds that secure or repair a ledger: fences let them pass."""

EncodeAdd = Callable[[int, int, int, int, bytes], bytes]
"""Ledger id, entry id, LAC, length of the ledger with this entry, payload -> the frame. Made for one ledger by
`add_encoder`; it is told the id as writers may share it."""


def add_encoder(
    version: int,
    ledger_id: int,
    digest: Digest,
    master_key: bytes,
    *,
    recovery: bool = False,
    write_flags: WriteFlag = WriteFlag.NONE,
) -> EncodeAdd:
    """How one writer's entries become frames."""
    flags = RECOVERY_FLAGS if recovery else 0
    if version == V2:
        return v2.add_request_encoder(master_key, digest, flags)
    priority = HIGH_PRIORITY if recovery else 0
    return v3.add_request_encoder(
        ledger_id, master_key, digest, flags, int(write_flags), priority, first_txn=_V3_ADD_TXN
    )


def packaged_add_encoder(version: int, ledger_id: int, master_key: bytes, flags: int) -> Callable[[int, bytes], bytes]:
    """How entries that are packaged already become frames: (entry id, packaged entry) -> the frame."""
    if version == V2:
        return lambda _, entry: v2.encode_add_request(master_key, entry, flags)
    encode = v3.AddRequestEncoder(ledger_id, master_key, flags, 0, HIGH_PRIORITY).encode
    return lambda entry_id, entry: encode(varint(_V3_ADD_TXN + entry_id), entry_id, entry)
