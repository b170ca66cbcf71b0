"""The same tests on every kind of metadata store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.metadata_stores import FACTORIES, StoreUnderTest


@pytest.fixture(params=[pytest.param(name, marks=factory.marks) for name, factory in FACTORIES.items()])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreUnderTest]:
    """An initialised, empty cluster."""
    found = FACTORIES[request.param](tmp_path)
    await found.setup()
    yield found
    await found.teardown()
