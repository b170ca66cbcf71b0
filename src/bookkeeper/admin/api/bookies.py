"""`/api/v1/bookie/list_...`, `cluster_info`, settings: what any process can say (spec autorecovery-admin §9.2)."""

from __future__ import annotations

from collections.abc import Mapping

from ...config import ServerConfiguration
from ...errors import MetadataError
from ...metadata.api import MetadataDriver, Mode
from ...types import BookieId
from ..http.messages import Handler, Reply, Request, as_json, text
from ..overview import cluster_info
from ..sizes import size_text
from .access import Access
from .ledgers import NOT_GET


class BookieEndpoints:
    """Those of all bookies, and the settings of this process."""

    def __init__(self, config: ServerConfiguration, access: Access) -> None:
        self._config = config
        self._access = access

    def handlers(self) -> Mapping[str, Handler]:
        """By path."""
        return {
            "/heartbeat": self.heartbeat,
            "/api/v1/config/server_config": self.settings,
            "/api/v1/bookie/list_bookies": self.list,
            "/api/v1/bookie/list_bookie_info": self.space,
            "/api/v1/bookie/cluster_info": self.cluster,
        }

    async def heartbeat(self, _request: Request) -> Reply:
        return text("OK\n")

    async def settings(self, request: Request) -> Reply:
        """Settings do not change while a process runs."""
        if request.method == "GET":
            return as_json(self._config.changed_settings())
        if request.method != "PUT" or not request.body:
            return text("Request body not found. should contains k-v pairs", 404)
        names = ", ".join(request.json_object())
        return text(f"{names}: settings do not change while a bookie runs: change its file, and start it again", 400)

    async def list(self, request: Request) -> Reply:
        if request.method != "GET":
            return NOT_GET
        driver = await self._access.driver()
        mode = Mode.READ_ONLY if request.parameters.get("type") == "ro" else Mode.WRITABLE
        found = sorted((await driver.discovery.list(mode)).value)
        if not request.flag("print_hostnames"):
            return as_json(dict.fromkeys(found))
        return as_json({bookie: await _host(driver, bookie) for bookie in found})

    async def space(self, request: Request) -> Reply:
        if request.method != "GET":
            return NOT_GET
        found = await (await self._access.client()).bookie_info()
        if not found:
            return text("Not found any Bookie info.", 404)

        def shown(free: int, total: int) -> str:
            return f"{{Free: {size_text(free)}, Total: {size_text(total)}}}"

        lines: dict[str, str] = {bookie: f": {shown(info.free, info.total)}," for bookie, info in sorted(found.items())}
        whole = shown(sum(info.free for info in found.values()), sum(info.total for info in found.values()))
        return as_json({**lines, "ClusterInfo: ": whole})

    async def cluster(self, request: Request) -> Reply:
        if request.method != "GET":
            return text("Only GET is supported.", 404)
        return as_json(await cluster_info(await self._access.driver()))


async def _host(driver: MetadataDriver, bookie: BookieId) -> str | None:
    try:
        endpoint = (await driver.discovery.info(bookie)).bookie_rpc()
    except MetadataError:  # it has left meanwhile
        return None
    return endpoint.host if endpoint is not None else None
