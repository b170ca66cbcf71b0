"""Deliberate mistakes, to see whether the simulation finds them.

Each mutation breaks one rule of the protocol or of the storage, by replacing code while a run lasts. If the checks and
the faults are any good, some seed fails. `python -m tests.simulation.mutations` looks for it and prints the first; the
seeds found are kept in `test_mutations`, which runs them again.

A mutation may give hints (`Options`): a shape of ledgers or kinds of faults without which it cannot matter. The seed
decides all the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from bookkeeper.bookie.checkpoint import Checkpointer
from bookkeeper.bookie.journal import journal as bookie_journal
from bookkeeper.bookie.journal import scan as journal_scan
from bookkeeper.bookie.journal.apply import RecordApplier
from bookkeeper.bookie.journal.file import JournalFile
from bookkeeper.bookie.journal.format import LEDGER_KEY
from bookkeeper.bookie.journal.journals import Journals
from bookkeeper.bookie.journal.last_mark import LogMark
from bookkeeper.bookie.journal.retention import Retention
from bookkeeper.bookie.ledgers import BookieLedger, LedgerTable
from bookkeeper.bookie.node.mode import BookieState
from bookkeeper.bookie.requests import adds as bookie_adds
from bookkeeper.bookie.requests import error_status as status
from bookkeeper.bookie.requests import reads
from bookkeeper.bookie.requests.fencing import Fences
from bookkeeper.bookie.storage import db_directory
from bookkeeper.bookie.storage.collection.ledgers import LedgerCollector
from bookkeeper.bookie.storage.compaction import LogMover
from bookkeeper.bookie.storage.entry_log.writer import EntryLogWriter
from bookkeeper.bookie.storage.index.locations import LocationIndex
from bookkeeper.client import recovery as client_recovery
from bookkeeper.client import writable as client_writable
from bookkeeper.client import writer as client_writer
from bookkeeper.client.adds import appending as client_appending
from bookkeeper.client.adds import encoding as client_encoding
from bookkeeper.client.adds import metadata_changes as client_metadata_changes
from bookkeeper.client.reader import LedgerReader
from bookkeeper.client.wire.add_channel import AddRoute
from bookkeeper.client.wire.pool import ConnectionPool
from bookkeeper.metadata.api import ANY
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol.digest import Digest
from bookkeeper.protocol.messages import Flags, ReadRequest, Status
from bookkeeper.quorum.coverage import CoverageSet
from bookkeeper.quorum.window import PendingWindow
from bookkeeper.simulation.swarm import Options
from tests.support.planted_client import plant

Patch = Callable[[pytest.MonkeyPatch], None]

CRASHES = (
    "kill bookie",
    "power off bookie",
    "kill all bookies",
    "power off all bookies",
    "crash bookie in a disk call",
)
LOSSES = ("power off bookie", "power off all bookies", "slow disk")
TROUBLE = ("kill bookie", "cut link both ways", "cut link one way", "isolate bookie", "swizzle links", "pause bookie")


@dataclass(frozen=True)
class Mutation:
    """One mistake."""

    name: str
    rule: str
    """The rule that is broken."""
    patch: Patch = field(repr=False)
    options: Options = field(default_factory=Options)
    """What makes it more likely to matter."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The mistake is in the code for as long as this lasts."""
        with pytest.MonkeyPatch.context() as monkeypatch:
            self.patch(monkeypatch)
            yield


MUTATIONS: dict[str, Mutation] = {}


def mutation(rule: str, **hints: Any) -> Callable[[Patch], Patch]:
    """Enter a function that makes a mistake into the table; its name is the mistake's."""

    def enter(patch: Patch) -> Patch:
        name = patch.__name__.replace("_", " ")
        MUTATIONS[name] = Mutation(name, rule, patch, Options(**hints))
        return patch

    return enter


