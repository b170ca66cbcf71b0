"""`python -m bench`: its stages run one after the other, each by itself."""

from __future__ import annotations

import json

import pytest

from bench import metadata
from bench.__main__ import STAGES
from bookkeeper.runtime.real import RealRuntime


async def test_ledgers_are_measured_on_a_cluster_that_is_started_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "metadata" in STAGES, "it is started without arguments"
    await metadata.main(RealRuntime(), ["--count", "20", "--at-once", "5", "--rounds", "1"])
    rates = json.loads(capsys.readouterr().out)
    assert rates.keys() == {"created", "closed", "opened", "deleted"}
    assert min(rates.values()) > 0
