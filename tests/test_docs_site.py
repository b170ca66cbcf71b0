"""The documentation site: its navigation has every page, its reference every public name, and each docstring says what
a caller must know. Whether all links and references hold, the build itself finds out: it runs here where its libraries
are (`make site`).
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import bookkeeper
import bookkeeper.spark
import bookkeeper.sync

from .support import site
from .support.references import ROOT

HANDLES = (bookkeeper.BookKeeper, bookkeeper.LedgerWriter, bookkeeper.LedgerAdvWriter, bookkeeper.LedgerReader)

INTERNAL = {"adopt_metadata", "change_ensemble", "give_up", "send_many", "confirm_many", "context"}
"""Public for other parts of the package only."""

PLAIN = {"first", "last", "entry_id", "ledger_id", "bookie", "data", "start"}
"""Arguments whose name and type say it all."""


def navigation() -> list[str]:
    text = (ROOT / "mkdocs.yml").read_text()
    return re.findall(r"^ *- (?:.*: )?(\S+\.md)$", text[text.index("\nnav:") :], re.M)


def calls() -> Iterator[tuple[str, Any]]:
    """Every public function and method for asyncio, by the name that users call it by."""
    yield "connect", bookkeeper.connect
    for handle in HANDLES:
        for name, member in inspect.getmembers(handle, inspect.isfunction):
            if not name.startswith("_") and name not in INTERNAL:
                yield f"{handle.__name__}.{name}", member


def fields(cls: type) -> Iterator[str]:
    """Names of what an object of the class has, beside methods."""
    if issubclass(cls, Enum):
        yield from cls.__members__
    elif dataclasses.is_dataclass(cls):
        yield from (field.name for field in dataclasses.fields(cls))
    else:
        yield from getattr(cls, "_fields", ())


# --- pages ---


def test_the_navigation_names_every_page_once() -> None:
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(navigation()) == sorted([*pages, *site.TOP_PAGES, *site.API, site.ERRORS])


def test_the_reference_has_every_public_name() -> None:
    shown = {name for topic in site.API.values() for name in topic.names}
    wanted = {f"bookkeeper.{name}" for name in bookkeeper.__all__} - {"bookkeeper.__version__"}
    wanted -= {f"bookkeeper.{name}" for name in site.error_names()}
    wanted |= {f"bookkeeper.sync.{name}" for name in bookkeeper.sync.__all__}
    wanted |= {f"bookkeeper.spark.{name}" for name in bookkeeper.spark.__all__}
    assert shown - {"bookkeeper.sync"} == wanted


def test_the_page_of_errors_names_each_after_what_it_is_derived_from() -> None:
    names = site.error_names()
    assert all(name in site.api_page(site.ERRORS) for name in names)
    for place, name in enumerate(names):
        bases = {base.__name__ for base in getattr(bookkeeper, name).__mro__[1:]}
        assert not bases & set(names[place:]), name


def test_links_to_sources_become_text_and_others_stay() -> None:
    class Known:
        def get_file_from_path(self, path: str) -> object | None:
            return object() if path == "docs/limits.md" else None

    class At:
        class file:  # noqa: N801
            src_uri = "docs/spec/codes.md"

    text = (
        "[a](../../src/bookkeeper/errors.py) [`b`](../limits.md#x) [c](../nowhere.md) [d](https://e.org/f.py) [g](#h)"
    )
    kept = "a [`b`](../limits.md#x) [c](../nowhere.md) [d](https://e.org/f.py) [g](#h)"
    assert site.on_page_markdown(text, At(), None, Known()) == kept  # type: ignore[arg-type]


needs_mkdocs = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("mkdocs", "material", "mkdocstrings"))), reason="needs the extra docs"
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the site is made of, to be changed at will."""
    for name in ("mkdocs.yml", *site.TOP_PAGES):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "src").symlink_to(ROOT / "src")
    (tmp_path / "bench").symlink_to(ROOT / "bench")
    (tmp_path / "tests").mkdir()
    for path in (ROOT / "tests").iterdir():  # pages name sources, and the hook is one
        if path.name != "support":
            (tmp_path / "tests" / path.name).symlink_to(path)
    shutil.copytree(ROOT / "tests" / "support", tmp_path / "tests" / "support")
    return tmp_path


def build(root: Path) -> str:
    """What MkDocs complains of; empty if it has made the site."""
    command = [sys.executable, "-m", "mkdocs", "build"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.slow
@needs_mkdocs
def test_the_site_is_built(copy: Path) -> None:
    assert build(copy) == ""
    client = (copy / "build" / "site" / "api" / "client.html").read_text()
    assert 'id="bookkeeper.BookKeeper.create_ledger"' in client
    assert "ack_quorum" in client


@pytest.mark.slow
@needs_mkdocs
def test_a_site_with_holes_is_not_built_and_each_is_named(copy: Path) -> None:
    holes = ["no-such-page.md", "limits.md#no-such-heading", "../src/bookkeeper/no_such_file.py"]
    with (copy / "docs/client.md").open("a") as file:
        file.writelines(f"\n[a]({hole})\n" for hole in holes)
    (copy / "docs/new.md").write_text("# A page that the navigation does not name\n")
    told = [line for line in build(copy).splitlines() if line.startswith(("WARNING", "  - "))]
    for hole in ("no-such-page.md", "#no-such-heading", "no_such_file.py", "new.md"):
        assert sum(hole in line for line in told) == 1, told


# --- docstrings ---


@pytest.mark.parametrize("name", [name for name in bookkeeper.__all__ if name not in ("__version__", "BookieId")])
def test_a_public_name_says_what_it_means(name: str) -> None:
    value = getattr(bookkeeper, name)
    assert inspect.getdoc(value), name
    for member in fields(value) if isinstance(value, type) else ():
        source = inspect.getsource(value)
        plain = member in PLAIN
        assert plain or re.search(rf'^    {member}\b.*\n    """', source, re.M), f"{name}.{member}: no text under it"


@pytest.mark.parametrize(("name", "call"), list(calls()), ids=[name for name, _ in calls()])
def test_a_call_says_what_its_arguments_mean_in_which_units_and_what_it_raises(name: str, call: Any) -> None:
    text = inspect.getdoc(call)
    assert text, name
    told = _with_those_it_leans_on(text)
    for argument in set(inspect.signature(call).parameters) - {"self"} - PLAIN:
        assert f"`{argument}`" in told, f"{argument} is not explained"
        if "timeout" in argument:
            assert "seconds" in told
        if argument.endswith(("bytes", "max_size")):
            assert "bytes" in told
    waits = inspect.iscoroutinefunction(call) or "Opening" in str(inspect.signature(call).return_annotation)
    if waits and not name.startswith("BookKeeper."):  # the class says what all of its calls raise
        assert "raise" in told.lower() or name.endswith((".wait_closed", "LedgerReader.close"))


def _with_those_it_leans_on(text: str) -> str:
    """What a docstring says, and what those say that it names: "as `create_ledger`", "those of `read`"."""
    named = {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", text)}
    others = [inspect.getdoc(call) or "" for name, call in calls() if name.rpartition(".")[2] in named]
    return "\n".join([text, *others])


def test_a_plain_call_has_a_docstring_too() -> None:
    silent = [
        f"{name}.{member}"
        for name in bookkeeper.sync.__all__
        if isinstance(cls := getattr(bookkeeper.sync, name), type)
        for member, function in inspect.getmembers(cls, inspect.isfunction)
        if not member.startswith("_") and not inspect.getdoc(function)
    ]
    assert silent == []
