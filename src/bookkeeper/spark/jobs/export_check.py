"""Whether what an export wrote is what it had planned: every entry in exactly one file, bytes as the metadata say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import ExportError
from ..planning import Plan, Snapshot
from .export_manifest import NONE, Exported


class Wanted(NamedTuple):
    """What was planned of a ledger."""

    entries: int
    first: int
    last: int


class Written(NamedTuple):
    """What files have of a ledger."""

    entries: int
    payload_bytes: int


def added_up(
    plan: Plan, rows: Iterable[Any], exported: Mapping[int, Exported], fail_on_data_loss: bool
) -> list[dict[str, Any]]:
    """The ledgers as the manifest lists them. `rows` are the files, `exported` what earlier exports have of ledgers.

    A ledger is left out if there was nothing new of it. Without `fail_on_data_loss` entries may be missing. Raises
    `ExportError` for anything that does not add up.
    """
    written = _written(rows)
    wanted = _wanted(plan)
    listed = []
    for snapshot in plan.snapshots:
        ledger_id = snapshot.ledger_id
        got = written.pop(ledger_id, Written(0, 0))
        want = wanted.get(ledger_id, Wanted(0, 0, snapshot.last))
        before = exported.get(ledger_id)
        if got.entries > want.entries or (fail_on_data_loss and got.entries != want.entries):
            raise ExportError(f"ledger {ledger_id}: {got.entries} entries came out of {want.entries}")
        if before is not None and not want.entries and before.closed == snapshot.metadata.closed:
            continue
        _check_bytes(snapshot, got, before or NONE)
        listed.append(_row(snapshot, want, got))
    if written:
        raise ExportError(f"ledger {min(written)}: {written[min(written)].entries} entries came out of none")
    return listed


def _written(rows: Iterable[Any]) -> dict[int, Written]:
    written: dict[int, Written] = {}
    for row in rows:
        for ledger_id, count, size in zip(row.ledgers, row.ledger_rows, row.ledger_bytes, strict=True):
            so_far = written.get(ledger_id, Written(0, 0))
            written[ledger_id] = Written(so_far.entries + count, so_far.payload_bytes + size)
    return written


def _wanted(plan: Plan) -> dict[int, Wanted]:
    wanted: dict[int, Wanted] = {}
    for piece in (piece for ranges in plan.partitions for piece in ranges):
        so_far = wanted.get(piece.ledger_id, Wanted(0, piece.first, piece.last))
        wanted[piece.ledger_id] = Wanted(so_far.entries + piece.entries, so_far.first, piece.last)
    return wanted


def _check_bytes(snapshot: Snapshot, got: Written, earlier: Exported) -> None:
    """Of a closed ledger that is exported whole the payload bytes are known. Raises `ExportError`."""
    whole = earlier.entries + got.entries == snapshot.last + 1
    total = earlier.payload_bytes + got.payload_bytes
    if whole and snapshot.metadata.closed and total != snapshot.bytes:
        raise ExportError(
            f"ledger {snapshot.ledger_id}: {total} payload bytes came out, and its metadata say {snapshot.bytes}"
        )


def _row(snapshot: Snapshot, want: Wanted, got: Written) -> dict[str, Any]:
    return {
        "ledger_id": snapshot.ledger_id,
        "closed": snapshot.metadata.closed,
        "first_entry": want.first,
        "last_entry": max(want.last, snapshot.last),
        "entries": got.entries,
        "payload_bytes": got.payload_bytes,
        "ctime": snapshot.metadata.ctime,
        "custom_metadata": list(snapshot.metadata.custom_metadata.items()),
    }
