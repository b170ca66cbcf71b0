"""What a namespace needs now and then, done by one of many who offer to do it (spec streams §15.4).

Whoever owns the lock `<namespace>/.config/leader` goes through all streams, round after round: applies their policies,
also to streams that nobody writes, finishes what publishers began, and collects what they left behind. All of that may
be done by several at once without harm; the lock only saves the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from ...errors import BookKeeperError
from ...runtime import guarded
from ..names.lock import LogLock
from ..publishing.collecting import Collected
from .truncation import Retained

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Maintained:
    """What one round has done."""

    streams: int
    """Streams looked at."""
    retained: Mapping[str, Retained] = field(default_factory=dict)
    """Of those from which something was deleted."""
    failed: Mapping[str, BookKeeperError] = field(default_factory=dict)
    """Streams whose policy could not be applied, and why. The next round tries again."""
    collected: Collected | None = None
    """Of publishers; None: it could not be done."""


async def maintain(
    names: AsyncIterable[str],
    purge: Callable[[str], Awaitable[Retained]],
    collect: Callable[[], Awaitable[Collected]],
) -> Maintained:
    """One round. What fails for one stream does not keep the others from their turn."""
    looked_at = 0
    retained: dict[str, Retained] = {}
    failed: dict[str, BookKeeperError] = {}
    async for name in names:
        looked_at += 1
        try:
            done = await purge(name)
        except BookKeeperError as error:
            log.warning("stream %s: its policy could not be applied: %s", name, error)
            failed[name] = error
            continue
        if done.deleted:
            retained[name] = done
    collected: Collected | None = None
    try:
        collected = await collect()
    except BookKeeperError as error:
        log.warning("what publishers left could not be collected: %s", error)
    return Maintained(looked_at, retained, failed, collected)


async def lead(new_lock: Callable[[], LogLock], round_: Callable[[], Awaitable[Maintained]], interval: float) -> None:
    """Do rounds for ever, with `interval` seconds between them, whenever the lock is this client's."""
    while True:
        with guarded("maintenance of streams"):
            lock = new_lock()
            await lock.acquire(None)
            try:
                while not lock.lost.is_set():
                    await round_()
                    await _pause(interval, lock.lost)
            finally:
                await lock.release()
        await asyncio.sleep(interval)


async def _pause(seconds: float, ended: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return
