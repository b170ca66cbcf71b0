"""`bookkeeper` commands as processes that need not load the program each time: `run_command`.

`python -m tests.support.commands` is such a loader. It reads requests, a line of JSON each: `{"words": [...],
"environ": {...}, "stdin": "...", "together": false}`. For each it forks, and the child is the command. Answers are
lines, too: `{"code": 0, "out": "...", "err": "..."}`, with all that was written; bytes are as latin-1 says them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent.parent


class Ended(NamedTuple):
    """A command that has ended: its exit code, and what it wrote."""

    code: int
    out: bytes
    err: bytes


class Commands:
    """Where commands are run. May be called from several threads: a command that finds none idle gets a loader of its
    own."""

    def __init__(self) -> None:
        self._idle: list[subprocess.Popen[str]] = []

    def run(
        self, words: Iterable[object], environ: Mapping[str, str], stdin: bytes = b"", *, together: bool = False
    ) -> Ended:
        """Run a command to its end. `together`: what it writes to stderr goes where the rest goes. Blocks."""
        loader = self._idle.pop() if self._idle else self._start()
        request = {
            "words": [*map(str, words)], "environ": dict(environ), "stdin": stdin.decode("latin-1"),
            "together": together,
        }  # fmt: skip
        assert loader.stdin is not None
        assert loader.stdout is not None
        print(json.dumps(request), file=loader.stdin, flush=True)
        answer = json.loads(loader.stdout.readline())
        self._idle.append(loader)
        return Ended(answer["code"], answer["out"].encode("latin-1"), answer["err"].encode("latin-1"))

    def _start(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.support.commands"]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def close(self) -> None:
        """Loaders end when their input does."""
        while self._idle:
            self._idle.pop().communicate()


COMMANDS = Commands()
"""Of this process."""

atexit.register(COMMANDS.close)


async def run_command(
    words: Iterable[object], environ: Mapping[str, str], stdin: bytes = b"", *, together: bool = False
) -> Ended:
    """`Commands.run`."""
    return await asyncio.to_thread(COMMANDS.run, words, environ, stdin, together=together)


def _load() -> None:
    """Once, for the children."""
    import bookkeeper.autorecovery.daemon
    import bookkeeper.cli.app
    import bookkeeper.cli.bench.ledgers
    import bookkeeper.cli.doctor
    import bookkeeper.cli.ledger
    import bookkeeper.cli.main
    import bookkeeper.cli.shell
    import bookkeeper.cli.stream
    import bookkeeper.metadata.sqlite
    import bookkeeper.metadata.zookeeper  # noqa: F401


def _serve(request: dict[str, Any]) -> dict[str, object]:
    """A command's exit code, and what it wrote."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            for number, file in enumerate((reading, out.fileno(), (out if request["together"] else err).fileno())):
                os.dup2(file, number)
            _be_command(request["words"], request["environ"])
        os.close(reading)
        with contextlib.suppress(BrokenPipeError), open(writing, "wb") as stdin:
            stdin.write(request["stdin"].encode("latin-1"))
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "out": out.read().decode("latin-1"),
            "err": err.read().decode("latin-1"),
        }


def _be_command(words: list[str], environ: dict[str, str]) -> None:
    """What `python -m bookkeeper` does, and no more: the process ends with it."""
    from bookkeeper.cli.main import main

    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["bookkeeper", *words]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - that of the loader has read ahead
    code: object = 70
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _load()
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), flush=True)
