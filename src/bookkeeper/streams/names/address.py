"""Where a namespace is (spec streams §2.1).

| address | records are in |
|---|---|
| `distributedlog://zk1:2181;zk2:2181/messaging/orders` | ZooKeeper, at this path |
| `distributedlog-bk://...` | the same |
| `distributedlog-sqlite:///var/lib/bookkeeper/metadata.db?namespace=/messaging/orders` | an SQLite file; `&root=` names one of several clusters in it |
| `distributedlog-memory://name/messaging/orders` | memory |

Java knows the first two.
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from ...errors import ConfigurationError
from ...metadata.tree import check_path
from ...metadata.uri import parse_service_uri

EXAMPLE = "distributedlog://zk1:2181;zk2:2181/messaging/orders"


@dataclass(frozen=True, slots=True)
class NamespaceAddress:
    """A parsed address."""

    text: str
    backend: str
    """`bk` (ZooKeeper), `sqlite` or `memory`."""
    store: str
    """Address of the metadata store that has the records, as `metadata.open_driver` takes it."""
    path: str
    """The record of the namespace."""

    def __str__(self) -> str:
        return self.text


def parse_namespace(text: str) -> NamespaceAddress:
    """Raises `ConfigurationError` that says what is wrong."""

    def wrong(what: str) -> ConfigurationError:
        return ConfigurationError(f"namespace address {text!r}: {what}; an example is {EXAMPLE}")

    scheme, separator, rest = text.strip().partition("://")
    first, _, backend = scheme.lower().partition("-")
    if not separator or first != "distributedlog":
        raise wrong("it does not begin with distributedlog://")
    if backend not in ("", "bk", "sqlite", "memory"):
        raise wrong(f"{backend!r} is no store of namespaces: there are bk, sqlite and memory")
    try:
        if backend == "sqlite":
            return _in_sqlite(text.strip(), rest)
        return _in_tree(text.strip(), backend or "bk", rest)
    except ConfigurationError as error:
        raise wrong(str(error)) from None


def _in_sqlite(text: str, rest: str) -> NamespaceAddress:
    place, _, query = rest.partition("?")
    parameters = dict(parse_qsl(query))
    path = parameters.pop("namespace", "")
    if not path:
        raise ConfigurationError("?namespace=/some/path is missing")
    store = f"sqlite://{place}" + (f"?{urlencode(parameters)}" if parameters else "")
    parse_service_uri(store)
    return NamespaceAddress(text, "sqlite", store, check_path(path))


def _in_tree(text: str, backend: str, rest: str) -> NamespaceAddress:
    servers, slash, path = rest.partition("/")
    path = check_path((slash + path).rstrip("/") or "(no path)")
    store = f"memory://{servers}" if backend == "memory" else f"zk+null://{servers.replace(',', ';')}{path}"
    parse_service_uri(store)
    return NamespaceAddress(text, backend, store, path)
