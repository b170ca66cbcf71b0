"""Building the location index anew from the entry logs, when it has lost what was synced, or an operator asks for it.

Theory of operation

The entry logs hold every entry that was ever flushed, and what was not flushed is in the journal, which is replayed
after this. So a damaged location index can be built anew: of each ledger that the `ledgers` database knows, each entry
is where the last log says that has it. (Entries are copied to newer logs only, by compaction and by being added again.)

What cannot be proven is refused: a sealed log that cannot be read to the end that its header names may lack entries,
and an index without them would deny them. A log that was not sealed ends where a crash cut it off: all that was synced
stands before that. A copy that a crash tore may be found again in this way. Its digest tells its reader; that is the
one thing that the old index knew better.

The new index is built in `locations.new` and becomes `locations.ready` when it is complete and durable. Only then does
it take the old one's place, which is kept as `locations.damaged`. A crash at any step is made up for at the next start.

The `ledgers` database is never built anew by itself: fences and master keys stand nowhere else. An operator may
(`offline.ledgers`), at the price of a fence for every ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any

from ....errors import CorruptStorageError
from ....runtime import KeyValueStore, Runtime
from ...file_names import LOCATIONS, log_name
from ..entry_log.reader import LogScan
from ..entry_log.writer import list_logs
from ..packing import INDEX_CHUNK
from .locations import LocationIndex

log = logging.getLogger(__name__)


def open_locations(
    runtime: Runtime, index_path: str, logs_path: str, options: Mapping[str, Any], ledgers: Collection[int]
) -> LocationIndex:
    """The location index; built anew if it is damaged. Blocks.

    `ledgers`: those that the `ledgers` database has. Raises `CorruptStorageError` if it cannot be built, `OSError`.
    """
    path = f"{index_path}/{LOCATIONS}"
    put_in_place(runtime, index_path, LOCATIONS)
    try:
        return LocationIndex(runtime.open_key_value(path, options))
    except CorruptStorageError as error:
        log.error("%s. It is built anew from the entry logs in %s", error, logs_path)
    count = rebuild_locations(runtime, index_path, logs_path, options, ledgers)
    log.warning("%s was built anew with %d entries; what there was is kept as %s.damaged", path, count, path)
    return LocationIndex(runtime.open_key_value(path, options))


def rebuild_locations(
    runtime: Runtime,
    index_path: str,
    logs_path: str,
    options: Mapping[str, Any],
    ledgers: Collection[int],
    tell: Callable[[str], None] = lambda _: None,
) -> int:
    """Build the location index anew, whatever is there; returns the number of its entries. Blocks.

    `tell` hears of each log that is read. The bookie must not run. Raises as `open_locations`.
    """
    index = LocationIndex(begin_anew(runtime, f"{index_path}/{LOCATIONS}", options))
    try:
        count = _fill(runtime, logs_path, index, ledgers, tell)
    finally:
        index.close()
    put_in_place(runtime, index_path, LOCATIONS, ready=True)
    return count


def begin_anew(runtime: Runtime, path: str, options: Mapping[str, Any]) -> KeyValueStore:
    """An empty database that is to take the place of the one at `path`. Blocks. Raises `OSError`."""
    if runtime.files.exists(f"{path}.new"):
        runtime.files.remove_tree(f"{path}.new")
    return runtime.open_key_value(f"{path}.new", options)


def put_in_place(runtime: Runtime, index_path: str, name: str, *, ready: bool = False) -> None:
    """Let a complete new database take the place of the damaged one, which is kept. Blocks. Raises `OSError`.

    `ready`: the new one, closed, has just become complete. Without it: as far as an earlier call came.
    """
    files, path = runtime.files, f"{index_path}/{name}"
    if ready:
        files.rename(f"{path}.new", f"{path}.ready")
        files.fsync_dir(index_path)
    if not files.exists(f"{path}.ready"):
        return
    if files.exists(path):
        if files.exists(f"{path}.damaged"):
            files.remove_tree(f"{path}.damaged")
        files.rename(path, f"{path}.damaged")
        files.fsync_dir(index_path)
    files.rename(f"{path}.ready", path)
    files.fsync_dir(index_path)


def _fill(
    runtime: Runtime,
    logs_path: str,
    index: LocationIndex,
    ledgers: Collection[int],
    tell: Callable[[str], None],
) -> int:
    """Put all entries of known ledgers; durable at return. Returns how many records were put."""
    count = 0
    for log_id in list_logs(runtime.files, logs_path):
        path = f"{logs_path}/{log_name(log_id)}"
        tell(path)
        with runtime.files.open(path) as file:
            scan = LogScan(file, log_id)
            count += _fill_from(scan, index, ledgers, runtime.give_way)
            if scan.torn and scan.sealed:
                raise CorruptStorageError(
                    f"{path} cannot be read to its end, so the location index cannot be built anew: remove this "
                    f"bookie's data and cookie, and let its entries be replicated again from other bookies"
                )
    index.sync()
    return count


def _fill_from(scan: LogScan, index: LocationIndex, ledgers: Collection[int], give_way: Callable[[], None]) -> int:
    count = 0
    records = scan.records()
    while part := list(islice(records, INDEX_CHUNK)):
        places = [(found.ledger_id, found.entry_id, found.location) for found in part if found.ledger_id in ledgers]
        index.put(places)
        count += len(places)
        give_way()
    return count
