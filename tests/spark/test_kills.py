"""The short form of `make spark-kills`, on the embedded metadata store."""

from __future__ import annotations

from pathlib import Path

import pytest

from .kills import campaign


@pytest.mark.timeout(900)
async def test_what_queries_write_survives_kills_of_driver_and_bookie(tmp_path: Path) -> None:
    played = await campaign(tmp_path, rounds=2, seed=1)
    assert {"driver", "bookie"} <= set(played.deaths)
