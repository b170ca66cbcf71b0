"""How commands speak: tables for people, JSON for scripts, one line for an error."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from ..errors import BookKeeperError, ConfigurationError
from ..runtime import Runtime
from ..runtime.real import run

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

console = Console(highlight=False)
notes = Console(stderr=True, highlight=False)
"""Progress and remarks: kept off stdout, which carries results."""

UriOption = Annotated[
    str,
    typer.Option(
        "--uri",
        "-u",
        envvar="BOOKKEEPER_URI",
        help="Metadata service, as in bk_server.conf: zk+hierarchical://host:2181/ledgers or sqlite:///path/meta.db",
    ),
]
PasswordOption = Annotated[str, typer.Option("--password", "-p", help="The ledger's password.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts instead of a table.")]


def fail(message: str, code: int = EXIT_ERROR) -> NoReturn:
    """End the command with one line on stderr."""
    notes.print(f"[bold red]error:[/] {message}", soft_wrap=True, markup=True)
    raise typer.Exit(code)


def execute(main: Callable[[Runtime], Awaitable[Any]]) -> Any:
    """Run a command's coroutine; turn this package's errors into one line, Ctrl-C into exit code 130."""
    try:
        return run(main)
    except ConfigurationError as error:
        fail(_plain(error), EXIT_USAGE)
    except BookKeeperError as error:
        fail(f"{_plain(error)}")
    except (OSError, TimeoutError) as error:
        fail(_plain(error))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _plain(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text.replace("[", r"\[")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def print_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout; numbers are right-aligned."""
    rows = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", header_style="bold")
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    console.print(table)


def set_up_logging(verbose: bool) -> None:
    """Warnings to stderr; with `verbose` everything."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )


def human_bytes(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
