"""What a client counts, under BookKeeper's names (spec autorecovery-admin §10.5)."""

from __future__ import annotations


class ClientStats:
    """Plain numbers; an exporter reads them."""

    def __init__(self) -> None:
        self.ENSEMBLE_NOT_ADHERING_TO_PLACEMENT_POLICY_TOTAL = 0
        """Ensembles chosen, new or changed, that stand worse than the placement policy asks for."""
        self.WRITE_TIME_OUT_DUE_TO_NOT_ENOUGH_FAULT_DOMAINS = 0
        """Quorum timeouts of entries that had their acks, but from too few fault domains."""
