"""Ranges of an open ledger as Arrow record batches.

Theory of operation

- An answer to a batch read goes through `columns.take_run`, which checks every digest and gives arrays; a record batch
  is a view of those. Nothing is made for an entry by itself but what its checksum takes.
- What a chunk of a range is, how much is read ahead, and what is done about replicas that fail, is as for entries:
  `read_ahead`, `scan` and `batch`. A run that ends early, at damage or at the end of a fragment, is followed by
  another.

Needs numpy and pyarrow: the module is imported when the first such read begins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
import pyarrow as pa

from ...errors import BKError
from ...protocol.messages import Packed
from .columns import PackedRun, take_run
from .ledger_reads import ENTRY_OVERHEAD, LedgerReads
from .read_ahead import LEFT_OVER, Chunk
from .scan import PackedReads

TYPES: dict[str, pa.DataType] = {
    "ledger_id": pa.int64(),
    "entry_id": pa.int64(),
    "payload": pa.binary(),
    "length": pa.int64(),
    "last_confirmed": pa.int64(),
}
"""The columns of entries, in their order."""

SCHEMA = pa.schema([pa.field(name, kind) for name, kind in TYPES.items()])


def column(name: str, run: PackedRun) -> pa.Array:
    """One of `TYPES`. Payloads and what headers had are views of the run."""
    match name:
        case "ledger_id":
            return pa.array(np.full(run.rows, run.ledger_id, np.int64))
        case "entry_id":
            return pa.array(np.arange(run.first, run.last + 1, dtype=np.int64))
        case "payload":
            buffers = [None, pa.py_buffer(run.offsets), pa.py_buffer(run.payload)]
            return pa.Array.from_buffers(TYPES[name], run.rows, buffers)
        case "length":
            return pa.array(run.length)
        case "last_confirmed":
            return pa.array(run.last_confirmed)
    raise AssertionError(name)


class ArrowReads:
    """Reads chunks of a ledger's entries as record batches.

    `check_open` raises when its handle can read no more; `look_again(error)` says whether the store knows of other
    bookies for an entry that could not be read.
    """

    def __init__(
        self, reads: LedgerReads, check_open: Callable[[], None], look_again: Callable[[BKError], Awaitable[bool]]
    ) -> None:
        self._reads = reads
        self._packed = PackedReads(reads)
        self._check_open = check_open
        self._look_again = look_again

    @staticmethod
    def last_of(batch: pa.RecordBatch) -> int:
        """The id of a batch's last entry."""
        last: int = batch.column("entry_id")[-1].as_py()
        return last

    async def chunk(self, first: int, last: int, max_size: int) -> Chunk[pa.RecordBatch]:
        """Entries `first` to `last`, about `max_size` bytes of them."""
        batches: list[pa.RecordBatch] = []
        room = max_size
        try:
            while first <= last and room > max_size * LEFT_OVER:
                run = await self._run(first, last, room)
                batches.append(pa.RecordBatch.from_arrays([column(name, run) for name in TYPES], schema=SCHEMA))
                first = run.last + 1
                room -= run.payload_bytes + run.rows * ENTRY_OVERHEAD
        except BKError as error:
            return batches, error
        return batches, None

    async def _run(self, first: int, last: int, max_size: int) -> PackedRun:
        try:
            return await self._run_once(first, last, max_size)
        except BKError as error:
            if await self._look_again(error):
                return await self._run_once(first, last, max_size)
            raise

    async def _run_once(self, first: int, last: int, max_size: int) -> PackedRun:
        self._check_open()
        count = last - first + 1

        def take(start: int, body: Packed) -> tuple[PackedRun | None, int | None]:
            run, damaged = take_run(self._reads.ledger_id, self._reads.digest, start, body)
            return None if run is None else run.prefix(count), damaged

        run = await self._packed.some(first, count, max_size, take)
        self._reads.saw(run.rows, run.payload_bytes / run.rows, run.last, int(run.length[-1]))
        return run
