"""Where the metadata store is: `metadataServiceUri` (spec metadata §4.1).

    <scheme>[+<manager>]://<host:port>[;<host:port>...]/<root path>[?key=value]

| scheme | authority | path |
|---|---|---|
| zk, zk+flat, zk+hierarchical, zk+longhierarchical, zk+null | ZooKeeper servers, by `;` or `,` | ledgers root path, absolute, no chroot |
| etcd | etcd servers | scope |
| sqlite | none | absolute path of the database file; `?root=` names one of several clusters in it |
| memory | a name | ignored |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import parse_qsl

from ..errors import ConfigurationError

MANAGERS = ("flat", "hierarchical", "longhierarchical", "ms")
"""Ledger managers a `zk` address may name; `null` and nothing mean: as the cluster's LAYOUT says."""

EXAMPLE = "zk+hierarchical://zk1:2181;zk2:2181/ledgers"

_MANAGER_OF_CLASS = {
    "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory": "hierarchical",
    "org.apache.bookkeeper.meta.FlatLedgerManagerFactory": "flat",
    "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory": "longhierarchical",
    "org.apache.bookkeeper.meta.MSLedgerManagerFactory": "ms",
}


@dataclass(frozen=True, slots=True)
class ServiceUri:
    """A parsed address."""

    text: str
    scheme: str
    """Lower case: `zk`, `etcd`, `sqlite`, `memory`."""
    manager: str | None
    """One of `MANAGERS`, or None to follow the stored LAYOUT."""
    hosts: tuple[str, ...]
    path: str
    """With its leading slash, without a trailing one; empty if there is none."""
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def connect_string(self) -> str:
        """Hosts as ZooKeeper clients take them."""
        return ",".join(self.hosts)

    def __str__(self) -> str:
        return self.text


def parse_service_uri(text: str) -> ServiceUri:
    """Raises `ConfigurationError` that says what is wrong."""

    def wrong(what: str) -> ConfigurationError:
        return ConfigurationError(f"metadata service address {text!r}: {what}; an example is {EXAMPLE}")

    full_scheme, separator, rest = text.strip().partition("://")
    if not separator:
        raise wrong("there is no ://")
    scheme, *managers = full_scheme.lower().split("+")
    if not scheme or len(managers) > 1:
        raise wrong(f"{full_scheme!r} is not a scheme or scheme+manager")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    hosts = tuple(host.strip() for host in authority.replace(",", ";").split(";") if host.strip())
    uri = ServiceUri(
        text=text.strip(),
        scheme=scheme,
        manager=managers[0] if managers and managers[0] != "null" else None,
        hosts=hosts,
        path=(slash + path).rstrip("/"),
        parameters=dict(parse_qsl(query)),
    )
    for host in hosts:
        _check_host(host, wrong)
    problem = _problem(uri)
    if problem:
        raise wrong(problem)
    return uri


class _Wrong(Protocol):
    def __call__(self, what: str, /) -> ConfigurationError: ...


def _check_host(host: str, wrong: _Wrong) -> None:
    name, _, port = host.rpartition(":") if ":" in host and not host.endswith("]") else (host, "", "")
    if not name:
        raise wrong(f"server {host!r} has no host name")
    if host.endswith(":") or (port and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise wrong(f"server {host!r} has no valid port")


def _problem(uri: ServiceUri) -> str | None:
    """What is wrong with an address that is well formed, by scheme."""
    if uri.scheme == "zk" and uri.manager not in (None, *MANAGERS):
        return f"ledger manager {uri.manager!r} is not one of {', '.join(MANAGERS)}, null"
    if uri.scheme != "zk" and uri.manager is not None:
        return f"scheme {uri.scheme} takes no ledger manager"
    if uri.scheme in ("zk", "etcd") and not uri.hosts:
        return "there is no server between :// and the path"
    if uri.scheme == "sqlite" and uri.hosts:
        return "sqlite takes three slashes and an absolute path, as in sqlite:///var/lib/bookkeeper/metadata.db"
    if uri.scheme == "memory" and len(uri.hosts) != 1:
        return "memory takes one name, as in memory://test"
    if uri.scheme in ("zk", "etcd", "sqlite") and not uri.path:
        return "there is no path"
    if "//" in uri.path and uri.scheme == "zk":
        return "the path has an empty part"
    return None


class UriSettings(Protocol):
    """The settings that say where the metadata store is."""

    @property
    def metadataServiceUri(self) -> str | None: ...  # noqa: N802
    @property
    def zkServers(self) -> str | None: ...  # noqa: N802
    @property
    def zkLedgersRootPath(self) -> str: ...  # noqa: N802
    @property
    def ledgerManagerFactoryClass(self) -> str | None: ...  # noqa: N802


def configured_service_uri(settings: UriSettings) -> str:
    """`metadataServiceUri`, or the address that the deprecated keys spell.

    Raises `ConfigurationError` if there is neither.
    """
    if settings.metadataServiceUri:
        return settings.metadataServiceUri
    if not settings.zkServers:
        raise ConfigurationError(f"metadataServiceUri is not set; an example is {EXAMPLE}")
    manager = "null"
    if settings.ledgerManagerFactoryClass:
        found = _MANAGER_OF_CLASS.get(settings.ledgerManagerFactoryClass)
        if found is None:
            raise ConfigurationError(
                f"ledgerManagerFactoryClass {settings.ledgerManagerFactoryClass!r} is not one of "
                f"{', '.join(_MANAGER_OF_CLASS)}"
            )
        manager = found
    return f"zk+{manager}://{settings.zkServers.replace(',', ';')}{settings.zkLedgersRootPath}"
