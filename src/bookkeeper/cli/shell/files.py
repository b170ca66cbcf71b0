"""A look into a bookie's files: journals, entry logs and the index. Nothing is created or written.

The bookie may run. Of a file that it writes at the moment the end may then be missing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ...bookie.journal.format import (
    EXPLICIT_LAC,
    FENCE,
    LEDGER_KEY,
    SUFFIX,
    JournalRecord,
    file_name,
    journal_ids,
)
from ...bookie.journal.journal import LARGEST_ENTRY
from ...bookie.journal.scan import JournalScan, read_header
from ...bookie.storage.entry_log import format as log_format
from ...bookie.storage.entry_log.reader import LogScan
from ...bookie.storage.index import ledger_data
from ...bookie.storage.index.ledger_data import LedgerData
from ...bookie.storage.index.locations import LocationIndex
from ...errors import CorruptStorageError
from ...runtime import Files, Runtime
from ..output import EXIT_USAGE, complain, execute, fail
from .places import as_file, current_of, directories, only_one

LOG_SUFFIX = ".log"
LOOKED_UP_AT_ONCE = 1000

_ENTRY_HEAD = struct.Struct(">qqqq")
"""Ledger, entry, last confirmed, length: what every entry of a client begins with."""

_META_HEAD = 16
"""Bytes of a journal record's ids."""

ConfOption = Annotated[
    Path | None,
    typer.Option(
        "--conf",
        "-c",
        "-conf",
        envvar="BOOKIE_CONF",
        help="The bookie's bk_server.conf: it says where the directories are. BK_<key> count too.",
    ),
]
MessageOption = Annotated[
    bool, typer.Option("--msg", "-msg", "-m", help="The data of the entries, too: the digest, then what was written.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts: an object a line.")]


# --- journals ---


