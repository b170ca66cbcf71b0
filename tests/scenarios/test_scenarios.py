"""Runs every scenario file and compares what its commands print. See the package for how to rewrite them."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

from .script import run
from .world import World

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    was, now = run(path, World().execute)
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(now)
        return
    assert was == now, "\n" + "\n".join(difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm=""))


def test_every_file_tells_its_story_first() -> None:
    for path in FILES:
        story = path.read_text().partition("\n\n")[0].splitlines()
        assert all(line.startswith("# ") for line in story), path
        assert story[-1].endswith("."), path
