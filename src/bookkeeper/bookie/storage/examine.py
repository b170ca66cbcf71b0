"""Looking at entries where they lie on the disk, past all caches: is what the index points at what was written?

Theory of operation

An examination goes through the entries of a ledger that are in the index, a part at a time, by id. That is mostly the
order of the disk: a flush writes a ledger's entries one after the other, and compaction keeps them so; what lies
together is read together. Each record must be there, whole, with the ids that the index has; then a judge, who knows
how the ledger's entries are protected, looks at the bytes.

What looks damaged may only have moved: compaction copies an entry, changes its location and removes the log, at any
time between the two steps here. So what looks damaged is looked up once more, and counts only if it is where it was.
And an entry that is in a write cache again is about to be written anew: whoever calls leaves that out.

A failed read of a disk is damage too: a sector that cannot be read any more has lost its entry. A failed read of the
index is not: nothing is known then, and it is raised.

`examine` is for a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import NamedTuple

from ...errors import CorruptStorageError
from ...runtime import File, Files
from ..file_names import log_name
from .entry_log import format as fmt
from .entry_log.reader import read_records
from .index.locations import LocationIndex

READ_BYTES = 256 << 10
"""Of one read of entries that lie together; a single entry may be larger."""

PART_BYTES = 4 << 20
"""A part ends with the read that comes to so many."""

Judge = Callable[[int, bytes], str | None]
"""Says of an entry, by its id and bytes, what is wrong with it; None: nothing. Called on a worker thread."""

Place = tuple[int, int]
"""An entry id and its location."""


class Damage(NamedTuple):
    """An entry that is not what it was when it was written."""

    entry_id: int
    what: str
    """What is wrong, as a sentence."""


class Examined(NamedTuple):
    """A part of a ledger that was looked at."""

    entries: int
    """So many."""
    after: int | None
    """Where the next part begins; None: this was the last one."""
    damage: Sequence[Damage]


def examine(
    locations: LocationIndex,
    files: Files,
    directory: str,
    give_way: Callable[[], None],
    ledger_id: int,
    first: int,
    max_count: int,
    judge: Judge,
) -> Examined:
    """Look at the entries of a ledger from id `first` on, at most `max_count`.

    Raises `CorruptStorageError`, `OSError` if the index cannot be read.
    """
    places = list(islice(locations.places(ledger_id, first), max_count))
    done = 0
    damage = []
    with ExitStack() as opened:
        look = _Look(files, directory, opened, ledger_id, judge)
        while done < len(places) and look.size < PART_BYTES:
            for (entry_id, location), what in look.at(places, done):
                done += 1
                if what is not None and locations.get(ledger_id, entry_id) == location:
                    damage.append(Damage(entry_id, what))
            give_way()
    ended = done == len(places) < max_count
    return Examined(done, None if ended else places[done - 1][0] + 1, damage)


class _Look:
    """The reading of one part. Logs stay open until it is over."""

    def __init__(self, files: Files, directory: str, opened: ExitStack, ledger_id: int, judge: Judge) -> None:
        self._files = files
        self._directory = directory
        self._opened = opened
        self._logs: dict[int, File] = {}
        self._ledger_id = ledger_id
        self._judge = judge
        self.size = 0
        """Bytes that were read."""

    def at(self, places: Sequence[Place], number: int) -> list[tuple[Place, str | None]]:
        """What is wrong, if anything, with the entry at one of the places and with those that were read with it."""
        try:
            return self._together(places, number)
        except FileNotFoundError:
            what = "its entry log is gone"
        except (CorruptStorageError, OSError) as error:
            what = str(error)
        return [(places[number], what)]

    def _together(self, places: Sequence[Place], at: int) -> list[tuple[Place, str | None]]:
        """The entry at one place, and those that follow it in the log as they should."""
        entry_id, location = places[at]
        file = self._log(fmt.log_of(location))
        following = len(places) - at
        records = read_records(file, location, self._ledger_id, entry_id, following, READ_BYTES)
        self.size += len(records.raw)
        found: list[tuple[Place, str | None]] = []
        for number in range(records.entries):
            place = places[at + number]
            begin, end = records.offsets[number], records.offsets[number + 1]
            if place != (entry_id + number, location + begin):
                break
            found.append((place, self._judge(place[0], records.raw[begin + fmt.SIZE_WORD : end])))
        return found

    def _log(self, log_id: int) -> File:
        file = self._logs.get(log_id)
        if file is None:
            path = f"{self._directory}/{log_name(log_id)}"
            file = self._logs[log_id] = self._opened.enter_context(self._files.open(path))
        return file
