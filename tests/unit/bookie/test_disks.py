"""The disk watch: what a series of measurements leads to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.compaction_switch import CompactionSwitch
from bookkeeper.bookie.disks import DiskEventKind, DiskLimits, DiskWatch, sum_of_file_systems
from bookkeeper.config import ServerConfiguration
from bookkeeper.runtime import DiskUsage

LIMITS = DiskLimits(full=0.95, almost_full=0.90, low_water=0.93, high_priority_bytes=3)
KIND = DiskEventKind


def usage(used: int, device: int = 1) -> DiskUsage:
    return DiskUsage(total=100, usable=100 - used, device=device)


def watch(count: int = 2) -> DiskWatch:
    return DiskWatch([f"d{i}" for i in range(count)], LIMITS)


def step(disks: DiskWatch, *used: int | None) -> list[tuple[KIND, str | None]]:
    measured = {f"d{i}": OSError("gone") if share is None else usage(share, device=i) for i, share in enumerate(used)}
    return [(event.kind, event.directory) for event in disks.update(measured)]


def test_the_first_measurement_of_free_disks_lifts_a_persisted_read_only_mode() -> None:
    disks = watch()
    assert step(disks, 10, 10) == [(KIND.ALL_DISKS_WRITABLE, None)]
    assert step(disks, 10, 10) == []


def test_one_full_disk_and_back() -> None:
    disks = watch()
    step(disks, 10, 10)
    assert step(disks, 96, 10) == [(KIND.DISK_FULL, "d0"), (KIND.ANY_DISK_FULL, None)]
    assert disks.writable == ["d1"]
    assert step(disks, 96, 91) == [(KIND.DISK_ALMOST_FULL, "d1")]
    assert step(disks, 94, 10) == [(KIND.DISK_JUST_WRITABLE, "d0"), (KIND.ALL_DISKS_WRITABLE, None)]
    assert disks.writable == ["d0", "d1"]


def test_all_full_returns_only_below_the_low_water_mark() -> None:
    disks = watch()
    step(disks, 10, 10)
    events = disks.update({"d0": usage(96), "d1": usage(98, 2)})
    assert [event.kind for event in events] == [
        KIND.DISK_FULL,
        KIND.DISK_FULL,
        KIND.ALL_DISKS_FULL,
        KIND.ANY_DISK_FULL,
    ]
    assert all(event.high_priority_allowed for event in events)
    assert step(disks, 94, 94) == [(KIND.ALL_DISKS_FULL, None)], "below full, but not below low water"
    assert step(disks, 80, 94) == [
        (KIND.ALL_DISKS_FULL, None),
        (KIND.DISK_WRITABLE, "d0"),
        (KIND.DISK_JUST_WRITABLE, "d1"),
        (KIND.ALL_DISKS_WRITABLE, None),
    ]


def test_without_room_anywhere_recovery_writes_are_refused_too() -> None:
    disks = watch()
    events = disks.update({"d0": usage(98), "d1": usage(99, 2)})
    assert not any(e.high_priority_allowed for e in events if e.kind in (KIND.ALL_DISKS_FULL, KIND.ANY_DISK_FULL))


def test_a_disk_that_cannot_be_used_has_failed() -> None:
    assert (KIND.DISK_FAILED, "d1") in step(watch(), 10, None)


def test_a_file_system_counts_once() -> None:
    assert sum_of_file_systems([usage(10), usage(10), usage(50, 2)]) == (200, 140)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=30))
def test_a_directory_above_the_threshold_is_never_writable(series: list[tuple[int, int]]) -> None:
    disks = watch()
    for used in series:
        step(disks, *used)
        for i, share in enumerate(used):
            if share / 100 > LIMITS.full + 1e-9:
                assert f"d{i}" not in disks.writable


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
        for event in disks.update({"d0": usage(used)}):
            switch.on_disk_event(event)
        seen.append(storage.suspended)
    nothing, major, both = (False, False), (False, True), (True, True)
    assert seen == [nothing, major, both, both, both, major, nothing]


def test_compaction_goes_on_if_that_is_forced() -> None:
    storage: Any = Compaction()
    switch = CompactionSwitch(ServerConfiguration(isForceGCAllowWhenNoSpace=True), storage)
    disks = watch(1)
    for event in disks.update({"d0": usage(99)}):
        switch.on_disk_event(event)
    assert storage.suspended == (False, False)
