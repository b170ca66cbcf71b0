"""Rebuild: records of ledgers that the metadata store has lost, from what the bookies hold (spec streams §18).

Theory of operation

- Bookies can list the entries of a ledger, and not their ledgers. So the range of ids that are looked for is given;
  each task asks all bookies about some of them. An id that has a record is left alone: nothing is ever overwritten.
- All bookies must answer. What one that is away may hold is not known, so its ledgers stay `undecided`; and with fewer
  bookies than `expected` nothing is done at all.
- From the lists come quorums and ensembles (`inference`). The first entry tells the digest: its running length is the
  size of its payload, which is what follows header and digest. Its last entry tells the ledger's length.
- Passwords stand nowhere in clear. Of those that are given, the ledger's is the one that its bookies take for a fence.
  Fencing comes before the lists that count: a writer that is still there can add nothing to what is closed then.
- A record is written as soon as it is known, closed at the last entry that anybody lists. That may be more than its
  writer was told of, as after any recovery. No step deletes anything.
- An entry that nobody lists, though some list later ones, was lost, or its writer died before it was acknowledged. The
  last entry says what was confirmed when it was sent, and that may have been nothing. So such a ledger is undecided
  unless the operator says (`end_at_gaps`) that those end there of which nothing says otherwise.
- But bookies that collect garbage delete what has no record. They must not do so (`gcWaitTime`) until nothing is
  undecided.

| status | meaning |
|---|---|
| present | the ledger has a record |
| proposed | this record would be written; nothing was fenced, no password tried |
| rebuilt | it was |
| undecided | `detail` says why |
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ...client.reads.replicas import Replicas
from ...client.wire.results import OK, READ, result_code
from ...errors import BKError, DigestMismatchError, LedgerExists, NoSuchLedger, UnauthorizedError
from ...metadata.api import Mode
from ...metadata.ledger_metadata import LedgerMetadata
from ...protocol.digest import Digest, digest_for, master_key
from ...protocol.entry import HEADER_SIZE, lac_of, length_of
from ...protocol.messages import Flags, ReadRequest, ReadResponse
from ...types import LAST_ADD_CONFIRMED, BookieId, DigestType, LedgerState
from ..errors import JobError, OptionError
from ..options import ReadOptions
from ..planning import gather_bounded
from ..replicas import listed_mask
from ..session import Session
from .inference import MOST_BOOKIES, Inferred, infer
from .repairing import Tools, with_tools
from .running import Counter, OnProgress, connected, materialize, on_units, watched

IDS_PER_TASK = 500
MOST_IDS = 50_000_000
"""That one run looks for: each costs a request to every bookie."""

AT_ONCE = 8
"""Ledgers that a task asks about at a time; a list has at most `MOST_ENTRIES`."""

MOST_ENTRIES = 20_000_000
"""Of a ledger that is rebuilt: 8 bytes of memory each for every bookie."""

SHOWN = 1000

SCHEMA = StructType(
    [
        StructField("run_id", StringType()),
        StructField("ledger_id", LongType()),
        StructField("status", StringType()),
        StructField("confidence", StringType()),
        StructField("ensemble_size", LongType()),
        StructField("write_quorum", LongType()),
        StructField("ack_quorum", LongType()),
        StructField("digest", StringType()),
        StructField("last_entry", LongType()),
        StructField("length", LongType()),
        StructField("ensembles", StringType()),
        StructField("detail", StringType()),
    ]
)

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Known:
    """What the operator knows of the ledgers."""

    passwords: tuple[bytes, ...] = field(default=(b"",), repr=False)
    """One of them is each ledger's."""
    ensemble: int | None = None
    quorum: int | None = None
    expected: int = 1
    """Bookies that must be there."""
    end_at_gaps: bool = False
    """A ledger of which nobody lists an entry, but later ones, ended before it."""


@dataclass(frozen=True)
class RebuildReport:
    """What was found. `rows` are all ledgers, kept by Spark until `rows.unpersist()`."""

    run_id: str
    statuses: dict[str, int]
    """Ledgers by status."""
    inferred: int
    """Of those proposed or rebuilt: copies are missing or surplus, so that more than one record agrees."""
    undecided: list[dict[str, Any]]
    """The first `SHOWN`."""
    rows: DataFrame

    @property
    def done(self) -> bool:
        """Whether nothing is undecided."""
        return "undecided" not in self.statuses

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "run_id": self.run_id,
            "done": self.done,
            "statuses": self.statuses,
            "inferred": self.inferred,
            "undecided": self.undecided,
        }


