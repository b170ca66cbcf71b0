"""What the system says of this process, where Prometheus has names for it. Linux's `/proc`; elsewhere there is none."""

from __future__ import annotations

from ...runtime import Files
from .exposition import Exposition

TICKS = 100
"""Of processor time, a second: the same on every Linux."""


def process_metrics(files: Files, started_ms: int, out: Exposition) -> None:
    """`started_ms`: when the process began, since 1970. Blocks for as long as the kernel takes to answer."""
    out.process("process_start_time_seconds", "gauge", started_ms / 1000)
    try:
        times = _read(files, "/proc/self/stat").rpartition(b")")[2].split()
        status = _read(files, "/proc/self/status").decode("ascii", "replace")
        descriptors = len(files.listdir("/proc/self/fd"))
    except OSError:
        return
    out.process("process_cpu_seconds_total", "counter", (int(times[11]) + int(times[12])) / TICKS)
    out.process("process_open_fds", "gauge", descriptors)
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            out.process("process_resident_memory_bytes", "gauge", int(line.split()[1]) * 1024)


def _read(files: Files, path: str) -> bytes:
    """What the kernel writes when it is read: the file has no size."""
    with files.open(path) as file:
        return file.pread(1 << 16, 0)
