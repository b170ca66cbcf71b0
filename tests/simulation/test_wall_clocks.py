"""The time of day: it goes into records for people to read, and decides nothing between machines."""

from __future__ import annotations

import re

import pytest

from tests.support.references import ROOT

from .scenario import BOOKIES, Scenario, play, power_off

YEAR_MS = 366 * 24 * 3600 * 1000

MACHINES = ("w", "r", *BOOKIES)

READERS = {
    "admin/metrics/page.py": "when the process began, for people",
    "autorecovery/auditor.py": "when another auditor checked all ledgers; delays a check by one interval at most",
    "bookie/journal/journal.py": "the name of a bookie's first journal file; later ones count on",
    "bookie/node/mode.py": "which of its own status files a bookie wrote last",
    "bookie/storage/collection/times.py": "when the last compaction of an index was, for people",
    "bookie/storage/garbage.py": "when the last compaction was, for people",
    "bookie/requests/long_poll.py": "in the answer, when the LAC moved; our client does not look at it",
    "cli/shell/autorecovery.py": "when checks of the auditor count as long ago, because an operator says so",
    "client/client.py": "a ledger's time of creation, for people",
    "doctor/look.py": "how long a ledger has been open or marked, for people",
    "metadata/memory.py": "the same, of a record",
    "metadata/records/underreplication.py": "when a ledger was marked, for people",
    "metadata/sqlite.py": "handed to the file's module",
    "metadata/sqlite_file.py": "how long news are kept, in a file of one machine",
    "metadata/zookeeper/repair/underreplication.py": "when a ledger was marked, for people",
    "streams/namespace.py": "how old a segment or run is by another machine's clock; deletes only what was asked for",
    "spark/jobs/offloading.py": "how old a segment is; one that is offloaded too early is there twice",
    "streams/publishing/publisher.py": "as `streams/writer.py`",
    "streams/publishing/staged.py": "when a run was heard of last; clocks may differ by hours",
    "streams/writer.py": "when a segment was completed, for people; a txid where none is given, never a lower one",
}
"""Modules that ask for the time of day, and what for."""


@pytest.mark.parametrize("years", [(-40, 60, 0, 0, 0), (0, 0, -40, 0, 60), (60, -40, 30, -30, 5)], ids=str)
def test_clocks_that_are_decades_apart_change_nothing(years: tuple[int, ...]) -> None:
    """SEC-53: a ledger is written, loses a bookie and its writer, and is recovered."""

    async def story(s: Scenario) -> int:
        for name, ahead in zip(MACHINES, years, strict=True):
            s.cluster.machine(name).wall_offset_ms = ahead * YEAR_MS
        writer = await s.create(await s.connect("w"))
        await s.append(writer, 4)
        await power_off(s, "b1")
        await s.append(writer, 4)
        s.cluster.machine("w").kill()
        recoverer = await s.connect("r")
        await s.recover(recoverer, writer.id)
        return (await s.on("r", recoverer.get_ledger_metadata(writer.id))).last_entry_id

    assert play(story, bookies=4) == 7


def test_only_these_modules_ask_for_the_time_of_day() -> None:
    """SEC-53. One more belongs here with its reason; it must compare with no clock but its own machine's, or say so."""
    package = ROOT / "src" / "bookkeeper"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] not in ("runtime", "simulation")
        and re.search(r"\.wall_ms\b(?!:)", path.read_text())
    }
    assert found - {"bookie/node/status_file.py"} == set(READERS)
