"""Reads `register.md`: which scenario is shown by which files and tests."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parent

_ENTRY = re.compile(r"\*\*([CS]-\d+)\*\* (.+)")
_SHOWN = re.compile(r"- `(.+)`")
_WAITS = re.compile(r"- waits for: (.+)")


@dataclass
class Entry:
    """One scenario."""

    key: str
    """C-n, S-n."""
    statement: str
    shown: list[str] = field(default_factory=list)
    """Scenario files, and tests as path::function."""
    waits: list[str] = field(default_factory=list)
    """What it, or the rest of it, waits for."""


def read_register() -> list[Entry]:
    """All entries, in the order of the file. Raises `ValueError` for a bullet that means nothing."""
    entries: list[Entry] = []
    for line in (HERE / "register.md").read_text().splitlines():
        if begin := _ENTRY.fullmatch(line):
            entries.append(Entry(*begin.groups()))
        elif shown := _SHOWN.fullmatch(line):
            entries[-1].shown.append(shown[1])
        elif waits := _WAITS.fullmatch(line):
            entries[-1].waits.append(waits[1])
        elif line.startswith("-"):
            raise ValueError(f"what is this? {line}")
    return entries


@cache
def functions_in(path: str) -> frozenset[str]:
    """The test functions of a module, without importing it."""
    tree = ast.parse((TESTS / path).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


def exists(shown: str) -> bool:
    """Whether there is such a scenario file, or such a test."""
    path, _, test = shown.partition("::")
    if not test:
        return path.endswith(".txt") and (HERE / path).is_file()
    return (TESTS / path).is_file() and test in functions_in(path)
