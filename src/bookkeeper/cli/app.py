"""All commands of `bookkeeper`, by name.

A command's module is imported when the command runs, not before: `bookkeeper --help` and `bookkeeper version` load
neither the client nor the bookie. What `--help` lists stands here, therefore; a test compares it with what the
commands say themselves.
"""

from __future__ import annotations

import importlib
import platform
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from ..version import __version__
from .options import JsonOption
from .output import console, print_json

OPTIONS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class CommandPlace:
    """Where a command is: a function, or a Typer of sub-commands, of a module of this package."""

    module: str
    name: str
    help: str

    def load(self, command: str) -> Any:
        """The command itself."""
        found = getattr(importlib.import_module(f".{self.module}", __package__), self.name)
        if isinstance(found, typer.Typer):
            loaded: Any = get_group(found)
        else:
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
            single.command(command)(found)
            loaded = get_command(single)
        loaded.name = command
        return loaded


COMMANDS = {
    "bookie": CommandPlace("server", "bookie", "Run one bookie in the foreground, or with --instances several."),
    "autorecovery": CommandPlace(
        "server", "autorecovery", "Make the copies of lost bookies again, for as long as this runs."
    ),
    "localbookie": CommandPlace(
        "local.localbookie", "localbookie", "Run a cluster of bookies on this machine until it is stopped."
    ),
    "shell": CommandPlace(
        "shell", "app", "Make, look at and remove clusters, and look into a bookie's files: BookKeeper's admin shell."
    ),
    "doctor": CommandPlace(
        "doctor.command", "doctor", "Say what is wrong with a cluster, and what to do about it. Changes nothing."
    ),
    "ledger": CommandPlace("ledger", "app", "Create, append to, read, follow, inspect, list and delete ledgers."),
    "stream": CommandPlace(
        "stream", "app", "Create, append to, read, follow, inspect, truncate and delete streams: logs without an end."
    ),
    "bookies": CommandPlace("bookies", "app", "What bookies there are."),
    "bench": CommandPlace("bench", "app", "Measure appends, reads and tailing."),
    "demo": CommandPlace(
        "local.demo",
        "demo",
        "Ingest real data, kill a bookie and the writer on the way, and prove that nothing was lost.",
    ),
    "demo-heal": CommandPlace(
        "local.heal_demo",
        "demo_heal",
        "Kill a bookie for good, wipe another one, and watch the cluster become whole again by itself.",
    ),
    "spark": CommandPlace(
        "spark", "app", "Export, scrub and measure ledgers, ingest files, offload streams, with Apache Spark."
    ),
    "version": CommandPlace("app", "version", "Version of this program and of what it stands on."),
}


class _Unloaded(TyperCommand):
    """A command whose module is not imported before its arguments are looked at."""

    def __init__(self, name: str, home: CommandPlace) -> None:
        super().__init__(name, callback=None, help=home.help)
        self.home = home

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        assert self.name is not None
        return self.home.load(self.name).make_context(info_name, args, parent, **extra)


class _Commands(TyperGroup):
    """The commands of `COMMANDS`."""

    def list_commands(self, _ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        home = COMMANDS.get(cmd_name)
        return None if home is None else _Unloaded(cmd_name, home)


app = typer.Typer(
    name="bookkeeper",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings=OPTIONS,
    help="""A replicated, durable, append-only ledger store.

Try it on this machine:

  [bold]bookkeeper localbookie 3 --dir /tmp/bk[/]      three bookies; prints the metadata service URI

In another terminal:

  [bold]export BOOKKEEPER_URI=sqlite:///tmp/bk/meta.db[/]

  [bold]bookkeeper ledger create[/]                    prints the new ledger's id

  [bold]seq 1000 | bookkeeper ledger append 0[/]       one entry a line

  [bold]bookkeeper ledger read 0[/]
""",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"bookkeeper {__version__}")
        raise typer.Exit


@app.callback()
def options(
    show: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""


def version(as_json: JsonOption = False) -> None:
    """Version of this program and of what it stands on."""
    import importlib.metadata

    parts = {
        "bookkeeper": __version__,
        "python": platform.python_version(),
        **{
            name: importlib.metadata.version(name)
            for name in ("protobuf", "google-crc32c", "isal", "rocksdict", "uvloop")
        },
    }
    if as_json:
        print_json(parts)
    else:
        for name, number in parts.items():
            console.print(f"{name} {number}")
