"""The walks of docs/architecture.md are those of the program, and each goes one way."""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

from .support.references import ROOT

PACKAGE = ROOT / "src" / "bookkeeper"
STEP = re.compile(r"(\S+\.py) +([\w.]+)")
BREAKS = ("~~~~", "----")


class Walk(NamedTuple):
    name: str
    steps: list[tuple[str, str]]
    """File and function; a break has no file."""


def walks() -> list[Walk]:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page[page.index("\n## Walks") : page.index("\n## How we know")]
    found = []
    for part in section.split("\n### ")[1:]:
        name, *_ = part.splitlines()
        for number, block in enumerate(re.findall(r"^```\n(.*?)^```", part, re.M | re.S)):
            lines = block.splitlines()
            steps = [("", line) if line in BREAKS else _step(line) for line in lines]
            found.append(Walk(f"{name}, {number + 1}", steps))
    return found


def _step(line: str) -> tuple[str, str]:
    match = STEP.match(line)
    assert match, f"no step: {line}"
    return match[1], match[2]


def names(path: Path) -> set[str]:
    """Functions of a module, and `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


@pytest.mark.parametrize("walk", walks(), ids=lambda walk: walk.name)
def test_every_step_is_a_function_of_the_program(walk: Walk) -> None:
    missing = [f"{file} {name}" for file, name in walk.steps if file and name not in names(PACKAGE / file)]
    assert missing == []


@pytest.mark.parametrize("walk", walks(), ids=lambda walk: walk.name)
def test_a_walk_enters_no_room_twice(walk: Walk) -> None:
    """Between two breaks: what was waited for goes on where it was."""
    for on_the_way, part in groupby(walk.steps, key=lambda step: bool(step[0])):
        if on_the_way:
            rooms = [room for room, _ in groupby(file.rpartition("/")[0] for file, _ in part)]
            assert len(rooms) == len(set(rooms)), rooms


def test_there_are_the_four_walks_and_their_answers() -> None:
    assert [walk.name for walk in walks()] == [
        "An append, 1",
        "An append, 2",
        "A read, 1",
        "A read, 2",
        "A long poll, 1",
        "A long poll, 2",
        "A Spark plan, 1",
        "A Spark plan, 2",
    ]
