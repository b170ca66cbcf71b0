"""Hostile connections beside a good client, for a moment: nothing fails, and memory stays within what is stated.

`make hostile` is the long form, with latencies.
"""

from __future__ import annotations

from bench.hostile import KINDS, compare
from bookkeeper.runtime.real import RealRuntime


async def test_a_good_client_is_served_beside_hostile_connections_of_every_kind() -> None:
    """SEC-3, SEC-20, SEC-22, SEC-23, BI-26, RT-26."""
    lines: list[str] = []
    rows = await compare(RealRuntime(), list(KINDS), connections=10, seconds=0.7, show=lines.append)
    for row in rows:
        assert row.beside.failed == 0, (row.kind, row.beside.errors)
        assert row.beside.adds > 0
        assert row.beside.reads > 0
        assert row.memory <= row.stated, row.kind
    assert len(lines) == 1 + len(KINDS)
