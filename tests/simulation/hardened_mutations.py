"""Mistakes that were really there once, made again: each is a defect that no seed of its time had found.

Each takes out one mended place. They need the harm of `simulation.hardships`. Importing this module enters them into
`mutations.MUTATIONS`; as a command it looks for seeds of all that are there.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
from typing import Any

import pytest

from bookkeeper.bookie import ledgers as bookie_ledgers
from bookkeeper.bookie.journal import retention
from bookkeeper.bookie.journal.last_mark import LogMark
from bookkeeper.bookie.journal.room import Room
from bookkeeper.bookie.node import disks as bookie_disks
from bookkeeper.bookie.requests import journaled as bookie_journaled
from bookkeeper.bookie.requests.ledger_queues import LedgerQueues
from bookkeeper.bookie.sharing.memory import RequestMemory
from bookkeeper.bookie.storage import db_directory, directory_jobs
from bookkeeper.client import client as client_module
from bookkeeper.client.adds.gate import AppendGate
from bookkeeper.client.adds.pipeline import AddPipeline
from bookkeeper.client.placement import bookie_watcher as client_bookies
from bookkeeper.client.placement import locations
from bookkeeper.client.reader import LedgerReader
from bookkeeper.client.wire.add_channel import AddRoute
from bookkeeper.errors import ClientClosedError
from bookkeeper.metadata.formats import cookie
from bookkeeper.quorum.ensemble import GiveUp
from bookkeeper.runtime import awake
from bookkeeper.runtime.api import DiskUsage
from bookkeeper.runtime.waiting.wait_queue import OneByOne
from bookkeeper.simulation.swarm import IMPATIENTS
from bookkeeper.simulation.world.keyvalue import KeyValueState

from .mutation_search import main
from .mutations import mutation

PROGRAMS = {"writers": 2, "followers": 2, "browsers": 1, "readers": 1}
BURSTS = {"hardening": True, "calm": True, "flavours": ("plain",), "programs": {"writers": 3}, "fault_count": 12}
HARSH = {"hardening": True, "calm": False, "programs": PROGRAMS}
HOSTILE = {**HARSH, "fault_count": 0, "programs": {**PROGRAMS, "hostiles": 3}}
IMPATIENT = {"programs": IMPATIENTS}
CHANGES = ("kill bookie", "power off bookie", "isolate bookie", "cut all off from store", "store refuses")
UNREST = ("kill bookie", "isolate bookie", "stop bookie cleanly", "expire session", "kill client")

# --- clients ---


@mutation(
    "a reserved ledger has one writer",
    hardening=True,
    calm=False,
    faults=("store loses requests", "store loses answers"),
    fault_count=8,
    programs={"claimers": 6},
)
def claims_leave_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    original = client_module.replace  # type: ignore[attr-defined]

    def replace(value: Any, **changes: Any) -> Any:
        return original(value, **{**changes, **({"ctoken": 0} if "ctoken" in changes else {})})

    monkeypatch.setattr(client_module, "replace", replace)


@mutation("time in which the client stood still counts for nobody", **BURSTS)
def late_ticks_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def tick(self: awake.AwakeClock) -> None:
        """All that the wall says have gone by."""
        self._timer = None
        late = self._runtime.now() - self._due
        self.tick += 1 + int(late / self.interval)
        self.start()
        self.on_tick()

    monkeypatch.setattr(awake.AwakeClock, "_tick", tick)


@mutation("a bookie that goes on answering is not late", **BURSTS)
def adds_expire_though_answers_come(monkeypatch: pytest.MonkeyPatch) -> None:
    def overdue(self: AddRoute, tick: int, moving_since: float, timeout: float) -> bool:
        return tick - self.waits_since >= timeout

    monkeypatch.setattr(AddRoute, "overdue", overdue)


@mutation("what fills a gap need not wait at the gate", hardening=True, calm=True, flavours=("advanced",))
def gaps_wait_like_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AppendGate, "_awaited", lambda self, entry_id: False)


@mutation("the end of an ensemble change is told, whatever it is", faults=CHANGES, fault_count=12, **IMPATIENT)
def cancelled_changes_tell_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    original = AddPipeline.carry_out

    def carry_out(self: AddPipeline, decision: Any) -> None:
        task = asyncio.current_task()
        told = isinstance(decision, GiveUp) and decision.code == ClientClosedError.code
        if not (told and task is not None and "ensemble change" in task.get_name()):
            original(self, decision)

    monkeypatch.setattr(AddPipeline, "carry_out", carry_out)


@mutation("an open that is cancelled leaves nothing behind", **IMPATIENT)
def cancelled_opens_leave_their_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    original = LedgerReader.close

    async def close(self: LedgerReader) -> None:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            await original(self)

    monkeypatch.setattr(LedgerReader, "close", close)


@mutation("a close of the client that is cancelled can be finished", **IMPATIENT)
def cancelled_closes_are_never_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(self: client_module.BookKeeper) -> None:
        if self.context.closed:
            return
        self.context.closed = True
        await self._bookies.close()
        await self._tasks.close()
        await self._driver.close()

    monkeypatch.setattr(client_module.BookKeeper, "close", close)


@mutation("an error of a resolver ends one look, not the watch", faults=UNREST, fault_count=12, **HARSH)
def errors_end_the_watch_of_bookies(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (client_bookies, locations):
        monkeypatch.setattr(module, "guarded", lambda what: contextlib.nullcontext())

    async def look_up(self: locations.Locations, resolver: Any, bookies: Any) -> None:
        hosts = {bookie: host for bookie in bookies if (host := await self._host(bookie)) is not None}
        if hosts:
            await resolver.resolve(list(hosts.values()))

    monkeypatch.setattr(locations.Locations, "_look_up", look_up)


# --- bookies among hostile peers ---


@mutation("what is parked for one peer takes no room from others", **HOSTILE)
def parked_reads_count_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    original = LedgerQueues.submit
    lanes: dict[Any, dict[LedgerQueues, None]] = {}

    def submit(self: LedgerQueues, ledger_id: int, work: Any) -> bool:
        every = lanes.setdefault(self._slots, {})  # which are one bookie's
        every[self] = None
        if sum(lane.pending for lane in every) + work.count > 400:
            return False
        return original(self, ledger_id, work)

    monkeypatch.setattr(LedgerQueues, "submit", submit)


@mutation("answers that nobody takes have a bound", **HOSTILE)
def answers_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """MU-37."""
    monkeypatch.setattr(RequestMemory, "make_room", lambda self: None)


@mutation("what is kept for each ledger is small", **HOSTILE)
def keys_of_any_size_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """BI-26."""
    monkeypatch.setattr(bookie_ledgers, "MAX_MASTER_KEY", 1 << 20)
    monkeypatch.setattr(bookie_journaled, "MAX_LAC_BODY", 1 << 20)


@mutation("who was let into the journal has room there", **HOSTILE)
def journal_waiters_pass_their_turn_in_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Room, "has", lambda self, size: not self._line.busy and self._fits(size))


@mutation(
    "a permit that a woken waiter does not take goes to the next",
    **{**HOSTILE, "settings": {"maxAddsInProgressLimit": 1}},
)
def woken_waiters_break_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    def turn_over(self: OneByOne[Any]) -> None:
        self._has_turn = False

    monkeypatch.setattr(OneByOne, "_turn_over", turn_over)


# --- disks ---


@mutation("a full index is no end", faults=("index is full", "ledger disk is full"), fault_count=6, **HARSH)
def no_space_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    """BI-18."""
    for module in (db_directory, directory_jobs):
        monkeypatch.setattr(module, "NO_SPACE", ())


@mutation(
    "directories have their places",
    faults=("swap directories",),
    fault_count=6,
    settings={"journalDirectories": "/journal1,/journal2", "ledgerDirectories": "/ledgers1,/ledgers2"},
    **HARSH,
)
def directories_may_change_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """BI-20."""
    monkeypatch.setattr(cookie, "verify_places", lambda master, other: None)


@mutation(
    "a lost mount ends the bookie",
    faults=("lose a mount", "kill bookie"),
    fault_count=8,
    settings={"diskCheckInterval": 500},
    **HARSH,
)
def lost_mounts_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """DF-11."""

    def measure(files: Any, roots: Any) -> dict[str, DiskUsage | OSError]:
        for root in roots:
            files.makedirs(bookie_disks.current(root))
        return {root: DiskUsage(1 << 40, 1 << 39, 1) for root in roots}

    monkeypatch.setattr(bookie_disks, "measure", measure)


@mutation("a damaged mark does not count", faults=("flip a bit of a mark",), fault_count=12, quorums=(3, 3, 2), **HARSH)
def marks_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """BI-22."""

    def decode(cls: type[LogMark], data: bytes) -> LogMark | None:
        return cls(*struct.unpack_from(">qq", data)) if len(data) >= 16 else None

    monkeypatch.setattr(LogMark, "decode", classmethod(decode))
    monkeypatch.setattr(retention, "believable", lambda files, directory, mark: True)


@mutation(
    "a damaged log of an index is no torn end",
    faults=("flip a bit of an index log",),
    fault_count=8,
    quorums=(3, 3, 2),
    **HARSH,
)
def damaged_index_logs_are_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """BI-22."""
    monkeypatch.setattr(KeyValueState, "found_damage", lambda self, path, batch: self.salvage(batch))


if __name__ == "__main__":
    sys.exit(main())
