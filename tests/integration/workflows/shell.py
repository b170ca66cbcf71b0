"""`bookkeeper` commands as processes that need not load the program each time.

`python -m tests.integration.workflows.shell` reads requests, a line of JSON each: `{"words": [...], "uri": "..."}`.
For each it forks, and the child is the command. Answers are lines, too: `{"code": 0, "out": "..."}`, with all that was
written.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import bookkeeper.autorecovery.daemon
import bookkeeper.cli.app
import bookkeeper.cli.doctor
import bookkeeper.cli.ledger
import bookkeeper.cli.shell
import bookkeeper.metadata.sqlite
import bookkeeper.metadata.zookeeper  # noqa: F401 - all of them: loaded once, for the children
from bookkeeper.cli.main import main


def run(words: list[str], uri: str) -> tuple[int, str]:
    """A command's exit code, and all that it wrote."""
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            be_command(words, uri)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        return os.waitstatus_to_exitcode(status), out.read().decode()


def be_command(words: list[str], uri: str) -> None:
    """What `python -m bookkeeper` does, and no more: the process ends with it."""
    os.environ.update(BOOKKEEPER_URI=uri, COLUMNS="300")
    sys.argv = ["bookkeeper", *words]
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
    for line in sys.stdin:
        request = json.loads(line)
        code, text = run(request["words"], request["uri"])
        print(json.dumps({"code": code, "out": text}), flush=True)
