"""The scenario files: transcripts. A line that begins with `> ` is a command; the indented lines after it are what it
printed. All other lines are for the reader; the first ones tell the story."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

COMMAND = "> "
PRINTED = "  "


def run(path: Path, execute: Callable[[str], list[str]]) -> tuple[str, str]:
    """The file as it is, and as its commands make it."""
    was = path.read_text()
    now: list[str] = []
    for number, line in enumerate(was.splitlines(), 1):
        if line.startswith(PRINTED):
            continue
        now.append(line)
        if line.startswith(COMMAND):
            try:
                printed = execute(line.removeprefix(COMMAND))
            except Exception as error:
                error.add_note(f"{path.name}:{number}: {line}")
                raise
            now += [PRINTED + text for text in printed]
    return was, "\n".join(now) + "\n"
