"""The house's floors and seams, checked on the source itself (see docs/architecture.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "bookkeeper"

FLOORS: dict[str, int] = {
    "types": 0,
    "errors": 0,
    "config": 0,
    "promises": 0,
    "runtime": 0,
    "version": 0,
    "protocol": 1,
    "quorum": 1,
    "metadata": 2,
    "bookie": 3,
    "client": 3,
    "autorecovery": 4,
    "doctor": 4,
    "peers": 4,
    "streams": 4,
    "admin": 5,
    "sync": 5,
    "spark": 5,
    "cli": 6,
}
"""A room may import its own floor's pure rooms and everything below; never a room of the same floor from 1 up."""

FREE = {"simulation", "__init__", "__main__"}
"""`simulation` imports anything; nothing imports it. The package's face re-exports the client."""

MOST_FILES = 15
"""In one room, without its `__init__`."""

MOST_LINES = 45
"""Of a function."""

MOST_ATTRIBUTES = 20
"""Of an object."""

OUTSIDE_WORLD = {
    "multiprocessing", "os", "queue", "random", "secrets", "select", "shutil", "signal", "socket",
    "ssl", "subprocess", "tempfile", "threading", "time", "uuid", "concurrent",
}  # fmt: skip
"""Modules through which a program reaches the world, or chance."""

SEAMS = ("runtime/", "cli/", "spark/", "simulation/", "metadata/sqlite", "metadata/zookeeper", "sync/")
"""Where they may be imported: the runtime, the commands, and drivers that own a thread of their own."""


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line and dotted name of every import; names inside the package start with 'bookkeeper'."""
    package = ["bookkeeper", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = [*base, *(node.module.split(".") if node.module else [])]
            if name == ["bookkeeper"] or not node.module:
                for alias in node.names:
                    yield node.lineno, [*name, alias.name]
            else:
                yield node.lineno, name


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down_the_floors(path: Path) -> None:
    own = room(path)
    if own in FREE:
        return
    assert own in FLOORS, f"{own} has no floor: give it one here and in docs/architecture.md"
    for line, name in imports(path):
        if name[0] != "bookkeeper" or len(name) < 2 or name[1] == own:
            continue
        target = name[1]
        if target not in FLOORS and target not in FREE:
            continue  # a name of the package's face
        assert target != "simulation", f"{path}:{line} imports the simulation"
        allowed = FLOORS.get(target, 99) < FLOORS[own] or (FLOORS.get(target) == FLOORS[own] == 0)
        assert allowed, f"{path}:{line} imports {'.'.join(name)}: not below floor {FLOORS[own]}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_side_effects_go_through_the_runtime(path: Path) -> None:
    """SR-1, SR-2, SR-3, SR-4."""
    relative = str(path.relative_to(ROOT))
    if relative.startswith(SEAMS):
        return
    tree = ast.parse(path.read_text())
    for line, name in imports(path):
        assert name[0] not in OUTSIDE_WORLD, f"{relative}:{line} imports {name[0]}: use bookkeeper.runtime"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "open", f"{relative}:{node.lineno} opens a file: use runtime.files"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("bookkeeper", *parts)).removesuffix(".__init__")


def imported_modules(path: Path, known: set[str]) -> set[str]:
    """The project's modules that a file imports, for type checkers only or not."""
    package = module_name(path).split(".") if path.stem == "__init__" else module_name(path).split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *(node.module.split(".") if node.module else [])])
            for alias in node.names:
                found |= known.intersection({f"{origin}.{alias.name}"}) or known.intersection({origin})
        elif isinstance(node, ast.Import):
            found |= known.intersection(alias.name for alias in node.names)
    return found - {module_name(path)}


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """A way that comes back to where it began; empty if there is none."""
    done: set[str] = set()
    way: list[str] = []

    def visit(here: str) -> list[str]:
        if here in way:
            return [*way[way.index(here) :], here]
        if here in done:
            return []
        way.append(here)
        for there in sorted(arrows.get(here, ())):
            if found := visit(there):
                return found
        done.add(way.pop())
        return []

    return next((found for start in sorted(arrows) if (found := visit(start))), [])


def packages() -> list[Path]:
    return sorted(path.parent for path in ROOT.rglob("__init__.py"))


@pytest.fixture(scope="module")
def arrows() -> dict[str, set[str]]:
    known = {module_name(path) for path in modules()}
    return {module_name(path): imported_modules(path, known) for path in modules()}


@pytest.mark.parametrize("package", packages(), ids=lambda path: str(path.relative_to(ROOT.parent)))
def test_nothing_goes_round_in_a_room(package: Path, arrows: dict[str, set[str]]) -> None:
    """A room's files and the rooms inside it, each taken as one: none depends on itself by way of others."""
    room = ".".join(package.relative_to(ROOT.parent).parts)

    def part(module: str) -> str:
        below = module.removeprefix(f"{room}.")
        return "" if below == module else below.split(".")[0]

    inside: dict[str, set[str]] = {}
    for module, targets in arrows.items():
        if own := part(module):
            inside.setdefault(own, set()).update({part(target) for target in targets} - {own, ""})
    assert not circle(inside), f"{room}: {' -> '.join(circle(inside))}"


@pytest.mark.parametrize("package", packages(), ids=lambda path: str(path.relative_to(ROOT.parent)))
def test_a_room_can_be_overlooked(package: Path) -> None:
    """No more than 15 files, and where there are several the room's `__init__` says what each is for."""
    names = [path.stem for path in package.glob("*.py") if not path.stem.startswith("__")]
    assert len(names) <= MOST_FILES, f"{package} has {len(names)} files: give it inner rooms"
    listing = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    missing = [name for name in names if not re.search(rf"\b{name}\b", listing)]
    assert package == ROOT or not missing, f"{package}/__init__.py does not say what {', '.join(missing)} is for"


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines, without the docstring."""
    text = ast.get_docstring(function, clean=False)
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1 - (len(text.splitlines()) if text else 0)


def attributes(kind: ast.ClassDef) -> set[str]:
    """What instances are given."""
    stores = (node for node in ast.walk(kind) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return {node.attr for node in stores if isinstance(node.value, ast.Name) and node.value.id == "self"}


def test_nothing_grows_too_large_to_read() -> None:
    """Functions fit on a screen and classes into a head."""
    too_large = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length(node) > MOST_LINES:
                too_large[f"{path.relative_to(ROOT)} {node.name}"] = length(node)
            elif isinstance(node, ast.ClassDef) and len(attributes(node)) > MOST_ATTRIBUTES:
                too_large[f"{path.relative_to(ROOT)} {node.name}"] = len(attributes(node))
    assert not too_large, f"cut these: {too_large}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_of_the_package_s_own_are_relative(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").split(".")[0] != "bookkeeper", f"{path}:{node.lineno}: {node.module}"


def test_every_package_is_documented() -> None:
    for path in modules():
        if path.stat().st_size:
            assert ast.get_docstring(ast.parse(path.read_text())), f"{path} does not say what it is for"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_data_is_run_as_code(path: Path) -> None:
    """SEC-54."""
    for line, name in imports(path):
        assert name[0] not in {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, f"{path}:{line} imports {name[0]}"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec"}, f"{path}:{node.lineno} runs what it is given"
