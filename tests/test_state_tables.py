"""The state machines: their tables are whole, and the architecture page shows them as they are."""

from __future__ import annotations

from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.client.adds.life import WRITER_LIFE, WriterEvent, WriterState
from bookkeeper.client.wire.life import CONNECTION_LIFE, ConnectionEvent, ConnectionState
from bookkeeper.runtime.transitions import ImpossibleTransitionError, Transitions
from bookkeeper.streams.names.allocation import ALLOCATION, Event, Phase

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"

MACHINES = [
    pytest.param(WRITER_LIFE, WriterState, WriterEvent, {WriterState.OPEN, WriterState.UNABLE}, id="writer"),
    pytest.param(CONNECTION_LIFE, ConnectionState, ConnectionEvent, {ConnectionState.CONNECTING}, id="connection"),
    pytest.param(ALLOCATION, Phase, Event, {Phase.EMPTY}, id="next ledger"),
]

Table = Transitions[Any, Any]


@pytest.mark.parametrize(("table", "states", "events", "first"), MACHINES)
def test_the_page_shows_the_table_of_the_code(
    table: Table, states: type[Enum], events: type[Enum], first: set[Enum]
) -> None:
    assert table.markdown() in PAGE.read_text(), f"docs/architecture.md should say:\n\n{table.markdown()}"


@pytest.mark.parametrize(("table", "states", "events", "first"), MACHINES)
def test_every_pair_leads_to_a_state_or_is_refused(
    table: Table, states: type[Enum], events: type[Enum], first: set[Enum]
) -> None:
    for state, event in product(states, events):
        if event in table.possible(state):
            assert table.after(state, event) in states
        else:
            with pytest.raises(ImpossibleTransitionError, match=f"'{event.value}' while {state.value}"):
                table.after(state, event)


@pytest.mark.parametrize(("table", "states", "events", "first"), MACHINES)
def test_every_state_can_be_reached_and_every_event_can_happen(
    table: Table, states: type[Enum], events: type[Enum], first: set[Enum]
) -> None:
    reached = set(first)
    while new := {after for state in reached for after in table.possible(state).values()} - reached:
        reached |= new
    assert reached == set(states)
    assert {event for state in states for event in table.possible(state)} == set(events)


def test_a_writer_that_has_ended_takes_no_appends_ever_again() -> None:
    for state, event in product(WriterState, WriterEvent):
        if state.ended and event in WRITER_LIFE.possible(state):
            assert WRITER_LIFE.after(state, event).ended


def test_a_writer_can_be_closed_in_every_state() -> None:
    """With and without waiting for what is pending."""
    for state in WriterState:
        assert WRITER_LIFE.after(state, WriterEvent.SEAL).ended
        assert WRITER_LIFE.after(state, WriterEvent.DRAIN).ended == state.ended


def test_the_metadata_is_written_while_sealing_only() -> None:
    """The store's answer comes in that state, and only a ledger that could not be sealed is tried again."""
    answers = (WriterEvent.STORED, WriterEvent.NO_STORE, WriterEvent.REFUSED)
    assert [s for s in WriterState if any(a in WRITER_LIFE.possible(s) for a in answers)] == [WriterState.SEALING]
    again = [s for s in WriterState if s.ended and WRITER_LIFE.after(s, WriterEvent.SEAL) is not s]
    assert again == [WriterState.UNSEALED]


def test_a_closed_connection_stays_closed_whatever_happens() -> None:
    for event in ConnectionEvent:
        assert CONNECTION_LIFE.after(ConnectionState.CLOSED, event) is ConnectionState.CLOSED


class Light(Enum):
    RED = "red"
    GREEN = "green"


class Push(Enum):
    BUTTON = "button"


def test_a_table_in_print() -> None:
    table = Transitions("light", Light, Push, {Light.RED: {Push.BUTTON: Light.GREEN}, Light.GREEN: {}})
    assert table.markdown() == "| light | button |\n| --- | --- |\n| **red** | green |\n| **green** | - |"
    with pytest.raises(ImpossibleTransitionError, match="light: 'button' while green"):
        table.after(Light.GREEN, Push.BUTTON)
