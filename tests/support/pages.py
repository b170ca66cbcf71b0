"""Pages whose examples are run: their blocks, and one shell for all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

AT_THE_END = "code=$?; set +e; kill $(jobs -p) 2>/dev/null; wait; exit $code"

BLOCK = re.compile(r"(?ms)^```(sh|python)\n(.*?)^```$")


def run(script: str, directory: Path) -> str:
    """Run a script in one shell, as in a terminal: jobs in the background are %1, %2. Every command must succeed."""
    commands = directory / "bin"
    commands.mkdir(exist_ok=True)
    for name, program in (("bookkeeper", "-m bookkeeper"), ("python3", "")):
        path = commands / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
        path.chmod(0o755)
    environ = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"}
    environ.pop("BOOKKEEPER_URI", None)
    done = subprocess.run(
        ["bash", "-c", f"set -em -o pipefail\ntrap {AT_THE_END!r} EXIT\n{script}"],
        cwd=directory,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout, done.stdout
    return done.stdout


def save(name: str, text: str) -> str:
    return f"cat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE\n"
