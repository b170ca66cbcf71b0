"""Spark's sink that appends, without Spark, in virtual time: each row at least once, whoever dies (spec streams
§17.6)."""

from __future__ import annotations

import pytest

from bookkeeper.errors import BookKeeperError, NotOwnerError
from bookkeeper.spark.writing.appending import TaskAppender
from bookkeeper.streams.writer import StreamWriter
from tests.simulation.append_story import tell


@pytest.mark.parametrize("seed", range(4))
def test_no_row_is_lost_whoever_dies(seed: int) -> None:
    tell(seed)


@pytest.mark.parametrize("seed", range(6))
def test_no_row_is_lost_whatever_fails(seed: int) -> None:
    tell(seed, hard=True)


@pytest.mark.parametrize("seed", range(3))
def test_who_does_not_die_does_not_fail(seed: int) -> None:
    """Though all tasks want the same streams at once."""
    tell(seed, calm=True)


def _is_done_before_it_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def soon(self: TaskAppender, stream: str, payloads: list[bytes], txids: None) -> None:
        writer = self._open.get(stream)
        if writer is None:
            writer = self._open[stream] = await self._begin(stream)
        for payload in payloads:
            writer.append_nowait(payload)

    async def let_go(self: TaskAppender) -> None:
        while self._open:
            await self._open.popitem()[1].abort()

    monkeypatch.setattr(TaskAppender, "_append", soon)
    monkeypatch.setattr(TaskAppender, "_give_back", let_go)


def _waits_with_a_stream_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    async def begin(self: TaskAppender, stream: str) -> StreamWriter:
        await self._namespace.create(stream, exist_ok=True)
        return await self._namespace.open_writer(stream, lock_timeout=self._timeout)

    monkeypatch.setattr(TaskAppender, "_begin", begin)


@pytest.mark.parametrize("bug", [_is_done_before_it_is_acknowledged, _waits_with_a_stream_in_hand])
def test_a_planted_bug_is_found(bug: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """In stories in which nothing else fails."""
    bug(monkeypatch)  # type: ignore[operator]
    for seed in range(20):
        try:
            tell(seed, calm=True)
        except (AssertionError, NotOwnerError, BookKeeperError):
            return
    raise AssertionError("not found")
