"""A machine's disk, with what real disks do at a crash (spec safety §3.1, DF-1 to DF-5).

Every file has two contents: what the running machine sees, and what has surely reached the platter. A write changes
the first; `fdatasync` copies the touched sectors to the second. When the power fails, each sector written since the
last sync independently keeps its old or its new content, the size is somewhere in between, and names created or removed
since the last `fsync_dir` are there or not. When only the process is killed, everything written survives.

Faults that can be switched on: an `fsync` that fails once and forgets the data (DF-6), a full disk (DF-7), read errors
(DF-8), flipped bits (DF-9), a crash of the machine at the nth call.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...runtime.api import Buffer, DiskUsage, File, Files
from .keyvalue_state import KeyValueState
from .odds import DiskOptions

SECTOR = 512
CAPACITY = 1 << 34
USUAL = DiskOptions()


class MachineCrashed(BaseException):
    """The machine went down in the middle of a disk call. No production code may catch it."""


@dataclass
class Inode:
    """One file's content, seen and durable."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    touched: dict[int, None] = field(default_factory=dict)
    """Sectors written since the last sync, in order of their first write."""
    forgotten: dict[int, None] = field(default_factory=dict)
    """Sectors that a failed sync has dropped: still seen, never to be durable unless written again."""

    def write(self, data: Buffer, offset: int) -> None:
        end = offset + len(data)
        if end > len(self.seen):
            self.seen.extend(bytes(end - len(self.seen)))
        self.seen[offset:end] = data
        for sector in range(offset // SECTOR, -(-end // SECTOR)):
            self.touched[sector] = None
            self.forgotten.pop(sector, None)

    def sync(self) -> None:
        if len(self.durable) < len(self.seen):
            self.durable.extend(bytes(len(self.seen) - len(self.durable)))
        elif len(self.durable) > len(self.seen):
            del self.durable[len(self.seen) :]
        for sector in self.touched:
            start = sector * SECTOR
            self.durable[start : start + SECTOR] = self.seen[start : start + SECTOR]
        self.touched.clear()

    def after_power_loss(self, dice: random.Random, odds: DiskOptions) -> bytearray:
        """What is on the platter when the power comes back."""
        image = bytearray(self.durable)
        size = dice.choice((len(self.durable), len(self.seen), dice.randint(*sorted((len(image), len(self.seen))))))
        image.extend(bytes(max(0, size - len(image))))
        keep = dice.choice(odds.kept_shares)
        for sector in self.touched:
            if dice.random() < keep:
                start = sector * SECTOR
                image[start : start + SECTOR] = self.seen[start : start + SECTOR]
        del image[size:]
        return image


@dataclass
class DiskFaults:
    """What can go wrong; all off by default."""

    fail_next_sync: bool = False
    fail_next_write: bool = False
    full: bool = False
    """Nothing may grow, but for what has been given back since."""
    full_below: str | None = None
    """The same of a file system that has only the paths that begin so."""
    fail_reads_of: str | None = None
    crash_after_calls: int | None = None
    slowness: float = 0.0
    """Seconds that every call to a background thread takes longer."""
    index_full: bool = False
    """Writes to key-value stores find no space."""
    index_slowness: float = 0.0
    """Seconds that every call to a key-value store takes longer, on its thread."""
    index_stops_for: float = 0.0
    """Seconds for which the next call to a key-value store stops the whole machine."""


class SimulatedDisk:
    """All files and key-value stores of one machine; lives longer than the machine's processes."""

    def __init__(self, dice: random.Random, note: Callable[[str], None], odds: DiskOptions = USUAL) -> None:
        self._dice = dice
        self.odds = odds
        self._note = note
        self.names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self.directories: dict[str, None] = {"/": None}
        self.stores: dict[str, KeyValueState] = {}
        self.faults = DiskFaults()
        self.given_back = 0
        """Bytes that files gave back while the disk was full."""
        self.calls = 0
        self.lives = 0
        """Grows when the machine goes down: what was opened before can do nothing any more."""
        self.crash: Callable[[], None] | None = None
        """Takes the machine down; set by the machine."""
        self.stop: Callable[[float], None] | None = None
        """Makes the machine stand still; set by the machine."""
        self.index_seconds = 0.0
        """What calls to slow key-value stores have taken; who waits for them sets it to 0 again."""
        self._away: dict[str, _Mount] = {}

    # --- faults ---

    def call(self, what: str, life: int) -> None:
        """Every disk call passes here; `life` is that of the caller."""
        if life != self.lives:
            raise MachineCrashed
        self.calls += 1
        self._note(what)
        if self.faults.crash_after_calls is not None:
            self.faults.crash_after_calls -= 1
            if self.faults.crash_after_calls <= 0:
                self.faults.crash_after_calls = None
                if self.crash is not None:
                    self.crash()
                raise MachineCrashed

    def is_full(self, path: str) -> bool:
        below = self.faults.full_below
        return self.faults.full or (below is not None and path.startswith(below))

    def check_space(self, growth: int, path: str) -> None:
        """A write, of a file that grows by so much. What has been allocated can be written on a full disk."""
        if growth > 0 and self.is_full(path):
            if growth > self.given_back:
                raise OSError(errno.ENOSPC, "No space left on device (simulated)")
            self.given_back -= growth
        if self.faults.fail_next_write:
            self.faults.fail_next_write = False
            raise OSError(errno.EIO, "Input/output error (simulated write)")

    def check_index_space(self, growth: int, path: str) -> None:
        """A write to the files of a key-value store."""
        if self.faults.index_full and growth > 0:
            raise OSError(errno.ENOSPC, "No space left on device (simulated index)")
        self.check_space(growth, path)

    def index_call(self) -> None:
        """Every call to a key-value store passes here."""
        self.index_seconds += self.faults.index_slowness
        seconds, self.faults.index_stops_for = self.faults.index_stops_for, 0.0
        if seconds and self.stop is not None:
            self.stop(seconds)

    def give_back(self, size: int) -> None:
        """A file ended or shrank by so much."""
        if self.faults.full or self.faults.full_below is not None:
            self.given_back += size
        else:
            self.given_back = 0

    def sync(self, inode: Inode) -> None:
        try:
            self.check_sync()
        except OSError:
            inode.forgotten.update(inode.touched)
            inode.touched.clear()
            raise
        inode.sync()

    def check_sync(self) -> None:
        if self.faults.fail_next_sync:
            self.faults.fail_next_sync = False
            raise OSError(errno.EIO, "Input/output error (simulated sync)")

    def power_loss(self) -> None:
        """Replace everything by one of the states a real disk may be in afterwards."""
        self.lives += 1
        self.mount()
        names = dict(self._durable_names)
        for name, inode in self.names.items():
            if names.get(name) is not inode and self._dice.random() < self.odds.name_chance:
                names[name] = inode
        for name in [name for name in names if name not in self.names]:
            if self._dice.random() < self.odds.name_chance:
                del names[name]
        fresh: dict[int, Inode] = {}
        self.names = {}
        for name, inode in names.items():
            copy = fresh.get(id(inode))
            if copy is None:
                image = inode.after_power_loss(self._dice, self.odds)
                copy = fresh[id(inode)] = Inode(seen=image, durable=bytearray(image))
            self.names[name] = copy
        self._durable_names = dict(self.names)
        for state in self.stores.values():
            state.crash(self._dice)
        self.faults = DiskFaults()

    def process_killed(self) -> None:
        """What was written survives; nothing new becomes durable. Key-value stores may lose what was not synced."""
        self.lives += 1
        self.mount()
        for state in self.stores.values():
            state.crash(self._dice)

    def flip_bit(self, path: str, offset: int) -> None:
        """Silent damage at rest."""
        inode = self.names[path]
        bit = 1 << self._dice.randrange(8)
        self._note(f"flip {path} {offset} {bit}")
        for content in (inode.seen, inode.durable):
            if offset < len(content):
                content[offset] ^= bit

    def flip_log(self, path: str, batch: int = 0) -> bool:
        """Silent damage at rest of a key-value store's write-ahead log; False if that has nothing."""
        state = self.stores[path]
        if batch < len(state.log):
            self._note(f"flip log of {path} {batch}")
            state.damaged_at = batch
        return state.damaged_at is not None

    def wipe(self) -> None:
        """A new, empty disk takes the place of this one."""
        self.lives += 1
        self.names, self._durable_names, self.directories, self.stores = {}, {}, {"/": None}, {}

    # --- file systems that come and go ---

    def unmount(self, root: str) -> None:
        """What is below a directory is not to be seen any more, but for what is open; the directory itself is there."""
        self._away[root] = self._take_away(root)
        self._note(f"unmount {root}")

    def is_mounted(self, path: str) -> bool:
        return not any(path == root or path.startswith(root + "/") for root in self._away)

    def mount(self) -> None:
        """Everything is mounted again. What was written to empty mount points meanwhile is below, out of sight."""
        for root, mount in self._away.items():
            self._take_away(root)
            for mine, kept in zip(self._tables(), mount, strict=True):
                mine.update(kept)
        self._away.clear()

    def _tables(self) -> tuple[dict[str, Any], ...]:
        return self.names, self._durable_names, self.directories, self.stores

    def _take_away(self, root: str) -> _Mount:
        taken: list[dict[str, Any]] = []
        for table in self._tables():
            names = [name for name in table if name.startswith(root + "/")]
            taken.append({name: table.pop(name) for name in names})
        return tuple(taken)

    # --- names ---

    def sync_directory(self, path: str) -> None:
        prefix = path.rstrip("/") + "/"
        for name in [name for name in self._durable_names if _parent(name) + "/" == prefix]:
            if self.names.get(name) is not self._durable_names[name]:
                del self._durable_names[name]
        for name, inode in self.names.items():
            if _parent(name) + "/" == prefix:
                self._durable_names[name] = inode

    def created_and_synced(self, path: str, inode: Inode) -> None:
        """As on ext4: syncing a new file makes its creation durable too."""
        if self.names.get(path) is inode:
            self._durable_names[path] = inode


_Mount = tuple[dict[str, Any], ...]
"""Files, files whose names are durable, directories, key-value stores."""


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class SimulatedFile(File):
    """An open file of a `SimulatedDisk`."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._life = disk.lives
        self._inode = inode

    def pread(self, size: int, offset: int) -> bytes:
        self._disk.call(f"pread {self.path}", self._life)
        if self._disk.faults.fail_reads_of is not None and self._disk.faults.fail_reads_of in self.path:
            raise OSError(errno.EIO, f"Input/output error (simulated read of {self.path})")
        return bytes(self._inode.seen[offset : offset + size])

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._disk.call(f"pwrite {self.path}", self._life)
        self._disk.check_space(offset + len(data) - len(self._inode.seen), self.path)
        self._inode.write(data, offset)

    def pwritev(self, pieces: Sequence[Buffer], offset: int) -> int:
        data = b"".join(pieces)
        self.pwrite(data, offset)
        return len(data)

    def fdatasync(self) -> None:
        self._disk.call(f"sync {self.path}", self._life)
        self._disk.sync(self._inode)
        self._disk.created_and_synced(self.path, self._inode)

    def fsync(self) -> None:
        self.fdatasync()

    def size(self) -> int:
        return len(self._inode.seen)

    def truncate(self, size: int) -> None:
        self._disk.call(f"truncate {self.path}", self._life)
        seen = self._inode.seen
        if size < len(seen):
            self._disk.give_back(len(seen) - size)
            del seen[size:]
        else:
            seen.extend(bytes(size - len(seen)))

    def allocate(self, offset: int, size: int) -> None:
        self._disk.call(f"allocate {self.path}", self._life)
        self._disk.check_space(offset + size - len(self._inode.seen), self.path)
        if offset + size > len(self._inode.seen):
            self._inode.seen.extend(bytes(offset + size - len(self._inode.seen)))

    def drop_cache(self, offset: int, size: int) -> None:
        """Nothing to see."""

    def close(self) -> None:
        """Nothing to release."""


class SimulatedFiles(Files):
    """The file system of one machine."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._life = disk.lives

    def open(self, path: str, mode: str = "r") -> File:
        disk = self._disk
        disk.call(f"open {path} {mode}", self._life)
        inode = disk.names.get(path)
        if mode == "x+" and inode is not None:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        if mode in ("r", "r+") and inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if mode in ("w+", "x+"):
            if _parent(path) not in disk.directories:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            disk.check_space(1, path)
        if inode is None:
            inode = disk.names[path] = Inode()
        elif mode == "w+":
            del inode.seen[:]
        return SimulatedFile(disk, path, inode)

    def listdir(self, path: str) -> list[str]:
        if path.rstrip("/") not in self._disk.directories and path != "/":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        prefix = path.rstrip("/") + "/"
        found = {
            name[len(prefix) :].partition("/")[0]: None
            for name in [*self._disk.names, *self._disk.directories, *self._disk.stores]
            if name.startswith(prefix) and len(name) > len(prefix)
        }
        return sorted(found)

    def exists(self, path: str) -> bool:
        path = path.rstrip("/") or "/"
        return path in self._disk.names or path in self._disk.directories or path in self._disk.stores

    def is_dir(self, path: str) -> bool:
        path = path.rstrip("/") or "/"
        return path in self._disk.directories or path in self._disk.stores

    def size(self, path: str) -> int:
        inode = self._disk.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return len(inode.seen)

    def makedirs(self, path: str) -> None:
        self._disk.call(f"makedirs {path}", self._life)
        path = path.rstrip("/")
        while path and path not in self._disk.directories:
            self._disk.directories[path] = None
            path = path.rpartition("/")[0]

    def rename(self, old: str, new: str) -> None:
        self._disk.call(f"rename {old} {new}", self._life)
        if old in self._disk.stores:
            self._disk.stores[new] = self._disk.stores.pop(old)
            return
        if old not in self._disk.names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", old)
        self._disk.names[new] = self._disk.names.pop(old)

    def link(self, old: str, new: str) -> None:
        self._disk.call(f"link {old} {new}", self._life)
        if new in self._disk.names:
            raise FileExistsError(errno.EEXIST, "File exists", new)
        self._disk.names[new] = self._disk.names[old]

    def unlink(self, path: str) -> None:
        self._disk.call(f"unlink {path}", self._life)
        if path not in self._disk.names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self._disk.give_back(len(self._disk.names.pop(path).seen))

    def remove_tree(self, path: str) -> None:
        self._disk.call(f"remove_tree {path}", self._life)
        prefix = path.rstrip("/") + "/"
        for table in (self._disk.names, self._disk.directories, self._disk.stores):
            for name in [name for name in table if name == path or name.startswith(prefix)]:
                del table[name]

    def fsync_dir(self, path: str) -> None:
        self._disk.call(f"fsync_dir {path}", self._life)
        self._disk.sync_directory(path)

    def disk_usage(self, path: str) -> DiskUsage:
        used = sum(len(inode.seen) for inode in self._disk.names.values())
        usable = self._disk.given_back if self._disk.is_full(path) else CAPACITY - used
        return DiskUsage(total=CAPACITY, usable=usable, device=1 if self._disk.is_mounted(path) else 0)
