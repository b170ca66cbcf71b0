"""What a task does: read ranges of entries, in order, as columns.

Theory of operation

- The ranges of a partition are read in *chunks* of about `CHUNK_BYTES`, `readConcurrency` of them at a time, handed out
  in order. How many entries a chunk has comes from the ledger's average size. A chunk is one request; where entries
  are larger than expected, the answer ends early and the rest becomes the next chunk. So no more than `readConcurrency`
  answers are in memory, whatever the entries are like.
- Digests are checked once, while an answer is made columns. A damaged copy is counted and read from another replica by
  the client.
- The ledger's metadata are read when its first chunk is. When an entry cannot be read they are read again, because
  re-replication may have moved the fragment meanwhile. If that does not help, each replica is asked what it has, so
  that the error says which bookies are to blame and whether the entry is lost or only out of reach.
- What comes depends on the ranges alone: a repeated task gives the same rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field

from ..client.client import BookKeeper
from ..client.reads.columns import PackedRun, take_run
from ..client.reads.ledger_reads import ENTRY_OVERHEAD
from ..client.reads.replicas import Replicas
from ..client.reads.scan import LedgerScan
from ..errors import BookieRequestError, ClientClosedError, NoSuchLedgerError, NoSuchLedgerOnMetadataError
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.digest import Digest, digest_for
from ..protocol.messages import Packed
from ..runtime.waiting.rate_limit import RateLimit
from ..types import BookieId, DigestType
from .errors import DataLossError, ReplicasUnavailableError
from .options import ReadOptions
from .pieces import Copies, Piece
from .planning import EntryRange
from .replicas import check_copies

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
PAUSES = (0.0, 0.5, 2.0)
"""Seconds before another attempt to read what no replica gave."""

SLACK = 2
"""An answer may be so many times larger than expected before it is cut."""


@dataclass
class Tally:
    """What a task met."""

    entries: int = 0
    bytes: int = 0
    damaged: dict[tuple[int, int, BookieId], None] = field(default_factory=dict)
    """Copies with a wrong digest: ledger, entry, bookie."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Entries left out because no replica has them: ledger, entry."""

    def report(self) -> None:
        """Warn of what is wrong with the cluster although the read went on."""
        by_bookie: dict[BookieId, list[str]] = {}
        for ledger_id, entry_id, bookie in self.damaged:
            by_bookie.setdefault(bookie, []).append(f"{ledger_id}:{entry_id}")
        for bookie, copies in by_bookie.items():
            log.warning(
                "bookie %s: %d damaged copies, read from other replicas (ledger:entry %s%s)",
                *(bookie, len(copies), ", ".join(copies[:10]), ", ..." if len(copies) > 10 else ""),
            )
        if self.lost:
            shown = ", ".join(f"{ledger_id}:{entry_id}" for ledger_id, entry_id in self.lost[:10])
            log.warning("%d entries are lost and were left out (ledger:entry %s)", len(self.lost), shown)


class _Ledger:
    """An opened ledger of a task."""

    def __init__(self, bk: BookKeeper, metadata: LedgerMetadata, options: ReadOptions, tally: Tally) -> None:
        self.metadata = metadata
        self.digest = digest_of(metadata, options)
        self.bad: Copies = {}
        self._tally = tally
        self.scan = LedgerScan(bk.context, metadata, self.digest, self._damaged)

    def _damaged(self, bookie: BookieId, entry_id: int) -> None:
        self._tally.damaged[self.metadata.ledger_id, entry_id, bookie] = None
        self.bad.setdefault(entry_id, {})[bookie] = None

    def take_bad(self, first: int, last: int) -> Copies:
        """What is known of the copies of these entries; forgotten here."""
        if not self.bad:
            return {}
        return {entry: self.bad.pop(entry) for entry in list(self.bad) if first <= entry <= last}


def digest_of(metadata: LedgerMetadata, options: ReadOptions) -> Digest:
    """The digest that protects a ledger's entries. The oldest records name none: CRC32 was the default then."""
    password = options.password_for(metadata.password, metadata.ledger_id)
    return digest_for(metadata.digest_type or DigestType.CRC32, password)


