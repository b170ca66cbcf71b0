"""Whoever looks for lost data later finds in the log which ledgers a bookie deleted, and on which proof."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bookkeeper.errors import ServiceUnavailable
from bookkeeper.types import LedgerState

from .test_ledger_collector import OTHER, FakeStore, collect_ledgers, collect_overreplicated, metadata


def evidence(caplog: pytest.LogCaptureFixture) -> dict[int, str]:
    """Ledgers that the log says are deleted, and why."""
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    parts = [line.partition(" is deleted here: ") for line in lines]
    return {int(head.removeprefix("ledger ")): why for head, found, why in parts if found}


async def test_a_ledger_that_is_gone_is_deleted_with_its_proof_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """FX-68: one line for each that is deleted, none for what is kept."""
    caplog.set_level(logging.INFO)
    store = FakeStore(1, 2, 3, 4, 5)
    store.unlisted = dict.fromkeys([2])
    store.failing_reads = {6: ServiceUnavailable("away")}
    deleted = await collect_ledgers(tmp_path, store, range(8))
    proof = "not listed, and twice not found in the metadata store"
    assert evidence(caplog) == {0: proof, 7: proof}
    assert deleted == [0, 7]


async def test_a_ledger_that_lives_elsewhere_is_deleted_with_its_proof_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """FX-68."""
    caplog.set_level(logging.INFO)
    store = FakeStore(1, 2)
    store.records[1] = metadata(1, OTHER, LedgerState.CLOSED)
    assert await collect_overreplicated(tmp_path, store) == [1]
    assert evidence(caplog) == {1: "closed, and this bookie is in none of its ensembles"}
