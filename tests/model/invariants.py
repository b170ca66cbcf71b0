"""What must hold in every state (spec safety §1.4). The others are checked where they could be broken:

PI-1, PI-2, PI-4, PI-13  `tests.support.actors.store` and recoverer, at each write; PI-13 also in the explorer
PI-8                     here, over the payloads
PI-11, PI-12             `tests.support.actors.bookie`: one that has answered a fencing request, and so perhaps denied
                         an entry, takes entries only as recovery adds
PI-14, PI-15, PI-16      `tests.support.actors.writer` and `adds`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bookkeeper.metadata.ledger_metadata import LedgerMetadata

from .players import WriterPlayer

if TYPE_CHECKING:
    from .explorer import Explorer

ALL = (
    "PI-1", "PI-2", "PI-3", "PI-4", "PI-5", "PI-6", "PI-7", "PI-8",
    "PI-11", "PI-12", "PI-13", "PI-14", "PI-15", "PI-16",
)  # fmt: skip
"""Every invariant that the protocol as shipped keeps (PI-17 is checked where LACs matter)."""

Broken = tuple[str, str]


class Invariants:
    """Evaluated over record, writer and bookies; remembered, since most steps leave these alone."""

    def __init__(self, explorer: Explorer, *, lacs: bool) -> None:
        self._explorer = explorer
        self._lacs = lacs
        self._known: dict[tuple[int, ...], Broken | None] = {}

    def broken(self, state: tuple[int, ...]) -> Broken | None:
        """The first invariant that does not hold."""
        explorer = self._explorer
        key = (*state[:3], *state[explorer.first_bookie : explorer.first_message])
        if key not in self._known:
            self._known[key] = self._evaluate(state)
        return self._known[key]

    def _evaluate(self, state: tuple[int, ...]) -> Broken | None:
        explorer = self._explorer
        metadata = explorer.records[state[0]].value
        writer = explorer.players[2][state[2]]
        acked = writer.actor.acked if isinstance(writer, WriterPlayer) else -1
        lost = explorer.start[1] - state[1] if explorer.accident == "loses everything" else 0
        held = {name: bookie.entries for name, bookie in explorer.bookies(state)}
        for found in (
            self._truncated(metadata, acked),
            self._on_quorum("PI-5", metadata, acked, held, 0 if lost else 1),
            self._on_quorum("PI-6", metadata, acked, held, metadata.ack_quorum - lost),
            self._on_quorum("PI-7", metadata, metadata.last_entry_id, held, metadata.ack_quorum - lost),
            self._payloads(held),
            self._lac_beyond_the_end(metadata, state) if self._lacs else None,
        ):
            if found is not None and found[0] in explorer.check:
                return found
        return None

    def _truncated(self, metadata: LedgerMetadata, acked: int) -> Broken | None:
        if metadata.closed and acked > metadata.last_entry_id:
            return "PI-3", f"e{acked} was acknowledged and the ledger ends at {metadata.last_entry_id}"
        return None

    def _on_quorum(
        self,
        name: str,
        metadata: LedgerMetadata,
        last: int,
        held: dict[str, dict[int, tuple[str, int, int]]],
        needed: int,
    ) -> Broken | None:
        for entry in range(last + 1):
            ensemble = metadata.ensemble_at(entry)
            where = [ensemble[index] for index in self._explorer.distribution.write_set(entry)]
            copies = sum(entry in held[bookie] for bookie in where)
            if copies < needed:
                return name, f"e{entry} is on {copies} of {' '.join(where)}"
        return None

    def _payloads(self, held: dict[str, dict[int, tuple[str, int, int]]]) -> Broken | None:
        for bookie, entries in held.items():
            for entry, (payload, length, _) in entries.items():
                if payload.strip() != str(entry) or length != (2 << entry) - 1:
                    return "PI-8", f"{bookie} has {payload.strip()!r} of length {length} as e{entry}"
        return None

    def _lac_beyond_the_end(self, metadata: LedgerMetadata, state: Sequence[int]) -> Broken | None:
        if metadata.closed:
            for name, bookie in self._explorer.bookies(state):
                if bookie.lac > metadata.last_entry_id:
                    end = metadata.last_entry_id
                    return "PI-17", f"{name} tells readers a LAC of {bookie.lac}, and the ledger ends at {end}"
        return None
