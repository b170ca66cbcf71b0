"""Processor time that other processes used, in seconds, as Linux counts it."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Container
from pathlib import Path

HZ = os.sysconf("SC_CLK_TCK")


def of_process(pid: int) -> float:
    """What a process has used by itself."""
    user, system = _fields(pid)[11:13]
    return (int(user) + int(system)) / HZ


def of_ended_children() -> float:
    """What the children of this process have used that it has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def of_descendants(pid: int, without: Container[int] = ()) -> float:
    """What the processes that a process started have used, and those that these started, ended ones too; not those
    `without`. Of the children of `pid` itself only the living count."""
    running = _all_processes()
    children: dict[int, list[int]] = {}
    for child, fields in running.items():
        children.setdefault(int(fields[1]), []).append(child)
    ticks = 0
    waiting = [child for child in children.get(pid, ()) if child not in without]
    while waiting:
        process = waiting.pop()
        ticks += sum(map(int, running[process][11:15]))
        waiting += [child for child in children.get(process, ()) if child not in without]
    return ticks / HZ


def _all_processes() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            found[int(path.name)] = _fields(int(path.name))
    return found


def _fields(pid: int) -> list[str]:
    """From the state on: what stands behind the name, which may have blanks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
