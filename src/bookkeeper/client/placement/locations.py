"""The location of each bookie, looked up when it first appears (spec client §11.3).

Looking up waits for the metadata store (the bookie's address), for DNS and for a script. It is done before a bookie is
made known to placement, and again for those whose location could not be found, whenever the list of bookies changes.

The resolver may be a class of the user's: whatever it raises leaves bookies at the default location, and ends nothing.
Where it fails for several bookies, each is asked for by itself, so that one odd name does not hide the others.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from ...config import ClientConfiguration
from ...errors import ConfigurationError, MetadataError
from ...metadata.api import BookieDirectory
from ...runtime import Runtime, TaskScope, guarded
from ...types import BookieId
from .resolver import DNSToSwitchMapping

log = logging.getLogger(__name__)


class Locations:
    """Keeps what the resolver says. Without a resolver, every bookie is at the default location."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfiguration,
        discovery: BookieDirectory,
        resolver: DNSToSwitchMapping | None,
        default: str,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._discovery = discovery
        self._resolver = resolver
        self._default = default
        self._hosts: dict[BookieId, str] = {}
        self._found: dict[BookieId, str] = {}
        self._tasks: TaskScope | None = None
        self.local: str | None = None
        """Where the client stands, if that is known and matters."""
        self.version = 0
        """Changes when a bookie's location did."""

    async def start(self, tasks: TaskScope) -> None:
        """Find out where the client stands, and listen to the resolver.

        Raises `ConfigurationError` for a resolver that cannot work, where `enforceMinNumRacksPerWriteQuorum` depends on
        it; elsewhere it is done without.
        """
        config = self._config
        if self._resolver is not None:
            try:
                await self._resolver.start()
            except Exception as error:
                if config.enforceMinNumRacksPerWriteQuorum:
                    if isinstance(error, ConfigurationError):
                        raise
                    raise ConfigurationError(f"the resolver of locations does not start: {error!r}") from error
                log.warning("%s: all bookies count as being in %s", error, self._default)
                self._resolver = None
        if self._resolver is None:
            if config.enforceMinNumRacksPerWriteQuorum:
                raise ConfigurationError(
                    "enforceMinNumRacksPerWriteQuorum needs to know racks: set networkTopologyScriptFileName or "
                    "reppDnsResolverClass"
                )
            return
        self._tasks = tasks
        with guarded("resolver of locations"):
            self._resolver.on_rack_change(self._changed)
        if not config.ignoreLocalNodeInPlacementPolicy:
            self.local = await self._where_the_client_stands(self._resolver)

    async def _where_the_client_stands(self, resolver: DNSToSwitchMapping) -> str | None:
        name = self._runtime.hostname()
        network = self._runtime.network
        try:
            address = await network.resolve(name)
            by_name = self._config.useHostnameResolveLocalNodePlacementPolicy or resolver.use_host_name
            asked = await network.host_name(address) if by_name else address
        except (OSError, UnicodeError) as error:
            log.info("the location of this host, %s, is not known: %s", name, error)
            return None
        (location,) = await self._ask(resolver, [asked]) or [None]
        return location

    def of(self, bookie: BookieId) -> str:
        """Where it stands, as far as is known."""
        return self._found.get(bookie, self._default)

    async def locate(self, bookies: Collection[BookieId]) -> None:
        """Look up those whose location is not known."""
        if self._resolver is not None:
            await self._look_up(self._resolver, [bookie for bookie in sorted(bookies) if bookie not in self._found])

    async def _look_up(self, resolver: DNSToSwitchMapping, bookies: Collection[BookieId]) -> None:
        hosts = {bookie: host for bookie in bookies if (host := await self._host(bookie)) is not None}
        if not hosts:
            return
        self._hosts.update(hosts)
        answers = await self._ask(resolver, list(hosts.values()))
        if answers is None:
            answers = [(await self._ask(resolver, [host]) or [None])[0] for host in hosts.values()]
        for bookie, location in zip(hosts, answers, strict=True):
            if location is not None and self._found.get(bookie) != location:
                self._found[bookie] = location
                self.version += 1

    async def _ask(self, resolver: DNSToSwitchMapping, hosts: Sequence[str]) -> Sequence[str | None] | None:
        """The resolver's answer; None if it gives none that can be used."""
        try:
            answers = list(await resolver.resolve(hosts))
        except Exception:
            log.warning("the resolver failed for %s", ", ".join(hosts), exc_info=True)
            return None
        if len(answers) != len(hosts):
            log.warning("the resolver gave %d locations for %d hosts", len(answers), len(hosts))
            return None
        odd = [answer for answer in answers if not (answer is None or isinstance(answer, str))]
        if odd:
            log.warning("the resolver gave %r, which is no location", odd[0])
            return None
        return answers

    async def _host(self, bookie: BookieId) -> str | None:
        """What the resolver is asked with; None if that cannot be said now."""
        assert self._resolver is not None
        try:
            endpoint = (await self._discovery.info(bookie)).bookie_rpc()
            if endpoint is None:
                return None
            return endpoint.host if self._resolver.use_host_name else await self._runtime.network.resolve(endpoint.host)
        except (MetadataError, OSError, UnicodeError) as error:  # UnicodeError: a name that DNS cannot have
            log.info("the address of bookie %s is not known: %s", bookie, error)
            return None

    def _changed(self, hosts: Sequence[str]) -> None:
        assert self._resolver is not None
        assert self._tasks is not None
        moved = [bookie for bookie, host in self._hosts.items() if not hosts or host in hosts]
        if moved:
            self._tasks.spawn(self._look_up(self._resolver, moved), name="locate bookies")
