"""Every page: a link leads to a file and a heading, a file or a target of make that is named is there."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from .support.references import ROOT, read_page, relative

PACKAGE = ROOT / "src" / "bookkeeper"

GUIDES = (
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "debugging.md",
    ROOT / "docs" / "glossary.md",
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
)
"""They lead to the code. Files are named from the root of the repository, or from the package's."""

FENCED = re.compile(r"^ *```.*?^ *```", re.M | re.S)
QUOTED = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"[\w./-]+\.(?:py|md|txt|toml)|[\w-]+(?:/[\w-]+)*/")
TARGET = re.compile(r"^ *make ([a-z][a-z-]*)", re.M)


@cache
def pages() -> list[Path]:
    """All pages of the repository: what git knows, or would."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):  # a source archive
        listed = [
            relative(path) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md"))
        ]
    return sorted(path for name in listed if (path := ROOT / name).exists())


def links(text: str) -> list[str]:
    """The relative links of a page, its code left out."""
    return [
        target
        for target in LINK.findall(QUOTED.sub("", FENCED.sub("", text)))
        if "://" not in target and not target.startswith("mailto:")
    ]


@cache
def anchors(path: Path) -> set[str]:
    return read_page(path).anchors


def leads_somewhere(page: Path, target: str) -> bool:
    file, _, anchor = target.partition("#")
    place = (page.parent / file).resolve() if file else page
    return place.exists() and (not anchor or place.suffix != ".md" or anchor in anchors(place))


@pytest.mark.parametrize("page", pages(), ids=relative)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert [target for target in links(page.read_text()) if not leads_somewhere(page, target)] == []


@pytest.mark.parametrize("page", GUIDES, ids=relative)
def test_every_file_that_a_guide_names_is_there(page: Path) -> None:
    named = [text for text in QUOTED.findall(FENCED.sub("", page.read_text())) if FILE.fullmatch(text)]
    assert [name for name in named if not any((root / name).exists() for root in (ROOT, PACKAGE))] == []


@pytest.mark.parametrize("page", pages(), ids=relative)
def test_every_target_of_make_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    code = [*FENCED.findall(text), *QUOTED.findall(FENCED.sub("", text))]
    named = {target for each in code for target in TARGET.findall(each)}
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert named <= known


def test_what_counts_as_a_link() -> None:
    text = "[a](b.md) [c](#d) [e](https://f.org) `[g](h)`\n```\n[i](j)\n```\n![k](l.svg)"
    assert links(text) == ["b.md", "#d", "l.svg"]
    assert leads_somewhere(ROOT / "docs" / "architecture.md", "testing.md#model-checking")
    assert not leads_somewhere(ROOT / "docs" / "architecture.md", "testing.md#no-such-heading")
    assert not leads_somewhere(ROOT / "docs" / "architecture.md", "no-such-page.md")
