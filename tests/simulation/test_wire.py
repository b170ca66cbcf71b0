"""The listener on the wire: what it takes for a bookie's promise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.messages import V2, V3, Flags, ReadRequest, ReadResponse, Status
from bookkeeper.simulation.wire import WireTap

KEY = bytes(20)


class Transport:
    """The bookie's end of a connection."""

    accepted = True
    owner = SimpleNamespace(machine=SimpleNamespace(name="b1"))


def conversation() -> tuple[WireTap, Any]:
    def fail(error: BaseException) -> None:
        raise error

    return WireTap(["b1"], lambda what: None, fail), Transport()


def ask(tap: WireTap, transport: Any, version: int, flags: int, txn_id: int) -> None:
    encode = v3.encode_request if version == V3 else v2.encode_request
    key = KEY if flags & Flags.DO_FENCING or version == V2 else None
    tap.received(transport, encode(ReadRequest(7, 10, flags, key, txn_id=txn_id, version=version)))


def answer(tap: WireTap, transport: Any, version: int, txn_id: int) -> None:
    encode = v3.encode_response if version == V3 else v2.encode_response
    tap.sent(transport, encode(ReadResponse(Status.ENOENTRY, 7, 10, txn_id=txn_id, version=version)))


def test_the_answer_to_a_plain_read_is_no_fence_though_a_fencing_read_of_the_same_entry_is_under_way() -> None:
    tap, transport = conversation()
    ask(tap, transport, V3, Flags.DO_FENCING, txn_id=1)
    ask(tap, transport, V3, 0, txn_id=2)
    answer(tap, transport, V3, txn_id=2)
    assert not tap.promises["b1"].fenced
    answer(tap, transport, V3, txn_id=1)
    assert list(tap.promises["b1"].fenced) == [7]


def test_in_v2_where_answers_do_not_say_which_read_they_are_of_the_last_one_counts() -> None:
    tap, transport = conversation()
    ask(tap, transport, V2, Flags.DO_FENCING, txn_id=0)
    ask(tap, transport, V2, 0, txn_id=0)
    answer(tap, transport, V2, txn_id=0)
    assert not tap.promises["b1"].fenced
    answer(tap, transport, V2, txn_id=0)
    assert list(tap.promises["b1"].fenced) == [7]
