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
        rows: list[tuple[str, str, int | None, int | None]] = []
        for bookie in sorted(known | writable | readonly):
            state = "writable" if bookie in writable else "read-only" if bookie in readonly else "down"
            info = space.get(bookie)
            rows.append((bookie, state, info.free if info else None, info.total if info else None))
        if as_json:
            print_json([dict(zip(("bookie", "state", "free_bytes", "total_bytes"), row, strict=True)) for row in rows])
        else:
            print_table(
                None,
                ["bookie", "state", "free", "total"],
                [(bookie, state, _size(free), _size(total)) for bookie, state, free, total in rows],
            )

    execute(main)


def _size(size: int | None) -> str:
    return "-" if size is None else human_bytes(size)
