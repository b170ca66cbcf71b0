"""What must hold in every state (spec safety §1.4).

PI-3, PI-5, PI-6, PI-7, PI-8, PI-17 are functions of a state and are here. The others are about steps, and are checked
where the step is made:

PI-1, PI-2, PI-4, PI-13  `tests.support.actors.store` and recoverer, at each write; PI-13 also in the explorer
PI-11, PI-12             `tests.support.actors.bookie`: one that has answered a fencing request, and so perhaps denied
                         an entry, takes entries only as recovery adds
PI-14, PI-15, PI-16      `tests.support.actors.writer` and `adds`

PI-18 follows from PI-4: all recoverers report what the store has, and that does not change any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.quorum.distribution import Distribution
from tests.support.actors.bookie import Bookie

ALL = (
    "PI-1", "PI-2", "PI-3", "PI-4", "PI-5", "PI-6", "PI-7", "PI-8",
    "PI-11", "PI-12", "PI-13", "PI-14", "PI-15", "PI-16",
)  # fmt: skip
"""Every invariant that the protocol as shipped keeps. PI-17 too, but it needs more states: see `lacs_matter`."""

Broken = tuple[str, str]
"""Which invariant, and how."""


class View(NamedTuple):
    """What an observer who sees everything sees."""

    metadata: LedgerMetadata
    acked: int
    """The last entry whose success was reported to the writer's application."""
    bookies: Mapping[str, Bookie]
    content: Callable[[int], tuple[str, int] | None]
    """Payload of an entry as it was appended, and length of the ledger with it; None if nobody knows."""
    lost: int = 0
    """How many bookies have lost everything."""


def broken(view: View) -> Iterator[Broken]:
    """The invariants that do not hold."""
    metadata = view.metadata
    if metadata.closed and view.acked > metadata.last_entry_id:
        yield "PI-3", f"e{view.acked} was acknowledged and the ledger ends at {metadata.last_entry_id}"
    yield from _on_quorum("PI-5", view, view.acked, 0 if view.lost else 1)
    yield from _on_quorum("PI-6", view, view.acked, metadata.ack_quorum - view.lost)
    yield from _on_quorum("PI-7", view, metadata.last_entry_id, metadata.ack_quorum - view.lost)
    for name, bookie in view.bookies.items():
        for entry, (payload, length, _) in bookie.entries.items():
            if view.content(entry) not in ((payload, length), None):
                yield "PI-8", f"{name} has {payload.strip()!r}, length {length}, as e{entry}"
        if metadata.closed and bookie.lac > metadata.last_entry_id:
            end = metadata.last_entry_id
            yield "PI-17", f"{name} tells readers a LAC of {bookie.lac}, and the ledger ends at {end}"


def _on_quorum(name: str, view: View, last: int, needed: int) -> Iterator[Broken]:
    metadata = view.metadata
    distribution = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    for entry in range(last + 1):
        ensemble = metadata.ensemble_at(entry)
        where = [ensemble[index] for index in distribution.write_set(entry)]
        copies = sum(entry in view.bookies[bookie].entries for bookie in where)
        if copies < needed:
            yield name, f"e{entry} is on {copies} of {' '.join(where)}"
            return
