"""When the next replica is asked although the one before has not answered (spec client §9.4)."""

from __future__ import annotations

from bookkeeper.client.reads.speculation import Speculation
from bookkeeper.config import ClientConfiguration


def fire_times(speculation: Speculation, count: int) -> list[float]:
    times = [speculation.first]
    delay = speculation.first
    for _ in range(count - 1):
        delay = speculation.after(delay)
        times.append(round(times[-1] + delay, 3))
    return times


def test_delays_of_speculation() -> None:
    config = ClientConfiguration.from_mapping({})
    reads = Speculation.for_reads(config)
    polls = Speculation.for_long_polls(config)
    assert reads is not None
    assert polls is not None
    assert fire_times(reads, 3) == [2, 4, 6]
    assert fire_times(polls, 4) == [1.5, 4.5, 9.5, 14.5]
    off = ClientConfiguration.from_mapping({"speculativeReadTimeout": 0, "firstSpeculativeReadLACTimeout": -1})
    assert Speculation.for_reads(off) is None
    assert Speculation.for_long_polls(off) is None
