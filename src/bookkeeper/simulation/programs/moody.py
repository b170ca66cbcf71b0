"""Parts of an operator's own that a client must live with: they fail now and then, with whatever error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from ...client.placement.resolver import DNSToSwitchMapping

PATIENCE = 2
"""Questions that are answered before the first one that is not: a client may be expected to begin well."""


class MoodyResolver(DNSToSwitchMapping):
    """Every third question ends in an unexpected error."""

    def __init__(self) -> None:
        self._asked = 0

    async def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        self._asked += 1
        if self._asked > PATIENCE and self._asked % 3 == 0:
            raise KeyError("a hiccup of the inventory (simulated)")
        return ["/default-region/default-rack"] * len(names)


def moody_settings(dice: Random, program: str) -> dict[str, Any]:
    """Settings of a client that a program may have."""
    settings: dict[str, Any] = {}
    if dice.random() < 0.2:
        settings["reppDnsResolverClass"] = f"{__name__}:{MoodyResolver.__name__}"
    if program == "readers" and dice.random() < 0.2:
        settings |= REFUSES_REPLACEMENTS
    return settings


REFUSES_REPLACEMENTS: Mapping[str, Any] = {
    "ensemblePlacementPolicy": "RegionAwareEnsemblePlacementPolicy",
    "reppMinimumRegionsForDurability": 2,
}
"""With one region, this policy has no replacement for a failed bookie, and says that the quorums are wrong."""
