"""Fixtures for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.java_classes import java_options

if TYPE_CHECKING:
    from tests.support.zookeeper import ServerThread

# How long an example takes depends on what else the machine does: no test may fail for that.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """A real ZooKeeper server; each test uses `new_root()` in it. Fails without a JDK 17+."""
    from tests.support.zookeeper import ServerThread

    server = ServerThread(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.close()
