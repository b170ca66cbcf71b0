"""From records of the metadata to rows of the metadata tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from ...metadata.ledger_metadata import LedgerMetadata
from ...streams.formats.segment import SegmentMetadata
from ...streams.namespace import StreamInfo
from ...streams.publishing.marker import Marker
from ..streaming.record_columns import LATEST_MS

Row = dict[str, Any]
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def ledger_row(metadata: LedgerMetadata) -> Row:
    """Of `ledgers`."""
    closed = metadata.closed
    return {
        "ledger_id": metadata.ledger_id,
        "state": metadata.state.name.lower(),
        "entries": metadata.last_entry_id + 1 if closed else None,
        "bytes": metadata.length if closed else None,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "digest": metadata.digest_type.name.lower() if metadata.digest_type is not None else None,
        "created": _moment(metadata.ctime),
        "fragments": len(metadata.ensembles),
        "custom_metadata": list(metadata.custom_metadata.items()),
    }


def fragment_rows(metadata: LedgerMetadata) -> Iterable[Row]:
    """Of `fragments`: one for each ensemble. The last one has no end before the ledger is closed."""
    firsts = list(metadata.ensembles)
    ends: list[int | None] = [following - 1 for _, following in pairwise(firsts)]
    ends.append(metadata.last_entry_id if metadata.closed else None)
    for number, (first, last) in enumerate(zip(firsts, ends, strict=True)):
        bookies = [str(bookie) for bookie in metadata.ensembles[first]]
        row = {"ledger_id": metadata.ledger_id, "fragment": number, "first_entry": first}
        yield {**row, "last_entry": last, "bookies": bookies}


def stream_row(info: StreamInfo) -> Row:
    """Of `streams`."""
    return {
        "stream": info.name,
        "segments": len(info.segments),
        "records": info.records,
        "last_txid": info.last_txid,
        "sealed": info.sealed,
        "owner": info.owner,
    }


def segment_row(stream: str, segment: SegmentMetadata) -> Row:
    """Of `segments`."""
    completed = segment.completed
    return {
        "stream": stream,
        "segment": segment.number,
        "ledger_id": segment.ledger_id,
        "state": "completed" if completed else "in progress",
        "records": segment.records if completed else None,
        "sequence_id": segment.sequence_id if completed else None,
        "first_txid": segment.first_txid,
        "last_txid": segment.last_txid if completed else None,
        "completed": _moment(segment.completed_ms) if completed else None,
        "truncation": segment.truncation.name.lower(),
        "first_dlsn": str(segment.first),
        "version": segment.version,
    }


def sink_row(sink: str, marker: Marker) -> Row:
    """Of `sinks`."""
    return {
        "sink": sink,
        "epoch": marker.epoch,
        "query": marker.query,
        "state": marker.state.value,
        "streams": sorted(marker.streams),
        "published": _moment(marker.time),
    }


def _moment(milliseconds: int) -> datetime | None:
    """None for what is not known, or no time that Spark knows."""
    return _BEGINNING + timedelta(milliseconds=milliseconds) if 0 < milliseconds <= LATEST_MS else None
