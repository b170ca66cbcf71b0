"""What the formats of streams cost: microseconds of CPU for one record.

    python -m bench.streams [--size 100] [--count 10000] [--rounds 15]

Each stage handles a batch of `count` records of `size` bytes; the best of all rounds counts. From `pack` on
it is the whole way between an application and a ledger that takes no time.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator

from bookkeeper.streams.formats.entry import decode_entry, encode_entry
from bookkeeper.streams.formats.record_set import decode_set, encode_set
from bookkeeper.streams.formats.records import decode_records, encode_records
from bookkeeper.streams.formats.segment import SegmentMetadata
from bookkeeper.streams.packing import EntryPacker
from bookkeeper.streams.policy import WritePolicy
from bookkeeper.streams.reading.reader import RecordBatch

Stage = tuple[str, Callable[[], object]]
PER_ENTRY = 100


def stages(size: int, count: int) -> Iterator[Stage]:
    """Name and work of each stage."""
    payloads = [bytes(size)] * count
    txids = [1_700_000_000_000] * count
    batches = [payloads[at : at + PER_ENTRY] for at in range(0, count, PER_ENTRY)]
    bodies = [encode_records(batch, txids, 1) for batch in batches]
    sets = [encode_set(batch) for batch in batches]
    yield "encode records", lambda: [encode_records(batch, txids, 1) for batch in batches]
    yield "decode records", lambda: [decode_records(body) for body in bodies]
    yield "encode record sets", lambda: [encode_set(batch) for batch in batches]
    yield "decode record sets", lambda: [decode_set(data) for data in sets]
    entries, _ = _pack(payloads, txids)
    segment = SegmentMetadata(ledger_id=1, first_txid=1, number=1)
    yield "pack into entries of 16 KiB", lambda: _pack(payloads, txids)
    yield "pack into record sets", lambda: EntryPacker(1, WritePolicy(), 0).add_sets(payloads, txids[0])
    yield "read entries", lambda: [decode_entry(entry) for entry in entries]
    yield (
        "read entries, records with positions",
        lambda: [list(RecordBatch(segment, n, decode_entry(entry)).records()) for n, entry in enumerate(entries)],
    )
    yield "envelopes alone", lambda: [encode_entry(body) for body in bodies]


def _pack(payloads: list[bytes], txids: list[int]) -> tuple[list[bytes], int]:
    packer = EntryPacker(1, WritePolicy(), 0)
    entries, runs = packer.add(payloads, txids)
    return [entry.payload for entry in [*entries, *packer.seal()]], len(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    gc.disable()
    for name, work in stages(arguments.size, arguments.count):
        best = min(_seconds(work) for _ in range(arguments.rounds))
        print(f"{name:40} {best / arguments.count * 1e6:8.3f} µs   {arguments.count / best / 1e6:7.2f} M/s")


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


if __name__ == "__main__":
    main()
