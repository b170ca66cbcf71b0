"""What is checked: the table of spec safety §2.2, and more. `docs/testing.md` has the results.

A row says which invariants are checked, and which one is expected to break. Rows without a bug must be exhausted: every
state was seen and nothing broke. A row whose bug breaks several invariants appears once for each of interest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.support.actors.bookie import SOUND, BookieRules
from tests.support.planted import SAFE, ProtocolRules

from .configuration import Configuration
from .explorer import Result
from .invariants import ALL


@dataclass(frozen=True)
class Row:
    """One search."""

    name: str
    configuration: Configuration
    rules: ProtocolRules = SAFE
    bookie_rules: BookieRules = SOUND
    breaks: str | None = None
    """The invariant that must break; None: the search must be exhausted with all of `check` unbroken."""
    check: tuple[str, ...] = ALL
    reaches: tuple[str, ...] = ()
    """What some application must be told in some state: that the search has looked at something."""
    never: tuple[str, ...] = ()
    """What no application is told in any state."""
    big: bool = False
    """Takes more than twenty seconds: left to `make model`."""

    def run(self) -> Result:
        """Search, and raise `AssertionError` if the outcome is not the expected one."""
        check = (self.breaks,) if self.breaks else self.check
        result = self.configuration.explorer(self.rules, self.bookie_rules, check=check).run()
        found = result.violation
        if self.breaks is None:
            assert found is None, describe(result)
            assert result.exhausted
        else:
            assert found is not None, f"{self.name}: {self.breaks} was not broken in {result.states} states"
        missing = set(self.reaches) - result.notes
        assert not missing, f"{self.name} never saw {sorted(missing)}"
        assert not result.notes & set(self.never)
        return result


def describe(result: Result) -> str:
    """A violation, and the steps that lead to it."""
    found = result.violation
    if found is None:
        return "no invariant was broken"
    steps = "\n".join(f"{i:4} {step}" for i, step in enumerate(found.trace, 1))
    return f"{found.invariant}: {found.what}\n{steps}"


Rules, Bookies = ProtocolRules, BookieRules

ONE = Configuration((3, 3, 2), 3, appends=1)
BOTH_ENDS = ("r1: recovered: last -1 length 0", "r1: recovered: last 0 length 1")
WRITE_BACK_LOST = Configuration((3, 3, 2), 3, appends=1, recovery_losses=1)
SILENT_READ = Configuration((3, 3, 2), 3, appends=1, read_timeouts=1)
CRASH = Configuration((3, 3, 2), 3, appends=1, accidents=1, accident="restarts")
LOSS = Configuration((3, 3, 2), 3, appends=1, accidents=1)

CHANGE = Configuration((2, 2, 2), 3, acked=1, appends=1, writer_losses=1)
CHANGE_SLOW = Configuration((2, 2, 2), 3, appends=1, writer_losses=1, slow_store=True)
CHANGE_TWO = Configuration((2, 2, 2), 3, appends=2, writer_losses=1)
CHANGE_AQ1 = Configuration((2, 2, 1), 3, acked=1, appends=1, writer_losses=1)
CHANGE_AQ1_TWO = Configuration((2, 2, 1), 3, appends=2, writer_losses=1)
CHANGE_DELAYED = Configuration((2, 2, 1), 3, appends=1, writer_losses=2, delay_changes=True)
CHANGE_TWICE = Configuration((2, 2, 2), 4, appends=1, writer_losses=2)
FLOOR = Configuration((2, 2, 2), 4, acked=1, appends=1, writer_losses=1, recovery_losses=1)
FROZEN = Configuration((2, 2, 2), 4, acked=3, recovery_losses=1)
FROZEN_AQ1 = Configuration((2, 2, 1), 4, acked=2, recovery_losses=2)
FROZEN_AQ1_THREE = Configuration((2, 2, 1), 4, acked=3, recovery_losses=2)
TWO_RECOVER = Configuration((2, 2, 2), 4, acked=1, recoverers=2, recovery_losses=1)
TWO_RECOVER_OPEN = Configuration((2, 2, 1), 2, appends=1, recoverers=2)
STRIPED = Configuration((3, 2, 2), 3, appends=2)
STRIPED_AQ1 = Configuration((3, 2, 1), 3, appends=2)
STRIPED_THREE = Configuration((3, 2, 2), 3, appends=3)
TAIL = Configuration((2, 2, 2), 2, stray={"b2": 2}, recoverers=2, lacs_matter=True)
TAIL_THREE = Configuration((3, 3, 2), 3, stray={"b3": 2}, recoverers=2, lacs_matter=True)

WITH_LACS = (*ALL, "PI-17")


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in ALL if name not in names)


TABLE = (
    Row("correct", ONE, reaches=(*BOTH_ENDS, "w: e0 acknowledged", "w: e0 failed: LedgerFencedError")),
    Row("MU-1: recovery reads do not fence (4.13, first defect)", ONE, Rules(fencing_reads=False), breaks="PI-3"),
    Row("MU-2: the first denial ends recovery", ONE, Rules(negatives_need_coverage=False), breaks="PI-3"),
    Row("correct, a recovery read may time out", SILENT_READ, reaches=BOTH_ENDS),
    Row("MU-3: a timeout counts as a denial", SILENT_READ, Rules(unknown_is_not_negative=False), breaks="PI-3"),
    Row("MU-4: closes before write-backs are done", ONE, Rules(close_after_write_backs=False), breaks="PI-7"),
    Row("MU-5: the writer closes at the last entry pushed", ONE, Rules(close_at_lac=False), breaks="PI-7"),
    Row("correct, a write-back may fail", WRITE_BACK_LOST, reaches=BOTH_ENDS),
    Row(
        "MU-6: a failed write-back does not fail recovery",
        WRITE_BACK_LOST,
        Rules(failed_write_back_fails=False),
        breaks="PI-3",
    ),
    Row("one fencing answer is enough (reads fence)", ONE, Rules(fencing_coverage=False), check=without("PI-13")),
    Row(
        "bookies ignore fences of unknown ledgers (reads fence)",
        ONE,
        bookie_rules=Bookies(fence_unknown_ledgers=False),
        check=without("PI-11"),
    ),
    Row(
        "MU-7: the same, and reads do not fence",
        ONE,
        Rules(fencing_reads=False),
        Bookies(fence_unknown_ledgers=False),
        breaks="PI-3",
    ),
    Row(
        "fenced bookies refuse recovery adds: safe, never ends (LV-4)",
        ONE,
        bookie_rules=Bookies(recovery_adds_when_fenced=False),
        reaches=("r1: recovery failed: LedgerFencedError",),
        never=BOTH_ENDS[1:],
    ),
    Row("correct, a bookie may restart", CRASH, reaches=BOTH_ENDS),
    Row("MU-8: a bookie forgets its fence", CRASH, bookie_rules=Bookies(durable_fence=False), breaks="PI-11"),
    Row("MU-8: a bookie forgets its fence", CRASH, bookie_rules=Bookies(durable_fence=False), breaks="PI-3"),
    Row("correct, the writer may replace a bookie", CHANGE, reaches=BOTH_ENDS[1:]),
    Row("correct, the same with a slow store", CHANGE_SLOW, reaches=BOTH_ENDS),
    Row("correct, the writer may replace two bookies", CHANGE_TWICE, reaches=BOTH_ENDS),
    Row("correct, the same with two entries in flight", CHANGE_TWO, big=True),
    Row("MU-9: acks of replaced bookies count", CHANGE_TWO, Rules(revoke_replaced_acks=False), breaks="PI-6"),
    Row("MU-9: acks of replaced bookies count", CHANGE_TWO, Rules(revoke_replaced_acks=False), breaks="PI-3"),
    Row("MU-10: an ensemble is used before it is stored", CHANGE_TWO, Rules(store_before_use=False), breaks="PI-14"),
    Row("MU-10: an ensemble is used before it is stored", CHANGE_TWO, Rules(store_before_use=False), breaks="PI-6"),
    Row("MU-10: an ensemble is used before it is stored", CHANGE_TWO, Rules(store_before_use=False), breaks="PI-3"),
    Row("correct", CHANGE_AQ1),
    Row("correct", CHANGE_AQ1_TWO, big=True),
    Row("correct, changes delayed", CHANGE_DELAYED),
    Row("correct", FLOOR),
    Row("MU-11: recovery starts below the last fragment (4.13, second)", FLOOR, Rules(lac_floor=False), breaks="PI-2"),
    Row("correct", FROZEN),
    Row(
        "MU-12: recovery reads from its own new ensembles",
        FROZEN,
        Rules(reads_from_frozen_ensembles=False),
        breaks="PI-3",
    ),
    Row("correct", FROZEN_AQ1),
    Row("correct", FROZEN_AQ1_THREE, big=True),
    Row(
        "MU-12: recovery reads from its own new ensembles",
        FROZEN_AQ1_THREE,
        Rules(reads_from_frozen_ensembles=False),
        breaks="PI-3",
        big=True,
    ),
    Row("correct", TWO_RECOVER),
    Row(
        "MU-13: recovery stores its ensembles before the close",
        TWO_RECOVER,
        Rules(recovered_ensembles_in_memory=False),
        breaks="PI-13",
    ),
    Row(
        "MU-13: recovery stores its ensembles before the close",
        TWO_RECOVER,
        Rules(recovered_ensembles_in_memory=False),
        breaks="PI-3",
    ),
    Row("correct", TWO_RECOVER_OPEN, reaches=("r2: recovered: last 0 length 1",)),
    Row(
        "no protection after a loss (BP-46)",
        LOSS,
        bookie_rules=Bookies(fence_after_loss=False, limbo_after_loss=False),
        breaks="PI-3",
    ),
    Row("MU-14: limbo but no fence (BP-46, first)", LOSS, bookie_rules=Bookies(fence_after_loss=False), breaks="PI-3"),
    Row("MU-15: fence but no limbo (BP-46, second)", LOSS, bookie_rules=Bookies(limbo_after_loss=False), breaks="PI-3"),
    Row(
        "fence and limbo, but only of ledgers not closed (Java)",
        LOSS,
        bookie_rules=Bookies(fence_closed_after_loss=False),
        breaks="PI-3",
    ),
    Row("fence and limbo", LOSS, reaches=BOTH_ENDS),
    Row("correct, striped", STRIPED),
    Row("correct, striped", STRIPED_AQ1),
    Row("MU-16: acknowledged out of order", STRIPED_THREE, Rules(confirm_in_order=False), breaks="PI-15"),
    Row(
        "write-backs carry the recoverer's own LAC (Java)",
        TAIL,
        Rules(write_back_fenced_lac=False),
        breaks="PI-17",
    ),
    Row("write-backs carry the fenced LAC", TAIL, check=WITH_LACS),
    Row(
        "write-backs carry the recoverer's own LAC (Java)",
        TAIL_THREE,
        Rules(write_back_fenced_lac=False),
        breaks="PI-17",
        big=True,
    ),
)


def rows(*, big: bool) -> Iterator[Row]:
    """The table, with or without the rows that take long."""
    for row in TABLE:
        if big or not row.big:
            yield row