def readjournal(
    journal: Annotated[str, typer.Argument(help="The journal's id (decimal), or its file <hex id>.txn.")],
    conf: ConfOption = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", "-dir", help="The journal directory, if the bookie has several.")
    ] = None,
    message: MessageOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the records of a journal.

    What a replay would read is printed, and where it would end. A journal that a crash cut short, or that is damaged,
    is printed up to there; then comes why it ends, and the exit code is 1. Records of a ledger's master key, fence and
    explicit LAC are of type META.
    """
    path = as_file(journal, SUFFIX)
    if path is None:
        name = journal if journal.endswith(SUFFIX) else file_name(int(journal))
        roots = [directory] if directory is not None else directories(conf).journal
        path = only_one(name, roots, "say with -dir which one")
    ids = journal_ids([path.name])
    if not ids:
        fail(f"{path} is not the name of a journal: <hex id>{SUFFIX}", EXIT_USAGE)

    async def look(runtime: Runtime) -> None:
        with runtime.files.open(str(path)) as file:
            _lines(as_json, f"Scan journal {ids[0]} ({path.name})")
            end, last = _next_journal(runtime.files, path, ids[0])
            scan = JournalScan(file, ids[0], 0, max_entry=LARGEST_ENTRY, end=end, last=last)
            _lines(as_json, f"Journal Version : {scan.header.version}")
            while records := scan.next_records():
                for record in records:
                    _print_record(_of_journal(record), record.body, message, as_json)
        if scan.skipped:
            complain(f"{path}: skipped {scan.skipped} records of unknown kinds")
        if scan.torn is not None:
            fail(f"{path} ends at {scan.position}, and what follows is not whole: {scan.torn}")

    execute(look)


def _next_journal(files: Files, path: Path, journal_id: int) -> tuple[int | None, bool]:
    """What the later journals say of this one: where it ends, if the next one knows, and whether it is the last."""
    later = [found for found in journal_ids(files.listdir(str(path.parent))) if found > journal_id]
    for found in later:
        with files.open(str(path.parent / file_name(found))) as file:
            try:
                header = read_header(file)
            except CorruptStorageError:
                return None, False
        if header is None:
            continue  # its creation was cut short: it says nothing
        if header.seal is not None and header.seal.previous_id == journal_id:
            return header.seal.previous_end, False
        return None, False
    return None, True


def _of_journal(record: JournalRecord) -> dict[str, Any]:
    about: dict[str, Any] = {"ledger": record.ledger_id, "entry": record.entry_id, "offset": record.offset}
    if record.entry_id >= 0:
        return about | {"size": len(record.body)} | _of_data(record.body)
    kinds = {LEDGER_KEY: "master key", FENCE: "fence", EXPLICIT_LAC: "explicit LAC"}
    size = _META_HEAD + (0 if record.entry_id == FENCE else 4 + len(record.body))
    about |= {"size": size, "type": "META", "kind": kinds.get(record.entry_id, "unknown")}
    if record.entry_id == LEDGER_KEY:
        about["master_key"] = record.body.hex()
    return about


# --- entry logs ---


def _entry_log(log: str, conf: Path | None) -> tuple[Path, int]:
    """The file that is meant, and its id."""
    path = as_file(log, LOG_SUFFIX)
    if path is None:
        name = log if log.endswith(LOG_SUFFIX) else log_format.log_name(int(log))
        path = only_one(name, directories(conf).ledger, "say the file itself")
    log_id = log_format.parse_log_name(path.name)
    if log_id is None:
        fail(f"{path} is not the name of an entry log: <hex id>{LOG_SUFFIX}", EXIT_USAGE)
    return path, log_id


def readlog(
    log: Annotated[str, typer.Argument(help="The entry log's id (decimal), or its file <hex id>.log.")],
    conf: ConfOption = None,
    message: MessageOption = False,
    ledger_id: Annotated[
        int | None, typer.Option("--ledgerid", "-ledgerid", "-l", min=0, help="Only entries of this ledger.")
    ] = None,
    entry_id: Annotated[
        int | None, typer.Option("--entryid", "-entryid", "-e", min=0, help="Only this entry; with -l.")
    ] = None,
    start: Annotated[int, typer.Option("--startpos", "-startpos", "-sp", min=0, help="Only from here on.")] = 0,
    end: Annotated[
        int | None, typer.Option("--endpos", "-endpos", "-ep", min=0, help="Only what begins up to here.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the entries in an entry log.

    ByteOffset is where a record begins, 4 bytes before the position that the index has of the entry. A log may hold
    entries that the index does not know, or has elsewhere: deleted, moved, or left behind by a crash. A log that cannot
    be read to its end is printed up to there, and the exit code is 1.
    """
    if entry_id is not None and ledger_id is None:
        fail("an entry is one of a ledger: say -l, too", EXIT_USAGE)
    path, log_id = _entry_log(log, conf)

    async def look(runtime: Runtime) -> None:
        with runtime.files.open(str(path)) as file:
            _lines(as_json, f"Scan entry log {log_id} ({path.name})")
            scan = LogScan(file, log_id)
            after = log_format.HEADER_SIZE
            for record in scan.records():
                begin = log_format.offset_of(record.location) - log_format.SIZE_WORD
                after = begin + log_format.SIZE_WORD + record.size
                wanted = (
                    ledger_id in (None, record.ledger_id)
                    and entry_id in (None, record.entry_id)
                    and after > start
                    and (end is None or begin <= end)
                )
                if wanted:
                    body = scan.entry(record)
                    about = {"ledger": record.ledger_id, "entry": record.entry_id, "offset": begin, "size": record.size}
                    _print_record(about | _of_data(body), body, message, as_json)
        if scan.torn and scan.sealed:
            fail(f"{path} is damaged: it was sealed, and what follows {after} cannot be read as records")
        if scan.torn:
            fail(f"{path} was not sealed, and what follows {after} is no whole record: a crash may have cut it short")

    execute(look)


# --- the index ---


