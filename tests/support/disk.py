"""A simulated disk without a machine around it, for tests of code that only reads and writes files."""

from __future__ import annotations

import random

from bookkeeper.runtime import File
from bookkeeper.simulation.world.disk import Inode, SimulatedDisk, SimulatedFiles


def new_disk(*directories: str, seed: int = 0) -> SimulatedDisk:
    """An empty disk with these directories."""
    disk = SimulatedDisk(random.Random(seed), lambda _: None)
    for directory in directories:
        disk.directories[directory] = None
    return disk


def put(disk: SimulatedDisk, path: str, data: bytes) -> None:
    """A file with this content, all of it durable."""
    disk.names[path] = Inode(seen=bytearray(data), durable=bytearray(data))


def file_of(data: bytes, path: str = "/journal/5.txn") -> File:
    """An open file with this content."""
    disk = new_disk("/journal")
    put(disk, path, data)
    return SimulatedFiles(disk).open(path)
