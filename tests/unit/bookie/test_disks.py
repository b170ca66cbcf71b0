"""The disk watch: what a series of measurements leads to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.node.compaction_switch import CompactionSwitch
from bookkeeper.bookie.node.disks import DiskLimits, DiskVerdict, DiskWatch, entry_log_bytes, judge, sum_of_file_systems
from bookkeeper.bookie.node.mode import BookieState
from bookkeeper.config import ServerConfiguration
from bookkeeper.runtime import DiskUsage
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId

LIMITS = DiskLimits(full=0.95, almost_full=0.90, low_water=0.93, high_priority_bytes=3)
JOURNAL_LIMITS = DiskLimits(full=1.0, almost_full=1.0, low_water=1.0, high_priority_bytes=4, least_bytes=8)


def usage(used: int, device: int = 1) -> DiskUsage:
    return DiskUsage(total=100, usable=100 - used, device=device)


def watch(count: int = 2, kind: str = "ledger") -> DiskWatch:
    limits = JOURNAL_LIMITS if kind == "journal" else LIMITS
    return DiskWatch(kind, [f"{kind}{i}" for i in range(count)], limits)


def step(disks: DiskWatch, *used: int | None) -> DiskVerdict:
    disks.update(
        {
            f"{disks.kind}{i}": OSError("gone") if share is None else usage(share, device=i)
            for i, share in enumerate(used)
        }
    )
    return judge([disks], any_full_is_read_only=True)


def test_one_full_disk_and_back() -> None:
    """FX-54."""
    disks = watch()
    assert step(disks, 10, 10) == DiskVerdict()
    verdict = step(disks, 96, 10)
    assert verdict.full is not None
    assert "ledger directory ledger0 is full (96.0% used" in verdict.full
    assert disks.writable == ["ledger1"]
    assert judge([disks], any_full_is_read_only=False).full is None, "the other one takes writes"
    step(disks, 96, 91)
    assert disks.almost_full == ["ledger1"]
    assert step(disks, 94, 10).full is None
    assert (disks.writable, disks.almost_full) == (["ledger0", "ledger1"], ["ledger0"])


def test_all_full_returns_only_below_the_low_water_mark() -> None:
    """BI-18."""
    disks = watch()
    step(disks, 10, 10)
    for any_full in (False, True):
        step(disks, 96, 98)
        verdict = judge([disks], any_full)
        assert verdict.full is not None
        assert verdict.high_priority_allowed
    assert step(disks, 94, 94).full is not None, "below full, but not below low water"
    assert step(disks, 80, 94).full is None
    assert disks.almost_full == ["ledger1"]


def test_a_new_entry_log_needs_as_much_room_as_it_may_take() -> None:
    """Gap G15."""
    assert entry_log_bytes(ServerConfiguration(logSizeLimit=1000)) == 1000
    assert entry_log_bytes(ServerConfiguration(logSizeLimit=1000, minUsableSizeForEntryLogCreation=7)) == 7


def test_without_room_anywhere_recovery_writes_are_refused_too() -> None:
    disks = watch()
    assert not step(disks, 98, 99).high_priority_allowed


def test_a_disk_that_cannot_be_used_has_failed() -> None:
    assert step(watch(), 10, None).failed == "ledger directory ledger1: gone"


def test_a_write_that_found_no_space_counts_until_the_next_measurement() -> None:
    disks = watch()
    step(disks, 10, 10)
    disks.no_space()
    assert judge([disks], any_full_is_read_only=False).full is not None
    assert step(disks, 10, 10) == DiskVerdict()


def test_a_journals_disk_is_full_when_little_is_left_of_it_and_back_with_twice_as_much() -> None:
    disks = watch(2, "journal")
    assert step(disks, 91, 10) == DiskVerdict(), "a journal may fill its disk"
    for any_full in (False, True):
        step(disks, 93, 10)
        verdict = judge([disks], any_full)
        assert verdict.full is not None, "ledgers of the one cannot go to the other"
        assert verdict.journal_full
        assert not verdict.suspend_minor, "compaction writes no journal"
    assert step(disks, 91, 10).full is not None
    assert step(disks, 84, 10) == DiskVerdict()


@given(
    ledger=st.lists(st.integers(0, 100), min_size=2, max_size=2),
    index=st.lists(st.integers(0, 100), min_size=2, max_size=2),
    journal=st.integers(0, 100),
    any_full=st.booleans(),
)
def test_no_kind_of_directory_undoes_what_another_one_asks_for(
    ledger: list[int], index: list[int], journal: int, any_full: bool
) -> None:
    kinds = [watch(2, "ledger"), watch(2, "index"), watch(1, "journal")]
    alone = []
    for disks, used in zip(kinds, (ledger, index, [journal]), strict=True):
        step(disks, *used)
        alone.append(judge([disks], any_full))
    together = judge(kinds, any_full)
    assert (together.full is None) == all(each.full is None for each in alone)
    assert together.high_priority_allowed == all(each.high_priority_allowed for each in alone)
    assert together.suspend_minor == any(each.suspend_minor for each in alone)
    assert together.suspend_major == any(each.suspend_major for each in alone)


async def test_a_full_ledger_directory_keeps_the_bookie_read_only_while_index_directories_come_and_go() -> None:
    ledgers, indexes = watch(2, "ledger"), watch(2, "index")
    state = BookieState(RealRuntime(), ServerConfiguration(), BookieId("b:1"), [], lambda *_: None)
    for index_used in (10, 99, 10):
        step(ledgers, 10, 99)
        step(indexes, index_used, 10)
        state.on_disks(judge([ledgers, indexes], any_full_is_read_only=True))
        assert state.read_only
    step(ledgers, 10, 10)
    state.on_disks(judge([ledgers, indexes], any_full_is_read_only=True))
    assert not state.read_only
    await state.close()


async def test_only_what_the_disks_asked_for_is_undone_by_them() -> None:
    state = BookieState(RealRuntime(), ServerConfiguration(), BookieId("b:1"), [], lambda *_: None)
    state.to_read_only("another reason")
    state.on_disks(DiskVerdict())
    assert state.read_only
    state.on_disks(DiskVerdict(full="full"))
    state.on_disks(DiskVerdict())
    assert not state.read_only
    state.no_space("a write found none")
    assert state.read_only
    state.on_disks(DiskVerdict())
    assert not state.read_only
    await state.close()


def test_a_file_system_counts_once() -> None:
    assert sum_of_file_systems([usage(10), usage(10), usage(50, 2)]) == (200, 140)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=30))
def test_a_directory_above_the_threshold_is_never_writable(series: list[tuple[int, int]]) -> None:
    """FX-54."""
    disks = watch()
    for used in series:
        step(disks, *used)
        for i, share in enumerate(used):
            if share / 100 > LIMITS.full + 1e-9:
                assert f"ledger{i}" not in disks.writable


class Compaction:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.suspended = (False, False)

    def suspend_compaction(self, *, minor: bool, major: bool) -> None:
        self.suspended = (minor, major)


def test_compaction_stops_as_disks_fill_up_and_comes_back() -> None:
    storage: Any = Compaction()
    switch = CompactionSwitch(ServerConfiguration(), storage)
    disks = watch(1)
    seen = []
    for used in (10, 92, 96, 99, 94, 92, 80):
        switch.on_disks(step(disks, used))
        seen.append(storage.suspended)
    nothing, major, both = (False, False), (False, True), (True, True)
    assert seen == [nothing, major, both, both, both, major, nothing]


def test_compaction_goes_on_if_that_is_forced() -> None:
    storage: Any = Compaction()
    switch = CompactionSwitch(ServerConfiguration(isForceGCAllowWhenNoSpace=True), storage)
    switch.on_disks(step(watch(1), 99))
    assert storage.suspended == (False, False)
