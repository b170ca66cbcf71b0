"""The page of metrics of one process."""

from __future__ import annotations

from ...autorecovery.daemon import AutoRecovery
from ...bookie.bookie import Bookie
from ...config import ServerConfiguration
from ...runtime import Runtime
from ..http.messages import Handler, Reply, Request, text
from .autorecovery import autorecovery_metrics
from .bookie import bookie_metrics
from .exposition import Exposition, Windows
from .loop import LoopStalls
from .process import process_metrics

METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The page of one process."""

    def __init__(self, runtime: Runtime, config: ServerConfiguration, bookie: Bookie | None) -> None:
        self._runtime = runtime
        self._config = config
        self._bookie = bookie
        self._started_ms = runtime.wall_ms()
        self._windows = Windows(runtime.now, config.prometheusStatsLatencyRolloverSeconds)
        self.autorecovery: AutoRecovery | None = None
        """While this process takes part in it."""
        self.stalls = LoopStalls(runtime)
        """Counted while somebody has started it."""

    def autorecovery_begins(self, autorecovery: AutoRecovery) -> None:
        self.autorecovery = autorecovery

    def page(self) -> str:
        """As Prometheus reads it."""
        out = Exposition(self._windows)
        if self._bookie is not None and self._bookie.serving:
            bookie_metrics(self._bookie, out)
        if self.autorecovery is not None:
            autorecovery_metrics(self.autorecovery, out, embedded=self._bookie is not None)
        self.stalls.tell(out)
        if self._config.exposeDefaultJVMMetrics:
            process_metrics(self._runtime.files, self._started_ms, out)
        return out.page()

    def endpoint(self, *methods: str) -> Handler:
        """For these methods."""

        async def answer(request: Request) -> Reply:
            if request.method not in methods:
                return text(f"{request.method} is forbidden. Should be GET method", 403)
            return Reply(200, self.page().encode(), METRICS)

        return answer
