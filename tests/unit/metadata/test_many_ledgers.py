"""A million ledgers: no answer of a store grows with their number."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from bookkeeper.metadata.records.store import SCAN_LIMIT
from bookkeeper.metadata.sqlite import SqliteDriver
from bookkeeper.metadata.uri import parse_service_uri
from bookkeeper.metadata.zookeeper.paths import LEGACY_TREE, LONG_TREE, SHORT_TREE, Tree
from bookkeeper.runtime.real import RealRuntime

MILLION = 1_000_000

PUT = """
WITH RECURSIVE ids (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id + 1 < ?)
INSERT INTO records (root, topic, key, version, ctime_ms, session, data)
SELECT 'ledgers', 'ledgers', printf('%019d', id), 0, 0, 0, x'00' FROM ids
"""
"""Records of ledgers without their text: a listing does not look at it."""

LARGEST_ANSWER = 1_000_000
"""Bytes of an answer of ZooKeeper, a little less than its default limit (jute.maxbuffer)."""

EACH_NAME = 4
"""Bytes in front of each name of a listing: its length."""


@pytest.mark.parametrize("tree", [LEGACY_TREE, SHORT_TREE, LONG_TREE], ids=["old", "short", "long"])
def test_a_listing_of_zookeeper_fits_an_answer_however_many_ledgers_there_are(tree: Tree) -> None:
    """MF-11: a directory of a full tree has one name for each value of its digits."""
    for level, digits in enumerate(tree.widths):
        prefix = 1 if level == len(tree.widths) - 1 else 0  # `L`
        assert 10**digits * (EACH_NAME + prefix + digits) < LARGEST_ANSWER


def test_a_million_ledgers_of_zookeeper_are_spread_over_directories() -> None:
    """MF-11."""
    per_directory: Counter[str] = Counter()
    for ledger_id in range(0, MILLION, 97):
        per_directory[SHORT_TREE.path(ledger_id).rpartition("/")[0]] += 1
    assert len(per_directory) == MILLION // 10_000


@pytest.mark.slow
async def test_a_million_ledgers_of_a_file_are_listed_in_pages(tmp_path: Path) -> None:
    """MF-11: each page is small, and together they are all ledgers, in order."""
    uri = parse_service_uri(f"sqlite://{tmp_path / 'meta.db'}?root=ledgers")
    driver = SqliteDriver(uri, RealRuntime(), session_timeout_ms=600_000)
    await driver.open(create=True)
    try:
        await driver.admin.init_new_cluster()
        with closing(sqlite3.connect(tmp_path / "meta.db")) as file, file:
            file.execute(PUT, (MILLION,))
        count, last = 0, -1
        async for page in driver.ledgers.ranges():
            assert len(page.ids) <= SCAN_LIMIT
            assert page.ids[0] > last
            assert all(a < b for a, b in pairwise(page.ids))
            count, last = count + len(page.ids), page.ids[-1]
        assert (count, last) == (MILLION, MILLION - 1)
    finally:
        await driver.close()
