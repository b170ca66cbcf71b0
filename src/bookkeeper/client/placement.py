"""Which bookies get a ledger: the default policy, any of the writable ones (spec client §11.4).

Policies are pure decisions over what `BookieWatcher` knows. For reads, the order of replicas that the schedule gives is
kept, except that bookies nobody has registered, and those that were slow lately, come last.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ..errors import NotEnoughBookiesError
from ..runtime import Runtime
from ..types import BookieId
from .bookies import READ_ONLY, BookieWatcher


class DefaultEnsemblePlacementPolicy:
    """Takes bookies at random, each equally likely; those in quarantine only when there are not enough others."""

    def __init__(self, bookies: BookieWatcher, runtime: Runtime, quarantined: Container[BookieId] = ()) -> None:
        self._bookies = bookies
        self._quarantined = quarantined
        self._random = runtime.random("placement")

    def new_ensemble(
        self,
        ensemble_size: int,
        write_quorum: int,  # noqa: ARG002
        ack_quorum: int,  # noqa: ARG002
        custom_metadata: Mapping[str, bytes],  # noqa: ARG002
        excluded: Sequence[BookieId] = (),
    ) -> list[BookieId]:
        """That many different writable bookies, none of `excluded`. Raises `NotEnoughBookiesError`."""
        return self._choose(ensemble_size, excluded)

    def replace(
        self,
        ensemble_size: int,  # noqa: ARG002
        write_quorum: int,  # noqa: ARG002
        ack_quorum: int,  # noqa: ARG002
        custom_metadata: Mapping[str, bytes],  # noqa: ARG002
        ensemble: Sequence[BookieId],
        index: int,  # noqa: ARG002
        excluded: Sequence[BookieId] = (),
    ) -> BookieId:
        """A bookie for `ensemble[index]`: none of `excluded`, none of the ensemble. Raises `NotEnoughBookiesError`."""
        return self._choose(1, [*excluded, *ensemble])[0]

    async def refresh(self) -> bool:
        """Look again which bookies are writable; True if they are others than were known. Raises `MetadataError`."""
        return await self._bookies.refresh()

    def acks_span_domains(self, acked: Sequence[BookieId], write_quorum: int, ack_quorum: int) -> bool:  # noqa: ARG002
        """This policy knows of no fault domains."""
        return True

    @property
    def version(self) -> int:
        """Changes when `reorder_read` may answer differently."""
        return self._bookies.version

    def note_slow(self, bookies: Sequence[BookieId]) -> None:
        """These did not answer a read before another bookie did."""
        self._bookies.note_slow(bookies)

    def reorder_read(self, ensemble: Sequence[BookieId], write_set: Sequence[int]) -> tuple[int, ...]:
        """In which order to ask the replicas (ensemble indexes): as given, or by class when one is slow or gone."""
        ranks = {index: self._bookies.read_rank(ensemble[index]) for index in write_set}
        if max(ranks.values()) <= READ_ONLY:
            return tuple(write_set)
        return tuple(sorted(write_set, key=ranks.__getitem__))

    def _choose(self, count: int, excluded: Sequence[BookieId]) -> list[BookieId]:
        refused = set(excluded)
        writable = self._bookies.writable
        candidates = [bookie for bookie in writable if bookie not in refused]
        if len(candidates) < count:
            raise NotEnoughBookiesError(
                f"{count} bookies needed; of {len(writable)} writable ones {len(candidates)} may be taken"
            )
        healthy = [bookie for bookie in candidates if bookie not in self._quarantined]
        return self._random.sample(healthy if len(healthy) >= count else candidates, count)
