"""Real processes: lost copies come back by themselves. What operators do: `workflows`."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.commands import run_command


async def bookkeeper_command(*words: str) -> tuple[int, str, str]:
    code, out, err = await run_command(words, os.environ)
    return code, out.decode(), err.decode()


async def test_the_demo_of_healing_loses_nothing(tmp_path: Path) -> None:
    source = tmp_path / "input.txt"
    source.write_text("".join(f"line {number}\n" for number in range(4800)))
    code, out, err = await bookkeeper_command("demo-heal", str(source))
    assert code == 0, out + err
    assert out.splitlines()[-1] == "lost = 0"
    assert out.count("14,400 copies, byte for byte") == 2