class RangeReader:
    """Reads the ranges of one partition: `pieces()` gives them in order."""

    def __init__(self, bk: BookKeeper, ranges: Sequence[EntryRange], options: ReadOptions, tally: Tally) -> None:
        self._bk = bk
        self._ranges = ranges
        self._options = options
        self._tally = tally
        self._ledgers: dict[int, asyncio.Task[_Ledger]] = {}
        self._chunk_bytes = min(CHUNK_BYTES, options.max_batch_bytes)
        self._rate = RateLimit(bk.context.runtime, options.max_bytes_per_second)

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """All entries of the ranges. Raises `ReplicaError` for one that cannot be read."""
        chunks = self._chunks()
        under_way: deque[tuple[EntryRange, asyncio.Task[tuple[int, Piece | None]]]] = deque()
        try:
            while True:
                while len(under_way) < self._options.read_concurrency and (chunk := next(chunks, None)) is not None:
                    under_way.append((chunk, asyncio.ensure_future(self._read(chunk))))
                if not under_way:
                    return
                chunk, reading = under_way[0]
                done, piece = await reading
                under_way.popleft()
                if done < chunk.last:
                    rest = chunk._replace(first=done + 1)
                    under_way.appendleft((rest, asyncio.ensure_future(self._read(rest))))
                if piece is not None:
                    self._tally.entries += piece.run.rows
                    self._tally.bytes += piece.run.payload_bytes
                    yield piece
        finally:
            left = [*(reading for _, reading in under_way), *self._ledgers.values()]
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

    def _chunks(self) -> Iterator[EntryRange]:
        for piece in self._ranges:
            average = piece.bytes / piece.entries + ENTRY_OVERHEAD
            step = max(1, min(int(self._chunk_bytes / average), self._options.max_batch_rows))
            for first in range(piece.first, piece.last + 1, step):
                yield EntryRange(piece.ledger_id, first, min(first + step - 1, piece.last), 0)
            self._forget(piece.ledger_id)

    def _forget(self, ledger_id: int) -> None:
        """Keep no more ledgers than chunks under way may need."""
        for known in list(self._ledgers)[: -self._options.read_concurrency - 1]:
            if known != ledger_id and self._ledgers[known].done():
                del self._ledgers[known]

    async def _ledger(self, ledger_id: int) -> _Ledger:
        opening = self._ledgers.get(ledger_id)
        if opening is None:
            opening = self._ledgers[ledger_id] = asyncio.ensure_future(self._open(ledger_id))
        return await asyncio.shield(opening)

    async def _open(self, ledger_id: int) -> _Ledger:
        return _Ledger(self._bk, await self._bk.get_ledger_metadata(ledger_id), self._options, self._tally)

    async def _read(self, chunk: EntryRange) -> tuple[int, Piece | None]:
        """Some entries from the beginning of a chunk, and the id of the last; None for what is lost and left out."""
        try:
            ledger, run = await self._patiently(chunk)
        except DataLossError:
            if self._options.fail_on_data_loss:
                raise
            self._tally.lost.append((chunk.ledger_id, chunk.first))
            return chunk.first, None
        except NoSuchLedgerOnMetadataError:
            if self._options.fail_on_data_loss:
                raise
            log.warning("ledger %d was deleted meanwhile; what was not read yet is left out", chunk.ledger_id)
            return chunk.last, None
        await self._rate.take(run.payload_bytes)
        bad = ledger.take_bad(run.first, run.last)
        if self._options.verify_all:
            bad = (await check_copies(self._bk, ledger.metadata, ledger.digest, run.first, run.last)).bad_copies()
        return run.last, Piece(ledger.metadata, run, bad)

    async def _patiently(self, chunk: EntryRange) -> tuple[_Ledger, PackedRun]:
        """Read, and try again where that may help. Raises `ReplicaError` that names the bookies."""
        pauses = iter(PAUSES)
        while True:
            ledger = await self._ledger(chunk.ledger_id)
            try:
                return ledger, await self._run(ledger, chunk)
            except ClientClosedError:
                raise
            except (BookieRequestError, NoSuchLedgerError):
                self._ledgers.pop(chunk.ledger_id, None)  # the next try reads the metadata again
            if (pause := next(pauses, None)) is not None:
                await asyncio.sleep(pause)
                continue
            why = await Replicas(self._bk.context, ledger.metadata, ledger.digest).diagnose(chunk.first)
            kind = DataLossError if why.lost else ReplicasUnavailableError
            raise kind(chunk.ledger_id, chunk.first, why.reasons)

    async def _run(self, ledger: _Ledger, chunk: EntryRange) -> PackedRun:
        def take(first: int, body: Packed) -> tuple[PackedRun | None, int | None]:
            run, damaged = take_run(chunk.ledger_id, ledger.digest, first, body)
            return None if run is None else run.prefix(chunk.entries), damaged

        return await ledger.scan.some(chunk.first, chunk.entries, SLACK * self._chunk_bytes, take)
