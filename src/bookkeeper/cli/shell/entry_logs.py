"""A look into a bookie's entry logs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from ...bookie.file_names import LOG_SUFFIX, log_name, parse_log_name
from ...bookie.storage.entry_log import format as log_format
from ...bookie.storage.entry_log.reader import LogScan
from ...runtime import Runtime
from ..options import JsonOption
from ..output import EXIT_USAGE, execute, fail, print_json
from .places import as_file, directories, only_one
from .records import ConfOption, JsonLinesOption, MessageOption, headline, of_data, print_record


def _entry_log(log: str, conf: Path | None, base: int = 10) -> tuple[Path, int]:
    """The file that is meant, and its id. `base`: of an id that is given in place of a file."""
    path = as_file(log, LOG_SUFFIX, base)
    if path is None:
        name = log if log.endswith(LOG_SUFFIX) else log_name(int(log, base))
        path = only_one(name, directories(conf).ledger, "say the file itself")
    log_id = parse_log_name(path.name)
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
    as_json: JsonLinesOption = False,
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
            headline(as_json, f"Scan entry log {log_id} ({path.name})")
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
                    print_record(about | of_data(body), body, message, as_json)
        if scan.torn and scan.sealed:
            fail(f"{path} is damaged: it was sealed, and what follows {after} cannot be read as records")
        if scan.torn:
            fail(f"{path} was not sealed, and what follows {after} is no whole record: a crash may have cut it short")

    execute(look)


def readlogmetadata(
    log: Annotated[str, typer.Argument(help="The entry log's id (hexadecimal, as in its name), or its file <id>.log.")],
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print how much of each ledger is in an entry log.

    Sizes are bytes of records, as the log's own list of ledgers says, or a pass over a log that was not sealed.
    Which of these ledgers are deleted is not looked up: what remains is taken for all. A log that cannot be read to its
    end is counted up to there, and the exit code is 1.
    """
    path, log_id = _entry_log(log, conf, 16)

    async def look(runtime: Runtime) -> None:
        with runtime.files.open(str(path)) as file:
            scan = LogScan(file, log_id)
            sizes = scan.ledgers_map() if scan.sealed and not scan.torn else _counted(scan)
        if as_json:
            ledgers = [{"ledger": ledger_id, "size": size} for ledger_id, size in sizes.items()]
            total = sum(sizes.values())
            print_json({"log": log_id, "sealed": scan.sealed, "total_size": total, "ledgers": ledgers})
        else:
            _print_sizes(log_id, sizes)
        if scan.torn:
            fail(f"{path} is cut short or damaged: what follows the records that are counted cannot be read")

    execute(look)


def _counted(scan: LogScan) -> dict[int, int]:
    """Bytes of each ledger's records, size words included."""
    sizes: Counter[int] = Counter()
    for record in scan.records():
        sizes[record.ledger_id] += log_format.SIZE_WORD + record.size
    return dict(sizes)


def _print_sizes(log_id: int, sizes: dict[int, int]) -> None:
    total = sum(sizes.values())
    print(f"entryLogId: {log_id}, remaining size: {total}, total size: {total}, usage: {1.0 if total else 0.0}")
    for ledger_id, size in sizes.items():
        print(f"--------- Lid={ledger_id}, TotalSizeOfEntriesOfLedger={size}  ---------")
