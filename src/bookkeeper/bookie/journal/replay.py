"""Replaying the journals of one directory at start-up (spec bookie-storage §4.3).

Theory of operation

The mark says from which file and offset on records may not be in the storage yet. Files from the marked one on are
read in the order of their ids, and every record is applied again, whether or not the storage has it: applying is
idempotent.

A file written here names its predecessor and where that one ended (`journal_format.SealHeader`). That makes the files a
chain: a file that ends earlier than its successor knows, or is missing, is damage, and the bookie refuses to start.
A torn tail that a former start found and cut off lies behind that end, and is not looked at again. Files whose
creation was cut short are no part of the chain.

What was read need not be on the disk: after a crash of the process, or a failed sync, the page cache has more. Either
the flush that follows replay makes it durable in the storage, and the mark says so, or it is written again where it was
found and synced (`Seen`, `file.write_again`) before the next file tells that this one ended there, and before anybody
is answered from it.

`skipReplayJournalInvalidRecord` gives up the rest of a damaged file and starts nevertheless.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import CorruptStorageError
from ...runtime import File, Files, Workers
from ..file_names import journal_ids, journal_name, journal_strays
from .format import Header, JournalRecord
from .last_mark import LogMark
from .scan import JournalScan, is_batch_end, read_header

log = logging.getLogger(__name__)

Apply = Callable[[JournalRecord], Awaitable[None] | None]
"""Brings one record into the storage; may return something to wait for, when the storage has to make room."""


@dataclass(frozen=True, slots=True)
class JournalSource:
    """One file to replay."""

    journal_id: int
    start: int
    end: int | None
    """Where the next file says that this one ends; None if it is not known."""
    last: bool


class Seen(NamedTuple):
    """What replay read of a file although nobody says that it was synced: a page cache may be all that had it."""

    journal_id: int
    start: int
    end: int


class Damage:
    """What to do about damage: refuse to start, or say so and go on."""

    def __init__(self, skip_invalid: bool) -> None:
        self._skip_invalid = skip_invalid

    def found(self, error: CorruptStorageError) -> None:
        if not self._skip_invalid:
            raise error
        log.error("%s; it is given up (skipReplayJournalInvalidRecord)", error)


def believable(files: Files, directory: str, mark: LogMark) -> bool:
    """Whether a mark without a checksum can be true: its offset is the end of a batch of its file. Blocks.

    A file that is missing, cut short or unreadable is for `plan` to judge.
    """
    path = f"{directory}/{journal_name(mark.journal_id)}"
    if mark.journal_id == 0 or not files.exists(path):
        return True
    with files.open(path) as file:
        try:
            header = read_header(file)
        except CorruptStorageError:
            return True
        return header is None or mark.offset > file.size() or is_batch_end(file, header, mark.offset)


def plan(files: Files, directory: str, mark: LogMark, damage: Damage) -> list[JournalSource]:
    """Which files to replay from where to where. Blocks.

    It is damage if the marked file or one that a later file names is missing, or if a header cannot be read.
    """
    names = files.listdir(directory)
    for name in journal_strays(names):
        log.warning("%s/%s is not the name of a journal, and is ignored", directory, name)
    ids = [id_ for id_ in journal_ids(names) if id_ >= mark.journal_id]
    if mark.journal_id > 0 and (not ids or ids[0] != mark.journal_id):
        damage.found(CorruptStorageError(f"recovery log {journal_name(mark.journal_id)} is missing in {directory}"))
    headers: list[tuple[int, Header]] = []
    for id_ in ids:
        with files.open(f"{directory}/{journal_name(id_)}") as file:
            try:
                header = read_header(file)
                if header is not None:
                    headers.append((id_, header))
                elif id_ == mark.journal_id and mark.offset > 0:
                    raise CorruptStorageError(f"{file.path} is empty, but the mark says {mark.offset}")
            except CorruptStorageError as error:
                damage.found(error)
    sources = []
    for position, (id_, _) in enumerate(headers):
        following = headers[position + 1 :]
        seal = following[0][1].seal if following else None
        if seal is not None and seal.previous_id > id_:
            missing = f"{journal_name(following[0][0])} follows {journal_name(seal.previous_id)}, which is missing"
            damage.found(CorruptStorageError(f"{missing} in {directory}"))
        end = seal.previous_end if seal is not None and seal.previous_id == id_ else None
        start = mark.offset if id_ == mark.journal_id else 0
        sources.append(JournalSource(id_, start, end, last=not following))
    return sources


async def replay(
    files: Files,
    lane: Workers,
    directory: str,
    mark: LogMark,
    apply: Apply,
    *,
    max_entry: int,
    damage: Damage,
    reached: Callable[[LogMark, Seen], None],
) -> None:
    """Apply all records after `mark`, in order; `reached` hears after each file how far it is. Reads on `lane`.

    A file without a record moves the mark to its beginning only: it may be one whose creation failed at the sync, so
    that a loss of power still takes its header.

    Raises `CorruptStorageError` for damage, `OSError`, and whatever `apply` raises.
    """
    for source in await lane.submit(plan, files, directory, mark, damage):
        with files.open(f"{directory}/{journal_name(source.journal_id)}") as file:
            end, seen = await _replay_file(file, lane, source, apply, max_entry, damage)
        reached(LogMark(source.journal_id, max(source.start, end)), seen)


async def _replay_file(
    file: File, lane: Workers, source: JournalSource, apply: Apply, max_entry: int, damage: Damage
) -> tuple[int, Seen]:
    """Apply the records of one file; returns where they end, or where they were to begin if there are none."""
    count = 0
    scan = JournalScan(file, source.journal_id, source.start, max_entry=max_entry, end=source.end, last=source.last)
    while True:
        try:
            records = await lane.submit(scan.next_records)
        except CorruptStorageError as error:
            damage.found(error)
            break
        if not records:
            break
        for record in records:
            pause = apply(record)
            if pause is not None:
                await pause
        count += len(records)
    log.info("%s: replayed %d records up to %d", file.path, count, scan.position)
    if scan.torn is not None:
        log.warning(
            "%s: what follows %d is not whole (%s) and is left out: either a crash cut it short, and then nobody was "
            "told that it is stored, or it was damaged later",
            file.path,
            scan.position,
            scan.torn,
        )
    if scan.skipped:
        log.warning("%s: skipped %d records of unknown kinds", file.path, scan.skipped)
    return scan.position if count else source.start, Seen(source.journal_id, scan.synced, scan.position)
