"""Clock, chance, network, disks and threads: the seam between the program and the world (see `runtime.api`).

api         the seam
real        the real world
disk        files of the operating system
network     TCP
threads     threads of workers
ports       ports for servers to try things out with
loop_thread a thread with a loop of its own
rocks       RocksDB behind the seam; rocks_wal checks its write-ahead logs at the start
heap        what the C library does with memory that is freed
tasks       tasks with an owner, and work that goes on for ever
stalls      how late the loop is
awake       a clock that counts only time in which the loop was running
waiting     pauses that grow, rates, lines of tasks that wait for their turn
transitions state machines as tables
"""

from .api import (
    NO_SPACE,
    BackgroundSync,
    DiskUsage,
    File,
    Files,
    KeyValueBatch,
    KeyValueStore,
    Network,
    Random,
    Runtime,
    ServiceListener,
    SocketOptions,
    TimerHandle,
    Workers,
)
from .tasks import TaskScope, guarded

__all__ = [
    "NO_SPACE",
    "BackgroundSync",
    "DiskUsage",
    "File",
    "Files",
    "KeyValueBatch",
    "KeyValueStore",
    "Network",
    "Random",
    "Runtime",
    "ServiceListener",
    "SocketOptions",
    "TaskScope",
    "TimerHandle",
    "Workers",
    "guarded",
]
