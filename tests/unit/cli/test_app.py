"""The list of commands: what it costs, and that everything that names a command names one that exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import bookkeeper
from bookkeeper.cli.app import COMMANDS, app
from bookkeeper.version import DISTRIBUTION, install_hint

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

HEAVY = {"google.protobuf", "rocksdict", "kazoo", "uvloop"} | {
    f"bookkeeper.{name}" for name in ("bookie", "client", "config", "metadata", "protocol", "runtime")
}


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], ["version"], []])
def test_help_and_version_import_neither_client_nor_bookie(arguments: list[str]) -> None:
    program = (
        "import sys; sys.argv = ['bookkeeper', *sys.argv[1:]]\n"
        "from bookkeeper.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == (0 if arguments else 2)
    assert "bookkeeper" in done.stdout + done.stderr
    assert HEAVY.isdisjoint(done.stderr.split("\n")[-2].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_what_the_list_says_of_a_command_is_what_the_command_says(name: str) -> None:
    loaded = COMMANDS[name].load(name)
    assert loaded.help.split("\n\n")[0].replace("\n", " ") == COMMANDS[name].help


@pytest.mark.parametrize("moment", ["typer", "bookkeeper.cli.app", "bookkeeper.config", "bookkeeper.bookie.bookie"])
def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_traceback(moment: str) -> None:
    program = (
        "import sys\n"
        "class CtrlC:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {moment!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, CtrlC())\n"
        "from bookkeeper.cli.main import main\n"
        "sys.argv = ['bookkeeper', 'bookie', '--conf', 'none']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) in ((130, "", ""), (130, "", "Aborted."))


def test_the_version_is_that_of_the_package() -> None:
    shown = CliRunner().invoke(app, ["--version"]).stdout
    assert shown == f"bookkeeper {bookkeeper.__version__}\n"


# --- names of commands ---


def exists(words: list[str]) -> bool:
    """Whether `bookkeeper words...` is a command. What follows a command is its own affair."""
    if words[0] not in COMMANDS:
        return False
    loaded: Any = COMMANDS[words[0]].load(words[0])
    subcommands = getattr(loaded, "commands", None)
    return subcommands is None or len(words) == 1 or words[1] in subcommands


MENTION = re.compile(r"(?<!Apache BookKeeper's )`(?:make \S+; )?bookkeeper ([a-z][a-z_-]*)(?: ([a-z][a-zA-Z_-]*))?")
LINE = re.compile(r"(?m)^(?:.*\| ?)?\$?\(?\s*bookkeeper ([a-z][a-z_-]*)(?: ([a-z][a-zA-Z_-]*))?")


def strings(path: Path) -> Iterator[str]:
    """All texts of a module, its messages and documentation; parts of an f-string joined."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))


def mentions(text: str, pattern: re.Pattern[str]) -> Iterator[list[str]]:
    for first, second in pattern.findall(text):
        yield [first, second] if second else [first]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_a_message_that_names_a_command_names_one_that_exists(path: Path) -> None:
    for text in strings(path):
        for words in mentions(text, MENTION):
            assert exists(words), f"{path} says `bookkeeper {' '.join(words)}`"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_that_names_a_command_names_one_that_exists(path: Path) -> None:
    text = path.read_text()
    blocks = re.findall(r"(?ms)^```(?:sh|shell|bash|console)?\n(.*?)^```", text)
    for words in [*mentions(text, MENTION), *(each for block in blocks for each in mentions(block, LINE))]:
        assert exists(words), f"{path} says `bookkeeper {' '.join(words)}`"


# --- the name of the distribution ---


def test_every_hint_to_install_something_names_this_distribution() -> None:
    assert f'name = "{DISTRIBUTION}"' in (ROOT / "pyproject.toml").read_text()
    assert install_hint("zookeeper") == f"pip install '{DISTRIBUTION}[zookeeper]'"
    for path in [*SOURCES, *PAGES]:
        for name in re.findall(r"pip install '?([\w.-]+)\[", path.read_text()):
            assert name in (DISTRIBUTION, "."), f"{path}: pip install '{name}[...]'"


# --- make ---


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("demo", "demo"),
        ("demo-heal", "demo-heal"),
        ("demo-spark", "spark demo"),
        ("demo-pipeline", "spark demo-pipeline"),
    ],
)
@pytest.mark.parametrize("file", ["", "/tmp/my file.log", '/tmp/it\'s $(this) "file".log'])
def test_make_hands_on_a_file_of_any_name(tmp_path: Path, target: str, command: str, file: str) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "bookkeeper"
    program.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    program.chmod(0o755)
    for name in (".base", ".spark"):
        (tmp_path / name).touch()
    given = [f"FILE={file.replace('$', '$$')}"] if file else []
    skipped = ["-o", "java", "-o", "python", "-o", str(tmp_path / ".base"), "-o", str(tmp_path / ".spark")]
    done = subprocess.run(
        ["make", "-s", "-C", str(ROOT), target, f"VENV={tmp_path}", *skipped, *given],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == str([*command.split(), *([file] if file else [])])
