"""The `ledgers` database of a directory, built anew when it is damaged (spec bookie-storage §12.2).

Theory of operation

What the database says of a ledger stands nowhere else: whether it is fenced, and its master key. A fence that is
forgotten lets a writer go on that was fenced off, so *every* ledger is fenced that this bookie may have had:

- those of which the directory's entry logs hold entries,
- those of which any journal holds a record,
- and those whose metadata names this bookie, which Java leaves out: of a ledger that was only fenced here there is no
  entry, and its journal may be gone.

Keys come from the journals and from the metadata; a ledger without one takes that of the first who comes, as in Java.
The last explicit LAC comes from the journals. Ids of which a log holds an older copy are noted, or more than those.
Deleted ledgers whose entries are still in the logs come back, and the next garbage collection deletes them again.

Where entries may have been lost (`limbo`) every ledger is put in limbo, and the storage is flagged: the bookie, which
has `dataIntegrityChecking`, then looks for what it must have before it denies anything.

The new database is built in `ledgers.new`, and takes the place of the old one, which is kept as `ledgers.damaged`, when
it is complete and durable. A crash at any step is made up for at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import CorruptStorageError
from ...runtime import Runtime
from ..file_names import LEDGERS, current, journal_ids, journal_name, log_name
from ..journal.format import EXPLICIT_LAC, LEDGER_KEY
from ..journal.journal import LARGEST_ENTRY
from ..journal.scan import JournalScan, read_header
from ..storage.entry_log.reader import LogScan
from ..storage.entry_log.writer import list_logs
from ..storage.index import ledger_data, ledgers
from ..storage.index.ledger_data import LedgerData
from ..storage.index.rebuild import begin_anew, put_in_place

log = logging.getLogger(__name__)

RECORDS_IN_A_TURN = 10_000
"""Records of a log that are read before others get the interpreter."""

Found = dict[int, LedgerData]
"""What is known of each ledger. All are fenced."""

Tell = Callable[[str], None]
"""Hears of each file that is read."""


def of_journals(runtime: Runtime, roots: Iterable[str], tell: Tell) -> Found:
    """The ledgers of which the journals in these configured directories hold records. Blocks.

    A journal that is damaged counts as far as it can be read: whether the bookie may start with it is for its replay to
    say. Raises `OSError`.
    """
    found: Found = {}
    for root in roots:
        path = current(root)
        for journal_id in journal_ids(runtime.files.listdir(path)):
            tell(f"{path}/{journal_name(journal_id)}")
            try:
                _add_journal(runtime, f"{path}/{journal_name(journal_id)}", journal_id, found)
            except CorruptStorageError as error:
                log.warning("read up to where it is damaged: %s", error)
    return found


def _add_journal(runtime: Runtime, path: str, journal_id: int, found: Found) -> None:
    with runtime.files.open(path) as file:
        if read_header(file) is None:
            return
        scan = JournalScan(file, journal_id, 0, max_entry=LARGEST_ENTRY)
        while records := scan.next_records():
            for record in records:
                data = found.setdefault(record.ledger_id, LedgerData(fenced=True))
                if record.entry_id == LEDGER_KEY:
                    data.master_key = record.body
                elif record.entry_id == EXPLICIT_LAC:
                    data.explicit_lac = record.body
            runtime.give_way()


def add_logs(runtime: Runtime, logs_path: str, found: Found, tell: Tell) -> None:
    """Add the ledgers that the entry logs of a directory hold entries of. Blocks. Raises `CorruptStorageError`, also
    for a sealed log that cannot be read to its end, `OSError`."""
    greatest: dict[int, int] = {}
    for log_id in list_logs(runtime.files, logs_path):
        path = f"{logs_path}/{log_name(log_id)}"
        tell(path)
        with runtime.files.open(path) as file:
            scan = LogScan(file, log_id)
            _add_log(scan, found, greatest, runtime.give_way)
            if scan.torn and scan.sealed:
                raise CorruptStorageError(
                    f"{path} cannot be read to its end, so ledgers may be in it that would go without a fence: remove "
                    f"this bookie's data and cookie, and let its entries be replicated again from other bookies"
                )


def _add_log(scan: LogScan, found: Found, greatest: dict[int, int], give_way: Callable[[], None]) -> None:
    for number, record in enumerate(scan.records()):
        ledger_id, entry_id = record.ledger_id, record.entry_id
        data = found.setdefault(ledger_id, LedgerData(fenced=True))
        if entry_id <= greatest.get(ledger_id, -1):  # a second copy, or one that was moved here
            least, most = data.rewritten or (entry_id, entry_id)
            data.rewritten = min(least, entry_id), max(most, entry_id)
        else:
            greatest[ledger_id] = entry_id
        if number % RECORDS_IN_A_TURN == 0:
            give_way()


def write_anew(
    runtime: Runtime, index_path: str, options: Mapping[str, Any], found: Found, *, limbo: bool, flags: int
) -> None:
    """Let these records be the `ledgers` database from now on; durable at return. Blocks.

    `flags`: the state flags of the storage, 0 for a directory that has none. Raises `OSError`, also while a bookie has
    the old database open.
    """
    path = f"{index_path}/{LEDGERS}"
    store = begin_anew(runtime, path, options)
    try:
        for data in found.values():
            data.limbo = True if limbo else data.limbo
        ledgers.write(store, {each: ledger_data.encode(data) for each, data in found.items()}, runtime.give_way)
        if flags:
            ledgers.write_flags(store, flags)
    finally:
        store.close()
    put_in_place(runtime, index_path, LEDGERS, ready=True)
