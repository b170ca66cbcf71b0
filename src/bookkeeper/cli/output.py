"""How commands speak: tables for people, plain columns for pipes, JSON for scripts, one line for an error.

Only what is light is imported here: every command begins with this module.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console

from ..errors import BookKeeperError, ConfigurationError

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..runtime import Runtime

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

console = Console(highlight=False, emoji=False)
notes = Console(stderr=True, highlight=False, emoji=False)
"""Progress and remarks: kept off stdout, which carries results."""


def fail(message: str, code: int = EXIT_ERROR) -> NoReturn:
    """End the command with one line on stderr."""
    complain(message)
    raise typer.Exit(code)


def complain(message: str) -> None:
    """One line on stderr that something is wrong."""
    notes.print(f"[bold red]error:[/] {_escaped(message)}", soft_wrap=True, markup=True)


def remark(message: str) -> None:
    """One line on stderr that nothing is wrong with."""
    notes.print(message, soft_wrap=True, markup=False)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


def execute(main: Callable[[Runtime], Awaitable[Any]]) -> Any:
    """Run a command's coroutine; turn this package's errors into one line, Ctrl-C into exit code 130."""
    from ..runtime.real import run

    try:
        return run(main)
    except ConfigurationError as error:
        fail(text_of(error), EXIT_USAGE)
    except (BookKeeperError, OSError) as error:  # TimeoutError is an OSError
        fail(text_of(error))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(EXIT_INTERRUPTED) from None


def text_of(error: BaseException) -> str:
    """What an error says; of a failed call of the system: what, and of which file. Its name if it says nothing."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def counted(number: int, one: str, many: str = "") -> str:
    """A number and its noun: `1 entry`, `2 entries`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def entries_text(number: int) -> str:
    return counted(number, "entry", "entries")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def print_table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout; numbers are right-aligned, with separators. Identifiers are given as text: they get none.

    Where stdout is not a terminal: a line a row, columns two blanks apart, nothing folded or drawn.
    """
    cells = [list(row) for row in rows]
    numeric = [
        bool(cells) and all(isinstance(row[index], int | float) for row in cells) for index in range(len(columns))
    ]
    texts = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in cells]
    if not console.is_terminal:
        _print_plain(title, columns, texts, numeric)
        return
    from rich.table import Table

    table = Table(title=title, title_justify="left", header_style="bold")
    for column, right in zip(columns, numeric, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in texts:
        table.add_row(*(_escaped(text) for text in row))
    console.print(table)


def _print_plain(
    title: str | None, columns: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    lines = [list(columns), *texts]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    if title is not None:
        sys.stdout.write(title + "\n")
    for line in lines:
        row = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        )
        sys.stdout.write("  ".join(row).rstrip() + "\n")


def progress_bar() -> Progress:
    """A bar on stderr; nothing when stderr is no terminal."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=notes,
        transient=True,
        disable=not notes.is_terminal,
    )


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
