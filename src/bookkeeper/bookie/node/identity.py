"""Who this bookie is and where it listens (spec bookie-server §1.3).

The id is `bookieId` if that is set, else `host:port`. The host is `advertisedAddress`, else the address of
`listeningInterface`, else the address of this machine's name; as a name instead of an address with
`useHostNameAsBookieID`, cut at the first dot with `useShortHostName`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...config import ServerConfiguration
from ...errors import ConfigurationError
from ...metadata.api import BookieServiceInfo, Endpoint
from ...runtime import Runtime
from ...types import BookieId, parse_bookie_id


@dataclass(frozen=True, slots=True)
class Identity:
    bookie_id: BookieId
    host: str
    """The address that clients are told."""
    bind_host: str | None
    """The address to listen on; None: all."""
    candidates: tuple[BookieId, ...]
    """Ids under which this bookie may have a cookie; more than one shows a change of the naming settings."""


async def identify(runtime: Runtime, config: ServerConfiguration) -> Identity:
    """Find out. Raises `ConfigurationError` saying which setting helps."""
    advertised = (config.advertisedAddress or "").strip()
    try:
        address = await _own_address(runtime, config)
    except ConfigurationError:
        if not advertised:
            raise
        address = advertised
    name = await _own_name(runtime, config, address)
    if advertised:
        host = advertised
    elif config.useHostNameAsBookieID:
        if name is None:
            raise ConfigurationError(
                f"useHostNameAsBookieID: {address} has no host name; give it one, or set advertisedAddress"
            )
        host = name
    else:
        host = address
    resolved = await _resolve(runtime, host)
    if _is_loopback(resolved) and not config.allowLoopback:
        raise ConfigurationError(
            f"{host} is a loopback address, which other machines cannot reach: set advertisedAddress or "
            "listeningInterface, or allowLoopback=true if that is meant"
        )
    bind_host = resolved if config.listeningInterface else None
    if config.bookieId:
        bookie_id = parse_bookie_id(config.bookieId)
        return Identity(bookie_id, host, bind_host, (bookie_id,))
    hosts = [address, name, host]
    candidates = dict.fromkeys(parse_bookie_id(f"{each}:{config.bookiePort}") for each in hosts if each)
    bookie_id = parse_bookie_id(f"{host}:{config.bookiePort}")
    return Identity(bookie_id, host, bind_host, tuple(candidates))


def service_info(host: str, port: int, http_port: int | None = None) -> BookieServiceInfo:
    """What the bookie publishes: where it serves, and its HTTP API if there is one (spec metadata §7.3)."""
    rpc = Endpoint("bookie", host, port, "bookie-rpc")
    if http_port is None:
        return BookieServiceInfo((rpc,))
    return BookieServiceInfo((Endpoint("httpserver", host, http_port, "http"), rpc))


async def _own_address(runtime: Runtime, config: ServerConfiguration) -> str:
    if config.listeningInterface:
        try:
            return runtime.network.interface_address(config.listeningInterface)
        except OSError as error:
            raise ConfigurationError(f"listeningInterface={config.listeningInterface}: {error}") from None
    return await _resolve(runtime, runtime.hostname())


async def _own_name(runtime: Runtime, config: ServerConfiguration, address: str) -> str | None:
    """The machine's name, None if its address has none."""
    try:
        name = await runtime.network.host_name(address)
    except OSError:
        return None
    if name == address:
        return None
    return name.partition(".")[0] if config.useShortHostName else name


async def _resolve(runtime: Runtime, host: str) -> str:
    try:
        return await runtime.network.resolve(host)
    except OSError as error:
        raise ConfigurationError(
            f"the address {host!r} of this bookie cannot be resolved ({error}): set advertisedAddress"
        ) from None


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
