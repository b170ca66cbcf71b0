"""What a bookie publishes about itself, as stored bytes (spec metadata §7.3).

`BookieServiceInfoFormat` in binary form, not length-delimited: endpoints are field 6, properties field 7. Bookies
before 4.11 and the Java etcd driver store nothing: then the one endpoint is read off a bookie id of the form
`host:port`.
"""

from __future__ import annotations

from ...errors import CorruptMetadata, NoSuchBookie
from ...types import BookieId
from ..api import BookieServiceInfo, Endpoint
from . import wire as wire_format
from .messages import BOOKIE_SERVICE_INFO
from .schema import Values

BOOKIE_RPC = "bookie-rpc"
"""Protocol of the endpoint that clients connect to."""


def encode_service_info(info: BookieServiceInfo) -> bytes:
    """The stored bytes."""
    values: Values = {
        "endpoints": [
            {
                "id": endpoint.id,
                "port": endpoint.port,
                "host": endpoint.host,
                "protocol": endpoint.protocol,
                "auth": list(endpoint.auth),
                "extensions": list(endpoint.extensions),
            }
            for endpoint in info.endpoints
        ],
        "properties": [{"key": key, "value": value} for key, value in info.properties.items()],
    }
    return wire_format.encode(BOOKIE_SERVICE_INFO, values)


def parse_service_info(data: bytes, bookie_id: BookieId) -> BookieServiceInfo:
    """What the bookie published; empty data means what its id says.

    Raises `CorruptMetadata` for damaged data, `NoSuchBookie` for an id without data that is not `host:port`.
    """
    if not data:
        return legacy_service_info(bookie_id)
    try:
        values = wire_format.decode(BOOKIE_SERVICE_INFO, data)
    except CorruptMetadata as error:
        raise CorruptMetadata(f"service info of bookie {bookie_id}: {error}") from None
    return BookieServiceInfo(
        endpoints=tuple(
            Endpoint(
                id=endpoint["id"],
                host=endpoint["host"],
                port=endpoint["port"],
                protocol=endpoint["protocol"],
                auth=tuple(endpoint.get("auth", ())),
                extensions=tuple(endpoint.get("extensions", ())),
            )
            for endpoint in values.get("endpoints", ())
        ),
        properties={entry.get("key", ""): entry.get("value", "") for entry in values.get("properties", ())},
    )


def legacy_service_info(bookie_id: BookieId) -> BookieServiceInfo:
    """The one endpoint that an id `host:port` stands for. Raises `NoSuchBookie` for other ids."""
    host, _, rest = bookie_id.partition(":")
    port = rest.split(":")[0]
    if not host or not port.isdecimal() or int(port) > 65535:
        raise NoSuchBookie(f"bookie {bookie_id} published no address, and its id is not host:port")
    return BookieServiceInfo((Endpoint(bookie_id, host, int(port), BOOKIE_RPC),))
