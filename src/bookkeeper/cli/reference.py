"""The reference pages, written from the program itself: `python -m bookkeeper.cli.reference docs`.

`docs/commands.md` lists every command with its options, `docs/settings.md` every setting with its default. A test fails
when they are not what this module writes; `make docs` writes them anew.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from .. import config
from ..config import IGNORED_KEYS, ClientConfiguration, ServerConfiguration, Settings
from ..promises import REFUSED, REFUSED_BY_CLIENTS, WITHOUT_EFFECT
from .app import COMMANDS


def commands_page() -> str:
    """Every command, its arguments and options."""
    sections = [section for name, home in COMMANDS.items() for section in _command(name, home.load(name))]
    head = (
        "# Commands\n\n"
        "What `bookkeeper COMMAND --help` says, on one page (written by `make docs`). Results go to stdout, remarks\n"
        "and errors to stderr, an error in one line. Exit codes: 0 done, 1 not done, 2 wrong usage or settings, 130\n"
        "and 143 stopped by Ctrl-C and SIGTERM. Where stdout is not a terminal, tables are plain columns.\n"
    )
    return "\n".join([head, *sections])


def _command(path: str, command: Any) -> Iterator[str]:
    children = getattr(command, "commands", None)
    lines = [f"## {path}" if " " not in path else f"### {path}", "", _plain(command.help or ""), ""]
    if children is not None:
        yield "\n".join(lines)
        for name, child in children.items():
            yield from _command(f"{path} {name}", child)
        return
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = " ".join(["bookkeeper", path, "[OPTIONS]", *map(_argument, arguments)])
    lines += ["```", usage, "```", ""]
    rows = [_row(param) for param in command.params if param.name != "help" and not getattr(param, "hidden", False)]
    if rows:
        lines += ["| | default | |", "|---|---|---|", *rows, ""]
    yield "\n".join(lines)


def _argument(param: Any) -> str:
    name = (param.metavar or param.name).upper().strip("[]")
    text = f"{name}..." if param.nargs == -1 else name
    return text if param.required else f"[{text}]"


def _row(param: Any) -> str:
    if param.param_type_name == "argument":
        names = f"`{param.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
    about = _cell(param.help or "")
    if param.envvar:
        about += f"{'' if about.endswith('.') else ';'} variable `{param.envvar}`"
    return f"| {names} | {_default(param)} | {about} |"


def _default(param: Any) -> str:
    if param.required:
        return "required"
    value = getattr(param.default, "value", param.default)
    if value is None or value is False or value == "":
        return ""
    return f"`{value}`" if value is not True else "on"


def _plain(text: str) -> str:
    """Help without its markup, a paragraph a line."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(re.sub(r"\[/?(?:bold)?\]", "", each).split()) for each in paragraphs)


def settings_page() -> str:
    """Every setting, its default, and what is said of it where it is defined."""
    return "\n".join(
        [
            "# Settings",
            "",
            "Written by `make docs` from `src/bookkeeper/config.py`. Names and meanings are those of Apache\n"
            "BookKeeper's `bk_server.conf`, whose files are read as they are. An environment variable `BK_<key>` goes\n"
            "before the file, an option of `bookkeeper bookie` before both. A key that is not known is reported, with\n"
            "the nearest one that is. What is marked as refused or idle is not there yet: see\n"
            "[What is not there yet](not-there-yet.md).",
            "",
            "## A bookie's",
            "",
            *_settings(ServerConfiguration),
            "## A client's",
            "",
            "Given in code, `ClientConfiguration.from_mapping({...})`; a bookie's own client reads them from its file.",
            "",
            *_settings(ClientConfiguration),
            "## Accepted, without a meaning here",
            "",
            "They are about threads, buffers and libraries of the Java program:\n"
            + ", ".join(f"`{key}`" for key in sorted(IGNORED_KEYS, key=str.lower))
            + ".",
            "",
        ]
    )


def _settings(kind: type[Settings]) -> Iterator[str]:
    documented = _documentation(kind)
    refused = REFUSED if kind is ServerConfiguration else REFUSED_BY_CLIENTS
    idle = WITHOUT_EFFECT if kind is ServerConfiguration else frozenset[str]()
    yield "| setting | default | |"
    yield "|---|---|---|"
    for key, field in kind.model_fields.items():
        mark = "*refused* " if key in refused else "*idle* " if key in idle else ""
        yield f"| `{key}` | {_field_default(field)} | {mark}{_cell(documented.get(key, ''))} |"
    yield ""


def _field_default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{','.join(value)}`" if isinstance(value, list) else f"`{value}`"


def _documentation(kind: type[Settings]) -> dict[str, str]:
    """The text below each setting in the source."""
    tree = ast.parse(inspect.getsource(config))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    found = {}
    for node, following in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(following, ast.Expr):
            found[node.target.id] = str(ast.literal_eval(following.value))
    return found


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


PAGES = {"commands.md": commands_page, "settings.md": settings_page}


def main() -> None:
    directory = Path(sys.argv[1])
    for name, page in PAGES.items():
        (directory / name).write_text(page())


if __name__ == "__main__":
    main()