def ledger(
    ledger_id: Annotated[int, typer.Argument(min=0, help="Ledger id.")],
    conf: ConfOption = None,
    meta: Annotated[
        bool, typer.Option("--meta", "-meta", "-m", help="What the bookie knows of the ledger, too: key, fence, LAC.")
    ] = False,
    number: Annotated[
        int | None,
        typer.Option(
            "--ledgerdir", "-l", min=0, help="Look in this one of the configured directories only, 0 for the first."
        ),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", "-dir", help="Or the directory itself that holds `locations` and `ledgers`.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the entries of a ledger that a bookie has, and where they are.

    They are those in the index (DbLedgerStorage). What came since the last flush is in the journal only: see
    `readjournal`. The position is that of the entry in the log, 4 bytes behind the ByteOffset of `readlog`.
    """
    roots: list[str | Path] = [directory] if directory is not None else list(directories(conf).index)
    if number is not None:
        if number >= len(roots):
            fail(f"-l {number}: directories are 0 to {len(roots) - 1}", EXIT_USAGE)
        roots = [roots[number]]

    async def look(runtime: Runtime) -> None:
        found = False
        for root in roots:
            path = current_of(root)
            data = _ledger_data(runtime, path, ledger_id)
            if meta and data is not None:
                _print_ledger(ledger_id, data, as_json)
            found = found or data is not None
            for entry_id, location in _locations(runtime, path, ledger_id):
                found = True
                log_id, position = log_format.log_of(location), log_format.offset_of(location)
                if as_json:
                    _json({"ledger": ledger_id, "entry": entry_id, "log": log_id, "pos": position, "dir": str(path)})
                else:
                    print(f"entry {entry_id}\t:\t(log: {log_id}, pos: {position})")
        if not found:
            fail(f"ledger {ledger_id} is not in the index in {', '.join(str(current_of(root)) for root in roots)}")

    execute(look)


def _ledger_data(runtime: Runtime, path: Path, ledger_id: int) -> LedgerData | None:
    store = runtime.open_key_value(_database(runtime, path, "ledgers"), {"read_only": True})
    try:
        value = store.get(ledger_data.ledger_key(ledger_id)) or store.get(ledger_data.long_ledger_key(ledger_id))
    finally:
        store.close()
    return None if value is None else ledger_data.decode(value)


def _locations(runtime: Runtime, path: Path, ledger_id: int) -> Iterator[tuple[int, int]]:
    index = LocationIndex(runtime.open_key_value(_database(runtime, path, "locations"), {"read_only": True}))
    try:
        ids = index.entries(ledger_id)
        for start in range(0, len(ids), LOOKED_UP_AT_ONCE):
            some = ids[start : start + LOOKED_UP_AT_ONCE]
            yield from zip(some, index.get_many([(ledger_id, entry_id) for entry_id in some]), strict=True)
    finally:
        index.close()


def _database(runtime: Runtime, path: Path, name: str) -> str:
    if not runtime.files.exists(f"{path}/{name}/CURRENT"):
        raise CorruptStorageError(f"there is no database {path}/{name}")
    return f"{path}/{name}"


def _print_ledger(ledger_id: int, data: LedgerData, as_json: bool) -> None:
    lac = None if data.explicit_lac is None else data.explicit_lac.hex()
    if as_json:
        about = {"master_key": data.master_key.hex(), "fenced": data.fenced, "limbo": bool(data.limbo)}
        _json({"ledger": ledger_id} | about | {"explicit_lac": lac})
        return
    print(f"master key  : {data.master_key.hex()}")
    print(f"isFenced     : {str(data.fenced).lower()}")
    if lac is not None:
        print(f"explicit LAC : {lac}")
    if data.limbo:
        print("limbo        : true")


# --- what a record looks like ---


def _of_data(body: bytes) -> dict[str, Any]:
    """What an entry says of itself; of one too short, only that it is data."""
    if len(body) < _ENTRY_HEAD.size:
        return {"type": "DATA"}
    _, _, confirmed, length = _ENTRY_HEAD.unpack_from(body)
    return {"type": "DATA", "last_confirmed": confirmed, "length": length}


def _print_record(about: dict[str, Any], body: bytes, message: bool, as_json: bool) -> None:
    data = body[_ENTRY_HEAD.size :] if about["type"] == "DATA" else b""
    if as_json:
        _json(about | ({"data": data.hex()} if message and about["type"] == "DATA" else {}))
        return
    print(
        f"--------- Lid={about['ledger']}, Eid={about['entry']}, ByteOffset={about['offset']}, "
        f"EntrySize={about['size']} ---------"
    )
    print(f"Type:           {about['type']}")
    if about["type"] == "DATA":
        print(f"LastConfirmed:  {about.get('last_confirmed', 'none')}")
        if message:
            print(f"Data:           {data.hex()}")
    elif about["kind"] == "master key":
        print(f"MasterKey:      {about['master_key']}")
    else:
        print(about["kind"].capitalize() if about["kind"] != "fence" else "Fenced")
    print()


def _lines(as_json: bool, text: str) -> None:
    """A headline for people."""
    if not as_json:
        print(text)


def _json(value: dict[str, Any]) -> None:
    print(json.dumps(value))