def broken_rule(name: str, rule: str, *fields: str, **hints: Any) -> None:
    """A mistake of `tests.support.planted`."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        plant(monkeypatch, *fields)

    MUTATIONS[name] = Mutation(name, rule, patch, Options(**hints))


# --- the writer ---

RECOVERY = {"programs": {"writers": 2, "readers": 2}, "flavours": ("plain",)}

broken_rule("writer closes at the last push", "PI-16: a writer closes its ledger at its LAC", "close_at_lac")
broken_rule("acks of replaced bookies count", "PI-14: they do not", "revoke_replaced_acks", faults=TROUBLE)
broken_rule("ensemble is used before it is stored", "PI-14: metadata first", "store_before_use", faults=TROUBLE)
broken_rule("appends are acknowledged in any order", "PI-15: strictly by id", "confirm_in_order")


@mutation("ACT-5: an append needs Aq acknowledgements")
def append_is_done_with_one_ack_less(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PendingWindow.__init__

    def init(self: PendingWindow, distribution: Any, **keywords: Any) -> None:
        original(self, distribution, **keywords)
        self._slack += 1

    monkeypatch.setattr(PendingWindow, "__init__", init)


@mutation("PI-9: an entry carries the writer's LAC")
def entries_carry_the_lac_plus_one(monkeypatch: pytest.MonkeyPatch) -> None:
    original = client_encoding.add_encoder

    def encoder(*arguments: Any, **keywords: Any) -> Any:
        encode = original(*arguments, **keywords)
        return lambda ledger_id, entry_id, lac, length, data: encode(
            ledger_id, entry_id, min(lac + 1, entry_id - 1), length, data
        )

    monkeypatch.setattr(client_appending, "add_encoder", encoder)


@mutation("ACT-7: a new fragment begins behind the LAC", faults=TROUBLE)
def new_fragment_begins_behind_the_last_push(monkeypatch: pytest.MonkeyPatch) -> None:
    original = client_writer.LedgerWriter._change_ensemble

    async def change(self: Any, ask: Any) -> None:
        with pytest.MonkeyPatch.context() as inside:
            with_ensemble = LedgerMetadata.with_ensemble
            inside.setattr(
                LedgerMetadata,
                "with_ensemble",
                lambda metadata, first, members: with_ensemble(metadata, self._adds.window.lap + 1, members),
            )
            await original(self, ask)

    monkeypatch.setattr(client_writer.LedgerWriter, "_change_ensemble", change)


@mutation("ACT-7: pending entries are sent to the new bookies", faults=TROUBLE)
def nothing_is_sent_to_replacements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PendingWindow, "resend", lambda self, index: [])


@mutation("ACT-8: closing is a compare-and-set", **RECOVERY)
def writer_closes_without_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(store: Any, ledger_id: int, current: Any, needs: Any, transform: Any) -> Any:
        return await store.write(ledger_id, transform(current.value), ANY)

    original = client_metadata_changes.update_ledger

    async def update(store: Any, ledger_id: int, current: Any, needs: Any, transform: Any) -> Any:
        closing = transform.__name__ == "<lambda>"
        return await (close if closing else original)(store, ledger_id, current, needs, transform)

    monkeypatch.setattr(client_metadata_changes, "update_ledger", update)


@mutation("RI-14: force waits for every bookie", flavours=("deferred",), faults=LOSSES, fault_count=16)
def force_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def force(self: Any) -> None:
        self._adds.window.synced(self._adds.window.head)

    monkeypatch.setattr(client_writable.WritableLedger, "force", force)


@mutation("RI-14: the LAC moves with force only", flavours=("deferred",), faults=LOSSES, fault_count=16)
def deferred_entries_move_the_lac(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PendingWindow.__init__

    def init(self: PendingWindow, distribution: Any, **keywords: Any) -> None:
        original(self, distribution, **{**keywords, "deferred_sync": False})

    monkeypatch.setattr(PendingWindow, "__init__", init)


# --- recovery ---

broken_rule("recovery reads do not fence", "ACT-13: every recovery read fences", "fencing_reads", **RECOVERY)
_without_fence = MUTATIONS["recovery reads do not fence"].patch


@mutation("ACT-13: every recovery read fences", **RECOVERY)
def recovery_reads_do_not_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_fence(monkeypatch)
    original = ConnectionPool.call

    def call(self: ConnectionPool, bookie: Any, message: Any, *rest: Any, **named: Any) -> None:
        if isinstance(message, ReadRequest) and message.flags == Flags.HIGH_PRIORITY:
            message.flags = 0  # which v2 cannot say without a fence
        original(self, bookie, message, *rest, **named)

    monkeypatch.setattr(ConnectionPool, "call", call)


broken_rule("the first denial ends recovery", "ACT-14: quorum coverage", "negatives_need_coverage", **RECOVERY)
broken_rule("silence counts as denial", "ACT-14: unknown is unknown", "unknown_is_not_negative", **RECOVERY)
broken_rule("recovery starts below the last fragment", "ACT-12: the floor", "lac_floor", faults=TROUBLE, **RECOVERY)
broken_rule(
    "recovery reads from its own ensembles",
    "ACT-13: as they were",
    "reads_from_frozen_ensembles",
    faults=TROUBLE,
    **RECOVERY,
)
broken_rule("recovery closes before its writes are back", "ACT-17: all of them", "close_after_write_backs", **RECOVERY)
broken_rule(
    "recovery closes when a write fails", "ACT-18: it does not", "failed_write_back_fails", faults=TROUBLE, **RECOVERY
)
broken_rule(
    "written-back entries carry the recoverer's LAC",
    "PI-17: they carry the one that fencing found",
    "write_back_fenced_lac",
    programs={"writers": 2, "readers": 2, "followers": 2, "browsers": 2},
)


@mutation("ACT-10: IN_RECOVERY comes before fencing", faults=TROUBLE, fault_count=16, **RECOVERY)
def recovery_does_not_tell_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    original = client_recovery.update_ledger

    async def update(store: Any, ledger_id: int, current: Any, needs: Any, transform: Any) -> Any:
        if transform.__name__ == "<lambda>":  # the first of the two
            return current
        return await original(store, ledger_id, current, lambda record: not record.closed, transform)

    monkeypatch.setattr(client_recovery, "update_ledger", update)


@mutation("ACT-17: the close of recovery is a compare-and-set", **RECOVERY)
def recovery_closes_without_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    original = client_recovery.update_ledger

    async def update(store: Any, ledger_id: int, current: Any, needs: Any, transform: Any) -> Any:
        if transform.__name__ == "<lambda>":
            return await original(store, ledger_id, current, needs, transform)
        return await store.write(ledger_id, transform(current.value), ANY)

    monkeypatch.setattr(client_recovery, "update_ledger", update)


@mutation("LV-4: recovery adds are marked as such", **RECOVERY)
def recovery_adds_are_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    original = client_encoding.add_encoder

    def encoder(*arguments: Any, recovery: bool = False, **keywords: Any) -> Any:
        return original(*arguments, recovery=False, **keywords)

    monkeypatch.setattr(client_recovery, "add_encoder", encoder)


# --- readers ---


# MU-30
@mutation("RI-5, RI-7: a reader's LAC is what some entry said")
def reader_takes_the_last_entry_for_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = LedgerReader._heard_of_lac
    monkeypatch.setattr(LedgerReader, "_heard_of_lac", lambda self, lac, length: original(self, lac + 1, length))


# MU-31
@mutation("RI-6: the LAC of a handle never falls")
def reader_lac_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    def heard(self: LedgerReader, lac: int, length: int) -> None:
        if not self.closed:
            self._lac = lac

    monkeypatch.setattr(LedgerReader, "_heard_of_lac", heard)


# MU-29
@mutation("RI-12: digests are checked", faults=("flip a bit", "power off bookie", "kill bookie"), fault_count=16)
def damaged_entries_are_given_to_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in Digest.__subclasses__():
        monkeypatch.setattr(kind, "sum", lambda self, data: self._field.unpack(bytes(self._field.size))[0])
        monkeypatch.setattr(
            kind, "sum_pieces", lambda self, header, data: self._field.unpack(bytes(self._field.size))[0]
        )


@mutation("a LAC read covers the ensemble", programs={"writers": 2, "browsers": 3})
def lac_reads_are_content_with_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoverageSet, "covered", property(lambda self: True))


@mutation("a closed client leaves nothing behind")
def connections_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(self: ConnectionPool) -> None:
        """Forget to."""

    monkeypatch.setattr(ConnectionPool, "close", close)


# --- fencing on a bookie ---


@mutation("ACT-4: a fenced ledger takes no normal adds", **RECOVERY)
def fenced_ledgers_take_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    original = bookie_adds.AddBatch._admit

    def admit(self: Any, run: Any) -> Any:
        run.flags |= int(Flags.RECOVERY_ADD)
        return original(self, run)

    monkeypatch.setattr(bookie_adds.AddBatch, "_admit", admit)


# MU-20
@mutation("BI-2: a fence is journaled", faults=CRASHES, **RECOVERY)
def fences_are_not_journaled(monkeypatch: pytest.MonkeyPatch) -> None:
    def append(self: Journals, handle: BookieLedger, record: bytes, done: Callable[[], None]) -> None:
        self.of(handle.ledger_id).force(done)

    monkeypatch.setattr(Journals, "append", append)


# MU-21, JH-2
@mutation("BI-2: a fence is answered when it is durable", faults=CRASHES, **RECOVERY)
def fences_are_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Fences.fence

    def fence(self: Fences, ledger_id: int, key: bytes, durable: Callable[[], None]) -> None:
        original(self, ledger_id, key, lambda: None)
        durable()

    monkeypatch.setattr(Fences, "fence", fence)


@mutation("ACT-11: a ledger never seen is fenced too", **RECOVERY)
def unknown_ledgers_are_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Fences.fence

    def fence(self: Fences, ledger_id: int, key: bytes, durable: Callable[[], None]) -> None:
        if self._storage.ledger_exists(ledger_id):
            original(self, ledger_id, key, durable)
        else:
            durable()

    monkeypatch.setattr(Fences, "fence", fence)


@mutation("BI-3: the key goes before the first record of a ledger (defect A3)", faults=CRASHES)
def keys_are_not_journaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.bookie.journal.journals.key_record_if_due", lambda handle: [])
    monkeypatch.setattr(bookie_adds, "key_record_if_due", lambda handle: [])


@mutation("a fence is for ever, also when the handle is dropped", settings={"ledgerHandleCacheSize": 1}, **RECOVERY)
def dropped_handles_forget_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    original = LedgerTable._add

    def add(self: LedgerTable, ledger_id: int, *, lac_known: bool) -> BookieLedger:
        handle = original(self, ledger_id, lac_known=lac_known)
        handle.fenced = False
        return handle

    monkeypatch.setattr(LedgerTable, "_add", add)


# --- the journal ---


# MU-17
@mutation("BI-1: an add is answered when it is synced", faults=CRASHES)
def journal_does_not_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JournalFile, "sync", lambda self, end: end)
    monkeypatch.setattr(JournalFile, "begin_sync", lambda self, background, done: False)


# MU-17
@mutation("BI-1: an add is answered when it is synced", faults=CRASHES)
def adds_are_answered_when_written(monkeypatch: pytest.MonkeyPatch) -> None:
    original = bookie_journal.Journal.append

    def append(self: Any, pieces: Any, size: int, count: int, done: Any, *, ack_before_sync: bool = False) -> None:
        original(self, pieces, size, count, done, ack_before_sync=True)

    monkeypatch.setattr(bookie_journal.Journal, "append", append)


# MU-36
@mutation("BI-17: a failed sync is the end", faults=("fail next sync", *CRASHES))
def failed_syncs_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    original = JournalFile.sync

    def sync(self: JournalFile, end: int) -> int:
        try:
            return original(self, end)
        except OSError:
            self._error = None
            return original(self, end)

    monkeypatch.setattr(JournalFile, "sync", sync)
    monkeypatch.setattr(JournalFile, "begin_sync", lambda self, background, done: False)


# MU-36
@mutation(
    "BI-17: a failed sync is the end", calm=False, faults=("fail next sync", "power off all bookies"), fault_count=10
)
def failed_syncs_in_the_background_are_not_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    original = JournalFile.begin_sync

    def begin_sync(self: JournalFile, background: Any, done: Any) -> bool:
        return original(self, background, lambda _reached, _error: done(self.end, None))

    monkeypatch.setattr(JournalFile, "begin_sync", begin_sync)


# MU-22
@mutation("BI-4: a torn record never becomes an entry", faults=("power off bookie", "power off all bookies"))
def seals_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_scan, "google_crc32c", _AnyCrc)


class _Anything(int):
    """Equal to every checksum."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


