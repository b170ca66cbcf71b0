"""Which namespace the commands of `bookkeeper stream` are about, and how positions are said."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ...errors import NamespaceNotBoundError
from ...runtime import Runtime
from ...streams.dlsn import DLSN
from ...streams.errors import SegmentFormatError
from ...streams.namespace import Namespace
from ...streams.opening import open_namespace
from ..options import UriOption
from ..output import EXIT_USAGE, execute, fail
from ..session import connect

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="Its name: orders, or orders/eu.")]
ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Do not ask.")]


@dataclass(frozen=True)
class NamespaceOptions:
    """A namespace in the metadata store of a cluster."""

    uri: UriOption
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-N",
            envvar="BOOKKEEPER_NAMESPACE",
            help="Its path in the cluster's metadata store, or an address: distributedlog://zk1:2181/orders",
        ),
    ] = "/streams"

    def run(self, work: Callable[[Namespace, Runtime], Awaitable[Any]], *, create: bool = False) -> Any:
        """Run `work` on the namespace; returns what it returns. `create`: make the namespace if it is not there."""

        async def main(runtime: Runtime) -> Any:
            async with self._opened(runtime, create) as namespace:
                return await work(namespace, runtime)

        return execute(main)

    @contextlib.asynccontextmanager
    async def _opened(self, runtime: Runtime, create: bool) -> AsyncIterator[Namespace]:
        async with contextlib.AsyncExitStack() as stack:
            client = None
            if self.namespace.startswith("/"):
                client = await stack.enter_async_context(connect(self.uri, runtime))
            opening = open_namespace(self.namespace, client=client, create=create, runtime=runtime)
            try:
                yield await stack.enter_async_context(opening)
            except NamespaceNotBoundError as error:
                raise NamespaceNotBoundError(f"{error}; `bookkeeper stream create NAME` makes it") from None


def position_text(position: DLSN) -> str:
    """A position as people read it, and as the commands take it back."""
    return f"{position.segment}/{position.entry}/{position.slot}"


def parse_position(text: str) -> DLSN:
    """The reverse; Java's base64 form is a position, too. Ends the command if it is none."""
    parts = text.split("/")
    if len(parts) == 3 and all(part.isdecimal() for part in parts):
        segment, entry, slot = map(int, parts)
        return DLSN(segment, entry, slot)
    try:
        return DLSN.parse(text)
    except SegmentFormatError:
        fail(
            f"{text!r} is no position of a stream: one is SEGMENT/ENTRY/SLOT, as `stream read --json` prints it",
            EXIT_USAGE,
        )
