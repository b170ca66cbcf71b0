"""`bookkeeper bookies ...`: what bookies there are."""

from __future__ import annotations

import typer

import bookkeeper

from ..runtime import Runtime
from .output import JsonOption, UriOption, execute, human_bytes, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="What bookies there are.")


@app.command("list")
def list_(uri: UriOption, as_json: JsonOption = False) -> None:
    """List every bookie of the cluster with its state and disk space."""

    async def main(runtime: Runtime) -> None:
        async with bookkeeper.connect(uri, runtime=runtime) as bk:
            writable = await bk.writable_bookies()
            readonly = await bk.readonly_bookies() - writable
            known = await bk.all_bookies()
            space = await bk.bookie_info()
        rows = []
        for bookie in sorted(known | writable | readonly):
            state = "writable" if bookie in writable else "read-only" if bookie in readonly else "down"
            info = space.get(bookie)
            rows.append(
                {
                    "bookie": bookie,
                    "state": state,
                    "free_bytes": info.free if info else None,
                    "total_bytes": info.total if info else None,
                }
            )
        if as_json:
            print_json(rows)
        else:
            print_table(
                None,
                ["bookie", "state", "free", "total"],
                [
                    (
                        row["bookie"],
                        row["state"],
                        human_bytes(row["free_bytes"]) if row["free_bytes"] is not None else "-",
                        human_bytes(row["total_bytes"]) if row["total_bytes"] is not None else "-",
                    )
                    for row in rows
                ],
            )

    execute(main)
