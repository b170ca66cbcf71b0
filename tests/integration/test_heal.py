"""Real processes: lost copies come back by themselves. What operators do: `workflows`."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path


async def bookkeeper_command(*words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bookkeeper", *words, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_demo_of_healing_loses_nothing(tmp_path: Path) -> None:
    source = tmp_path / "input.txt"
    source.write_text("".join(f"line {number}\n" for number in range(4800)))
    code, out, err = await bookkeeper_command("demo-heal", str(source))
    assert code == 0, out + err
    assert out.splitlines()[-1] == "lost = 0"
    assert out.count("14,400 copies, byte for byte") == 2
