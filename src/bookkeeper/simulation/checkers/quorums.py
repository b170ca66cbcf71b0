"""What counts as confirmed is on an ack quorum, by what bookies have said on the wire (PI-6, PI-7, PI-9, RI-14).

Checked at the moment it matters: when an append succeeds, when a force does, when the metadata is closed, when a client
puts a LAC into an entry. A mistake in counting acknowledgements shows here at once, not only when the missing copy is
needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...metadata.ledger_metadata import LedgerMetadata
from ...quorum.distribution import Distribution
from ...types import BookieId
from ..history import History, LedgerHistory, Violation
from ..wire import BookiePromises, WireTap
from .metadata_states import MetadataChecker


class QuorumChecker:
    """See the module."""

    def __init__(self, history: History, tap: WireTap, metadata: MetadataChecker) -> None:
        self._history = history
        self._tap = tap
        self._metadata = metadata
        self._sound_up_to: dict[int, int] = {}
        history.on_acknowledged = self.acknowledged
        history.on_forced = self.forced
        tap.on_lac = self.lac
        metadata.on_closed = self.closed
        metadata.on_moved = self.moved

    def acknowledged(self, ledger: LedgerHistory, entry_id: int) -> None:
        """The application was told that an append succeeded."""
        metadata = self._metadata.current(ledger.ledger_id)
        if metadata is not None:
            self._on_ack_quorum(metadata, entry_id, "was acknowledged to the application")

    def forced(self, ledger: LedgerHistory, last: int) -> None:
        """The application was told that everything up to `last` survives crashes."""
        metadata = self._metadata.current(ledger.ledger_id)
        if metadata is not None:
            for entry_id in range(ledger.forced + 1, last + 1):
                self._on_ack_quorum(metadata, entry_id, "was forced", kept=True)

    def closed(self, metadata: LedgerMetadata) -> None:
        """The ledger has just been closed."""
        for entry_id in range(metadata.last_entry_id + 1):
            self._on_ack_quorum(metadata, entry_id, f"is part of the ledger, closed at {metadata.last_entry_id}")

    def moved(self, metadata: LedgerMetadata, first: int, before: Sequence[BookieId]) -> None:
        """Bookies of a fragment were replaced: the new ones have what they must.

        Of a fragment that is still open it is enough that what was acknowledged stays on an ack quorum: a writer
        replaces bookies of a fragment in which nothing is confirmed yet.
        """
        ledger = self._history.ledgers.get(metadata.ledger_id)
        if not metadata.closed and first == max(metadata.ensembles):
            for entry_id in range(first, ledger.safe + 1 if ledger is not None else first):
                self._on_ack_quorum(metadata, entry_id, "was acknowledged, and its ensemble was changed")
            return
        following = [key for key in metadata.ensembles if key > first]
        last = min(following) - 1 if following else metadata.last_entry_id
        distribution = Distribution(*metadata.quorums)
        for index, (old, new) in enumerate(zip(before, metadata.ensembles[first], strict=True)):
            if old == new:
                continue
            for entry_id in range(first, last + 1):
                if index in distribution.write_set(entry_id) and not self._tap.promises[_machine(new)].has(
                    metadata.ledger_id, entry_id
                ):
                    raise Violation(
                        f"ledger {metadata.ledger_id}: {new} replaces {old} in the fragment at {first}, "
                        f"and has not acknowledged entry {entry_id}"
                    )

    def _on_ack_quorum(self, metadata: LedgerMetadata, entry_id: int, why: str, *, kept: bool = False) -> None:
        ledger_id = metadata.ledger_id
        ensemble = metadata.ensemble_at(entry_id)
        distribution = Distribution(*metadata.quorums)
        members = [ensemble[index] for index in distribution.write_set(entry_id)]
        holds = BookiePromises.keeps if kept else BookiePromises.has
        promises = self._tap.promises
        have = [bookie for bookie in members if holds(promises[_machine(bookie)], ledger_id, entry_id)]
        if len(have) < metadata.ack_quorum:
            raise Violation(
                f"ledger {ledger_id}: entry {entry_id} {why}, but of {members} only {have} have "
                f"{'synced' if kept else 'acknowledged'} it; the ack quorum is {metadata.ack_quorum}"
            )

    def lac(self, ledger_id: int, lac: int) -> None:
        """A client says in an entry that everything up to `lac` is confirmed."""
        ledger = self._history.ledgers.get(ledger_id)
        if ledger is None:
            return
        for entry_id in range(self._sound_up_to.get(ledger_id, 0), lac + 1):
            copies = self._tap.kept_by(ledger_id, entry_id)
            if copies < ledger.ack_quorum:
                raise Violation(
                    f"ledger {ledger_id}: an entry says LAC {lac}, but entry {entry_id} was acknowledged by "
                    f"{copies} bookies{', and synced' if ledger.deferred else ''}"
                )
            self._sound_up_to[ledger_id] = entry_id + 1


def _machine(bookie: str) -> str:
    return bookie.partition(":")[0]
