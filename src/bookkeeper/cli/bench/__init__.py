"""`bookkeeper bench ...`: how fast a cluster is, as a client sees it.

common   what a measurement found, and how it is shown
ledgers  appends to ledgers, reads and tailing
streams  the same of streams
"""

from __future__ import annotations

import typer

from . import ledgers, streams

app = typer.Typer(no_args_is_help=True, help="Measure appends, reads and tailing.")
app.command()(ledgers.write)
app.command()(ledgers.read)
app.command()(ledgers.tail)
app.add_typer(streams.app, name="stream")