class _AnyCrc:
    @staticmethod
    def value(data: bytes) -> int:
        return _Anything()


@mutation("BI-8: replay goes to the end", faults=CRASHES)
def replay_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RecordApplier.apply

    def apply(self: RecordApplier, record: Any) -> Any:
        return original(self, record) if self.entries < 10 or record.entry_id == LEDGER_KEY else None

    monkeypatch.setattr(RecordApplier, "apply", apply)


@mutation("BI-8: replay begins at the mark", faults=CRASHES)
def replay_skips_the_first_file(monkeypatch: pytest.MonkeyPatch) -> None:
    original = bookie_journal.replay

    async def replay(files: Any, lane: Any, directory: str, mark: LogMark, *rest: Any, **keywords: Any) -> None:
        if mark.journal_id:
            mark = LogMark(mark.journal_id, mark.offset + 512)
        await original(files, lane, directory, mark, *rest, **keywords)

    monkeypatch.setattr(bookie_journal, "replay", replay)


@mutation("BI-6, BI-11: the mark moves after the flush", faults=CRASHES)
def mark_is_taken_after_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    async def checkpoint(self: Checkpointer, compact: bool) -> None:
        async with self._one_at_a_time:
            await self._storage.flush()
            for journal in self._journals:
                await self._complete(journal, journal.mark(), compact)

    monkeypatch.setattr(Checkpointer, "_checkpoint", checkpoint)


