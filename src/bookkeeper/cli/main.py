"""The `bookkeeper` command: every sub-command is listed here."""

from __future__ import annotations

import importlib.metadata
import platform

import typer

from . import bench, bookies, demo, ledger, server, spark
from .output import JsonOption, console, print_json

app = typer.Typer(
    name="bookkeeper",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=True,
    help="""A replicated, durable, append-only ledger store.

Try it on this machine:

  [bold]bookkeeper localbookie 3 --dir /tmp/bk[/]      three bookies; prints the metadata service URI

  [bold]export BOOKKEEPER_URI=sqlite:///tmp/bk/meta.db[/]

  [bold]bookkeeper ledger create[/]                    prints the new ledger's id

  [bold]seq 1000 | bookkeeper ledger append 0[/]       one entry a line

  [bold]bookkeeper ledger read 0[/]
""",
)
app.command("bookie")(server.bookie)
app.command("localbookie")(server.localbookie)
app.add_typer(ledger.app, name="ledger")
app.add_typer(bookies.app, name="bookies")
app.add_typer(bench.app, name="bench")
app.command("demo")(demo.demo)
app.add_typer(spark.app, name="spark")


@app.command()
def version(as_json: JsonOption = False) -> None:
    """Version of this program and of what it stands on."""
    parts = {
        "bookkeeper": importlib.metadata.version("bookkeeper"),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("protobuf", "google-crc32c", "rocksdict", "uvloop")},
    }
    if as_json:
        print_json(parts)
    else:
        for name, number in parts.items():
            console.print(f"{name} {number}")


def main() -> None:
    """Entry point of the `bookkeeper` command."""
    app()
