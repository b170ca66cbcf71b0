"""`bookkeeper stream ...`: streams by name: logs without an end, over many ledgers.

common    which namespace is meant
manage    create, list, info, truncate, purge, seal, rename, delete, subscribers
append    lines become records as they come
read      read and tail
check     verify and maintain
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from . import append, check, manage, read

app = typer.Typer(
    no_args_is_help=True,
    help="Create, append to, read, follow, inspect, truncate and delete streams: logs without an end.",
)

COMMANDS: dict[str, Callable[..., None]] = {
    "create": manage.create,
    "list": manage.list_,
    "info": manage.info,
    "append": append.append,
    "read": read.read,
    "tail": read.tail,
    "subscribers": manage.subscribers,
    "verify": check.verify,
    "truncate": manage.truncate,
    "purge": manage.purge,
    "maintain": check.maintain,
    "seal": manage.seal,
    "rename": manage.rename,
    "delete": manage.delete,
}

for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
