"""What auditor and worker count (spec autorecovery-admin §10.3, §10.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.autorecovery.stats import AuditorStats, ValueStats
from bookkeeper.bookie.stats import OpStats


@given(st.lists(st.integers(0, 2**40), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_a_bound_less_than_twice_what_it_stands_for(values: list[int], share: float) -> None:
    stats = ValueStats()
    for value in values:
        stats.add(value)
    exact = sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]
    assert exact <= stats.quantile(share) <= max(2 * exact, 0)
    assert (stats.count, stats.total) == (len(values), sum(values))


def test_nothing_has_no_quantile() -> None:
    assert ValueStats().quantile(0.99) == 0


def test_what_is_timed_counts_as_done_or_failed() -> None:
    now = iter([1.0, 3.0, 10.0, 14.0])
    stats = OpStats()
    with stats.timed(lambda: next(now)):
        pass
    with pytest.raises(ValueError), stats.timed(lambda: next(now)):
        raise ValueError
    assert (stats.succeeded, stats.seconds, stats.failed, stats.failed_seconds) == (1, 2.0, 1, 4.0)


def test_a_check_of_all_ledgers_is_summed_up() -> None:
    stats = AuditorStats()
    stats.checked({(1, 3): 4, (2, 5): 1})
    assert stats.NUM_LEDGERS_CHECKED == stats.NUM_FRAGMENTS_PER_LEDGER.count == 5
    assert (stats.NUM_FRAGMENTS_PER_LEDGER.total, stats.NUM_BOOKIES_PER_LEDGER.total) == (6, 17)
    stats.audited(0, 0)
    stats.audited(3, 900)
    assert stats.NUM_UNDER_REPLICATED_LEDGERS.count == 1
    assert stats.UNDER_REPLICATED_LEDGERS_TOTAL_SIZE.total == 900
