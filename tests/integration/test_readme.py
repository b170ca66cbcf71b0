"""The README, run as it stands: every shell and Python block, in one shell, in the order of the page.

Left out: blocks that begin with `make` or `pip`, and Spark's, which are tested where they belong.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.runtime.ports import free_port
from tests.support.pages import BLOCK, run, save

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(section: str) -> Iterator[tuple[str, str]]:
    """Language and text of the blocks below a heading, those of its sub-headings not included."""
    body = README.split(f"# {section}\n", 1)[1]
    yield from BLOCK.findall(re.split(r"(?m)^##+ ", body, maxsplit=1)[0])


def texts(section: str, language: str) -> list[str]:
    found = [text for each, text in blocks(section) if each == language]
    assert found, f"the README has no {language} block in {section}"
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the tour's `/tmp/tour` is, so that nobody's own is touched."""
    monkeypatch.setattr(sys.modules[__name__], "README", README.replace("/tmp/", f"{tmp_path}/"))
    return tmp_path


def test_the_tour(place: Path) -> None:
    tour = [text for text in texts("Five-minute tour", "sh") if "export PATH" not in text]
    pasted, saved = texts("Python", "python")
    (restart,) = texts("My process restarted: how do I go on appending?", "python")
    script = [
        *tour,
        *texts("Command line", "sh"),
        save("pasted", pasted + "\n"),
        "python3 -i - < pasted\n",
        save("hello.py", saved) + "python3 hello.py\n",
        save("restart.py", restart) + "for n in 1 2 3; do python3 restart.py; done\n",
        *texts("Streams", "sh"),
        save("streams.py", *texts("Streams", "python")) + "python3 streams.py\n",
        *texts("The end", "sh"),
    ]
    printed = run("".join(script), place)
    assert re.search(r"(?m)^99999\n100000$", printed), printed
    assert printed.count("4 b'line 3'") == 2, printed
    assert "2 entries in 2 ledgers so far" in printed
    assert "b'1001'" in printed
    assert '"data": "998"' in printed
    assert "Error" not in printed, printed
    assert not (place / "tour").exists()


def test_a_cluster_of_ones_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    (script,) = texts("A cluster of your own", "sh")
    printed = run(script.replace("3181", str(port)), place)
    assert f"127.0.0.1:{port}  writable" in printed
    assert "Successfully nuked existing cluster" in printed
    assert not (place / "own").exists()


def test_every_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("section", ["Five-minute tour", "Command line", "Streams", "The end", "A cluster of your own"])
async def test_shell_blocks_are_shell(section: str) -> None:
    for text in texts(section, "sh"):
        process = await asyncio.create_subprocess_exec("bash", "-n", "-c", text)
        assert await process.wait() == 0
