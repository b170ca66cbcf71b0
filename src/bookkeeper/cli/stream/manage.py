"""Streams as wholes: made, listed, looked at, cut, ended, renamed, deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from ...runtime import Runtime
from ...streams.dlsn import DLSN
from ...streams.formats.segment import SegmentMetadata
from ...streams.namespace import Namespace, StreamInfo
from ...streams.retention.truncation import Retained
from ..ledger import date_text
from ..options import JsonOption, grouped
from ..output import console, counted, fail, print_json, print_table, remark
from ..shell.common import sure
from .common import ForceOption, NamespaceOptions, StreamName, parse_position, position_text


@grouped
def create(
    name: StreamName,
    at: NamespaceOptions,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="It may be there already.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a stream, and the namespace if it is not there."""

    async def work(namespace: Namespace, _: Runtime) -> str:
        await namespace.create(name, exist_ok=exist_ok)
        return namespace.path

    path = at.run(work, create=True)
    if as_json:
        print_json({"stream": name, "namespace": path})
    else:
        remark(f"stream {name} in {path}")


@grouped
def list_(
    at: NamespaceOptions,
    prefix: Annotated[str, typer.Argument(help="Only those below this name.")] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="And below those.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the names of streams."""

    async def work(namespace: Namespace, _: Runtime) -> list[str]:
        return [name async for name in namespace.list(prefix, recursive=recursive)]

    names = at.run(work)
    if as_json:
        print_json(names)
        return
    for name in names:
        console.print(name, markup=False, soft_wrap=True)


@grouped
def info(name: StreamName, at: NamespaceOptions, as_json: JsonOption = False) -> None:
    """Show a stream's segments, its length, and who writes it."""

    async def work(namespace: Namespace, _: Runtime) -> StreamInfo:
        return await namespace.info(name)

    found = at.run(work)
    if as_json:
        print_json(
            {
                "stream": found.name,
                "owner": found.owner,
                "sealed": found.sealed,
                "records": found.records,
                "last_txid": found.last_txid,
                "segments": [_describe(segment) for segment in found.segments],
            }
        )
        return
    written = f"is written by {found.owner}" if found.owner else "is written by nobody now"
    state = "is sealed" if found.sealed else written
    console.print(
        f"{found.name} {state}; {counted(found.records, 'record')} in completed segments",
        markup=False,
        soft_wrap=True,
    )
    print_table(
        None,
        ["segment", "ledger", "state", "records", "txids", "completed"],
        [_row(segment) for segment in found.segments],
    )


def _describe(segment: SegmentMetadata) -> dict[str, object]:
    return {
        "number": segment.number,
        "ledger": segment.ledger_id,
        "completed": segment.completed,
        "records": segment.records,
        "first_txid": segment.first_txid,
        "last_txid": segment.last_txid,
        "truncation": segment.truncation.name.lower(),
    }


def _row(segment: SegmentMetadata) -> tuple[object, ...]:
    state = "completed" if segment.completed else "being written"
    cut = segment.truncation.name.lower()
    return (
        segment.number,
        segment.ledger_id,
        state if cut == "active" else f"{state}, {cut}",
        segment.records if segment.completed else "",
        f"{segment.first_txid} to {segment.last_txid}" if segment.completed else f"from {segment.first_txid}",
        date_text(segment.completed_ms) if segment.completed else "",
    )


@grouped
def truncate(
    name: StreamName,
    position: Annotated[str, typer.Argument(help="Where it begins from now on: SEGMENT/ENTRY/SLOT, as read prints.")],
    at: NamespaceOptions,
    delete_now: Annotated[bool, typer.Option("--delete", help="Delete segments that are wholly before it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Let a stream begin at a position: what is before it is not read any more."""
    before = parse_position(position)

    async def work(namespace: Namespace, _: Runtime) -> Retained:
        return await namespace.truncate(name, before, delete=delete_now)

    _say_retained(name, at.run(work), as_json)


@grouped
def purge(name: StreamName, at: NamespaceOptions, as_json: JsonOption = False) -> None:
    """Delete what the retention policy of a stream does not keep. By default everything is kept."""

    async def work(namespace: Namespace, _: Runtime) -> Retained:
        return await namespace.purge(name)

    _say_retained(name, at.run(work), as_json)


def _say_retained(name: str, done: Retained, as_json: bool) -> None:
    if as_json:
        first = position_text(done.truncated) if any(done.truncated) else None
        print_json({"stream": name, "begins": first, "deleted": [_describe(each) for each in done.deleted]})
        return
    begins = f"begins at {position_text(done.truncated)} or behind" if any(done.truncated) else "was never truncated"
    remark(f"{name} {begins}; {counted(len(done.deleted), 'segment')} deleted")


@grouped
def seal(name: StreamName, at: NamespaceOptions, force: ForceOption = False) -> None:
    """End a stream for ever: nothing can be appended any more."""
    _ask(f"Are you sure to seal {name} for ever?", force)

    async def work(namespace: Namespace, _: Runtime) -> None:
        await namespace.seal(name)

    at.run(work)
    remark(f"{name} is sealed")


@grouped
def rename(name: StreamName, new: Annotated[str, typer.Argument(help="Its new name.")], at: NamespaceOptions) -> None:
    """Give a stream another name, once nobody writes it."""

    async def work(namespace: Namespace, _: Runtime) -> None:
        await namespace.rename(name, new)

    at.run(work)
    remark(f"{name} is called {new} now")


@grouped
def delete(name: StreamName, at: NamespaceOptions, force: ForceOption = False) -> None:
    """Delete a stream and its ledgers, once nobody writes it."""
    _ask(f"Are you sure to delete {name} and all that is in it?", force)

    async def work(namespace: Namespace, _: Runtime) -> None:
        await namespace.delete(name)

    at.run(work)
    remark(f"{name} is deleted")


def _ask(question: str, force: bool) -> None:
    if not force and not sure(question):
        fail("nothing was changed")


@grouped
def subscribers(
    name: StreamName,
    at: NamespaceOptions,
    delete: Annotated[str | None, typer.Option("--delete", help="Forget this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Who reads a stream under a name, and where each goes on; what they have not read is not deleted."""

    async def work(namespace: Namespace, _: Runtime) -> dict[str, DLSN | None]:
        await namespace.info(name)
        subscriptions = namespace.subscriptions(name)
        known = await subscriptions.list()
        if delete is not None:
            if delete not in known:
                fail(f"stream {name} has no subscriber {delete}")
            await subscriptions.delete(delete)
            del known[delete]
        return known

    known = {who: None if where is None else position_text(where) for who, where in at.run(work).items()}
    if as_json:
        print_json(known)
    elif known:
        rows = [(who, where or "the beginning") for who, where in known.items()]
        print_table(None, ("subscriber", "goes on at"), rows)
    else:
        remark(f"stream {name} has no subscribers")
