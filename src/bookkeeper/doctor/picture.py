"""What was seen of a cluster at one time. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..types import BookieId

EXAMPLES = 5
"""Ledgers that are named of each kind; the others are counted."""


@dataclass(frozen=True, slots=True)
class BookieSeen:
    """A registered bookie, and what it said."""

    seconds: float | None
    """How long its answer took; None: it gave none."""
    total: int = 0
    """Bytes of the file systems that its ledgers are on."""
    free: int = 0

    @property
    def used(self) -> float:
        """Share of its disks that is used, 0 to 1."""
        return 1 - self.free / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Worth:
    """From where on it is worth a warning."""

    full: float = 0.9
    """Share of a bookie's disks that is used; bookies stop writing at `diskUsageThreshold`, 0.95."""
    slow_seconds: float = 1.0
    """A bookie that takes longer for a small question is in trouble."""


@dataclass(slots=True)
class Kind:
    """Ledgers of one kind."""

    count: int = 0
    examples: list[int] = field(default_factory=list)

    def add(self, ledger_id: int) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(ledger_id)


@dataclass(slots=True)
class Ledgers:
    """The ledgers of a cluster, by what there is to say of them. One may be of several kinds."""

    count: int = 0
    open: Kind = field(default_factory=Kind)
    """Written, or left by a writer that is gone: their records don't say which."""
    oldest_open_ms: int | None = None
    """When the oldest of them was made, in milliseconds since 1970."""
    widest: int = 0
    """The most bookies that an open one has."""
    unreadable: Kind = field(default_factory=Kind)
    """Of some entries, no bookie that should have them is registered."""
    unrecoverable: Kind = field(default_factory=Kind)
    """Open, and so many bookies are gone that its end cannot be found."""
    last_copy: Kind = field(default_factory=Kind)
    """Of some entries only one copy is left, of several."""
    short: Kind = field(default_factory=Kind)
    """Of some entries there are fewer copies than there should be, but more than one."""
    corrupt: Kind = field(default_factory=Kind)
    """Their records make no sense."""


@dataclass(slots=True)
class Picture:
    """All that was seen."""

    initialised: bool = True
    now_ms: int = 0
    """Milliseconds since 1970, by the clock of who looked."""
    writable: frozenset[BookieId] = frozenset()
    read_only: frozenset[BookieId] = frozenset()
    cookies: frozenset[BookieId] = frozenset()
    """Bookies that belong to the cluster."""
    worth: Worth = Worth()
    bookies: dict[BookieId, BookieSeen] = field(default_factory=dict)
    """The registered ones."""
    auditor: BookieId | None = None
    repair_enabled: bool = True
    delay: int = 0
    """`lostBookieRecoveryDelay`, seconds."""
    marked: Kind = field(default_factory=Kind)
    """Ledgers that are marked for repair."""
    oldest_mark_ms: int | None = None
    health_check: bool = True
    ledgers: Ledgers = field(default_factory=Ledgers)

    @property
    def gone(self) -> frozenset[BookieId]:
        """Bookies that belong to the cluster and are not there."""
        return self.cookies - self.writable - self.read_only
