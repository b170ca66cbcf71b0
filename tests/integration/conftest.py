"""Clusters of real bookie processes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bookkeeper.cli.local.cluster import LocalCluster
from bookkeeper.runtime.real import RealRuntime

SMALL = {"dbStorage_writeCacheMaxSizeMb": 16, "dbStorage_readAheadCacheMaxSizeMb": 8, "flushInterval": 1000}
"""Little memory, so that caches overflow, and checkpoints so often that kills meet every stage of them."""


os.environ.update(BOOKKEEPER_DOCTOR_DISK_FULL="1", BOOKKEEPER_DOCTOR_SLOW="600")
"""How full and how slow the machine is says nothing about a cluster."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """Four bookies on the embedded metadata store."""
    async with LocalCluster(RealRuntime(), tmp_path, 4, settings=SMALL) as running:
        yield running
