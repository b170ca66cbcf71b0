"""A look into a bookie's journals and its last marks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...bookie.file_names import JOURNAL_SUFFIX, current, journal_ids, journal_name, mark_name
from ...bookie.journal.format import (
    EXPLICIT_LAC,
    FENCE,
    LEDGER_KEY,
    JournalRecord,
)
from ...bookie.journal.journal import LARGEST_ENTRY
from ...bookie.journal.last_mark import MarkFiles
from ...bookie.journal.scan import JournalScan, read_header
from ...errors import CorruptStorageError
from ...runtime import Files, Runtime
from ..output import EXIT_USAGE, complain, execute, fail
from .places import as_file, directories, only_one
from .records import (
    ConfOption,
    JsonLinesOption,
    KeysOption,
    MessageOption,
    headline,
    json_line,
    key_text,
    of_data,
    print_record,
)

_META_HEAD = 16
"""Bytes of a journal record's ids."""


def readjournal(
    journal: Annotated[str, typer.Argument(help="The journal's id (decimal), or its file <hex id>.txn.")],
    conf: ConfOption = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", "-dir", help="The journal directory, if the bookie has several.")
    ] = None,
    message: MessageOption = False,
    show_keys: KeysOption = False,
    as_json: JsonLinesOption = False,
) -> None:
    """Print the records of a journal.

    What a replay would read is printed, and where it would end. A journal that a crash cut short, or that is damaged,
    is printed up to there; then comes why it ends, and the exit code is 1. Records of a ledger's master key, fence and
    explicit LAC are of type META.
    """
    path = as_file(journal, JOURNAL_SUFFIX)
    if path is None:
        name = journal if journal.endswith(JOURNAL_SUFFIX) else journal_name(int(journal))
        roots = [directory] if directory is not None else directories(conf).journal
        path = only_one(name, roots, "say with -dir which one")
    ids = journal_ids([path.name])
    if not ids:
        fail(f"{path} is not the name of a journal: <hex id>{JOURNAL_SUFFIX}", EXIT_USAGE)

    async def look(runtime: Runtime) -> None:
        with runtime.files.open(str(path)) as file:
            headline(as_json, f"Scan journal {ids[0]} ({path.name})")
            end, last = _next_journal(runtime.files, path, ids[0])
            scan = JournalScan(file, ids[0], 0, max_entry=LARGEST_ENTRY, end=end, last=last)
            headline(as_json, f"Journal Version : {scan.header.version}")
            while records := scan.next_records():
                for record in records:
                    print_record(_of_journal(record, show_keys), record.body, message, as_json)
        if scan.skipped:
            complain(f"{path}: skipped {scan.skipped} records of unknown kinds")
        if scan.torn is not None:
            fail(f"{path} ends at {scan.position}, and what follows is not whole: {scan.torn}")

    execute(look)


def _next_journal(files: Files, path: Path, journal_id: int) -> tuple[int | None, bool]:
    """What the later journals say of this one: where it ends, if the next one knows, and whether it is the last."""
    later = [found for found in journal_ids(files.listdir(str(path.parent))) if found > journal_id]
    for found in later:
        with files.open(str(path.parent / journal_name(found))) as file:
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


def _of_journal(record: JournalRecord, show_keys: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"ledger": record.ledger_id, "entry": record.entry_id, "offset": record.offset}
    if record.entry_id >= 0:
        return about | {"size": len(record.body)} | of_data(record.body)
    kinds = {LEDGER_KEY: "master key", FENCE: "fence", EXPLICIT_LAC: "explicit LAC"}
    size = _META_HEAD + (0 if record.entry_id == FENCE else 4 + len(record.body))
    about |= {"size": size, "type": "META", "kind": kinds.get(record.entry_id, "unknown")}
    if record.entry_id == LEDGER_KEY:
        about["master_key"] = key_text(record.body, show_keys)
    return about


def lastmark(conf: ConfOption = None, as_json: JsonLinesOption = False) -> None:
    """Print the last mark of each journal: what lies before it is in the ledger storage, and is not replayed.

    The greatest of the copies in the ledger directories. 0 and 0 where there is none: all of the journal is replayed.
    """
    places = directories(conf)
    roots = [current(root) for root in places.ledger]

    async def look(runtime: Runtime) -> None:
        if not any(runtime.files.is_dir(root) for root in roots):
            fail(f"there is no directory {' and no '.join(roots)}")
        for index, journal in enumerate(places.journal):
            name = mark_name(index, len(places.journal))
            mark = MarkFiles(runtime.files, roots, name).read().mark
            if as_json:
                json_line({"journal": mark.journal_id, "pos": mark.offset, "dir": current(journal)})
            else:
                print(
                    f"LastLogMark : Journal Id - {mark.journal_id}({journal_name(mark.journal_id)}), "
                    f"Pos - {mark.offset}"
                )

    execute(look)
