"""How far a RocksDB's write-ahead logs were synced, and whether that part of them is still whole.

Theory of operation

RocksDB cannot tell damage from a torn tail: a log whose end was not synced may legally end in anything after a power
loss. Left to itself it silently drops all records behind the first one that it cannot read, synced ones too, and so a
single flipped bit takes back what was acknowledged (safety BI-22). So each sync is noted in a file of our own,
`SYNCED`, beside the database's, before a caller is told that it took place. At the next start every record in the
synced part must be whole; what stands behind it may be torn, and was never promised.

`SYNCED` has two slots of 512 bytes that are written in turn, so that a torn write leaves the other one. A slot, all
integers big-endian:

    offset  size
    0       4     "BKSY"
    4       8     number of the note; the greater of the two slots counts
    12      4     n: logs noted, at most 30
    16      16 n  n times: number of the log (8), bytes of it that are synced (8)
    ...     4     CRC32C of all that stands before

RocksDB and other bookies ignore the file. When one of them has written since, the noted logs are gone, and the file
says nothing. A log is made of blocks of 32768 bytes. A record does not cross them; where less than 7 bytes are left of
one, they are filler. Little-endian:

    0       4     masked CRC32C of all from offset 6 on
    4       2     bytes of data
    6       1     kind; 5 to 8: a log number (4) follows, which is not counted in the bytes
    7             data
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

import google_crc32c

from .api import Files

FILE_NAME = "SYNCED"

_SLOT = 512
_MAGIC = b"BKSY"
_HEAD = Struct(">4sQI")
_LOG = Struct(">QQ")
_CRC = Struct(">I")
_MAX_LOGS = 30

_BLOCK = 32768
_RECORD = Struct("<IHB")
_RECYCLABLE = range(5, 9)
_READ = 64 * _BLOCK


class SyncedLogs:
    """The `SYNCED` file of one database."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{FILE_NAME}"
        self._number = 0
        self._noted: Mapping[int, int] = {}

    def logs(self) -> dict[int, int]:
        """Size of each write-ahead log in the database's folder, by number."""
        found: dict[int, int] = {}
        for name in self._files.listdir(self._directory) if self._files.is_dir(self._directory) else []:
            stem, dot, kind = name.partition(".")
            if dot and kind == "log" and stem.isdigit():
                try:
                    found[int(stem)] = self._files.size(f"{self._directory}/{name}")
                except FileNotFoundError:  # RocksDB deletes those it needs no more
                    continue
        return found

    def note(self) -> None:
        """All that is in the logs now is synced. Durable at return. Raises `OSError`."""
        logs = dict(sorted(self.logs().items())[-_MAX_LOGS:])
        if logs == self._noted:
            return
        self._number += 1
        slot = _HEAD.pack(_MAGIC, self._number, len(logs)) + b"".join(_LOG.pack(*log) for log in logs.items())
        slot += _CRC.pack(google_crc32c.value(slot))
        new = not self._files.exists(self._path)
        with self._files.open(self._path, "w+" if new else "r+") as file:
            if new:
                file.pwrite(bytes(2 * _SLOT), 0)
            file.pwrite(slot.ljust(_SLOT, b"\0"), self._number % 2 * _SLOT)
            file.fdatasync()
        if new:
            self._files.fsync_dir(self._directory)
        self._noted = logs

    def read(self) -> dict[int, int]:
        """The last note: synced bytes of each log. Empty if there is none. Raises `OSError`."""
        if not self._files.exists(self._path):
            return {}
        data = self._files.read_bytes(self._path)
        for start in (0, _SLOT):
            found = _parse(data[start : start + _SLOT])
            if found is not None and found[0] > self._number:
                self._number, self._noted = found
        return dict(self._noted)

    def damage(self, number: int, synced: int) -> int | None:
        """Where the synced part of a log is damaged first; None if it is whole. Raises `OSError`."""
        with self._files.open(f"{self._directory}/{number:06d}.log") as file:
            if file.size() < synced:
                return file.size()
            for start in range(0, synced, _READ):
                part = file.pread(min(_READ, synced - start), start)
                for block in range(0, len(part), _BLOCK):
                    wrong = _damage_in_block(part[block : block + _BLOCK])
                    if wrong is not None:
                        return start + block + wrong
        return None


def _parse(slot: bytes) -> tuple[int, dict[int, int]] | None:
    """The number and logs of a note; None if it is not a whole one."""
    if len(slot) < _HEAD.size:
        return None
    magic, number, count = _HEAD.unpack_from(slot)
    end = _HEAD.size + count * _LOG.size
    if magic != _MAGIC or count > _MAX_LOGS or _CRC.unpack_from(slot, end)[0] != google_crc32c.value(slot[:end]):
        return None
    return number, dict(_LOG.iter_unpack(slot[_HEAD.size : end]))


def _damage_in_block(block: bytes) -> int | None:
    """Where the first record begins that is not whole. The block may end early, behind a record."""
    offset = 0
    while offset + _RECORD.size <= len(block):
        crc, size, kind = _RECORD.unpack_from(block, offset)
        end = offset + _RECORD.size + size + (4 if kind in _RECYCLABLE else 0)
        if end > len(block) or crc != _masked(google_crc32c.value(block[offset + 6 : end])):
            return offset
        offset = end
    return offset if offset < len(block) < _BLOCK else None


def _masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
