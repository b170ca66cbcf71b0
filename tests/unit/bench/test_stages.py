"""`python -m bench`: its stages run one after the other, each by itself."""

from __future__ import annotations

import json

import pytest

from bench import many_ledgers, metadata
from bench.__main__ import STAGES
from bookkeeper.runtime.real import RealRuntime


async def test_ledgers_are_measured_on_a_cluster_that_is_started_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "metadata" in STAGES, "it is started without arguments"
    await metadata.main(RealRuntime(), ["--count", "20", "--at-once", "5", "--rounds", "1"])
    rates = json.loads(capsys.readouterr().out)
    assert rates.keys() == {"created", "closed", "opened", "deleted"}
    assert min(rates.values()) > 0


async def test_appends_to_many_ledgers_are_measured_until_all_are_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_ledgers, "ENTRIES", 200)
    microseconds, writes = await many_ledgers.measure(50, 100)  # it asserts that none is pending
    assert microseconds > 0
    assert writes == 3 * 2 / 200
