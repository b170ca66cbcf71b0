"""One cluster of bookies and one local Spark for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from bookkeeper.spark.launch import spark_session
from bookkeeper.spark.session import close_idle

from .support import LiveCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Four bookies."""
    running = LiveCluster(tmp_path_factory.mktemp("bookies"), 4)
    yield running
    running.close()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Spark on two threads of this machine, as it is without any call of ours. A process has one Spark at a time."""
    with spark_session("tests", "local[2]") as session:
        yield session
    close_idle()
