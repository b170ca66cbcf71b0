"""`bookkeeper.sync` has what the asyncio client has: names, arguments, defaults, so that neither drifts."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import bookkeeper
import bookkeeper.sync
from bookkeeper.client.client import BookKeeper
from bookkeeper.client.reader import LedgerReader
from bookkeeper.client.writer import LedgerAdvWriter, LedgerWriter
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.publishing.staged import StagedSegment, Staging
from bookkeeper.streams.reading.reader import StreamReader
from bookkeeper.streams.reading.subscriptions import Subscriptions
from bookkeeper.streams.writer import StreamWriter

TWINS: list[tuple[type, type]] = [
    (bookkeeper.sync.BookKeeper, BookKeeper),
    (bookkeeper.sync.LedgerReader, LedgerReader),
    (bookkeeper.sync.LedgerWriter, LedgerWriter),
    (bookkeeper.sync.LedgerAdvWriter, LedgerAdvWriter),
    (bookkeeper.sync.Namespace, Namespace),
    (bookkeeper.sync.StreamReader, StreamReader),
    (bookkeeper.sync.StreamWriter, StreamWriter),
    (bookkeeper.sync.Subscriptions, Subscriptions),
    (bookkeeper.sync.Staging, Staging),
    (bookkeeper.sync.StagedSegment, StagedSegment),
]

INSIDE = {
    "get_versioned_metadata", "open_ledger_as_admin",  # for tools that work on the loop
    "adopt_metadata", "follow_metadata", "versioned_metadata",  # between the parts of a client
    "change_ensemble", "give_up", "failure", "rest", "client_closed",  # between the writer, its pipeline and client
    "confirm_many", "send_many",  # the halves of `append_many`, for `sync` itself
    "offloads", "segment_store", "append_bodies",  # for Spark's job, readers and sinks
    "client",  # its namesake in `sync` is what the caller has handed in, or nobody's
    "wait_closed",  # `close` waits for the same
    "largest_payload",  # an error says it
    "write_soon",  # threads get room in their order, whatever the ids: one could wait behind a gap for ever
}  # fmt: skip
"""What only the asyncio classes have, and why."""


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


def arguments(function: Any, *, without: set[str]) -> list[tuple[str, str, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind.name, each.default) for each in parameters if each.name not in without]


@pytest.mark.parametrize(("plain", "original"), TWINS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_the_plain_class_has_what_the_asyncio_class_has(plain: type, original: type) -> None:
    ours, theirs = public(plain), public(original)
    assert set(theirs) - set(ours) <= INSIDE
    assert not set(ours) - set(theirs)
    for name, member in ours.items():
        twin = theirs[name]
        assert isinstance(member, property) == isinstance(twin, property), name
        if callable(member):
            # `timeout` ends every plain call; where the asyncio one has one, it is that.
            assert arguments(member, without={"self", "timeout"}) == arguments(twin, without={"self", "timeout"}), name


def test_what_is_left_out_is_there() -> None:
    everything = {name for _, original in TWINS for name in public(original)}
    assert everything >= INSIDE


@pytest.mark.parametrize("name", ["connect", "open_namespace"])
def test_both_begin_alike(name: str) -> None:
    plain, original = getattr(bookkeeper.sync, name), getattr(bookkeeper, name)
    assert arguments(plain, without={"timeout"}) == arguments(original, without=set())
