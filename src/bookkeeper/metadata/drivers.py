"""From a metadata service address to its driver.

| scheme | driver | needs |
|---|---|---|
| zk | `zookeeper.ZooKeeperDriver` | the extra `zookeeper` (kazoo) |
| sqlite | `sqlite.SqliteDriver` | nothing; one machine |
| memory | `memory.MemoryDriver` | nothing; one process. Runtimes that share a `services` table share the store |

Drivers are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..config import Settings
from ..errors import ConfigurationError
from ..runtime import Runtime
from ..version import install_hint
from .api import MetadataDriver
from .records.driver import DEFAULT_SESSION_TIMEOUT_MS
from .uri import ServiceUri, parse_service_uri

Conf = Mapping[str, Any]
"""Settings by key; an absent one has its default."""


def open_driver(uri: str, runtime: Runtime, config: Settings | Conf | None = None) -> MetadataDriver:
    """The driver for an address, not yet connected: `await driver.open()` does that.

    Raises `ConfigurationError` for a bad or unknown address, or when the driver's library is not installed.
    """
    parsed = parse_service_uri(uri)
    conf: Conf = config.model_dump() if isinstance(config, Settings) else config or {}
    factory = _DRIVERS.get(parsed.scheme)
    if factory is None:
        raise ConfigurationError(
            f"metadata service address {uri!r}: scheme {parsed.scheme!r} is unknown; "
            f"there are zk, sqlite and memory, as in zk://zk1:2181/ledgers or sqlite:///var/lib/bookkeeper/metadata.db"
        )
    return factory(parsed, runtime, conf)


def _timeout(conf: Conf) -> int:
    return int(conf.get("zkTimeout") or DEFAULT_SESSION_TIMEOUT_MS)


def _store_mark_time(conf: Conf) -> bool:
    return bool(conf.get("storeSystemTimeAsLedgerUnderreplicatedMarkTime", True))


def _memory(uri: ServiceUri, runtime: Runtime, conf: Conf) -> MetadataDriver:
    from .memory import MemoryDriver, MemoryStore

    address = f"memory://{uri.hosts[0]}"
    store = runtime.services.get(address)
    if store is None:
        store = runtime.services[address] = MemoryStore(runtime)
    return MemoryDriver(store, runtime, session_timeout_ms=_timeout(conf), store_mark_time=_store_mark_time(conf))


def _sqlite(uri: ServiceUri, runtime: Runtime, conf: Conf) -> MetadataDriver:
    from .sqlite import SqliteDriver

    return SqliteDriver(uri, runtime, session_timeout_ms=_timeout(conf), store_mark_time=_store_mark_time(conf))


def _zookeeper(uri: ServiceUri, runtime: Runtime, conf: Conf) -> MetadataDriver:
    try:
        from .zookeeper import ZooKeeperDriver
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        raise ConfigurationError(
            f"metadata service address {uri}: ZooKeeper needs the package kazoo: {install_hint('zookeeper')}"
        ) from None
    return ZooKeeperDriver(uri, runtime, config=conf)


def _etcd(uri: ServiceUri, runtime: Runtime, conf: Conf) -> MetadataDriver:  # noqa: ARG001
    raise ConfigurationError(f"metadata service address {uri}: etcd is not supported yet; use zk or sqlite")


_DRIVERS: Mapping[str, Callable[[ServiceUri, Runtime, Conf], MetadataDriver]] = {
    "zk": _zookeeper,
    "etcd": _etcd,
    "sqlite": _sqlite,
    "memory": _memory,
}
