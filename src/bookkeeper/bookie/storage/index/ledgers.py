"""The `ledgers` database: attributes of the ledgers of one directory (spec bookie-storage §6.2).

All ledgers are in memory; the database is only written, and read at start. A change is made in memory at once and
waits to be written by the next flush, which takes place whether or not an entry was added: a fence must be on disk
before the mark passes its journal record (defect A1).

`LedgerIndex` belongs to the loop. `load` and `write` do the blocking part and get all they need as arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ....errors import CorruptStorageError, NoLedgerError, UnauthorizedAccessError
from ....runtime import KeyValueStore
from ..packing import INDEX_CHUNK
from . import ledger_data
from .ledger_data import LedgerData

TAKEN_AT_ONCE = 256
"""Changed ledgers whose records are written down in one turn of the loop: about a millisecond."""

KNOWN_KEYS = 1000
"""Master keys of which one copy is kept: most ledgers of a cluster have the same few."""

_FIRST_NEGATIVE_KEY = b"\x80"
"""Keys are in unsigned order: ids from 0 come first, reserved negative ones behind them."""


@dataclass(slots=True)
class Ledger:
    """What is kept in memory of one ledger."""

    data: LedgerData
    last_indexed: int | None = None
    """The greatest entry id in the location index, -1 for none; None until it was first asked for."""
    read_ends: tuple[int, ...] = (0,)
    """Where the last reads from entry logs ended, newest first: a reader that goes on there gets more read ahead."""
    read_together: bool = False
    """Whether the last one that took others along found the ledger's entries together: then it gets much more."""
    entry_bytes: int = 0
    """The largest of the entries that were last read by themselves; 0: none was."""


Changes = dict[int, bytes | None]
"""New value of each changed ledger; None: deleted."""


