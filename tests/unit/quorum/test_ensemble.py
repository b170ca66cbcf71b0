"""When a writer replaces bookies (spec client §5.4, §6)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bookkeeper.errors import NotEnoughBookiesError
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.ensemble import (
    AskForChange,
    Choose,
    EnsembleKeeper,
    EnsemblePolicy,
    GiveUp,
    Resend,
    RetryLater,
    replace_failed,
)
from bookkeeper.quorum.window import PendingWindow
from bookkeeper.types import BookieId, LedgerState
from tests.support.planted import UsesProposedEnsembles

B1, B2, B3, B4, B5 = (BookieId(f"b{i}") for i in range(1, 6))
WRITE, UNAVAILABLE, READ_ONLY, FENCED, TIMEOUT = -12, -8, -104, -101, -23


class Writer:
    """A window and its keeper."""

    def __init__(
        self,
        quorum: tuple[int, int, int] = (3, 3, 2),
        ensemble: Sequence[BookieId] = (B1, B2, B3),
        policy: EnsemblePolicy | None = None,
    ) -> None:
        self.window = PendingWindow(Distribution(*quorum))
        self.keeper = EnsembleKeeper(self.window, ensemble, policy or EnsemblePolicy())

    def push(self, count: int = 1) -> None:
        for _ in range(count):
            self.window.push(self.window.lap + 1, 1, b"f")

    def ack(self, bookie: BookieId, *ids: int) -> list[int]:
        index = self.keeper.index_of(bookie)
        if index is None:
            return []
        self.window.ack(index, ids)
        return [] if self.keeper.changing else list(self.window.confirm())


def test_the_first_failure_asks_for_a_change_and_further_ones_of_that_bookie_do_not() -> None:
    w = Writer()
    w.push(5)
    assert w.keeper.on_failures(B1, [(0, WRITE)]) == AskForChange({0: B1})
    assert w.keeper.on_failures(B1, [(1, WRITE), (2, WRITE)]) is None
    assert w.keeper.changing
    assert list(w.keeper.held) == [0]
    assert w.keeper.on_changed((B4, B2, B3)) == Resend((0,))
    assert not w.keeper.changing
    assert w.window.resend(0) == [0, 1, 2, 3, 4]
    assert w.keeper.ensemble == (B4, B2, B3)
    assert w.keeper.index_of(B1) is None


def test_a_second_bookie_failing_meanwhile_starts_another_round_before_the_first_is_used() -> None:
    w = Writer()
    w.push()
    w.keeper.on_failures(B1, [(0, WRITE)])
    assert w.keeper.on_channel_lost(B2, UNAVAILABLE) is None
    assert w.keeper.on_changed((B4, B2, B3)) == AskForChange({1: B2}, avoid=(B1,))
    assert w.keeper.ensemble == (B1, B2, B3)
    assert w.keeper.on_changed((B4, B5, B3)) == Resend((0, 1))
    assert w.keeper.rounds == 2


def test_nothing_is_confirmed_during_a_change_and_revoked_acks_are_gone_after_it() -> None:
    w = Writer()
    w.push()
    w.ack(B1, 0)
    w.keeper.on_failures(B3, [(0, WRITE)])
    assert w.ack(B2, 0) == []
    assert w.keeper.on_changed((B1, B2, B4)) == Resend((2,))
    assert list(w.window.confirm()) == [0]


def test_a_late_failure_waits_for_the_next_push() -> None:
    w = Writer()
    w.push()
    w.ack(B1, 0)
    assert w.ack(B2, 0) == [0]
    assert w.keeper.on_failures(B3, [(0, TIMEOUT)]) is None
    assert w.keeper.late_failures == 1
    assert w.keeper.delayed == {2: B3}
    assert w.keeper.before_push() == AskForChange({2: B3})
    assert w.keeper.before_push() is None


def test_answers_of_a_replaced_bookie_mean_nothing() -> None:
    w = Writer()
    w.push()
    w.keeper.on_failures(B1, [(0, WRITE)])
    w.keeper.on_changed((B4, B2, B3))
    assert w.ack(B1, 0) == []
    assert w.window.acked(0) == []
    assert w.keeper.on_failures(B1, [(0, FENCED)]) is None


@pytest.mark.parametrize("code", [-100, -101, -102, -19])
def test_some_answers_end_the_writer_also_when_they_come_late(code: int) -> None:
    w = Writer()
    w.push()
    assert w.keeper.on_failures(B1, [(0, code)]) == GiveUp(code)
    w.ack(B1, 0)
    w.ack(B2, 0)
    assert w.keeper.on_failures(B3, [(0, code)]) == GiveUp(code)


def test_delayed_changes_wait_until_the_ack_quorum_is_out_of_reach() -> None:
    w = Writer((5, 5, 3), (B1, B2, B3, B4, B5), EnsemblePolicy(delay_changes=True))
    w.push()
    assert w.keeper.on_failures(B1, [(0, WRITE)]) is None
    assert w.keeper.on_failures(B2, [(0, WRITE)]) is None
    assert w.keeper.on_failures(B3, [(0, WRITE)]) == AskForChange({0: B1, 1: B2, 2: B3})


def test_delayed_changes_do_not_wait_for_a_read_only_bookie() -> None:
    w = Writer((5, 5, 3), (B1, B2, B3, B4, B5), EnsemblePolicy(delay_changes=True))
    w.push()
    w.keeper.on_failures(B1, [(0, WRITE)])
    assert w.keeper.on_failures(B2, [(0, READ_ONLY)]) == AskForChange({0: B1, 1: B2})


def test_with_delayed_changes_a_late_failure_changes_nothing() -> None:
    w = Writer(policy=EnsemblePolicy(delay_changes=True))
    w.push()
    w.ack(B1, 0)
    w.ack(B2, 0)
    assert w.keeper.on_failures(B3, [(0, WRITE)]) is None
    assert w.keeper.before_push() is None
    assert not w.window.open


def test_entries_that_were_overtaken_have_failed() -> None:
    w = Writer()
    w.push()
    w.window.now = 9.0
    w.push()
    w.ack(B1, 0, 1)
    w.ack(B2, 1)
    w.ack(B3, 1)
    assert w.window.acked_times == [9.0, 9.0, 9.0]
    assert w.keeper.on_overtaken([0.0] * 3) == []
    # b2 lost an entry that needs it: changed at once; b3's failure joins
    assert w.keeper.on_overtaken([9.0] * 3) == [AskForChange({1: B2})]
    assert w.keeper.delayed == {2: B3}
    assert w.keeper.on_overtaken([9.0] * 3) == []  # both are held


def test_while_changes_are_disabled_a_late_failure_waits_without_a_retry() -> None:
    w = Writer()
    w.push()
    w.ack(B1, 0)
    w.ack(B2, 0)
    w.window.confirm()
    assert w.keeper.on_failures(B3, [(0, WRITE)]) is None
    assert w.keeper.delayed == {2: B3}
    w.keeper.changes_disabled = True
    assert w.keeper.before_push() is None
    w.keeper.changes_disabled = False
    assert w.keeper.before_push() == AskForChange({2: B3})


def test_the_number_of_changes_is_limited() -> None:
    w = Writer(policy=EnsemblePolicy(max_changes=1))
    w.push()
    w.keeper.on_failures(B1, [(0, WRITE)])
    w.keeper.on_changed((B4, B2, B3))
    assert w.keeper.on_failures(B4, [(0, WRITE)]) == GiveUp(WRITE)


def test_with_deferred_sync_a_failure_ends_the_writer() -> None:
    w = Writer(policy=EnsemblePolicy(deferred_sync=True))
    w.push()
    assert w.keeper.on_failures(B1, [(0, UNAVAILABLE)]) == GiveUp(WRITE)


def test_a_ledger_in_recovery_or_closed_ends_the_writer() -> None:
    w = Writer()
    assert w.keeper.on_refused(LedgerState.CLOSED) == GiveUp(-11)
    assert w.keeper.on_refused(LedgerState.IN_RECOVERY) == GiveUp(FENCED, withdraw=True)


def test_with_changes_disabled_the_same_bookie_is_tried_again_after_a_pause() -> None:
    w = Writer()
    w.keeper.changes_disabled = True
    w.push()
    assert w.keeper.on_channel_lost(B1, UNAVAILABLE) == RetryLater()
    assert w.keeper.on_channel_lost(B2, UNAVAILABLE) is None  # the same pause
    w.push()
    assert w.keeper.retry() == Resend((0, 1))
    assert w.window.resend(0) == [0, 1]
    assert w.keeper.ensemble == (B1, B2, B3)


def test_a_change_that_changed_nothing_still_sends_what_was_held_back() -> None:
    """S-10: the failed bookie could not be replaced, or was gone already. FX-5, FX-6."""
    w = Writer()
    w.push()
    w.keeper.on_failures(B1, [(0, WRITE)])
    w.push()
    assert w.keeper.on_changed((B1, B2, B3)) == Resend((0,))
    assert w.window.resend(0) == [0, 1]


def test_a_lost_connection_with_nothing_outstanding_is_nobodys_failure() -> None:
    w = Writer()
    assert w.keeper.on_channel_lost(B1, UNAVAILABLE) is None
    assert w.keeper.delayed == {}


def test_a_bookie_that_is_twice_in_an_old_ensemble_counts_once() -> None:
    w = Writer(ensemble=(B1, B1, B2))
    assert w.keeper.before_push() == AskForChange({1: B1})


def test_with_mu_10_planted_the_ensemble_is_used_before_it_is_stored() -> None:
    w = Writer()
    w.keeper = keeper = UsesProposedEnsembles(w.window, (B1, B2, B3), EnsemblePolicy())
    w.push()
    w.keeper.on_failures(B1, [(0, WRITE)])
    assert keeper.on_proposed((B4, B2, B3)) == Resend((0,))
    assert w.keeper.ensemble == (B4, B2, B3)
    assert w.keeper.on_changed((B4, B2, B3)) == Resend(())


# --- choosing ---


def spares(*bookies: BookieId) -> Choose:
    left = list(bookies)

    def choose(ensemble: Sequence[BookieId], index: int, excluded: Sequence[BookieId]) -> BookieId:
        while left:
            bookie = left.pop(0)
            if bookie not in excluded and bookie not in ensemble:
                return bookie
        raise NotEnoughBookiesError

    return choose


def test_only_bookies_still_in_their_place_are_replaced() -> None:
    """FX-6."""
    assert replace_failed((B1, B2, B3), {0: B4, 1: B2}, spares(B5)) == (B1, B5, B3)


def test_a_partial_replacement_is_taken() -> None:
    assert replace_failed((B1, B2, B3), {0: B1, 1: B2}, spares(B4)) == (B4, B2, B3)


def test_failed_bookies_are_no_replacements() -> None:
    assert replace_failed((B1, B2, B3), {0: B1, 2: B4}, spares(B4, B5)) == (B5, B2, B3)


def test_bookies_that_failed_before_are_taken_only_when_there_is_no_other() -> None:
    def first_of(*bookies: BookieId) -> Choose:
        def choose(ensemble: Sequence[BookieId], index: int, excluded: Sequence[BookieId]) -> BookieId:
            for bookie in bookies:
                if bookie not in excluded and bookie not in ensemble:
                    return bookie
            raise NotEnoughBookiesError

        return choose

    assert replace_failed((B1, B2, B3), {0: B1}, first_of(B4, B5), [B4]) == (B5, B2, B3)
    assert replace_failed((B1, B2, B3), {0: B1}, first_of(B1, B4), [B1, B4]) == (B4, B2, B3)
    with pytest.raises(NotEnoughBookiesError):
        replace_failed((B1, B2, B3), {0: B1}, first_of(B1), [B4])


def test_no_replacement_at_all_is_an_error() -> None:
    with pytest.raises(NotEnoughBookiesError):
        replace_failed((B1, B2, B3), {0: B1}, spares())
