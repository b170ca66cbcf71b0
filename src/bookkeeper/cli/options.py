"""What commands are told: options that several share, each said once.

A command asks for options one by one, or for a dataclass of them, which `grouped` spells out for Typer.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from .output import EXIT_USAGE, fail

UriOption = Annotated[
    str,
    typer.Option(
        "--uri",
        "-u",
        envvar="BOOKKEEPER_URI",
        help="Metadata service, as in bk_server.conf: zk+hierarchical://host:2181/ledgers or sqlite:///path/meta.db",
    ),
]
PasswordOption = Annotated[
    str,
    typer.Option(
        "--password",
        "-p",
        envvar="BOOKKEEPER_PASSWORD",
        show_envvar=True,
        help="The ledger's password. Others on this machine see it here: the variable and --password-file hide it.",
    ),
]
PasswordFileOption = Annotated[
    Path | None, typer.Option("--password-file", help="A file whose first line is the ledger's password.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of a table.")]


@dataclass(frozen=True)
class PasswordOptions:
    """A ledger's password, given directly or in a file."""

    password: PasswordOption = ""
    password_file: PasswordFileOption = None

    def secret(self) -> bytes:
        """The password. Ends the command if the file cannot be read."""
        if self.password_file is None:
            return self.password.encode()
        try:
            lines = self.password_file.read_bytes().splitlines()
        except OSError as error:
            fail(f"cannot read {self.password_file}: {error.strerror}", EXIT_USAGE)
        return lines[0] if lines else b""


def pairs(flag: str, texts: list[str] | None) -> list[tuple[str, str]]:
    """What was given with a repeatable KEY=VALUE option. Ends the command at one that is not of this form."""
    split = [text.partition("=") for text in texts or []]
    for text, (key, equals, _) in zip(texts or [], split, strict=True):
        if not key or not equals:
            fail(f"{flag} {text}: say KEY=VALUE", EXIT_USAGE)
    return [(key, value) for key, _, value in split]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command for Typer, made of one that takes dataclasses of options.

    Each parameter whose type is a dataclass is replaced, where it stands, by a parameter for each field. Names must
    differ. The command gets the dataclasses back.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            groups[name] = kind
            parameters += _fields(kind)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**given)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _fields(group: type[Any]) -> list[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=types[field.name],
        )
        for field in dataclasses.fields(group)
    ]
