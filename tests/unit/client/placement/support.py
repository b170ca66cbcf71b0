"""Policies over a topology that a test describes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, TypeVar

from bookkeeper.client.placement.draw import Draw
from bookkeeper.client.placement.policy import EnsemblePlacementPolicy
from bookkeeper.client.placement.resolver import DNSToSwitchMapping
from bookkeeper.client.placement.topology import Topology
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import NoSuchBookie, ServiceUnavailable
from bookkeeper.metadata.api import BookieServiceInfo, Endpoint, Mode, Versioned
from bookkeeper.runtime.network import RealNetwork
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId

P = TypeVar("P", bound=EnsemblePlacementPolicy)


def topology_of(locations: Mapping[str, str]) -> Topology:
    topology = Topology()
    for bookie, location in locations.items():
        topology.add(BookieId(bookie), location)
    return topology


def places(**counts: int) -> dict[str, str]:
    """So many bookies at each place: `places(x=2)` are x0 and x1 in /x; `places(x_y=1)` is x_y0 in /x/y."""
    return {f"{place}{i}": "/" + place.replace("_", "/") for place, count in counts.items() for i in range(count)}


def make(
    policy: type[P], locations: Mapping[str, str], *, local: str | None = None, seed: int = 0, **settings: Any
) -> P:
    config = ClientConfiguration.from_mapping(settings)
    return policy(topology_of(locations), Draw(Random(seed)), config, local)


def ids(*names: str) -> list[BookieId]:
    return [BookieId(name) for name in names]


class Clock(RealRuntime):
    """A machine whose clock stands still, on a network where names are addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 100.0
        self.network = Names()
        self._chance = Random(5)

    def now(self) -> float:
        return self.time

    def random(self, purpose: str) -> Random:
        return self._chance

    def hostname(self) -> str:
        return "here"


class Names(RealNetwork):
    async def resolve(self, host: str) -> str:
        if host == "nowhere":
            raise OSError("no such host")
        return f"ip-{host}"

    async def host_name(self, address: str) -> str:
        return address.removeprefix("ip-")


class Directory:
    """The registrations: what `lists` says. The host of a bookie is its id."""

    def __init__(self, writable: Sequence[str] | None, readonly: Sequence[str] | None = ()) -> None:
        self.lists: dict[Mode, Sequence[str] | None] = {Mode.WRITABLE: writable, Mode.READ_ONLY: readonly}
        self.unknown: set[str] = set()
        """Bookies without published service information."""
        self.changed: dict[Mode, asyncio.Queue[None]] = {mode: asyncio.Queue() for mode in Mode}

    async def list(self, mode: Mode) -> Versioned[frozenset[BookieId]]:
        listed = self.lists[mode]
        if listed is None:
            raise ServiceUnavailable("not now")
        return Versioned(frozenset(map(BookieId, listed)), 1)

    async def list_all(self) -> Versioned[frozenset[BookieId]]:
        raise NotImplementedError

    async def info(self, bookie_id: BookieId) -> BookieServiceInfo:
        if bookie_id in self.unknown:
            raise NoSuchBookie(f"{bookie_id} is not registered")
        return BookieServiceInfo((Endpoint("bookie", str(bookie_id), 3181),))

    async def watch(self, mode: Mode) -> AsyncGenerator[Versioned[frozenset[BookieId]], None]:
        while True:
            await self.changed[mode].get()
            yield await self.list(mode)

    def now_writable(self, *bookies: str) -> None:
        """Tell watchers of another list."""
        self.lists[Mode.WRITABLE] = bookies
        self.changed[Mode.WRITABLE].put_nowait(None)


class Plan(DNSToSwitchMapping):
    """A resolver that knows what a test writes into `locations`, by IP address."""

    locations: ClassVar[dict[str, str | None]] = {}
    asked: ClassVar[list[Sequence[str]]] = []
    listeners: ClassVar[list[Callable[[Sequence[str]], None]]] = []

    async def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        self.asked.append(names)
        return [self.locations.get(name) for name in names]

    def on_rack_change(self, listener: Callable[[Sequence[str]], None]) -> None:
        self.listeners.append(listener)


class NamePlan(Plan):
    """The same, by host name."""

    use_host_name = True


class TooShort(Plan):
    async def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        return []