# MU-18
@mutation("BI-11: the mark is written after the flush", faults=CRASHES)
def mark_is_written_before_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    async def checkpoint(self: Checkpointer, compact: bool) -> None:
        async with self._one_at_a_time:
            for journal in self._journals:
                await self._complete(journal, journal.mark(), compact)
            await self._storage.flush()

    monkeypatch.setattr(Checkpointer, "_checkpoint", checkpoint)


# MU-19
@mutation("BI-7: the marked journal is kept", faults=CRASHES, settings={"journalMaxBackups": 0})
def journals_are_deleted_one_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Retention._trim
    monkeypatch.setattr(Retention, "_trim", lambda self, marked: original(self, marked + 1))


# --- the storage ---


# A7
@mutation("BI-11: the entry log is synced before the index", faults=("power off bookie", "power off all bookies"))
def entry_logs_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EntryLogWriter, "sync", lambda self: self._write())


# MU-18
@mutation("BI-11: the index is synced before the mark", faults=("power off bookie", "power off all bookies"))
def locations_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    original = LocationIndex.write

    def write(self: LocationIndex, deleted: Any, located: Any, give_way: Any) -> None:
        with pytest.MonkeyPatch.context() as inside:
            plain = self._store.write
            inside.setattr(self._store, "write", lambda batch, sync: plain(batch, sync=False), raising=False)
            original(self, deleted, located, give_way)

    monkeypatch.setattr(LocationIndex, "write", write)


