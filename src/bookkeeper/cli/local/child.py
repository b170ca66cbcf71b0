"""A command that does not outlive its parent: `python -m bookkeeper.cli.local.child PARENT COMMAND...`.

COMMAND is one of `bookkeeper`, or `--exec` and a program.

The kernel sends this process SIGTERM when the parent ends, however it ends, SIGKILL included: a bookie stops in order.
Linux only, as the rest.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent = int(sys.argv.pop(1))
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit(128 + signal.SIGTERM)
    if sys.argv[1:2] == ["--exec"]:
        os.execv(sys.argv[2], sys.argv[2:])  # what was asked of the kernel holds for the program, too
    from ..main import main as command

    command()


if __name__ == "__main__":
    main()