def rebuild(
    spark: SparkSession,
    options: ReadOptions,
    known: Known,
    *,
    apply: bool = False,
    on_progress: OnProgress | None = None,
) -> RebuildReport:
    """Look for ledgers without a record among the ids that the options name; with `apply` write their records.

    Raises `OptionError` for ids without an end, `JobError` if bookies are missing.
    """
    ids = _ids(options)
    bookies = _bookies(options, known.expected)
    run_id = str(uuid.uuid4())
    counter = Counter(spark)

    def work(here: Session, some: range) -> Iterator[Row]:
        async def search(mine: Tools) -> list[Row | None]:
            async def look(ledger_id: int) -> Row | None:
                return await _Search(mine, ledger_id, bookies, known, apply).row()

            return await gather_bounded(look, some, AT_ONCE)

        for row in with_tools(here, options, search):
            counter.add(1, 0)
            if row is not None:
                yield (run_id, *row)

    units = [part[at : at + IDS_PER_TASK] for part in ids for at in range(0, len(part), IDS_PER_TASK)]
    with watched(counter, sum(map(len, ids)), 0, on_progress):
        return _report(run_id, materialize(on_units(spark, units, work, options, SCHEMA)))


def _ids(options: ReadOptions) -> list[range]:
    chosen = options.selection
    parts = [range(one, one + 1) for one in chosen.ids] + [range(first, last + 1) for first, last in chosen.ranges]
    if chosen.everything or not parts or any(part.stop - part.start > MOST_IDS for part in parts):
        raise OptionError(f"say which ids to look for, such as ledgers=0-99999: a range of at most {MOST_IDS:,}")
    return parts


def _bookies(options: ReadOptions, expected: int) -> tuple[BookieId, ...]:
    """All that run. Raises `JobError` if these are too few, or too many."""

    async def registered(mine: Tools) -> frozenset[BookieId]:
        discovery = mine.driver.discovery
        return (await discovery.list(Mode.WRITABLE)).value | (await discovery.list(Mode.READ_ONLY)).value

    with connected(options) as here:
        found = sorted(with_tools(here, options, registered))
    if len(found) < expected:
        raise JobError(f"{len(found)} bookies run, and {expected} are expected: what the others hold is not known")
    return tuple(found)


class _UndecidedError(Exception):
    """Why a ledger's record cannot be told."""


