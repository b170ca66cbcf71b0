"""Reading a journal file back, and telling a torn tail from damage (spec bookie-storage §4.3, safety §3.4, §3.5).

Theory of operation

A batch counts as a whole or not at all. Nothing is acknowledged before its batch is synced, batches are synced in
order, and a crash may keep any of the sectors that were not yet synced and lose any others. So reading ends at the
first batch that is not whole: what it and all later batches hold was never promised to a client. That is the torn
tail.

- In a sealed file (written here) a batch is whole when the seal in its padding matches. Two witnesses tell a torn
  tail from damage to something that had been promised: every seal says up to where the file was synced when its batch
  was written, and the header of the next file says where this one ended. If reading ends before what a witness says,
  the file is damaged, and `CorruptStorageError` is raised.
- In a file written by Java there is no checksum. A batch is whole when padding or an aligned end follows its last
  record; Java acknowledges nothing before. Records after that are dropped, which also catches nearly all records that
  lost a sector. A length or an id that cannot be, or an entry of ledger 0 that is all zeros, is taken as torn. What
  such a tail may not be is followed by another journal: the caller tells with `last`, and otherwise it is damage.

Files before version 5 have no padding: there each record is a batch, and only the rules about lengths and ids help.
"""

from __future__ import annotations

import struct

import google_crc32c

from ...errors import CorruptStorageError
from ...runtime import File
from .format import (
    EXPLICIT_LAC,
    HEADER_SIZE,
    LEDGER_KEY,
    LENGTH,
    MIN_ENTRY_SIZE,
    MINIMUM_VERSION,
    PADDING,
    PREFIX,
    SEAL_MAGIC,
    SEALED_PADDING,
    SEALED_SINCE,
    SECTOR,
    Header,
    JournalRecord,
    decode_header,
    decode_seal,
)

CHUNK = 4 << 20
"""Bytes read at once, and about how much of a file is handed over at once."""

_PADDING_HEAD = 2 * LENGTH.size
_META_HEAD = PREFIX.size + LENGTH.size
_LENGTHS = struct.Struct(">ii")


class _TornError(Exception):
    """The bytes at hand are not a whole batch; the text says why. Never leaves this module."""


def read_header(file: File) -> Header | None:
    """The header of a file; None if the file's creation was cut short, so that it never had a record.

    Raises `CorruptStorageError` for an unknown version or a damaged header.
    """
    data = file.pread(HEADER_SIZE, 0)
    behind = any(any(file.pread(CHUNK, at)) for at in range(HEADER_SIZE, file.size(), CHUNK))
    try:
        if not any(data) and behind:
            raise CorruptStorageError("journal begins with zeros")
        header = decode_header(data)
    except CorruptStorageError as error:
        if not behind:
            return None
        raise CorruptStorageError(f"{file.path}: {error}") from None
    return header if any(data) else None


def is_batch_end(file: File, header: Header, offset: int) -> bool:
    """Whether a batch can end at `offset`, as far as lengths tell. Reads the file up to there.

    Java's marks may lie up to eight bytes behind the end of the data: they count the zeros that made it stop.
    """
    at = header.first_record
    data, base = b"", 0
    padded = True  # what ends at `at` is padding, or the header
    while at < offset:
        if at + _PADDING_HEAD > base + len(data):
            data, base = file.pread(CHUNK, at), at
        head = data[at - base : at - base + _PADDING_HEAD].ljust(_PADDING_HEAD, b"\0")
        size, padding_size = _LENGTHS.unpack(head)
        is_padding = size == PADDING and header.version >= SEALED_SINCE
        if size == 0:
            return offset - at <= _PADDING_HEAD and (padded or header.seal is None)
        if size < 0 and not is_padding:
            return False
        at += _PADDING_HEAD + padding_size if is_padding else LENGTH.size + size
        padded = is_padding
    return offset <= header.first_record or (at == offset and (padded or header.seal is None))


