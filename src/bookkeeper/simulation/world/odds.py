"""What is usual in a world: how long things take, and how often chance makes them odd.

A run draws some of these (`swarm.draw`); faults change others for a while (`harm`). Times are virtual seconds, chances
are from 0 to 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class NetworkOptions:
    """How bytes travel between machines."""

    latency: float = 0.0005
    """The least that each write takes."""
    spread: float = 0.001
    """Up to so much more, evenly drawn for each write: what goes over two connections overtakes each other."""
    tail_chance: float = 0.01
    """Of a write to take longer, as after a lost packet."""
    tail: float = 0.05
    """Up to so much longer, then."""
    fragment_chance: float = 0.05
    """Of a piece of data to arrive in two."""
    corrupt_chance: float = 0.0
    """Of a piece of data to arrive with a flipped bit."""


@dataclass(frozen=True)
class DiskOptions:
    """What a disk has kept of what was not synced, after a power loss."""

    kept_shares: tuple[float, ...] = (0.0, 0.5, 1.0)
    """One of them is drawn for each file: the chance of each written sector to be there."""
    name_chance: float = 0.5
    """Of each file that was made, renamed or removed to be so afterwards."""


@dataclass(frozen=True)
class WorkerOptions:
    """How long a call on a worker thread takes."""

    shortest: float = 0.0001
    spread: float = 0.002
    """Up to so much more, evenly drawn."""
    stall_chance: float = 0.01
    """Of a call to take longer, as on a stalled disk."""
    stall: float = 0.2
    """Up to so much longer, then."""


@dataclass(frozen=True)
class Odds:
    """All of a world."""

    network: NetworkOptions = field(default_factory=NetworkOptions)
    disk: DiskOptions = field(default_factory=DiskOptions)
    workers: WorkerOptions = field(default_factory=WorkerOptions)
    buggify: float = 0.0
    """Factor on the chances of buggify points in the code under test; 0: none is taken."""