class LedgerIndex:
    """The ledgers of one directory, and the changes not yet written."""

    def __init__(self, loaded: dict[int, LedgerData]) -> None:
        self._keys: dict[bytes, bytes] = {}  # one copy of each, of the first `KNOWN_KEYS`
        for data in loaded.values():
            data.master_key = self._one_copy(data.master_key)
        self.ledgers: dict[int, Ledger] = {ledger_id: Ledger(data) for ledger_id, data in loaded.items()}
        self._changed: dict[int, None] = {}  # ids in order of change; deleted ones are not in `ledgers`
        self.complete = False
        """Set when replay has ended: a ledger that is unknown from then on has no entry in the location index."""

    def get(self, ledger_id: int) -> Ledger:
        """Raises `NoLedgerError`."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            raise NoLedgerError(f"ledger {ledger_id} is unknown here")
        return ledger

    def set_master_key(self, ledger_id: int, key: bytes) -> None:
        """Create, or adopt the key in place of a placeholder. Raises `UnauthorizedAccessError` for another key."""
        ledger = self.ledgers.get(ledger_id)
        key = self._one_copy(key)
        if ledger is None:
            self.ledgers[ledger_id] = Ledger(LedgerData(master_key=key), last_indexed=-1 if self.complete else None)
        elif ledger.data.master_key == key or ledger_data.is_placeholder(key):
            return
        elif ledger_data.is_placeholder(ledger.data.master_key):
            ledger.data.master_key = key
        else:
            raise UnauthorizedAccessError(f"ledger {ledger_id} has another master key")
        self._changed[ledger_id] = None

    def _one_copy(self, key: bytes) -> bytes:
        return self._keys.setdefault(key, key) if len(self._keys) < KNOWN_KEYS else self._keys.get(key, key)

    def set_fenced(self, ledger_id: int) -> bool:
        data = self.get(ledger_id).data
        if data.fenced:
            return False
        data.fenced = True
        self._changed[ledger_id] = None
        return True

    def set_explicit_lac(self, ledger_id: int, body: bytes) -> None:
        self.get(ledger_id).data.explicit_lac = body
        self._changed[ledger_id] = None

    def set_limbo(self, ledger_id: int, limbo: bool) -> None:
        data = self.get(ledger_id).data
        if data.limbo is not limbo:
            data.limbo = limbo
            self._changed[ledger_id] = None

    def note_rewritten(self, ledger_id: int, least: int, greatest: int) -> None:
        """Entries between these ids have been added again after they were flushed. Unknown ledgers are ignored."""
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            return
        before = ledger.data.rewritten
        span = (least, greatest) if before is None else (min(least, before[0]), max(greatest, before[1]))
        if span != before:
            ledger.data.rewritten = span
            self._changed[ledger_id] = None

    def delete(self, ledger_id: int) -> None:
        if self.ledgers.pop(ledger_id, None) is not None:
            self._changed[ledger_id] = None

    @property
    def dirty(self) -> bool:
        return bool(self._changed)

    async def take_changes(self) -> Changes:
        """All changes since the last call, for `write`; give them back with `put_back` if that fails.

        Where they are many it takes several turns of the loop. What changes meanwhile may be in it already, and comes
        again the next time.
        """
        changed, self._changed = self._changed, {}
        changes: Changes = {}
        try:
            for number, ledger_id in enumerate(changed, 1):
                ledger = self.ledgers.get(ledger_id)
                changes[ledger_id] = None if ledger is None else ledger_data.encode(ledger.data)
                if number % TAKEN_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except BaseException:
            self.put_back(dict.fromkeys(changed))
            raise
        return changes

    def put_back(self, changes: Changes) -> None:
        """The changes were not written: the next `take_changes` has them again, with the values of that time."""
        self._changed = dict.fromkeys([*changes, *self._changed])


def load(store: KeyValueStore) -> dict[int, LedgerData]:
    """All ledgers in the database, and they are durable from here on; blocks. Raises `CorruptStorageError`.

    A run that died in a flush may have left records that no sync covers. Replay brings them again, which changes
    nothing any more: the next flush would let the mark pass the journal's copy without syncing them.

    Records with 16-byte keys (see `ledger_data`) are replaced by ones with 8-byte keys, which win if there are both.
    """
    loaded: dict[int, LedgerData] = {}
    long_keys: list[tuple[bytes, bytes]] = []
    for key, value in store.iterate(b"", _FIRST_NEGATIVE_KEY):
        ledger_id = ledger_data.ledger_of_key(key)
        try:
            data = ledger_data.decode(value)
        except CorruptStorageError as error:
            raise CorruptStorageError(f"ledger {ledger_id} in the ledger index: {error}") from None
        if len(key) == 8:
            loaded[ledger_id] = data
        else:
            long_keys.append((key, value))
            loaded.setdefault(ledger_id, data)
    batch = store.batch()
    for key, value in long_keys:
        if store.get(key[:8]) is None:
            batch.put(key[:8], value)
        batch.delete(key)
    store.write(batch, sync=True)
    return loaded


def write(store: KeyValueStore, changes: Changes, give_way: Callable[[], None]) -> None:
    """Make the changes durable; blocks. Small batches, as in `LocationIndex.write`."""
    items = list(changes.items())
    for start in range(0, len(items), INDEX_CHUNK):
        batch = store.batch()
        for ledger_id, value in items[start : start + INDEX_CHUNK]:
            key = ledger_data.ledger_key(ledger_id)
            if value is None:
                batch.delete(key)
                batch.delete(ledger_data.long_ledger_key(ledger_id))
            else:
                batch.put(key, value)
        store.write(batch, sync=False)
        give_way()
    store.write(store.batch(), sync=True)


def read_flags(store: KeyValueStore) -> int:
    """The storage state flags; blocks."""
    return ledger_data.decode_flags(store.get(ledger_data.STATE_FLAGS_KEY))


def write_flags(store: KeyValueStore, flags: int) -> None:
    """Set the storage state flags, durably; blocks."""
    batch = store.batch()
    batch.put(ledger_data.STATE_FLAGS_KEY, ledger_data.encode_flags(flags))
    store.write(batch, sync=True)