class JournalScan:
    """Reads the records of one journal file, from `start` on (0: from the first record). All calls block.

    `max_entry` bounds the size of a record in files without seals. `end` is where the next file's header says that
    this one ends; `last` says that no later file holds anything.
    """

    def __init__(
        self, file: File, journal_id: int, start: int, *, max_entry: int, end: int | None = None, last: bool = True
    ) -> None:
        self._file = file
        self._id = journal_id
        self._size = file.size()
        self._end = end
        self._last = last
        self._data = b""  # the bytes of the file from _base on
        self._base = 0
        self._finished = False
        header = read_header(file)
        if header is None:
            raise CorruptStorageError(f"{file.path} has no header")
        self.header = header
        self.position = max(start, self.header.first_record)
        """The end of the last batch that counts; never within one."""
        self.synced = start
        """What is before it was synced, as the mark or a seal says; the rest up to `position` was only seen."""
        self.torn: str | None = None
        """Why reading ended, if not at the end of the data."""
        self.skipped = 0
        """Records of unknown kinds seen."""
        self._sealed = self.header.seal is not None
        self._max_size = self._size if self._sealed else max_entry
        if self.header.seal is not None and self.header.seal.journal_id != journal_id:
            raise CorruptStorageError(f"{file.path} is journal {self.header.seal.journal_id:x} under a wrong name")
        if start > self._size:
            raise CorruptStorageError(f"{file.path} has {self._size} bytes, but the mark says {start}")
        if self._sealed:
            self.position -= self.position % SECTOR  # a mark of Java's counts the zeros that made it stop

    def next_records(self, size: int = CHUNK) -> list[JournalRecord]:
        """The records of the next whole batches, about `size` bytes of them; empty when there are no more.

        Raises `CorruptStorageError` if something is missing that had been synced.
        """
        records: list[JournalRecord] = []
        first = self.position
        while not self._finished and (not records or self.position - first < size):
            batch = None
            if self._end is None or self.position < self._end:
                try:
                    batch = self._read_batch()
                except _TornError as reason:
                    self.torn = str(reason)
            if batch is not None:
                records += batch
            elif records:
                break  # whatever is wrong here, what came before counts
            else:
                self._finished = True
                self._check_end()
        return records

    # --- one batch ---

    def _read_batch(self) -> list[JournalRecord] | None:
        """The records of the batch at `position`, which moves behind it; None at the end of the data."""
        start = at = self.position
        records: list[JournalRecord] = []
        count = 0
        whole: tuple[int, int] | None = None  # without seals: the last possible end of a batch, records before it
        try:
            while whole is None or at - start < CHUNK:
                if self._sealed:
                    before = len(records)
                    at = self._entries_at_hand(at, records)
                    count += len(records) - before
                if not self._have(start, at + LENGTH.size):
                    if at == start:
                        return None
                    raise _TornError(f"the file ends within the batch at {start}")
                size: int = LENGTH.unpack_from(self._data, at - self._base)[0]
                if size == PADDING and self.header.version >= SEALED_SINCE:
                    self.position = self._end_of_batch(start, at, count)
                    return records
                if size == 0 and at == start:
                    return None
                self._check_size(start, at, size)
                record = self._record(at, size)
                if record is not None:
                    records.append(record)
                count += 1
                at += LENGTH.size + size
                if not self._sealed and (self.header.version < SEALED_SINCE or at % SECTOR == 0):
                    whole = at, len(records)
        except _TornError:
            if whole is None:
                raise
        self.position = whole[0]  # what comes after is looked at again, as the beginning of a batch
        return records[: whole[1]]

    def _entries_at_hand(self, at: int, records: list[JournalRecord]) -> int:
        """Add the entries from `at` on that are in memory already, quickly; returns where they end.

        Anything else is left to the careful way. Only for sealed files, where a checksum is to follow.
        """
        data, base = self._data, self._base
        here = at - base
        size = len(data)
        while 0 <= here <= size - PREFIX.size:
            length, ledger_id, entry_id = PREFIX.unpack_from(data, here)
            stop = here + LENGTH.size + length
            if entry_id < 0 or length < PREFIX.size - LENGTH.size or stop > size:
                break
            records.append(JournalRecord(ledger_id, entry_id, data[here + LENGTH.size : stop], base + here, True))
            here = stop
        return base + here

    def _check_size(self, start: int, at: int, size: int) -> None:
        if size == 0:
            raise _TornError(f"zeros at {at} within the batch at {start}")
        if not PREFIX.size - LENGTH.size <= size <= self._max_size:
            raise _TornError(f"a record of {size} bytes at {at}")
        if not self._have(start, at + LENGTH.size + size):
            raise _TornError(f"the file ends within the record at {at}")

    def _record(self, at: int, size: int) -> JournalRecord | None:
        """The record at `at`; None if it is of an unknown kind."""
        here = at - self._base
        _, ledger_id, entry_id = PREFIX.unpack_from(self._data, here)
        stop = here + LENGTH.size + size
        if entry_id >= 0:
            entry = self._data[here + LENGTH.size : stop]
            if not self._sealed:
                if size < MIN_ENTRY_SIZE or ledger_id < 0:
                    raise _TornError(f"an entry of {size} bytes, ledger {ledger_id}, at {at}")
                if ledger_id == 0 and entry_id == 0 and not any(entry):
                    raise _TornError(f"an entry that is all zeros at {at}")
            return JournalRecord(ledger_id, entry_id, entry, at, self._sealed)
        needed = MINIMUM_VERSION.get(entry_id)
        if needed is None:
            self.skipped += 1
            return None
        if self.header.version < needed:
            raise _TornError(f"a record of kind {entry_id:#x} in a version {self.header.version} journal at {at}")
        body = b""
        if entry_id in (LEDGER_KEY, EXPLICIT_LAC):
            if size < _META_HEAD - LENGTH.size:
                raise _TornError(f"a record of kind {entry_id:#x} with {size} bytes at {at}")
            (length,) = LENGTH.unpack_from(self._data, here + PREFIX.size)
            body = self._data[here + _META_HEAD : stop]
            if length != len(body):
                raise _TornError(f"a record of kind {entry_id:#x} with a wrong length at {at}")
        return JournalRecord(ledger_id, entry_id, body, at, self._sealed)

    def _end_of_batch(self, start: int, at: int, count: int) -> int:
        """Where the padding at `at` ends; in a sealed file, only if its seal vouches for the batch."""
        if not self._have(start, at + _PADDING_HEAD):
            raise _TornError(f"the file ends within the padding at {at}")
        here = at - self._base
        size: int = LENGTH.unpack_from(self._data, here + LENGTH.size)[0]
        end = at + _PADDING_HEAD + size
        if size < 0 or not self._have(start, end):
            raise _TornError(f"padding of {size} bytes at {at}")
        if self._sealed:
            here = at - self._base
            seal = decode_seal(self._data[here : here + SEALED_PADDING])
            batch = self._data[start - self._base : here]
            if (
                seal is None
                or (seal.journal_id, seal.start, seal.count) != (self._id, start, count)
                or seal.crc != google_crc32c.value(batch)
            ):
                raise _TornError(f"the batch at {start} does not match its seal")
            self.synced = max(self.synced, seal.synced)
        return end

    # --- the end ---

    def _check_end(self) -> None:
        """Reading ended at `position`: refuse if that cannot be a torn tail."""
        where = f"{self._file.path} cannot be read beyond {self.position}"
        why = f" ({self.torn})" if self.torn else ""
        if self._end is not None:
            if self.position < self._end:
                raise CorruptStorageError(
                    f"{where}{why}, but the next journal says that it was synced up to {self._end}"
                )
        elif self._sealed:
            synced = self._synced_behind()
            if synced > self.position:
                raise CorruptStorageError(f"{where}{why}, but a later seal says that it was synced up to {synced}")
        elif self.torn is not None and not self._last:
            raise CorruptStorageError(f"{where}{why}, and it is not the last journal")

    def _synced_behind(self) -> int:
        """The greatest synced offset that any seal after `position` tells; 0 if there is no seal."""
        synced = 0
        step = max(CHUNK, SEALED_PADDING)
        for at in range(self.position, self._size, step):
            data = self._file.pread(step + SEALED_PADDING, at)  # overlaps the next by what a seal takes
            found = data.find(SEAL_MAGIC, _PADDING_HEAD)
            while found >= 0:
                seal = decode_seal(data[found - _PADDING_HEAD : found - _PADDING_HEAD + SEALED_PADDING])
                if seal is not None and seal.journal_id == self._id:
                    synced = max(synced, seal.synced)
                found = data.find(SEAL_MAGIC, found + 1)
        return synced

    def _have(self, start: int, stop: int) -> bool:
        """Whether the file has the bytes up to `stop`; then `_data` holds them from `start` on."""
        held = self._base + len(self._data)
        if self._base <= start and stop <= held:
            return True
        if stop > self._size:
            return False
        kept = self._data[start - self._base :] if self._base <= start < held else b""
        wanted = max(CHUNK, stop - start)
        self._data = kept + self._file.pread(wanted - len(kept), start + len(kept))
        self._base = start
        return len(self._data) >= stop - start