# MU-23, JH-3
@mutation("BI-6: attributes are flushed also when there was no entry (defects A1, A2)", faults=CRASHES, **RECOVERY)
def attributes_are_flushed_with_entries_only(monkeypatch: pytest.MonkeyPatch) -> None:
    original = db_directory.DbDirectory._write_out

    async def write_out(self: Any, cache: Any) -> None:
        if not cache.ledgers:
            await self._index.take_changes()  # and forget them
        await original(self, cache)

    monkeypatch.setattr(db_directory.DbDirectory, "_write_out", write_out)


# MU-24, JH-4
@mutation("BI-12: a failed flush is remembered", faults=("disk full", *CRASHES), settings={"flushInterval": 300})
def failed_flushes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    original = db_directory.DbDirectory._write_out

    async def write_out(self: Any, cache: Any) -> None:
        try:
            await original(self, cache)
        except OSError:
            self._flushing = None

    monkeypatch.setattr(db_directory.DbDirectory, "_write_out", write_out)


DELETING = {
    "programs": {"writers": 3, "deleters": 2, "readers": 1},
    "settings": {
        "gcWaitTime": 700,
        "minorCompactionInterval": 1,
        "majorCompactionInterval": 2,
        "logSizeLimit": 8 << 10,
        "flushInterval": 300,
    },
    "seconds": 12.0,
}


