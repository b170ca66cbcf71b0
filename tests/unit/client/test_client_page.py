"""The examples of docs/client.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import LedgerFencedError, LedgerStateError
from tests.support.fake_bookie import FakeCluster

PAGE = Path(__file__).parents[3] / "docs" / "client.md"


def examples() -> dict[str, Any]:
    """What the page's Python defines."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)
    return names


async def test_a_program_goes_on_after_a_restart(cluster: FakeCluster) -> None:
    names = examples()
    before, after = await cluster.connect(), await cluster.connect()
    first = await names["go_on"](before, "orders", b"s")
    assert [await first.append(b"%d" % i) for i in range(10)] == list(range(10))
    other = await names["go_on"](before, "other", b"s")
    second = await names["go_on"](after, "orders", b"s")
    assert await names["ledgers_of"](after, "orders") == [first.id, second.id]
    async with after.open_ledger(first.id, password=b"s") as reader:
        assert reader.closed
        assert [entry.data async for entry in reader] == [b"%d" % i for i in range(10)]
    with pytest.raises(LedgerStateError) as end:
        await first.append(b"too late")
    assert isinstance(end.value, LedgerFencedError)
    await second.append(b"goes on")
    for writer in (first, second, other):
        await writer.close()


def test_settings_of_the_page_are_settings() -> None:
    assert examples()["announcing"].explicitLacInterval == 50
