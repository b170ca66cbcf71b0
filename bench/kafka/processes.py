"""Programs that are measured: their JSON, and how much memory they took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

LIMIT_SECONDS = 120.0


def run(*words: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a Python module to its end; the JSON that it prints, with `max_rss` in bytes. Raises `RuntimeError`."""
    with tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env={**os.environ, **(environ or {})},
        )
        too_long = threading.Timer(LIMIT_SECONDS, process.kill)
        too_long.start()
        assert process.stdout is not None
        with process.stdout:
            out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        too_long.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            err.seek(0)
            raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}: {err.read()[-2000:]}")
    found: dict[str, Any] = json.loads(out)
    return {**found, "max_rss": usage.ru_maxrss * 1024}
