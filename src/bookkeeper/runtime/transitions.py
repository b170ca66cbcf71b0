"""State machines as tables: which state follows which, said once for code, documentation and tests.

A table maps a state and an event to the next state. A pair that is missing must not happen: to ask for it raises
`ImpossibleTransitionError`. What the program does at a transition stays in the program; the table says only what may
follow what. `tests/test_state_tables.py` keeps the tables and the pages that show them alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)

NEVER = "-"
"""In a printed table: this event must not happen in this state."""


class ImpossibleTransitionError(RuntimeError):
    """An event that must not happen in this state: an error of the program."""


class Transitions(Generic[State, Event]):
    """The table of one kind of thing. The values of both enums are their names in print."""

    __slots__ = ("_events", "_states", "_table", "_what")

    def __init__(
        self, what: str, states: type[State], events: type[Event], table: Mapping[State, Mapping[Event, State]]
    ) -> None:
        """`what` names the thing in errors and in the printed table; `table` has a row for each state."""
        self._what = what
        self._states = states
        self._events = events
        self._table = table

    def after(self, state: State, event: Event) -> State:
        """The state that follows. Raises `ImpossibleTransitionError`."""
        try:
            return self._table[state][event]
        except KeyError:
            raise ImpossibleTransitionError(f"{self._what}: '{event.value}' while {state.value}") from None

    def possible(self, state: State) -> Mapping[Event, State]:
        """What may happen in a state, and where it leads."""
        return self._table[state]

    def markdown(self) -> str:
        """The table as documentation shows it: a row for each state, a column for each event."""
        head = [self._what, *(event.value for event in self._events)]
        lines = [head, ["---"] * len(head)]
        for state in self._states:
            row = self._table[state]
            lines.append([f"**{state.value}**", *(row[e].value if e in row else NEVER for e in self._events)])
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
