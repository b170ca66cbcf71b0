"""Any of the writable bookies (spec client §11.4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...types import BookieId, Quorums
from .policy import EnsemblePlacementPolicy


class DefaultEnsemblePlacementPolicy(EnsemblePlacementPolicy):
    """Knows of no racks."""

    def new_ensemble(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],  # noqa: ARG002
        excluded: Collection[BookieId],
    ) -> list[BookieId]:
        return self.take(quorums.ensemble_size, excluded)

    def replace(
        self,
        quorums: Quorums,  # noqa: ARG002
        custom_metadata: Mapping[str, bytes],  # noqa: ARG002
        ensemble: Sequence[BookieId],
        index: int,  # noqa: ARG002
        excluded: Collection[BookieId],
    ) -> BookieId:
        return self.take(1, {*excluded, *ensemble})[0]
