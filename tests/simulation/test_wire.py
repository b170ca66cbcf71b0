"""The listener on the wire: what it takes for a bookie's promise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.messages import V2, V3, Flags, ReadRequest, ReadResponse, Status
from bookkeeper.simulation.wire import WireTap

KEY = bytes(20)


class Transport:
    """The bookie's end of a connection."""

    accepted = True
    owner = SimpleNamespace(machine=SimpleNamespace(name="b1"))
    peer_machine = "w1"


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


@pytest.mark.parametrize(
    ("version", "fence", "plain"),
    [
        pytest.param(V3, 1, 2, id="v3"),
        pytest.param(V2, 0, 0, id="v2: answers do not say which read they are of, the last one counts"),
    ],
)
def test_the_answer_to_a_plain_read_is_no_fence_though_a_fencing_read_of_the_same_entry_is_under_way(
    version: int, fence: int, plain: int
) -> None:
    tap, transport = conversation()
    ask(tap, transport, version, Flags.DO_FENCING, fence)
    ask(tap, transport, version, 0, plain)
    answer(tap, transport, version, plain)
    assert not tap.promises["b1"].fenced
    answer(tap, transport, version, fence)
    assert list(tap.promises["b1"].fenced) == [7]
