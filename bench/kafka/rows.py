"""What is measured: of one stream and of one ledger, beside one partition of Kafka's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

CLIENTS = ("confluent", "aiokafka")

RATE, P50 = "rate", "p50_ms"
"""Figures: records a second, the more the better; milliseconds, the less the better."""


@dataclass(frozen=True)
class Theirs:
    """What a Kafka client does for a row; rows that need the same share it."""

    what: str
    size: int = 100


@dataclass(frozen=True)
class Row:
    """One comparison."""

    name: str
    figure: str
    ours: Sequence[str]
    """Words after `bookkeeper bench`; NAME is a new stream, READ the one that `reads_of` wrote."""
    theirs: Theirs
    reads_of: str = ""
    """The row whose stream is read."""

    @property
    def more_is_better(self) -> bool:
        return self.figure == RATE


WRITE = Theirs("write")
IN_SETS = "write 100 B, record sets"
ROWS = (
    Row(IN_SETS, RATE, ("stream", "write", "NAME", "--batch", "1000", "--sets"), WRITE),
    Row("write 100 B, append_batch", RATE, ("stream", "write", "NAME", "--batch", "1000"), WRITE),
    Row("write 100 B, append_nowait", RATE, ("stream", "write", "NAME", "--batch", "1"), WRITE),
    Row(
        "write 1 KB, append_batch",
        RATE,
        ("stream", "write", "NAME", "--batch", "100", "--size", "1024"),
        Theirs("write", 1024),
    ),
    Row(
        "read 100 B, record by record",
        RATE,
        ("stream", "read", "READ"),
        Theirs("read"),
        reads_of="write 100 B, append_batch",
    ),
    Row(
        "read 100 B, in batches, record sets",
        RATE,
        ("stream", "read", "READ", "--batches"),
        Theirs("read"),
        reads_of=IN_SETS,
    ),
    Row("one record at a time", P50, ("stream", "write", "NAME", "--batch", "1", "--window", "1"), Theirs("alone")),
    Row("tail at 1,000 records/s", P50, ("stream", "tail", "NAME", "--rate", "1000"), Theirs("tail")),
    Row("ledger: 100 B, append_nowait", RATE, ("write", "--size", "100"), WRITE),
    Row("ledger: one entry at a time", P50, ("write", "--size", "100", "--window", "1"), Theirs("alone")),
)


def chosen(names: Sequence[str]) -> list[Row]:
    """The rows of these names, and those whose streams they read; all without names. Raises `KeyError`."""
    by_name = {row.name: row for row in ROWS}
    wanted = [by_name[name] for name in names] or list(ROWS)
    needed = {row.reads_of for row in wanted} - {""}
    return [row for row in ROWS if row in wanted or row.name in needed]


def work_of(rows: Sequence[Row]) -> Iterator[tuple[str, Theirs]]:
    """What the Kafka clients have to do for these rows, each once, writes before what reads them."""
    for client in CLIENTS:
        wanted = dict.fromkeys(row.theirs for row in rows)
        if Theirs("read") in wanted:
            wanted = {WRITE: None, **wanted}
        for work in wanted:
            if (client, work.what) != (
                "confluent",
                "tail",
            ):  # its consumer is not made for it: a call waits for a batch
                yield client, work
