"""Fixtures for every test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from bookkeeper.runtime.ports import PORTS_VARIABLE, bounds
from tests.support.java_classes import java_options

if TYPE_CHECKING:
    from tests.support.zookeeper import ServerThread

# How long an example takes depends on what else the machine does: no test may fail for that.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())

# Commands under test are interrupted. A shell that starts the tests in the background ignores that, for all below it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _ports_of_this_process() -> str:
    """Of what tests side by side each has a range of its own: a bookie that was killed finds its port free again."""
    first, last = bounds()
    share = (last + 1 - first) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first += share * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return f"{first}-{first + share - 1}"


if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ[PORTS_VARIABLE] = _ports_of_this_process()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """A real ZooKeeper server; each test uses `new_root()` in it. Fails without a JDK 17+."""
    from tests.support.zookeeper import ServerThread

    server = ServerThread(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.close()
