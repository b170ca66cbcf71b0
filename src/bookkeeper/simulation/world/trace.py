"""What a run shows: log records of the code under test, as counts of rare events or as readable lines.

Every log message of the bookies and clients counts as an event of that kind, so that the summary of many runs shows
which rare paths were reached. The arguments of a message do not matter for that, its template does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from .loop import MACHINE
from .world import World

Show = Callable[[str], None]
"""Prints one line."""

ROOT = logging.getLogger("bookkeeper")


class LogListener(logging.Handler):
    """Counts log records in `world.seen`; passes them on. Use it as a context manager."""

    def __init__(
        self,
        world: World,
        heard: Callable[[logging.LogRecord], None],
        show: Callable[[str, str], None] | None = None,
    ) -> None:
        """`heard` gets each record, `show` who logged it and the readable line."""
        super().__init__(logging.INFO)
        self._world = world
        self._heard = heard
        self._show = show
        self._before = (ROOT.level, ROOT.propagate)

    def emit(self, record: logging.LogRecord) -> None:
        self._world.sometimes(f"log: {record.msg}")
        self._heard(record)
        if self._show is not None:
            machine = MACHINE.get()
            self._show(machine.name if machine else "-", f"{record.levelname.lower()}: {record.getMessage()}")

    def __enter__(self) -> LogListener:
        ROOT.addHandler(self)
        ROOT.setLevel(logging.INFO)
        ROOT.propagate = False
        return self

    def __exit__(self, *exc: object) -> None:
        ROOT.removeHandler(self)
        level, ROOT.propagate = self._before
        ROOT.setLevel(level)


class Reader:
    """Writes a run down for people: virtual time, where, what."""

    def __init__(self, world: World, show: Show, machines: Collection[str] = ()) -> None:
        """`machines`: show only what happened on these; empty: everything."""
        self._world = world
        self._show = show
        self._machines = machines

    def __call__(self, where: str, what: str) -> None:
        if not self._machines or where.partition("#")[0] in self._machines:
            self._show(f"{self._world.loop.time():10.4f}  {where:<10} {what}")
