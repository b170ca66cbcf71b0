"""Where bookies stand (spec client §11.2).

A location is a path, such as `/rack` or `/region/rack`; bookies are the leaves of the tree that the paths make. All
leaves have the same depth: the first bookie says which, until the tree is empty again. "Rack" is the whole path of a
bookie, "region" its first part.

Bookies come out sorted, so that a choice at random from them is the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...errors import ConfigurationError
from ...types import BookieId


def parse_location(text: str) -> str:
    """A location in its one spelling. Raises `ConfigurationError` for what is none."""
    location = text.removesuffix("/")
    if not location.startswith("/") or not all(location.split("/")[1:]):
        raise ConfigurationError(f"{text!r} is not a location: it must look like /rack or /region/rack")
    return location


def region_of(location: str) -> str:
    """The name of a location's region."""
    return location.split("/")[1]


def host_of(bookie: BookieId) -> str:
    """The machine that a bookie runs on, as far as its id says: what stands before the port.

    A bookie whose id is a name of its own, and one of a loopback address, counts as a machine: of the one nothing is
    known, and the other is there for trying things out on one machine.
    """
    host, _, port = bookie.rpartition(":")
    if not host or not port.isdecimal() or host == "localhost" or host.startswith("127.") or host in ("::1", "[::1]"):
        return bookie
    return host


def beside(bookies: Iterable[BookieId], taken: Iterable[BookieId]) -> set[BookieId]:
    """Those that run on a machine that has one of `taken`."""
    hosts = {host_of(bookie) for bookie in taken}
    return {bookie for bookie in bookies if host_of(bookie) in hosts}


class Topology:
    """Bookies by location."""

    def __init__(self) -> None:
        self._locations: dict[BookieId, str] = {}
        self._history: dict[BookieId, str] = {}  # of bookies that left
        self._racks: dict[str, dict[BookieId, None]] = {}
        self.read_only: Mapping[BookieId, str] = {}
        """Where bookies stand that may not be taken, but keep what they have. They are no leaves of the tree."""

    @property
    def bookies(self) -> Collection[BookieId]:
        return self._locations.keys()

    def add(self, bookie: BookieId, location: str) -> None:
        """Put a bookie there, wherever it stood before.

        Raises `ConfigurationError` if the location is none, or not as deep as those of the others; then the bookie
        is not in the tree.
        """
        self.remove(bookie)
        location = parse_location(location)
        depth = next((rack.count("/") for rack in self._racks), location.count("/"))
        if location.count("/") != depth:
            raise ConfigurationError(
                f"bookie {bookie} is at {location}, where other locations have {depth} parts: no ledger is put there"
            )
        self._locations[bookie] = location
        self._racks.setdefault(location, {})[bookie] = None

    def remove(self, bookie: BookieId) -> None:
        """Take a bookie out, if it is there. Its location stays known."""
        location = self._locations.pop(bookie, None)
        if location is None:
            return
        self._history[bookie] = location
        del self._racks[location][bookie]
        if not self._racks[location]:
            del self._racks[location]

    def rack(self, bookie: BookieId) -> str | None:
        """Where a bookie stands that is here, be it read-only."""
        return self._locations.get(bookie) or self.read_only.get(bookie)

    def last_rack(self, bookie: BookieId) -> str | None:
        """Where a bookie stands, or stood when it left."""
        return self.rack(bookie) or self._history.get(bookie)

    def racks(self, within: str = "") -> list[str]:
        """The racks of a region, given as a path; of all, without."""
        return [rack for rack in self._racks if _below(rack, within)]

    def regions(self) -> list[str]:
        """Names of the regions, in the order in which they came."""
        return list(dict.fromkeys(map(region_of, self._racks)))

    def leaves(self, within: str = "") -> list[BookieId]:
        """The bookies of a rack or a region, sorted."""
        return sorted(bookie for rack, bookies in self._racks.items() if _below(rack, within) for bookie in bookies)


def _below(rack: str, path: str) -> bool:
    return rack == path or rack.startswith(path + "/")
