"""The contract between the bookie and its storage engines.

Theory of operation

All methods are called on the event loop. Those that only touch memory are plain methods; those that may touch the disk
are coroutines that do their blocking work on worker threads. An engine has no locks: its state belongs to the loop.

An add is put in a write cache in memory and is readable at once. It becomes durable twice: in the journal, which the
bookie waits for before it answers, and later through `flush`, after which the copy in the journal is not needed any
more. The rule that keeps this safe (spec bookie-server §3.2, I2 and I3): an entry is added to the storage *before* its
journal record is handed over, and a checkpoint takes the journal's mark *before* it calls `flush`, and persists that
mark only after `flush` returned. Ledger attributes (master key, fence, explicit LAC, limbo) follow the same rule:
they are changed in memory at once, and `flush` makes them durable too, also when no entry was added (defects A1, A2).

Absence is only ever said when it is known: `NoEntryError` and `NoLedgerError` mean that the index was read and the
thing is not there. Whatever cannot be read or does not match is `CorruptStorageError` or `OSError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ...metadata.api import MetadataDriver
from ...protocol.messages import AddRun
from ...types import BookieId
from .examine import Examined, Judge

RUN_READS = 64
"""Reads of the logs that one batch read may make. One of entries that lie scattered ends there."""


class LedgerStorage(ABC):
    """Entries and ledger attributes of one bookie."""

    # --- life ---

    @abstractmethod
    async def open(self) -> None:
        """Open files and indexes; loads the ledgers. Called once, before anything else."""

    def use_metadata(self, metadata: MetadataDriver, bookie_id: BookieId) -> None:  # noqa: B027 - not every engine
        """Before `start`: the store that says which ledgers still exist. Without it no ledger is ever collected."""

    @abstractmethod
    def start(self) -> None:
        """Start background work (garbage collection). Called after replay and the flush that follows it."""

    def suspend_compaction(self, *, minor: bool, major: bool) -> None:  # noqa: B027 - not every engine
        """Switch the two compactions off (or on again), as when a disk is nearly full. After `start`."""

    @abstractmethod
    async def close(self) -> None:
        """Stop background work, flush, close everything. Idempotent."""

    # --- ledgers and their attributes: in memory ---

    @abstractmethod
    def ledger_exists(self, ledger_id: int) -> bool: ...

    @abstractmethod
    def ledgers(self) -> list[int]:
        """All ledger ids held, ascending."""

    @abstractmethod
    def master_key(self, ledger_id: int) -> bytes | None:
        """The stored key; None for an unknown ledger; b"" for one whose key is not known yet."""

    @abstractmethod
    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        """Create the ledger with this key, or adopt the key if the stored one is empty or all zero.

        Raises `UnauthorizedAccessError` when another key is stored.
        """

    @abstractmethod
    def is_fenced(self, ledger_id: int) -> bool: ...

    @abstractmethod
    def set_fenced(self, ledger_id: int) -> bool:
        """Fence; True if the ledger was not fenced before. Raises `NoLedgerError`."""

    @abstractmethod
    def explicit_lac(self, ledger_id: int) -> bytes | None:
        """The body of the last WRITE_LAC, as it was written."""

    @abstractmethod
    def set_explicit_lac(self, ledger_id: int, body: bytes) -> None:
        """Keep the body of a WRITE_LAC. Raises `NoLedgerError`."""

    @abstractmethod
    def is_limbo(self, ledger_id: int) -> bool:
        """Whether entries of the ledger may have been lost: then absence is never said (spec bookie-server §2.18)."""

    @abstractmethod
    def set_limbo(self, ledger_id: int, limbo: bool) -> None:
        """Say whether entries may have been lost. Raises `NoLedgerError`."""

    @abstractmethod
    def delete_ledger(self, ledger_id: int) -> None:
        """Forget a ledger. Its space comes back through garbage collection.

        Tells the deletion listener first, also of a deletion that it asked for.
        """

    _deletion_listener: Callable[[int], None] | None = None

    def set_deletion_listener(self, listener: Callable[[int], None]) -> None:
        """`listener(ledger_id)` is called right before a ledger is forgotten, while it can still be looked at."""
        self._deletion_listener = listener

    def _about_to_delete(self, ledger_id: int) -> None:
        """For engines: call it at the start of `delete_ledger`."""
        if self._deletion_listener is not None:
            self._deletion_listener(ledger_id)

    _failure_listener: Callable[[BaseException], None] | None = None

    def set_failure_listener(self, listener: Callable[[BaseException], None]) -> None:
        """`listener(error)` is called when nothing can be written any more, in whatever work that showed."""
        self._failure_listener = listener

    def _has_failed(self, error: BaseException) -> None:
        """For engines."""
        if self._failure_listener is not None:
            self._failure_listener(error)

    # --- the storage as a whole ---

    @abstractmethod
    async def needs_integrity_check(self) -> bool:
        """Whether not all that was lost has been made up for (spec bookie-storage §11.5). Raises `OSError`."""

    @abstractmethod
    async def set_needs_integrity_check(self, needed: bool) -> None:
        """Keep the answer to `needs_integrity_check`; durable at return. Raises `OSError`."""

    # --- adding: in memory ---

    reserve: int = 0
    """Bytes of room that a peer which wants much leaves for the entries of others."""

    @abstractmethod
    def has_room(self, ledger_id: int, size: int, count: int) -> bool:
        """Whether `count` entries of together `size` bytes can be added now. If not, a flush is under way."""

    @abstractmethod
    def has_room_everywhere(self, size: int, count: int) -> bool:
        """`has_room` for entries of any ledgers."""

    @abstractmethod
    async def wait_for_room(self, ledger_id: int, size: int, count: int, timeout: float) -> bool:
        """Wait until `has_room`; False when `timeout` seconds passed first. Raises `FatalBookieError`."""

    @abstractmethod
    def add_entry(self, ledger_id: int, entry_id: int, entry: bytes) -> None:
        """Add one packaged entry. The caller has checked `has_room`. A second add of the same id replaces the first.

        `entry` is kept, not copied.
        """

    def add_runs(self, runs: Sequence[AddRun]) -> None:
        """Add the entries of several ledgers that came in together, those of a ledger in this order.

        The data path calls this, not `add_entry`: engines that can do it for less than an entry at a time override it.
        """
        for run in runs:
            self.add_entries(run.ledger_id, run.entry_ids, run.entries)

    def add_mixed(self, ledger_ids: Sequence[int], entry_ids: Sequence[int], entries: Sequence[bytes]) -> None:
        """Add entries of many ledgers, hardly two of one, in this order."""
        add = self.add_entry
        for ledger_id, entry_id, entry in zip(ledger_ids, entry_ids, entries, strict=True):
            add(ledger_id, entry_id, entry)

    def add_entries(self, ledger_id: int, entry_ids: Sequence[int], entries: Sequence[bytes]) -> None:
        """Add entries of one ledger, in this order."""
        add = self.add_entry
        for entry_id, entry in zip(entry_ids, entries, strict=True):
            add(ledger_id, entry_id, entry)

    # --- reading ---

    @abstractmethod
    def cached_entry(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The entry if it is in memory (write caches, read cache); None says nothing about absence."""

    @abstractmethod
    async def read_entry(self, ledger_id: int, entry_id: int) -> bytes:
        """One entry; reads ahead.

        Raises `NoLedgerError`, `NoEntryError`, `LimboError`, `CorruptStorageError`, `OSError`.
        """

    @abstractmethod
    async def read_some(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Exception]:
        """The first of some entries of a ledger (one id at least), or why one cannot be read: about `max_bytes`, but
        one at least. Cheaper than `read_entry` for each, wherever they lie.

        In place of an entry stands what `read_entry` would raise. Raises `NoLedgerError`.
        """

    @abstractmethod
    async def read_run(
        self, ledger_id: int, first: int, max_count: int, max_bytes: int, max_reads: int = RUN_READS
    ) -> bytes:
        """Consecutive entries from `first`, each as int32 size and entry: the body of a batch read response.

        At least the first, at most `max_count`; the total stays within `max_bytes` except when the first alone is
        larger. Ends before the first entry that is not here, or that `max_reads` reads of the logs did not bring.
        Raises as `read_entry` if `first` cannot be read.
        """

    @abstractmethod
    async def last_entry(self, ledger_id: int) -> bytes:
        """The entry with the highest id held. Raises as `read_entry`; `NoEntryError` for a ledger without entries."""

    @abstractmethod
    async def list_entries(self, ledger_id: int) -> Sequence[int]:
        """Ids of all entries held, ascending. Raises `NoLedgerError`."""

    @abstractmethod
    async def held_entries(self, ledger_id: int) -> Sequence[int]:
        """As `list_entries`, also in limbo: what is not among them may have been lost. Raises `NoLedgerError`."""

    @abstractmethod
    async def entry_exists(self, ledger_id: int, entry_id: int) -> bool: ...

    # --- damage ---

    @abstractmethod
    async def examine(self, ledger_id: int, first: int, max_count: int, judge: Judge) -> Examined:
        """Look at entries of a ledger where they lie on the disk, from id `first` on, at most `max_count`.

        Entries that no flush has written yet are left out, and a ledger that is not here has none. Raises
        `CorruptStorageError`, `OSError` if the index cannot be read.
        """

    _damage_listener: Callable[[int, int], None] | None = None

    def set_damage_listener(self, listener: Callable[[int, int], None]) -> None:
        """`listener(ledger_id, entry_id)` is called when a read of an entry meets something else in its place."""
        self._damage_listener = listener

    def _is_damaged(self, ledger_id: int, entry_id: int) -> None:
        """For engines."""
        if self._damage_listener is not None:
            self._damage_listener(ledger_id, entry_id)

    # --- durability ---

    @abstractmethod
    async def flush(self) -> None:
        """Make everything durable that was added or changed before the call.

        Nothing that failed to reach the disk is forgotten, and a later flush does not succeed until it has reached the
        disk (BI-12). Raises `OSError` when there is no space, which may pass. Raises `FatalBookieError` for every other
        failure, from then on for ever: the bookie must stop.
        """
