"""What a namespace's record says: where its ledgers are (spec streams §2.2).

Three lines of UTF-8: `1`, `BKDL`, and a Thrift struct as JSON, each field as `"<id>":{"<type>":<value>}`. Java's parser
takes no blanks. Fields that are not for ledgers are kept when they are read, and not when they are written.

    1  str  servers of the cluster, `zk1:2181,zk2:2181`        5  str  the same, for readers
    2  str  its ledgers path, `/ledgers`                       6, 7 str  servers of the namespace, writers and readers

Where the cluster's records are not in ZooKeeper, field 1 is the whole address of its metadata store. Java then finds no
servers; it could not use that store either.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ...errors import StreamMetadataError
from ...metadata.uri import parse_service_uri

HEAD = b"1\nBKDL\n"


@dataclass(frozen=True, slots=True)
class Binding:
    """Where the ledgers of a namespace are."""

    servers: str
    ledgers_path: str
    federated: bool = False
    """Whether its streams are spread over several parts."""

    @property
    def service_uri(self) -> str:
        """Address of the cluster's metadata store."""
        if "://" in self.servers:
            return self.servers
        return f"zk+null://{self.servers.replace(',', ';')}{self.ledgers_path}"

    @classmethod
    def to(cls, service_uri: str) -> Binding:
        """A binding to the cluster whose metadata store this is. Raises `ConfigurationError`."""
        uri = parse_service_uri(service_uri)
        if uri.scheme == "zk":
            return cls(uri.connect_string, uri.path)
        return cls(service_uri, "/ledgers")


def encode_binding(binding: Binding) -> bytes:
    """As Java writes one with its defaults."""
    servers = {"str": binding.servers}
    fields: dict[str, dict[str, Any]] = {"1": servers, "2": {"str": binding.ledgers_path}, "3": {"tf": 1}}
    fields |= {"4": {"tf": 0}, "5": servers, "6": servers, "7": servers, "9": {"i64": 1}}
    return HEAD + json.dumps(fields, separators=(",", ":")).encode()


def decode_binding(data: bytes) -> Binding:
    """Raises `StreamMetadataError`."""
    if not data.startswith(HEAD):
        raise StreamMetadataError(f"{data[:20]!r} does not begin a binding of a namespace")
    try:
        fields = json.loads(data[len(HEAD) :])
        servers, path = fields["1"]["str"], fields["2"]["str"]
        federated = fields["10"]["tf"] == 1 if "10" in fields else False
    except (ValueError, KeyError, TypeError) as error:
        raise StreamMetadataError(f"the binding of a namespace makes no sense: {error!r}") from None
    if not isinstance(servers, str) or not isinstance(path, str):
        raise StreamMetadataError("the binding of a namespace has no text for servers and path")
    return Binding(servers, path, federated=federated)