@mutation("BI-13: what lives in a log is moved before the log goes", **DELETING)
def compaction_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogMover, "_alive", lambda self, part: [])


# MU-25
@mutation("BI-13: the new location is durable before the old log goes", faults=CRASHES, **DELETING)
def compaction_does_not_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = LocationIndex.write

    def write(self: LocationIndex, deleted: Any, located: Any, give_way: Any) -> None:
        flush(self, deleted, located, give_way)
        self._store.write(self._store.batch(), sync=True)

    monkeypatch.setattr(LocationIndex, "write", write)
    monkeypatch.setattr(LocationIndex, "sync", lambda self: None)  # neither after a move, nor before a log goes


@mutation("BI-14: a ledger is deleted when it is surely gone", **DELETING)
def unreadable_metadata_means_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_listed(self: LedgerCollector) -> list[int]:
        return [ledger_id for ledger_id in self._local() if ledger_id % 2]

    async def is_gone(self: LedgerCollector, ledger_id: int) -> bool:
        return True

    monkeypatch.setattr(LedgerCollector, "_not_listed", not_listed)
    monkeypatch.setattr(LedgerCollector, "_is_gone", is_gone)


# MU-28
@mutation("BI-16: an error is not absence", faults=("read errors", "flip a bit", "kill bookie"), fault_count=16)
def disk_errors_are_answered_as_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ((OSError, Status.ENOENTRY), *((k, Status.ENOENTRY if s is Status.EIO else s) for k, s in status.READ))
    monkeypatch.setattr(reads, "READ", table)


# --- staying alive ---


# MU-34
@mutation("LV-6: a bookie registers again when its session is lost", faults=("expire session", "cut off from store"))
def lost_sessions_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BookieState, "_registration_lost", lambda self: setattr(self, "registered", False))


@mutation("LV-6: a bookie that had no space takes writes again", faults=("disk full",), fault_count=16)
def full_disks_are_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BookieState, "to_writable", lambda self, reason, *, manual=False: None)


@mutation("LV-2: an answer that does not come is missed", faults=TROUBLE, fault_count=16)
def timeouts_are_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AddRoute, "overdue", lambda self, tick, moving_since, timeout: False)


if __name__ == "__main__":
    from .mutation_search import main

    sys.exit(main())
