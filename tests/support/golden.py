"""Directories and metadata that Java's bookies wrote (tests/data/golden-db).

Three bookies of 4.17.3 with DbLedgerStorage, stopped cleanly once and killed in the end: the ledgers up to
`LAST_FLUSHED` are in the entry logs, the later ones only in the journal.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"
BOOKIES = ("b1", "b2", "b3")
BOOKIE_IDS = {"b1": "127.0.0.1:31841", "b2": "127.0.0.1:31842", "b3": "127.0.0.1:31843"}
LAST_FLUSHED = 8
BIG_ID = 5_000_000_000
"""One ledger with an id above 32 bits, flushed as well."""


@dataclass(frozen=True)
class GoldenLedger:
    """What a golden ledger holds."""

    ledger: int
    entries: int
    size: int
    digest: str
    password: str
    ensemble: int
    write_quorum: int
    ack_quorum: int
    state: str
    sha256: str

    @property
    def flushed(self) -> bool:
        return self.ledger <= LAST_FLUSHED or self.ledger == BIG_ID


def ledgers() -> list[GoldenLedger]:
    return [GoldenLedger(**item) for item in json.loads((DATA / "golden-db" / "ledgers.json").read_text())]


def metadata() -> dict[str, dict[str, object]]:
    """The metadata tree: path -> data (hex), ephemeral, version."""
    nodes: dict[str, dict[str, object]] = json.loads((DATA / "golden-db" / "metadata.json").read_text())
    return nodes


def payload(entry_id: int, size: int) -> bytes:
    """The data of each golden entry."""
    return bytes((entry_id * 31 + i * 7) % 256 for i in range(size))


def unpack(directory: Path) -> Path:
    """Unpack the three bookies' directories; returns the directory that holds b1, b2 and b3."""
    with tarfile.open(DATA / "golden-db" / "bookies.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory
