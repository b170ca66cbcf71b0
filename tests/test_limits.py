"""`docs/limits.md` against the code: what it names exists, and every queue in the code is in it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookkeeper.config import ClientConfiguration, ServerConfiguration

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "bookkeeper"
ROOMS = ("admin", "autorecovery", "bookie", "client", "metadata", "protocol", "streams")
SETTINGS = {*ServerConfiguration.model_fields, *ClientConfiguration.model_fields}
GROWING = {"append", "appendleft", "extend", "insert"}
QUEUES = {"deque", "Queue", "SimpleQueue", "LifoQueue", "PriorityQueue"}


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    what: str
    files: tuple[str, ...]
    names: tuple[str, ...]
    """Attributes or functions of the files."""
    bounds: tuple[str, ...]
    """Settings, or `module:CONSTANT`."""
    places_of_bounds: tuple[str, ...]
    """Files that use the settings, beside `files`."""
    fixed: bool
    """The bound is told in words: the number is given by the program."""


def rows() -> list[Row]:
    found = []
    for line in (ROOT / "docs" / "limits.md").read_text().splitlines():
        if not line.startswith("| ") or line.startswith("| what "):
            continue
        what, where, bound, _ = (cell.strip() for cell in line.strip("|").split("|"))
        places, bounds = re.findall(r"`([^`]+)`", where), re.findall(r"`([^`]+)`", bound)
        found.append(
            Row(
                what,
                tuple(text for text in places if text.endswith(".py")),
                tuple(text for text in places if not text.endswith(".py")),
                tuple(text for text in bounds if not text.endswith(".py")),
                tuple(text for text in bounds if text.endswith(".py")),
                bound.startswith("fixed: "),
            )
        )
    return found


ROWS = rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_a_limit_of_the_page_exists_in_the_code(row: Row) -> None:
    texts = {path: (SOURCE / path).read_text() for path in (*row.files, *row.places_of_bounds)}
    assert row.files, "no place"
    assert row.bounds or row.fixed, "no bound"
    for name in row.names:
        assert any(re.search(rf"\b{name}\b", texts[path]) for path in row.files), f"{name} is not there"
    for bound in row.bounds:
        module, colon, constant = bound.partition(":")
        if colon:
            assert re.search(rf"^{constant} = ", (SOURCE / module).read_text(), re.M), f"{bound} does not exist"
        else:
            assert bound in SETTINGS, f"{bound} is no setting"
            assert any(f".{bound}" in text or f'"{bound}"' in text for text in texts.values()), f"{bound} is not used"


def _kind(value: ast.expr | None) -> str | None:
    """What kind of queue or list without a bound an expression makes."""
    if isinstance(value, ast.List) and not value.elts:
        return "list"
    if not isinstance(value, ast.Call):
        return None
    function = value.func
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    bounded = any(keyword.arg in ("maxlen", "maxsize") for keyword in value.keywords)
    return "queue" if name in QUEUES and not bounded else None


def _grown(tree: ast.Module) -> set[str]:
    """Attributes that something is added to."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
            found.add(node.target.attr)
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr in GROWING
            and isinstance(function.value, ast.Attribute)
        ):
            found.add(function.value.attr)
        pushes = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if pushes == "heappush" and isinstance(node.args[0], ast.Attribute):
            found.add(node.args[0].attr)
    return found


def queues(source: str) -> set[str]:
    """Names in a module that are queues, or lists that live in an object and are added to."""
    tree = ast.parse(source)
    grown = _grown(tree)
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        kind = _kind(node.value)
        if name and (kind == "queue" or (kind == "list" and isinstance(target, ast.Attribute) and name in grown)):
            found.add(name)
    return found


def test_every_queue_of_the_code_is_on_the_page() -> None:
    listed = {(path, name) for row in ROWS for path in row.files for name in row.names}
    missing = [
        f"{path.relative_to(SOURCE)} {name}"
        for room in ROOMS
        for path in sorted((SOURCE / room).rglob("*.py"))
        for name in sorted(queues(path.read_text()))
        if (str(path.relative_to(SOURCE)), name) not in listed
    ]
    assert not missing, f"docs/limits.md must say what bounds these: {', '.join(missing)}"


def test_the_search_finds_queues_and_lists_that_are_used_as_such() -> None:
    source = """
class A:
    def __init__(self):
        self.queue = asyncio.Queue()
        self.bounded = asyncio.Queue(maxsize=5)
        self.ring = deque(maxlen=3)
        self.waiting: deque[int] = deque()
        self.heap = []
        self.list = []
        self.fixed = []
        chunks = deque()
    def add(self, x):
        heapq.heappush(self.heap, x)
        self.list += x
"""
    assert queues(source) == {"queue", "waiting", "heap", "list", "chunks"}
