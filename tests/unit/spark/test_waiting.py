"""Streams that are read before they are there (docs/spark.md)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from bookkeeper.errors import StreamNotFoundError
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.spark.errors import OptionError
from bookkeeper.spark.streaming.following import Follower
from bookkeeper.spark.streaming.spans import Place
from bookkeeper.spark.streaming.stream_options import StreamOptions
from bookkeeper.streams.namespace import Namespace
from tests.support.fake_bookie import FakeCluster


@pytest.fixture
async def namespace(cluster: FakeCluster) -> Namespace:
    client = await cluster.connect()
    await client.context.driver.tree.make("/ns")
    return Namespace(client, client.context.driver.tree, "/ns", None, "me", AsyncExitStack())


def follower(namespace: Namespace, **options: str) -> Follower:
    given = {"uri": "x", "streams": "a,b", "minPollInterval": "10ms", **options}
    parsed = StreamOptions.parse(given, streaming=True)
    return Follower(namespace.client, namespace, parsed, RealRuntime())


async def test_a_query_begins_when_all_its_streams_are_there(namespace: Namespace) -> None:
    await namespace.create("a")
    beginning = asyncio.ensure_future(follower(namespace, waitForStream="1min").begin())
    done, _ = await asyncio.wait([beginning], timeout=0.1)
    assert not done
    await namespace.create("b")
    assert (await beginning).places == {"a": Place(1, 0), "b": Place(1, 0)}


async def test_it_waits_for_so_long_only(namespace: Namespace) -> None:
    for options in ({"waitForStream": "50ms"}, {}):
        with pytest.raises(StreamNotFoundError, match="a"):
            await follower(namespace, **options).begin()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"streamPattern": "x.*", "waitForStream": "5s"}, "a pattern finds streams as they come"),
        ({"ledgers": "5", "waitForStream": "5s"}, "it goes with the option stream"),
        ({"stream": "a", "waitForStream": "soon"}, "is not a time"),
    ],
)
def test_wrong_options(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        StreamOptions.parse({"uri": "x", **options}, streaming=True)
