"""A journal on a simulated machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from bookkeeper.bookie.journal.format import JournalRecord, entry_prefix
from bookkeeper.bookie.journal.journal import Journal
from bookkeeper.bookie.journal.last_mark import LogMark, MarkFiles
from bookkeeper.config import ServerConfiguration
from bookkeeper.simulation.world.disk import MachineCrashed, SimulatedFiles
from bookkeeper.simulation.world.world import World
from tests.support.java_journal import entry

T = TypeVar("T")

DIRECTORY = "/journal/current"
LEDGER_DIRECTORIES = ("/ledgers0/current", "/ledgers1/current")
LEDGER = 7


class Answers:
    """Which entries were acknowledged, in order."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def of(self, entry_id: int) -> Callable[[], None]:
        return lambda: self.ids.append(entry_id)


class JournalMachine:
    """One simulated machine with a journal directory and two ledger directories; its disk outlives its crashes."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.world = World(seed)
        self.machine = self.world.machine("bookie")
        self.disk = self.machine.disk
        self.fatal: list[BaseException] = []
        self.config = ServerConfiguration(**{"journalPreAllocSizeMB": 1, "journalMaxSizeMB": 1, **settings})
        for directory in (DIRECTORY, *LEDGER_DIRECTORIES):
            self.files.makedirs(directory)

    @property
    def files(self) -> SimulatedFiles:
        """The files as what runs on the machine now sees them."""
        return SimulatedFiles(self.disk)

    def __enter__(self) -> JournalMachine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.world.close()

    def run(self, program: Callable[[Journal], Coroutine[Any, Any, T]], seconds: float = 1000) -> T | None:
        """Start the machine and run a program with a new journal; None if the machine goes down before its end."""

        async def main() -> T | None:
            runtime = self.machine.start()
            incarnation = self.machine.incarnation
            assert incarnation is not None

            async def body() -> T | None:
                marks = MarkFiles(runtime.files, LEDGER_DIRECTORIES, "lastMark")
                journal = Journal(runtime, self.config, 0, DIRECTORY, marks, self.fatal.append)
                try:
                    return await program(journal)
                except MachineCrashed:
                    return None  # in a call that the program made itself

            task = self.world.spawn_on(incarnation, body(), "journal")
            waited = 0.0
            while not task.done() and incarnation.alive and waited < seconds:
                await asyncio.sleep(0.05)
                waited += 0.05
            assert task.done() or not incarnation.alive, "the program hangs"
            return task.result() if incarnation.alive else None

        return self.world.run(main())

    def journals(self) -> list[str]:
        """Names of the journal files, as ids."""
        return [name for name in self.files.listdir(DIRECTORY) if name.endswith(".txn")]

    def persisted(self) -> list[LogMark | None]:
        """The mark in each ledger directory."""
        return [
            LogMark.decode(self.files.read_bytes(f"{path}/lastMark")) if self.files.exists(f"{path}/lastMark") else None
            for path in LEDGER_DIRECTORIES
        ]


def append(journal: Journal, entry_id: int, done: Callable[[], None], size: int = 100, **options: Any) -> None:
    """Append one entry of `LEDGER`."""
    body = entry(LEDGER, entry_id, size, entry_id % 250 + 1)
    journal.append([entry_prefix(size), body], size + 4, 1, done, **options)


async def started(journal: Journal) -> list[JournalRecord]:
    """Replay and start; returns what was replayed."""
    records: list[JournalRecord] = []
    await journal.replay(records.append)
    journal.start()
    return records
