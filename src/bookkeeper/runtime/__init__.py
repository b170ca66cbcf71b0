"""Clock, chance, network, disks and threads: the seam between the program and the world (see `runtime.api`)."""

from .api import (
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
