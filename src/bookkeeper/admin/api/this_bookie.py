"""`/api/v1/bookie/...` of the bookie in this process: its state, its mode, its files (spec autorecovery-admin §9.2)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...bookie.bookie import Bookie
from ...bookie.file_names import INDEX_SUFFIX, JOURNAL_SUFFIX, LOG_SUFFIX, current, journal_name
from ...bookie.node.directories import Directories
from ...config import ServerConfiguration
from ...errors import BookKeeperError
from ...runtime import Runtime
from ..http.messages import BadBodyError, Handler, Reply, Request, as_json, text, truth
from ..sanity import try_bookie
from .access import Access
from .ledgers import NOT_GET

log = logging.getLogger(__name__)

NOT_READY = text("Bookie is not fully started yet", 503)

KINDS = {"journal": "journal files", "entrylog": "entrylog files", "index": "index files"}


class ThisBookieEndpoints:
    """Those of one bookie. Before it serves they answer 503."""

    def __init__(self, runtime: Runtime, config: ServerConfiguration, bookie: Bookie, access: Access) -> None:
        self._config = config
        self._bookie = bookie
        self._access = access
        self._files = runtime.files
        self._directories = Directories.of(config)
        self._disk = runtime.workers("http files")

    def handlers(self) -> Mapping[str, Handler]:
        """By path."""
        root = "/api/v1/bookie"
        serving = {
            f"{root}/info": self.space,
            f"{root}/state": self.state,
            f"{root}/state/readonly": self.mode,
            f"{root}/sanity": self.sanity,
            f"{root}/last_log_mark": self.marks,
            f"{root}/list_disk_file": self.disk_files,
            f"{root}/expand_storage": self.expand,
        }
        return {f"{root}/is_ready": self.ready, **{path: self.when_ready(each) for path, each in serving.items()}}

    def when_ready(self, handler: Handler) -> Handler:
        """The same, once the bookie serves."""

        async def guarded(request: Request) -> Reply:
            return await handler(request) if self._bookie.serving else NOT_READY

        return guarded

    async def close(self) -> None:
        await self._disk.close()

    async def ready(self, request: Request) -> Reply:
        if request.method != "GET":
            return text("Only support GET method to retrieve bookie is ready.", 404)
        return text("OK") if self._bookie.serving else NOT_READY

    async def space(self, request: Request) -> Reply:
        if request.method != "GET":
            return text("Only GET is supported.", 404)
        total, usable = await self._bookie.parts.disks.total_and_usable()
        return as_json({"freeSpace": usable, "totalSpace": total})

    async def state(self, request: Request) -> Reply:
        if request.method != "GET":
            return text("Only support GET method to retrieve bookie state.", 404)
        state = self._bookie.state
        return as_json(
            {
                "running": state.running,
                "readOnly": state.read_only,
                "shuttingDown": state.shutting_down,
                "availableForHighPriorityWrites": state.high_priority_available,
            }
        )

    async def mode(self, request: Request) -> Reply:
        """Read-only by hand, and back."""
        state = self._bookie.state
        if request.method == "PUT":
            asked = request.json_object()
            if unknown := asked.keys() - {"readOnly"}:
                raise BadBodyError(f"{', '.join(sorted(unknown))} is not known")
            if truth(asked.get("readOnly"), default=False):
                if not self._config.readOnlyModeEnabled:
                    return text("Bookie is disabled ReadOnly mode, cannot transit to readOnly mode", 400)
                state.to_read_only("an operator asked for it", manual=True)
            elif state.forced_read_only:
                return text("Bookie is in forceReadOnly mode, cannot transit to writable mode", 400)
            else:
                state.to_writable("an operator asked for it", manual=True)
            await state.settled()
        elif request.method != "GET":
            return text("Unsupported method. Should be GET or PUT method", 404)
        return as_json({"readOnly": state.read_only})

    async def sanity(self, request: Request) -> Reply:
        if request.method != "GET":
            return text("Only support GET method to run bookie sanity test.", 404)
        passed = False
        if not self._bookie.state.read_only:
            try:
                driver, client = await self._access.open()
                await try_bookie(driver, client, self._bookie.bookie_id)
                passed = True
            except BookKeeperError as error:
                log.warning("the sanity test failed: %s", error)
        return as_json({"passed": passed, "readOnly": self._bookie.state.forced_read_only})

    async def marks(self, request: Request) -> Reply:
        if request.method != "GET":
            return NOT_GET
        found = {}
        for journal in self._bookie.journals:
            mark = await journal.retention.read_mark(journal.index)
            name = journal_name(mark.journal_id)
            found[f"LastLogMark: Journal Id - {mark.journal_id}({name})"] = f"Pos - {mark.offset}"
        return as_json(found)

    async def disk_files(self, request: Request) -> Reply:
        if request.method != "GET":
            return NOT_GET
        asked = request.parameters.get("file_type")
        kinds = [asked] if asked in KINDS else list(KINDS)
        roots = {
            "journal": (self._directories.journal, JOURNAL_SUFFIX),
            "entrylog": (self._directories.ledger, LOG_SUFFIX),
            "index": (self._directories.index, INDEX_SUFFIX),
        }
        return as_json(
            {KINDS[kind]: "".join([f"{name} \t" for name in await self._named(*roots[kind])]) for kind in kinds}
        )

    async def _named(self, roots: tuple[str, ...], suffix: str) -> list[str]:
        """The files with this end of the name."""
        found = [name for root in roots for name in await self._disk.submit(self._files.listdir, current(root))]
        return sorted(name for name in found if name.endswith(suffix))

    async def expand(self, request: Request) -> Reply:
        """Directories are part of what a bookie starts with."""
        if request.method != "PUT":
            return text("Not found method. Should be PUT method", 404)
        return text(
            "Exception while updating cookie for storage expansion: a bookie takes new directories when it starts, and "
            "DbLedgerStorage spreads ledgers over those that it began with",
            500,
        )
