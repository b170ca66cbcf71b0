"""`bookkeeper stream verify` and `maintain`: whether streams are whole, and what they need now and then."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated

import typer

from ...runtime import Runtime
from ...streams.namespace import Namespace
from ...streams.reading.verify import CheckedSegment
from ...streams.retention.maintenance import Maintained
from ..options import JsonOption, grouped
from ..output import EXIT_ERROR, complain, console, counted, print_json, print_table, progress_bar, remark, text_of
from ..session import stoppable
from .common import NamespaceOptions


@grouped
def verify(
    at: NamespaceOptions,
    names: Annotated[list[str] | None, typer.Argument(metavar="[STREAM]...", help="None: all streams.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Read streams from end to end, and compare what is there with what their metadata says. Changes nothing.

    Exits with 1 if something is wrong.
    """

    async def work(namespace: Namespace, _: Runtime) -> dict[str, list[CheckedSegment]]:
        wanted = names or [name async for name in namespace.list(recursive=True)]
        return {name: await _verify(namespace, name) for name in wanted}

    found = at.run(work)
    if as_json:
        print_json([_described(name, each) for name, segments in found.items() for each in segments])
    else:
        print_table(
            None,
            ["stream", "segment", "ledger", "records", "payload bytes", ""],
            [
                (name, each.segment.number, each.segment.ledger_id, each.records, each.bytes, _state(each))
                for name, segments in found.items()
                for each in segments
            ],
        )
        for name, segments in found.items():
            for each in segments:
                for finding in each.findings:
                    console.print(f"{name}, segment {each.segment.number}: {finding}", markup=False, soft_wrap=True)
    wrong = sum(len(each.findings) for segments in found.values() for each in segments)
    total = sum(each.records for segments in found.values() for each in segments)
    remark(f"{counted(total, 'record')} read; {counted(wrong, 'finding') if wrong else 'nothing is wrong'}")
    if wrong:
        raise typer.Exit(EXIT_ERROR)


async def _verify(namespace: Namespace, name: str) -> list[CheckedSegment]:
    segments = (await namespace.info(name)).segments
    found = []
    with progress_bar() as progress:
        bar = progress.add_task(name, total=len(segments))
        async with aclosing(namespace.verify(name)) as checking:
            async for checked in checking:
                found.append(checked)
                progress.update(bar, completed=len(found))
    return found


def _state(checked: CheckedSegment) -> str:
    if checked.findings:
        return "wrong"
    return "deleted" if checked.is_gone else "whole"


def _described(name: str, checked: CheckedSegment) -> dict[str, object]:
    return {
        "stream": name,
        "segment": checked.segment.number,
        "ledger": checked.segment.ledger_id,
        "records": checked.records,
        "bytes": checked.bytes,
        "state": _state(checked),
        "findings": checked.findings,
    }


@grouped
def maintain(
    at: NamespaceOptions,
    every: Annotated[
        float | None,
        typer.Option("--every", min=0.1, help="Go on, with so many seconds between rounds; others may do so as well."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Apply the retention policies of all streams, and clean up behind publishers that died."""

    async def work(namespace: Namespace, _: Runtime) -> Maintained | int:
        if every is None:
            return await namespace.maintain()
        with stoppable() as stop:
            remark(f"maintaining the streams of {namespace.path} every {every:g} s, until Ctrl-C")
            running = asyncio.ensure_future(namespace.run_maintenance(interval=every))
            asked = asyncio.ensure_future(stop.asked.wait())
            await asyncio.wait([running, asked], return_when=asyncio.FIRST_COMPLETED)
            for task in (running, asked):
                task.cancel()
            await asyncio.wait([running, asked])
            if not running.cancelled() and (error := running.exception()) is not None:
                raise error
            return 0

    done = at.run(work)
    if isinstance(done, Maintained):
        _say(done, as_json)


def _say(done: Maintained, as_json: bool) -> None:
    deleted = {name: [segment.number for segment in each.deleted] for name, each in done.retained.items()}
    ledgers = list(done.collected.ledgers) if done.collected is not None else []
    if as_json:
        failed = {name: text_of(error) for name, error in done.failed.items()}
        print_json({"streams": done.streams, "deleted": deleted, "failed": failed, "collected_ledgers": ledgers})
    else:
        for name, segments in deleted.items():
            numbers = ", ".join(map(str, segments))
            console.print(f"{name}: deleted segments {numbers}", markup=False, soft_wrap=True)
        for name, error in done.failed.items():
            complain(f"{name}: {text_of(error)}")
        remark(
            f"{counted(done.streams, 'stream')} looked at; {counted(sum(map(len, deleted.values())), 'segment')} and "
            f"{counted(len(ledgers), 'ledger')} of dead publishers deleted"
        )
    if done.failed or done.collected is None:
        raise typer.Exit(EXIT_ERROR)
