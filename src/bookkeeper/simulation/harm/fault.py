"""One element of a plan of harm, and the table of what each kind does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar


@dataclass(frozen=True)
class Fault:
    """One element of a plan."""

    at: float
    """Seconds after the beginning."""
    kind: str
    target: str
    other: str = ""
    duration: float = 0.0
    amount: int = 0
    moment: str = ""
    """What to wait for, from then on; empty: nothing."""
    delay: float = 0.0
    """Seconds after that."""

    def __str__(self) -> str:
        when = f", {self.delay * 1000:g} ms after: {self.moment}" if self.moment else ""
        return f"{self.kind}: {self.target} ({self.other}, {self.duration:.2f} s, {self.amount}{when})"


Action = TypeVar("Action", bound=Callable[[Any, Fault], bool])

ACTIONS: dict[str, Callable[[Any, Fault], bool]] = {}
"""By kind, a method that does the harm: it returns whether it could do any now."""


def does(kind: str) -> Callable[[Action], Action]:
    """Marks the method that carries out this kind of fault. There is one for each kind."""

    def register(action: Action) -> Action:
        assert kind not in ACTIONS, f"two methods for the fault {kind!r}"
        ACTIONS[kind] = action
        return action

    return register
