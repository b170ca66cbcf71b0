"""Incoming: what an incomplete frame is counted for, and how a large one waits for room."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.requests.incoming import SLOWEST_FRAME, Incoming
from bookkeeper.bookie.sharing.memory import Account, Peer, RequestMemory
from bookkeeper.bookie.sharing.shares import Shares
from bookkeeper.errors import ProtocolError
from bookkeeper.protocol import v2
from bookkeeper.protocol.large_frames import LARGEST_BESIDE_ENTRY
from bookkeeper.protocol.messages import V2
from tests.support.bookie import KEY, entry

SIZE = 1 << 20
LIMIT = 5 << 20
LARGE = v2.encode_add_request(KEY, entry(1, 0, bytes(SIZE)))
START = 1000


class Input:
    """The input of one connection."""

    def __init__(self, shares: Shares, name: str = "peer") -> None:
        self.time = 0.0
        self.waits: list[bool] = []
        self.account = Account(RequestMemory(1 << 40, 0, list), Peer(name))
        self.incoming = Incoming(LIMIT, shares, self.account, lambda: self.time, self.waits.append)

    def feed(self, data: bytes, *, keep: bool = False) -> int:
        """How many frames it completes."""
        count = len(self.incoming.splitter.feed(data))
        self.incoming.count(keep=keep)
        return count


def room_for_one() -> Shares:
    return Shares(len(LARGE), len(LARGE))


@given(st.lists(st.integers(1, 4000), max_size=8), st.integers(1, 3999))
def test_a_small_frame_is_counted_as_far_as_it_has_come(cuts: list[int], left: int) -> None:
    shares = room_for_one()
    one = Input(shares)
    data = struct.pack(">I", 4000) + bytes(4000 - left)
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        one.feed(data[start:end])
        assert one.account.held == one.incoming.charge == min(end, len(data))
    assert one.incoming.begun
    assert one.feed(bytes(left)) == 1
    assert (one.account.held, one.incoming.begun, shares.used) == (0, False, 0)


def test_a_large_frame_is_counted_whole_from_its_start_to_its_end() -> None:
    shares = room_for_one()
    one = Input(shares)
    one.feed(LARGE[:START])
    assert one.incoming.has_room
    assert one.account.held == shares.used == len(LARGE)
    assert one.feed(LARGE[START:]) == 1
    assert (one.account.held, shares.used, one.waits) == (0, 0, [])


async def test_what_finds_no_room_waits_and_goes_on_when_there_is_some() -> None:
    shares = room_for_one()
    first, second = Input(shares, "first"), Input(shares, "second")
    first.feed(LARGE[:START])
    second.feed(LARGE[:START])
    assert (second.waits, second.account.held, second.incoming.has_room) == ([True], START, False)
    first.feed(LARGE[START:])
    second.time = 9.0
    await asyncio.sleep(0)
    assert (second.waits, second.account.held, second.incoming.has_room) == ([True, False], len(LARGE), True)
    assert second.incoming.heard_at == 9.0, "it could not send before"
    assert second.feed(LARGE[START:]) == 1
    assert shares.used == 0


def test_adds_that_wait_keep_the_room_of_the_frame_they_came_in() -> None:
    shares = room_for_one()
    one = Input(shares)
    one.feed(LARGE[:START])
    one.feed(LARGE[START:], keep=True)
    assert one.account.held == shares.used == len(LARGE)
    one.incoming.count(keep=False)
    assert one.account.held == shares.used == 0


async def test_the_end_takes_nothing_and_waits_for_nothing() -> None:
    shares = room_for_one()
    holder, waiter, last = (Input(shares, name) for name in ("holder", "waiter", "last"))
    for each in (holder, waiter, last):
        each.feed(LARGE[:START])
    waiter.incoming.close()
    holder.incoming.close()
    await asyncio.sleep(0)
    assert waiter.waits == [True], "nobody is told that its frame may go on"
    assert last.incoming.has_room
    last.incoming.close()
    assert shares.used == 0
    assert not shares.awaited


async def test_room_that_came_too_late_goes_back() -> None:
    shares = room_for_one()
    holder, waiter = Input(shares, "holder"), Input(shares, "waiter")
    holder.feed(LARGE[:START])
    waiter.feed(LARGE[:START])
    holder.incoming.close()
    waiter.incoming.close()  # granted, and not told yet
    await asyncio.sleep(0)
    assert (shares.used, waiter.waits) == (0, [True])


def test_what_is_large_and_no_entry_is_refused_before_it_has_room() -> None:
    shares = room_for_one()
    one = Input(shares)
    with pytest.raises(ProtocolError):
        one.feed(struct.pack(">I", LARGEST_BESIDE_ENTRY + 1) + bytes((V2, v2.OP_READ)) + bytes(START))
    assert shares.used == 0


def test_slow_is_who_has_room_and_does_not_use_it() -> None:
    one = Input(room_for_one())
    one.feed(LARGE[:START])
    assert not one.incoming.slow(1.0), "the first second is free"
    assert one.incoming.slow(1.1)
    one.feed(LARGE[START : SLOWEST_FRAME + 1])
    assert not one.incoming.slow(2.0)
    small = Input(room_for_one())
    small.feed(struct.pack(">I", 100))
    assert not small.incoming.slow(1000.0)
