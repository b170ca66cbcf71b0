"""The phases of a bookie's life, and what it ends with (bookie.life)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.life import ENDS, LIFE, SERVES, Life, Phase, table
from bookkeeper.bookie.node.exit_code import ExitCode
from bookkeeper.errors import ConfigurationError, FatalBookieError

PAGE = Path(__file__).parents[3] / "docs" / "spec" / "bookie-server.md"

UP = (Phase.STARTING, Phase.RECOVERING, Phase.REGISTERING, Phase.SERVING)


def life_in(phase: Phase) -> Life:
    life = Life()
    for step in UP[: UP.index(phase) + 1]:
        life.enter(step)
    return life


def test_the_page_shows_the_table_that_the_code_goes_by() -> None:
    assert f"\n\n{table()}\n\n" in PAGE.read_text()


def test_every_phase_is_in_the_table_and_leads_to_the_end() -> None:
    assert set(LIFE) == set(Phase)
    reached = {Phase.ENDED}
    for _ in Phase:
        reached |= {phase for phase, stage in LIFE.items() if reached & set(stage.then)}
    assert reached == set(Phase)


def test_what_follows_an_end_is_part_of_it() -> None:
    assert all(set(LIFE[phase].then) <= ENDS for phase in ENDS)
    assert all(Phase.STOPPING in LIFE[phase].then for phase in SERVES)
    assert all(Phase.FAILING in LIFE[phase].then for phase in UP)


@pytest.mark.parametrize(
    ("phase", "code"),
    [
        (Phase.STARTING, ExitCode.SERVER_EXCEPTION),
        (Phase.RECOVERING, ExitCode.BOOKIE_EXCEPTION),
        (Phase.REGISTERING, ExitCode.ZK_REG_FAIL),
        (Phase.SERVING, ExitCode.BOOKIE_EXCEPTION),
    ],
)
def test_a_phase_fails_with_its_code_and_a_wrong_setting_with_its_own(phase: Phase, code: ExitCode) -> None:
    life = life_in(phase)
    assert life.exit_code_of(OSError()) is code
    assert life.exit_code_of(ConfigurationError("x")) is ExitCode.INVALID_CONF


@given(st.sampled_from(UP), st.lists(st.sampled_from(ExitCode), min_size=1))
def test_the_first_reason_to_end_counts(phase: Phase, codes: list[ExitCode]) -> None:
    life = life_in(phase)
    for code in codes:
        life.ends_with(code)
    assert life.exit_code is codes[0]
    assert life.exit_code_of(OSError()) is codes[0]
    life.enter(Phase.FAILING)
    life.stop_failed()
    assert life.exit_code is (codes[0] or ExitCode.SERVER_EXCEPTION)


@pytest.mark.parametrize("following", [phase for phase in Phase if phase not in ENDS])
def test_with_a_reason_to_end_only_the_end_is_left(following: Phase) -> None:
    life = life_in(Phase.STARTING)
    life.failure = OSError("the disk is gone")
    life.ends_with(ExitCode.BOOKIE_EXCEPTION)
    with pytest.raises(FatalBookieError, match="the disk is gone") as raised:
        life.enter(following)
    assert raised.value.__cause__ is life.failure
    life.enter(Phase.FAILING)
    life.enter(Phase.ENDED)
    assert str(life) == "ended, exit code 5"


@given(st.lists(st.sampled_from(Phase)))
def test_no_phase_is_left_out(phases: list[Phase]) -> None:
    life = Life()
    for phase in phases:
        if phase in LIFE[life.phase].then:
            life.enter(phase)
        else:
            before = life.phase
            with pytest.raises(AssertionError):
                life.enter(phase)
            assert life.phase is before
