"""Options that are said once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from bookkeeper.cli.options import PasswordOptions, grouped, pairs


@dataclass(frozen=True)
class Place:
    """Two options, one of them required."""

    host: Annotated[str, typer.Option("--host", help="Where.")]
    port: Annotated[int, typer.Option("--port", min=1)] = 80


def command() -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @grouped
    def go(
        name: Annotated[str, typer.Argument()],
        place: Place,
        password: PasswordOptions,
        fast: Annotated[bool, typer.Option("--fast")] = False,
    ) -> None:
        """Goes."""
        print(name, place.host, place.port, password.secret().decode() or "-", fast)

    return app


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(command(), list(words), env={"COLUMNS": "200", "BOOKKEEPER_PASSWORD": ""})
    return done.exit_code, done.stdout, done.stderr


def test_a_command_gets_its_groups_of_options() -> None:
    assert run("a", "--host", "h") == (0, "a h 80 - False\n", "")
    assert run("a", "--fast", "--port", "7", "-p", "s", "--host", "h")[1] == "a h 7 s True\n"


def test_what_a_group_requires_is_required_and_its_bounds_hold() -> None:
    assert "Missing option '--host'" in run("a")[2]
    assert run("a", "--host", "h", "--port", "0")[0] == 2


def test_help_lists_them_in_the_place_of_the_group() -> None:
    text = run("--help")[1]
    assert text.index("Goes.") < text.index("--host") < text.index("--port") < text.index("--password ")
    assert text.index("--password-file") < text.index("--fast")


def test_a_password_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text("first\nsecond\n")
    assert PasswordOptions("other", file).secret() == b"first"
    file.write_text("")
    assert PasswordOptions("other", file).secret() == b""
    assert PasswordOptions("other").secret() == b"other"
    with pytest.raises(typer.Exit):
        PasswordOptions("", tmp_path / "none").secret()


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert pairs("-m", ["a=b", "c=d=e", "f="]) == [("a", "b"), ("c", "d=e"), ("f", "")]
    assert pairs("-m", None) == []
    for text in ("a", "=b", ""):
        with pytest.raises(typer.Exit):
            pairs("-m", [text])
