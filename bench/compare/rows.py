"""What is compared, row by row, and which rows a run takes. No row knows of pairs, of turns or of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.interop.support.cluster import JAVA

from .clients import AT_ONCE, Clients
from .report import HIGHER, LOWER
from .systems import System

MANY_LEDGERS = 100
"""From so many ledgers on the newest Java is the quicker one, below it the stable line: it is asked if only one is."""

RATE = {"rate": HIGHER}
DELAY = {"p50_ms": LOWER, "p99_ms": LOWER}
FULL = {"rate": HIGHER, "p99_ms": LOWER, "cpu_s_per_million": LOWER}


@dataclass(frozen=True)
class Row:
    """One thing measured: who runs it, and which of its figures are wanted, each with its better direction."""

    name: str
    run: Callable[[System, str], dict[str, float]]
    figures: dict[str, str]
    quick: bool = False
    """Part of a quick run."""
    many: bool = False
    """Over many ledgers at once (`MANY_LEDGERS`)."""
    goals: dict[str, float] = field(default_factory=dict)
    """Figure -> the ratio that is asked for."""
    entry_bytes: int = 0
    """Of rows whose rate is one of appends, which the disk limits in the end: the size of an entry."""
    needs: str = ""
    """A row that has to be measured before this one."""


def rows(clients: Clients) -> list[Row]:
    """All rows, in the order in which they are measured: reads first, as writes leave work behind."""
    return [
        Row("cluster start", clients.start, {"s": LOWER}),
        *_reads(clients),
        *(
            Row(f"ledgers {what}, {AT_ONCE} at once", partial(clients.ledgers, what=what), RATE)
            for what in ("created", "closed", "opened", "deleted")
        ),
        *_recoveries(clients),
        *_writes(clients),
        Row("start after a crash, 100 MB to replay", clients.start_after_crash, {"s": LOWER}),
        Row("bookie resident memory", lambda system, who: {"MB": system.resident()}, {"MB": LOWER}),
    ]


def _reads(clients: Clients) -> Iterator[Row]:
    for protocol in ("v2", "v3"):
        for size in (100, 1024):
            read = partial(clients.read, protocol=protocol, size=size)
            quick = (protocol, size) == ("v2", 100)
            yield Row(f"cold read {size} B, {protocol}", partial(read, cold=True), RATE)
            yield Row(f"read {size} B, {protocol}", read, RATE, quick, goals={"rate": 2.0})
            if protocol == "v2":  # over v3 it is so anyway
                yield Row(f"read {size} B, a request for each, {protocol}", partial(read, singly=True), RATE)
            yield Row(
                f"random read {size} B, {protocol}", partial(read, scatter=True), RATE, quick, goals={"rate": 2.0}
            )
    for size in (100, 1024):
        batch = partial(clients.read, protocol="v2", size=size, batch=True)
        goal = 2.0 if size == 100 else 1.5
        yield Row(f"batch read {size} B, v2", batch, RATE, quick=size == 100, goals={"rate": goal})
    yield Row("random read 1000 B, each from the disk, v2", clients.read_beyond_memory, RATE, goals={"rate": 1.2})
    yield Row("tail at 1,000/s", partial(clients.tail, rate=1000), DELAY)


def _recoveries(clients: Clients) -> Iterator[Row]:
    for count in (20_000, 100_000):
        run = partial(clients.recover, count=count)
        yield Row(f"recovery of {count:,} entries", run, {"ms": LOWER}, quick=count == 20_000)


SHAPES = (
    # bytes of an entry, ledgers, window over all of them, ratio asked for
    (100, 1, 2000, 2.3),
    (1024, 1, 2000, 2.0),
    (16384, 1, 400, 0.0),
    (65536, 1, 100, 0.0),
    (100, 10, 5000, 0.0),
    (100, 100, 5000, 2.3),
    (1024, 100, 5000, 2.0),
    (100, 1000, 5000, 2.0),
    (100, 5000, 5000, 2.0),
    (100, 10_000, 10_000, 0.0),
)
QUICK_SHAPES = {("v2", 100, 1), ("v3", 100, 1), ("v2", 1024, 1), ("v2", 16384, 1), ("v2", 100, 100), ("v2", 100, 1000)}


def add_name(size: int, ledgers: int, protocol: str) -> str:
    return f"add {size} B, {ledgers} ledger{'s' * (ledgers > 1)}, {protocol}"


def _writes(clients: Clients) -> Iterator[Row]:
    for protocol in ("v2", "v3"):
        for size, ledgers, window, goal in SHAPES:
            if (ledgers > 1000 or ledgers == 10) and protocol == "v3":
                continue  # minutes for creating and deleting, and nothing new about v3
            yield Row(
                add_name(size, ledgers, protocol),
                partial(clients.write, protocol=protocol, size=size, ledgers=ledgers, window=window),
                FULL,
                quick=(protocol, size, ledgers) in QUICK_SHAPES,
                many=ledgers >= MANY_LEDGERS,
                goals={"rate": goal} if goal else {},
                entry_bytes=size,
            )
        yield Row(
            f"add one at a time, {protocol}",
            partial(clients.write, protocol=protocol, size=128, ledgers=1, window=1),
            DELAY,
            quick=protocol == "v2",
            goals={"p50_ms": 4.0, "p99_ms": 3.0},
        )
        yield Row(
            f"add 100 B at half of Java's rate, {protocol}",
            partial(clients.write_at_half, protocol=protocol, size=100),
            DELAY,
            quick=protocol == "v2",
            needs=add_name(100, 1, protocol),
        )

        yield _alone(clients, protocol, 1, 2000, {"bookies_s_per_million": 2.0})
        if protocol == "v2":
            yield _alone(clients, protocol, 1000, 5000, {"rate": 1.2})
            yield _alone(clients, protocol, 5000, 5000, {"rate": 1.2, "bookies_s_per_million": 1.43})


def _alone(clients: Clients, protocol: str, ledgers: int, window: int, goals: dict[str, float]) -> Row:
    """Bookies of either kind under Java's client."""

    def run(system: System, who: str) -> dict[str, float]:
        return clients.write(system, JAVA, protocol, 100, ledgers, window)

    figures = {"rate": HIGHER, "p99_ms": LOWER, "bookies_s_per_million": LOWER}
    name = f"bookies alone, with Java's client: {add_name(100, ledgers, protocol)}"
    return Row(name, run, figures, many=ledgers >= MANY_LEDGERS, goals=goals)


def choose(all_rows: Sequence[Row], *, quick: bool = False, names: Sequence[str] = (), only: str = "") -> list[Row]:
    """The rows of a run, in their order, with those that they need.

    `names` are whole names of rows, `only` is a text that a name has. With neither of them, `quick` takes the rows of
    a quick run. Raises ValueError at a name that no row has, and if no row is left.
    """
    known = {row.name: row for row in all_rows}
    for name in names:
        if name not in known:
            raise ValueError(f"no row is called {name!r}; --list tells their names")
    named = bool(names or only)
    wanted = {
        row.name
        for row in all_rows
        if (row.name in names if names else only in row.name) and (row.quick or named or not quick)
    }
    if not wanted:
        raise ValueError(f"no row has {only!r} in its name; --list tells their names")
    wanted |= {known[name].needs for name in wanted} - {""}
    return [row for row in all_rows if row.name in wanted]


def versions_for(row: Row, versions: Sequence[str], *, quick: bool) -> Sequence[str]:
    """Which versions of Java's a row is measured with. All, and the better counts; in a quick run the one that is
    known to be better there. `versions` begins with the stable line and ends with the newest."""
    if not quick:
        return versions
    return versions[-1:] if row.many else versions[:1]
