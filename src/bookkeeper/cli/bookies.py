"""`bookkeeper bookies ...`: what bookies there are."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ..client.client import BookKeeper
from ..errors import BookKeeperError
from ..runtime import Runtime
from .options import JsonOption, UriOption
from .output import execute, fail, human_bytes, print_json, print_table
from .session import connect

app = typer.Typer(no_args_is_help=True, help="What bookies there are.")

RETRY_SECONDS = 0.2


@app.command("list")
def list_(
    uri: UriOption,
    wait: Annotated[
        int, typer.Option("--wait", "-w", min=0, help="First wait until so many bookies are writable.")
    ] = 0,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait, at most.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """List every bookie of the cluster with its state and disk space. Exit code 1 when there is none."""

    async def main(runtime: Runtime) -> None:
        if wait:
            await _wait(runtime, uri, wait, timeout)
        async with connect(uri, runtime) as bk:
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
        elif rows:
            print_table(
                None,
                ["bookie", "state", "free", "total"],
                [(bookie, state, _size(free), _size(total)) for bookie, state, free, total in rows],
            )
        if not rows:
            fail(
                f"no bookie has registered in the cluster at {uri}: start some with `bookkeeper bookie`; "
                "if they are just starting, --wait waits for them"
            )

    execute(main)


async def _wait(runtime: Runtime, uri: str, count: int, timeout: float) -> None:
    """Until `count` bookies are writable. The store may be just coming up, too: what it says counts at the end."""
    trouble: BookKeeperError | None = None
    found = 0

    async def look(bk: BookKeeper) -> None:
        nonlocal found
        while (found := len(await bk.writable_bookies())) < count:  # noqa: ASYNC110 - the store decides
            await asyncio.sleep(RETRY_SECONDS)

    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    async with connect(uri, runtime) as bk:
                        return await look(bk)
                except BookKeeperError as error:
                    trouble = error
                await asyncio.sleep(RETRY_SECONDS)
    except TimeoutError:
        if trouble is not None and not found:
            raise trouble from None
        fail(f"{found} of {count} bookies are writable after {timeout:g} s")


def _size(size: int | None) -> str:
    return "-" if size is None else human_bytes(size)
