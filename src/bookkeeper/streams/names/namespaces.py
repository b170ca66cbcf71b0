"""A namespace: its binding, its streams, its settings (spec streams §2.2, §2.3, §15.4).

The data of a namespace's record is its *binding*: it says where the ledgers are. Its format is not known here; these
are bytes. A namespace without one of its own has that of the nearest record above it that has any.

Settings are JSON objects in `<namespace>/.config` and `<namespace>/.config/streams/<name>`; what a stream says for
itself goes before what the namespace says. Names of settings are not known here either, and unknown ones are kept.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple
from urllib.parse import quote

from ...errors import (
    NamespaceExistsError,
    NamespaceNotBoundError,
    NamespaceNotEmptyError,
    NoSuchRecord,
    RecordChanged,
    RecordExists,
    StreamConflictError,
    StreamMetadataError,
)
from ...metadata.api import Version, Versioned
from ...metadata.tree import RecordTree, parent_of
from .naming import is_reserved

FORMAT = 1
"""Of settings: the value of `v`."""


class Bound(NamedTuple):
    """A binding that was found."""

    path: str
    """The record that has it: the namespace's own, or one above."""
    data: bytes


async def bind(tree: RecordTree, path: str, binding: bytes, *, replace: bool = False) -> None:
    """Make a namespace, and what is missing above it. Raises `NamespaceExistsError`, unless its binding is replaced."""
    while True:
        await tree.make(path)
        node = await tree.get(path, fresh=True)
        if node is None:
            continue  # removed by another client just now
        if node.data and node.data != binding and not replace:
            raise NamespaceExistsError(f"there is a namespace at {path} already")
        try:
            await tree.write(path, binding, node.version)
            return
        except (RecordChanged, NoSuchRecord):
            continue


async def resolve(tree: RecordTree, path: str) -> Bound:
    """The binding of a namespace. Raises `NamespaceNotBoundError`."""
    at = path
    while at != "/":
        node = await tree.get(at, fresh=at == path)
        if node is not None and node.data:
            return Bound(at, node.data)
        at = parent_of(at)
    raise NamespaceNotBoundError(f"there is no namespace at {path}, nor above it: bind it first")


async def unbind(tree: RecordTree, path: str, *, force: bool = False) -> None:
    """Take the binding away. Raises `NamespaceNotEmptyError` if there are streams, unless forced."""
    listing = await tree.children(path, fresh=True)
    if listing is None:
        raise NamespaceNotBoundError(f"there is no namespace at {path}")
    streams = [name for name in listing.names if not is_reserved(name)]
    if streams and not force:
        raise NamespaceNotEmptyError(f"namespace {path} has streams, such as {streams[0]}: delete them first")
    await tree.write(path, b"")


async def watch_names(tree: RecordTree, path: str) -> AsyncGenerator[frozenset[str], None]:
    """The names directly below a namespace, now and after each change: streams, or parts of their names."""
    async with aclosing(tree.watch_children(path)) as listings:
        async for listing in listings:
            yield frozenset(name for name in listing.names if not is_reserved(name)) if listing else frozenset()


class NamespaceSettings:
    """The settings of a namespace and its streams, as JSON objects."""

    def __init__(self, tree: RecordTree, namespace: str) -> None:
        self._tree = tree
        self._root = f"{namespace}/.config"

    def _path(self, stream: str | None) -> str:
        return self._root if stream is None else f"{self._root}/streams/{quote(stream, safe='')}"

    async def get(self, stream: str | None = None) -> Versioned[dict[str, Any]] | None:
        """What the namespace says, or what a stream says for itself; None if nothing. Raises `StreamMetadataError`."""
        path = self._path(stream)
        node = await self._tree.get(path, fresh=True)
        return None if node is None or not node.data else Versioned(_parse(node.data, path), node.version)

    async def effective(self, stream: str) -> dict[str, Any]:
        """What holds for a stream."""
        found: dict[str, Any] = {}
        for settings in (await self.get(), await self.get(stream)):
            found |= settings.value if settings is not None else {}
        return found

    async def put(
        self, settings: Mapping[str, Any], *, stream: str | None = None, expected: Version | None = None
    ) -> Version:
        """Replace them; with `expected` only if they have this version. Raises `StreamConflictError`."""
        path = self._path(stream)
        data = json.dumps({"v": FORMAT, **settings}, sort_keys=True, separators=(",", ":")).encode()
        while True:
            try:
                if expected is not None:
                    return await self._tree.write(path, data, expected)
                await self._tree.make(parent_of(path))
                if await self._tree.get(path) is None:
                    return await self._tree.create(path, data)
                return await self._tree.write(path, data)
            except (RecordChanged, NoSuchRecord, RecordExists) as error:
                if expected is not None:
                    raise StreamConflictError(f"the settings at {path} were changed meanwhile: {error}") from None

    async def remove(self, stream: str) -> None:
        """What a stream says for itself; nothing is fine."""
        try:
            await self._tree.delete(self._path(stream))
        except NoSuchRecord:
            return

    async def watch(self, stream: str | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """What `get` would say, now and after each change; empty for nothing. Settings of no sense are skipped."""
        path = self._path(stream)
        async with aclosing(self._tree.watch(path)) as nodes:
            async for node in nodes:
                if node is None or not node.data:
                    yield {}
                    continue
                try:
                    settings = _parse(node.data, path)
                except StreamMetadataError:
                    continue
                yield settings


def _parse(data: bytes, path: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise StreamMetadataError(f"the settings at {path} are no JSON: {error}") from None
    if not isinstance(found, dict) or found.pop("v", None) != FORMAT:
        raise StreamMetadataError(f"the settings at {path} are of no format that is known here")
    return found