class _Search:
    """One ledger."""

    def __init__(self, mine: Tools, ledger_id: int, bookies: Sequence[BookieId], known: Known, apply: bool) -> None:
        self._tools = mine
        self._context = mine.client.context
        self._ledger_id = ledger_id
        self._bookies = bookies
        self._known = known
        self._apply = apply
        probe = LedgerMetadata(ledger_id, 1, 1, 1, {0: (bookies[0],)})
        self._replicas = Replicas(self._context, probe, digest_for(DigestType.DUMMY, b""))

    async def row(self) -> Row | None:
        """What is known of it, without the run's id; None if there is no such ledger."""
        nothing = (None,) * 8
        try:
            await self._tools.driver.ledgers.read(self._ledger_id)
            return self._ledger_id, "present", *nothing, None
        except NoSuchLedger:
            pass
        try:
            return await self._found()
        except _UndecidedError as error:
            return self._ledger_id, "undecided", *nothing, str(error)

    async def _found(self) -> Row | None:
        holders, held = await self._listed()
        if not holders:
            return None
        kind, digest, password = await self._digest(holders, held)
        if self._apply:
            password = await self._fence(holders, [password] if kind is DigestType.MAC else self._known.passwords)
            holders, held = await self._listed()
        held = await self._without_tail(holders, held, digest)
        inferred = infer(held, len(holders), ensemble=self._known.ensemble, quorum=self._known.quorum)
        if inferred is None:
            raise _UndecidedError("no ensembles agree with what the bookies list")
        length = length_of(await self._entry(len(held) - 1, holders, held, [digest]))
        record = self._record(inferred, holders, kind, password, len(held) - 1, length)
        return self._row_of(await self._write(record), inferred, record)

    async def _listed(self) -> tuple[list[BookieId], list[int]]:
        """Who lists any entries, and the mask of those for each entry."""
        lists = await asyncio.gather(*(self._replicas.listed(bookie) for bookie in self._bookies))
        for bookie, listed in zip(self._bookies, lists, strict=True):
            if listed is None:
                raise _UndecidedError(f"{bookie} does not say what it has")
        some = [
            (bookie, listed) for bookie, listed in zip(self._bookies, lists, strict=True) if listed and listed.count
        ]
        if len(some) > MOST_BOOKIES:
            raise _UndecidedError(f"{len(some)} bookies list entries of it, more than {MOST_BOOKIES}")
        last = max((listed.groups[-1][1] + listed.groups[-1][2] - 1 for _, listed in some), default=-1)
        if last >= MOST_ENTRIES:
            raise _UndecidedError(f"it has {last + 1} entries, more than {MOST_ENTRIES}")
        held = np.zeros(last + 1, np.int64)
        for number, (_, listed) in enumerate(some):
            held |= listed_mask(listed, 0, last).astype(np.int64) << number
        return [bookie for bookie, _ in some], held.tolist()

    async def _without_tail(self, holders: Sequence[BookieId], held: list[int], digest: Digest) -> list[int]:
        """Up to the first entry that nobody lists, if that is wanted and nothing says that it was confirmed."""
        if 0 not in held:
            return held
        gap = held.index(0)
        if gap <= lac_of(await self._entry(len(held) - 1, holders, held, [digest])):
            raise _UndecidedError(f"no bookie lists entry {gap}, which was confirmed")
        if not self._known.end_at_gaps:
            raise _UndecidedError(f"no bookie lists entry {gap}, and some list later ones")
        return held[:gap]

    # --- what entries and bookies tell ---

    async def _digest(self, holders: Sequence[BookieId], held: Sequence[int]) -> tuple[DigestType, Digest, bytes]:
        """How entries are protected, and with which password, if that tells."""
        candidates = [
            (kind, digest_for(kind, password), password)
            for kind in (DigestType.CRC32C, DigestType.CRC32, DigestType.MAC, DigestType.DUMMY)
            for password in (self._known.passwords if kind is DigestType.MAC else self._known.passwords[:1])
        ]
        entry = await self._entry(0, holders, held, [digest for _, digest, _ in candidates])
        return next(one for one in candidates if self._protects(one[1], 0, entry))

    async def _entry(
        self, entry_id: int, holders: Sequence[BookieId], held: Sequence[int], digests: Sequence[Digest]
    ) -> bytes:
        """An entry, as it is stored, that one of the digests fits."""
        for number, bookie in enumerate(holders):
            if held[entry_id] >> number & 1:
                reply = await self._replicas.one(bookie, entry_id)
                if reply.ok and any(self._protects(digest, entry_id, reply.body) for digest in digests):
                    return reply.body
        raise _UndecidedError(f"no bookie gives entry {entry_id}, or none of the passwords fits its digest")

    def _protects(self, digest: Digest, entry_id: int, entry: bytes) -> bool:
        if entry_id == 0 and length_of(entry) != len(entry) - HEADER_SIZE - digest.size:
            return False
        try:
            digest.verify(self._ledger_id, entry_id, entry)
        except DigestMismatchError:
            return False
        return True

    async def _fence(self, holders: Sequence[BookieId], passwords: Sequence[bytes]) -> bytes:
        """Fence the ledger on all who have it; returns its password."""
        for password in passwords:
            codes = await asyncio.gather(*(self._fence_on(bookie, master_key(password)) for bookie in holders))
            if all(code == OK for code in codes):
                return password
            for bookie, code in zip(holders, codes, strict=True):
                if code not in (OK, UnauthorizedError.code):
                    raise _UndecidedError(f"{bookie} does not fence it: code {code}")
        raise _UndecidedError("none of the passwords is its own")

    async def _fence_on(self, bookie: BookieId, key: bytes) -> int:
        request = ReadRequest(self._ledger_id, LAST_ADD_CONFIRMED, flags=int(Flags.DO_FENCING), master_key=key)
        try:
            response = await self._context.bookies.request(bookie, request)
        except BKError as error:
            return error.code
        assert isinstance(response, ReadResponse)
        return result_code(response.status, READ)

    # --- the record ---

    def _record(
        self,
        inferred: Inferred,
        holders: Sequence[BookieId],
        kind: DigestType,
        password: bytes,
        last_entry: int,
        length: int,
    ) -> LedgerMetadata:
        return LedgerMetadata(
            self._ledger_id,
            *inferred.quorums,
            {first: tuple(holders[number] for number in numbers) for first, numbers in inferred.ensembles.items()},
            LedgerState.CLOSED,
            last_entry,
            length,
            kind,
            password,
        )

    async def _write(self, record: LedgerMetadata) -> str:
        if not self._apply:
            return "proposed"
        try:
            await self._tools.driver.ledgers.create(self._ledger_id, record)
        except LedgerExists:
            return "present"
        return "rebuilt"

    def _row_of(self, status: str, inferred: Inferred, record: LedgerMetadata) -> Row:
        assert record.digest_type is not None
        confidence = "exact" if inferred.exact else "inferred"
        ensembles = json.dumps({str(first): list(members) for first, members in record.ensembles.items()})
        about = (status, confidence, *record.quorums, record.digest_type.name, record.last_entry_id, record.length)
        return self._ledger_id, *about, ensembles, None


def _report(run_id: str, rows: DataFrame) -> RebuildReport:
    totals = rows.groupBy("status").agg(F.count("*").alias("n")).collect()
    bad = rows.where("status = 'undecided'").orderBy("ledger_id").limit(SHOWN)
    return RebuildReport(
        run_id,
        {row[0]: row[1] for row in sorted(totals)},
        rows.where("confidence = 'inferred'").count(),
        [{"ledger_id": row.ledger_id, "detail": row.detail} for row in bad.collect()],
        rows,
    )
