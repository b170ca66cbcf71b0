"""The form of metrics (spec autorecovery-admin §10.1)."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parsed

from bookkeeper.admin.metrics.exposition import Exposition, Windows, legal
from bookkeeper.autorecovery.stats import ValueStats
from bookkeeper.bookie.stats import OpStats


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_page() -> None:
    clock = Clock()
    windows = Windows(clock, 60.0)
    stats = OpStats()
    stats.ok(0.001, 99)
    stats.fail(0.5)
    clock.now = 60.0
    out = Exposition(windows)
    out.gauge("bookie_read-cache count", 3, {"ledgerDir": 'a"b\\c'})
    out.counter("bookie_WRITE_BYTES", 12)
    out.latency("bookkeeper_server_ADD_ENTRY", stats, {"thread": "0"})
    out.process("process_cpu_seconds_total", "counter", 1.5)
    lines = out.page().splitlines()
    assert lines[:4] == [
        "# TYPE bookie_read_cache_count gauge",
        'bookie_read_cache_count{ledgerDir="a\\"b\\\\c"} 3',
        "# TYPE bookie_WRITE_BYTES counter",
        "bookie_WRITE_BYTES 12",
    ]
    assert 'bookkeeper_server_ADD_ENTRY{success="false",quantile="0.5", thread="0"} NaN' in lines
    assert 'bookkeeper_server_ADD_ENTRY{success="true",quantile="0.99", thread="0"} 1.0' in lines
    assert 'bookkeeper_server_ADD_ENTRY_count{success="false", thread="0"} 1' in lines
    assert 'bookkeeper_server_ADD_ENTRY_sum{success="true", thread="0"} 99.0' in lines
    assert lines[-2:] == ["# TYPE process_cpu_seconds counter", "process_cpu_seconds_total{} 1.5"]
    families = {family.name: family for family in parsed(out.page())}
    assert families["bookie_read_cache_count"].samples[0].labels == {"ledgerDir": 'a"b\\c'}
    assert len(families["bookkeeper_server_ADD_ENTRY"].samples) == 18


def quantile(windows: Windows, stats: OpStats, share: str) -> float:
    out = Exposition(windows)
    out.latency("x", stats)
    (found,) = [
        sample.value
        for family in parsed(out.page())
        for sample in family.samples
        if sample.labels.get("quantile") == share and sample.labels["success"] == "true"
    ]
    return float(found)


def test_quantiles_are_of_the_window_that_ended_last() -> None:
    clock, stats = Clock(), OpStats()
    windows = Windows(clock, 60.0)
    stats.ok(0.001)
    assert math.isnan(quantile(windows, stats, "0.5")), "no window has ended"
    clock.now = 60.0
    assert quantile(windows, stats, "0.5") == 1.0
    stats.ok(0.1)
    assert quantile(windows, stats, "1.0") == 1.0, "what came since waits for its window"
    clock.now = 120.0
    assert quantile(windows, stats, "0.5") == quantile(windows, stats, "1.0") == 100.0
    clock.now = 180.0
    assert math.isnan(quantile(windows, stats, "0.5")), "nothing happened"


@given(st.lists(st.integers(0, 1 << 40), max_size=20), st.text())
def test_whatever_is_counted_can_be_parsed(values: list[int], name: str) -> None:
    stats = ValueStats()
    for value in values:
        stats.add(value)
    out = Exposition(Windows(Clock(), 60.0))
    out.values(f"x{name}", stats, {"label": name})
    (family,) = parsed(out.page())
    assert family.name == legal(f"x{name}")
    samples = {(sample.name, sample.labels["success"]): sample for sample in family.samples}
    assert samples[f"{family.name}_count", "true"].value == len(values)
    assert samples[f"{family.name}_sum", "true"].value == sum(values)
    assert all(sample.labels["label"] == name for sample in family.samples)
