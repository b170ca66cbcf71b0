"""A plan of racks that is empty at the beginning of each test."""

from __future__ import annotations

import pytest

from .support import Plan


@pytest.fixture(autouse=True)
def plan() -> type[Plan]:
    for known in (Plan.locations, Plan.asked, Plan.listeners):
        known.clear()
    return Plan
