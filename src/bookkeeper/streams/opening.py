"""Opening a namespace: its address, its binding, and a client of the cluster that has its ledgers (spec streams §2)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from ..client.client import BookKeeper, connect
from ..client.opening import Opening
from ..client.store import ClientStore, Home
from ..config import ClientConfiguration
from ..errors import ConfigurationError, NamespaceNotBoundError
from ..metadata import open_driver
from ..metadata.tree import RecordTree, check_path
from ..runtime import Runtime
from ..runtime.real import RealRuntime
from .formats.binding import Binding, decode_binding, encode_binding
from .ledgers import Replication
from .names.address import parse_namespace
from .names.namespaces import bind, resolve
from .namespace import Namespace


def open_namespace(
    where: str,
    *,
    client: BookKeeper | None = None,
    create: bool = False,
    ledgers: str | None = None,
    replication: Replication | None = None,
    client_id: str | None = None,
    config: ClientConfiguration | None = None,
    runtime: Runtime | None = None,
) -> Opening[Namespace]:
    """A namespace; await it, or enter it with `async with`.

    - `where`: its address, `distributedlog://zk1:2181/orders`; or, with `client`, its path in the client's own metadata
      store, `/orders`.
    - `client`: a connected client of the cluster that has the ledgers; it stays open. None: one of its own.
    - `create`: make it if it is not there. `ledgers` then is the metadata service address of the cluster that gets its
      ledgers; None: with `client` the client's; for a namespace in SQLite or memory its own store.
    - `replication`: of the segments that are written here, and the password of all of them. None: what the policies
      say; where they say nothing, three copies, two of them waited for.
    - `client_id`: what other clients are told of who owns a stream. None: the name of this host.
    - `config`: settings of the client that it makes; `metadataTimeoutSec` is also that of the namespace's own store.

    Raises `ConfigurationError`, `NamespaceNotBoundError`, `StreamMetadataError`, and what connecting raises.
    """
    return Opening(
        _open(where, client, create, ledgers, replication, client_id, config, runtime or RealRuntime()),
        "open_namespace",
    )


async def _open(
    where: str,
    client: BookKeeper | None,
    create: bool,
    ledgers: str | None,
    replication: Replication | None,
    client_id: str | None,
    config: ClientConfiguration | None,
    runtime: Runtime,
) -> Namespace:
    async with AsyncExitStack() as opened:
        if client is not None and where.startswith("/"):
            tree, path, default = client.context.driver.tree, check_path(where), client.service_uri
        else:
            if where.startswith("/"):
                raise ConfigurationError(f"namespace {where!r} is a path: give the client in whose store it is, too")
            address = parse_namespace(where)
            config = config or ClientConfiguration()
            store = ClientStore(
                open_driver(address.store, runtime, config), _here(), address.store, config.metadataTimeoutSec
            )
            opened.push_async_callback(store.close)
            await store.open()
            tree, path = store.tree, address.path
            default = "" if address.backend == "bk" else address.store
            default = client.service_uri if client is not None else default
        binding = await _binding(tree, path, create=create, ledgers=ledgers or default)
        if client is None:
            client = await opened.enter_async_context(connect(binding.service_uri, config=config, runtime=runtime))
        return Namespace(client, tree, path, replication, client_id, opened.pop_all(), federated=binding.federated)


def _here() -> Home:
    home = Home()
    home.loop = asyncio.get_running_loop()
    return home


async def _binding(tree: RecordTree, path: str, *, create: bool, ledgers: str) -> Binding:
    try:
        bound = await resolve(tree, path)
        found = decode_binding(bound.data)
        return found if bound.path == path else replace(found, federated=False)  # a part of it is not
    except NamespaceNotBoundError:
        if not create:
            raise
    if not ledgers:
        raise ConfigurationError(f"namespace {path} is to be made: give the address of the cluster for its ledgers")
    binding = Binding.to(ledgers)
    await bind(tree, path, encode_binding(binding))
    return binding
