"""Placement as the client uses it: a policy, and a topology that follows the cluster.

Whenever the writable bookies or their locations are others than at the last question, the topology is brought up to
date first. A policy is asked in turn

- without the bookies in quarantine, and if that does not do, with them (spec client §12.3);
- each time with the writable bookies, and if that does not do, with those too that left less than
  `networkTopologyStabilizePeriodSeconds` ago: a bookie that restarts is soon back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import TypeVar

from ...config import ClientConfiguration
from ...errors import ConfigurationError, NotEnoughBookiesError
from ...metadata.api import BookieDirectory
from ...runtime import Runtime, TaskScope
from ...types import BookieId, Quorums
from ..stats import ClientStats
from .bookie_watcher import BookieWatcher
from .default import DefaultEnsemblePlacementPolicy
from .draw import Draw
from .locations import Locations
from .policy import Adherence, EnsemblePlacementPolicy
from .rackaware import RackawareEnsemblePlacementPolicy
from .read_order import ReadOrder, ReplicaClass
from .regionaware import RegionAwareEnsemblePlacementPolicy
from .resolver import load_class, make_resolver
from .topology import Topology, beside, host_of, region_of
from .zoneaware import ZoneawareEnsemblePlacementPolicy

log = logging.getLogger(__name__)

T = TypeVar("T")

POLICIES: Mapping[str, type[EnsemblePlacementPolicy]] = {
    "DefaultEnsemblePlacementPolicy": DefaultEnsemblePlacementPolicy,
    "RackawareEnsemblePlacementPolicy": RackawareEnsemblePlacementPolicy,
    "RegionAwareEnsemblePlacementPolicy": RegionAwareEnsemblePlacementPolicy,
    "ZoneawareEnsemblePlacementPolicy": ZoneawareEnsemblePlacementPolicy,
}
"""By the name of the Java class."""


def policy_class(config: ClientConfiguration) -> type[EnsemblePlacementPolicy]:
    """The policy that `ensemblePlacementPolicy` names. Raises `ConfigurationError`."""
    name = config.ensemblePlacementPolicy
    if ":" in name:
        return load_class("ensemblePlacementPolicy", name, EnsemblePlacementPolicy)  # type: ignore[type-abstract]
    found = POLICIES.get(name.rpartition(".")[2])
    if found is None:
        raise ConfigurationError(
            f"ensemblePlacementPolicy={name}: give one of {', '.join(POLICIES)}, or module:Class for a class of yours"
        )
    return found


class _Placed:
    """A policy and its topology."""

    def __init__(self, policy: type[EnsemblePlacementPolicy], draw: Draw, config: ClientConfiguration) -> None:
        self.topology = Topology()
        self.policy = policy(self.topology, draw, config)

    def follow(
        self, bookies: Collection[BookieId], read_only: Collection[BookieId], location_of: Callable[[BookieId], str]
    ) -> None:
        """Make the topology that of these bookies."""
        present = set(bookies)
        self.topology.read_only = {bookie: location_of(bookie) for bookie in read_only if bookie not in present}
        for bookie in [bookie for bookie in self.topology.bookies if bookie not in present]:
            self.topology.remove(bookie)
        for bookie in bookies:
            location = location_of(bookie)
            if self.topology.rack(bookie) != location:
                try:
                    self.topology.add(bookie, location)
                except ConfigurationError as error:
                    log.warning("%s", error)


class EnsemblePlacement:
    """The client's `Placement`; see the module. Start with `start`."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfiguration,
        discovery: BookieDirectory,
        *,
        stats: ClientStats,
        quarantined: Container[BookieId] = (),
        pending: Callable[[BookieId], int] = lambda _bookie: 0,
    ) -> None:
        """`pending` tells how many requests a bookie has yet to answer. Raises `ConfigurationError`."""
        self._runtime = runtime
        self._stats = stats
        self._quarantined = quarantined
        self._pending = pending
        policy = policy_class(config)
        resolver = make_resolver(runtime, config)
        self._locations = Locations(runtime, config, discovery, resolver, policy.default_location)
        self.bookies = BookieWatcher(runtime, config, discovery, self._locations.locate)
        self.draw = Draw(runtime.random("placement"), config.bookieMaxMultipleForWeightBasedPlacement)
        self._now = _Placed(policy, self.draw, config)
        self._share_hosts = config.allowCopiesOnOneHost
        self._stable_seconds = config.networkTopologyStabilizePeriodSeconds
        self._stable = _Placed(policy, self.draw, config) if self._stable_seconds > 0 else None
        self._left: dict[BookieId, float] = {}  # when
        self._followed: tuple[Sequence[BookieId], Sequence[BookieId], int] = ((), (), -1)
        self._threshold = config.readReorderThresholdPendingRequests
        shuffle = runtime.random("read order") if config.ensembleRandomReadReordering else None
        self._read_order = ReadOrder(shuffle=shuffle, pending_threshold=self._threshold)

    async def start(self, tasks: TaskScope) -> None:
        """Get to know the cluster, then follow it. Raises `MetadataError`, `ConfigurationError`."""
        await self._locations.start(tasks)
        local = self._locations.local
        for placed in filter(None, (self._now, self._stable)):
            placed.policy.local_location = local
        if self._now.policy.prefers_own_region and local is not None:
            self._read_order = ReadOrder(True, self._read_order.shuffle, self._threshold)
        await self.bookies.start(tasks)

    @property
    def writable(self) -> tuple[BookieId, ...]:
        """The bookies that are known to be writable."""
        return self.bookies.writable

    async def refresh(self, known: tuple[BookieId, ...] | None = None) -> bool:
        """Look again which bookies are writable; True if they are others than `known`, or than were known just now.

        Raises `MetadataError`.
        """
        return await self.bookies.refresh(known)

    # --- choosing ---

    def new_ensemble(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],
        excluded: Iterable[BookieId] = (),
    ) -> list[BookieId]:
        """Bookies for a ledger. Raises `NotEnoughBookiesError`, `IncorrectParameterError`."""
        ensemble = self._choose(
            excluded, lambda policy, out: policy.new_ensemble(quorums, custom_metadata, self._one_a_host(policy, out))
        )
        self._note_adherence(ensemble, quorums)
        return ensemble

    def replace(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],
        ensemble: Sequence[BookieId],
        index: int,
        excluded: Iterable[BookieId] = (),
    ) -> BookieId:
        """A bookie for `ensemble[index]`: none of `excluded`, none of the ensemble.

        Raises `NotEnoughBookiesError`, `IncorrectParameterError`.
        """
        refused = set(excluded)  # of the ensemble, too: those that are about to be replaced themselves
        others = [bookie for i, bookie in enumerate(ensemble) if i != index and bookie not in refused]
        bookie = self._choose(
            refused,
            lambda policy, out: policy.replace(
                quorums, custom_metadata, ensemble, index, {*out, *self._beside(policy, others)}
            ),
        )
        self._note_adherence([*ensemble[:index], bookie, *ensemble[index + 1 :]], quorums)
        return bookie

    def replace_to_adhere(self, quorums: Quorums, ensemble: Sequence[BookieId]) -> list[BookieId]:
        """The ensemble, with as few others in it as possible, so that it stands as the policy asks for.

        Raises `NotEnoughBookiesError`, `IncorrectParameterError`.
        """
        self._follow()
        quarantined = {bookie for bookie in self.bookies.writable if bookie in self._quarantined}
        out = self._one_a_host(self._now.policy, quarantined, ensemble)
        return self._now.policy.replace_to_adhere(quorums, ensemble, out)

    def _one_a_host(
        self, policy: EnsemblePlacementPolicy, out: Collection[BookieId], preferred: Sequence[BookieId] = ()
    ) -> Collection[BookieId]:
        """What is out, and with it all but one bookie of each machine: an ensemble of the rest has no two of one."""
        if self._share_hosts:
            return out
        may = [bookie for bookie in policy.topology.leaves() if bookie not in out]
        return {*out, *may}.difference(self.draw.one_of_each_host(may, preferred))

    def _beside(self, policy: EnsemblePlacementPolicy, others: Sequence[BookieId]) -> Collection[BookieId]:
        """Bookies of machines that have a copy already."""
        return () if self._share_hosts else beside(policy.topology.bookies, others)

    def _choose(
        self, excluded: Iterable[BookieId], ask: Callable[[EnsemblePlacementPolicy, Collection[BookieId]], T]
    ) -> T:
        self._follow()
        never = set(excluded)
        quarantined = {bookie for bookie in self.bookies.writable if bookie in self._quarantined}
        refusal: NotEnoughBookiesError | None = None
        for refused in (never | quarantined, never) if quarantined - never else (never,):
            for placed in filter(None, (self._now, self._stable)):
                try:
                    return ask(placed.policy, refused)
                except NotEnoughBookiesError as error:
                    refusal = error
        assert refusal is not None
        writable = self.bookies.writable
        if not self._share_hosts and len(writable) > (hosts := len({host_of(bookie) for bookie in writable})):
            raise NotEnoughBookiesError(
                f"{refusal}. The {len(writable)} writable bookies are on {hosts} machines, and a ledger has one on "
                "each at most, unless allowCopiesOnOneHost=true"
            )
        raise refusal

    def _note_adherence(self, ensemble: Sequence[BookieId], quorums: Quorums) -> None:
        if self.adherence(ensemble, quorums) is Adherence.FAIL:
            self._stats.ENSEMBLE_NOT_ADHERING_TO_PLACEMENT_POLICY_TOTAL += 1

    def adherence(self, ensemble: Sequence[BookieId], quorums: Quorums) -> Adherence:
        """How well an ensemble stands, by the policy."""
        self._follow()
        return self._now.policy.adherence(ensemble, quorums)

    def acks_span_domains(self, acked: Sequence[BookieId], write_quorum: int, ack_quorum: int) -> bool:
        """Whether these bookies lie in enough fault domains (`enforceMinNumFaultDomainsForWrite`)."""
        self._follow()
        return self._now.policy.acked_adheres(acked, Quorums(write_quorum, write_quorum, ack_quorum))

    def _follow(self) -> None:
        """Bring the topologies up to date."""
        writable, read_only = self.bookies.writable, self.bookies.readonly
        self._forget_the_long_gone()
        if self._followed == (writable, read_only, self._locations.version):
            return
        for bookie in self._followed[0]:
            if bookie not in writable:
                self._left[bookie] = self._runtime.now()
        for bookie in writable:
            self._left.pop(bookie, None)
        self._followed = (writable, read_only, self._locations.version)
        self._now.follow(writable, read_only, self._locations.of)
        if self._stable is not None:
            self._stable.follow([*writable, *self._left], read_only, self._locations.of)

    def _forget_the_long_gone(self) -> None:
        until = self._runtime.now() - self._stable_seconds
        gone = [bookie for bookie, left in self._left.items() if left <= until]
        for bookie in gone:
            del self._left[bookie]
            if self._stable is not None:
                self._stable.topology.remove(bookie)

    # --- reading ---

    @property
    def version(self) -> int | None:
        """Changes when `reorder_read` may answer differently; None if it may at any time."""
        if self._threshold > 0 or self._read_order.shuffle is not None:
            return None
        return self.bookies.version + self._locations.version

    def note_slow(self, bookies: Iterable[BookieId]) -> None:
        """These did not answer a read before another bookie did."""
        if self._threshold <= 0:  # else their pending requests speak
            self.bookies.note_slow(bookies)

    def note_failed(self, bookie: BookieId) -> None:
        """It denied an entry that others wait for."""
        self.bookies.note_failed(bookie)

    def reorder_read(self, ensemble: Sequence[BookieId], write_set: Sequence[int]) -> tuple[int, ...]:
        """In which order to ask the replicas (ensemble indexes)."""
        return self._read_order.order(
            write_set,
            lambda index: self._class_of(ensemble[index]),
            lambda index: self._pending(ensemble[index]),
        )

    def _class_of(self, bookie: BookieId) -> ReplicaClass:
        found = self.bookies.read_class(bookie)
        local = self._locations.local
        if not self._read_order.regions or local is None or found > ReplicaClass.LOCAL_FAIL:
            return found
        if region_of(self._locations.of(bookie)) == region_of(local):
            return found
        return ReplicaClass.REMOTE if found is ReplicaClass.LOCAL else ReplicaClass.REMOTE_FAIL
