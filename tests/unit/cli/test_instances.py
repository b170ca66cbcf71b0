"""What the bookies of one configuration are given (cli.instances). With processes: tests/integration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bookkeeper.cli.instances import as_environment, check_directories, instances_of, left_out
from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import ConfigurationError
from bookkeeper.runtime.real import RealRuntime


def config(**settings: Any) -> ServerConfiguration:
    return ServerConfiguration.from_mapping(settings)


def test_each_has_ports_folders_and_memory_of_its_own() -> None:
    found = instances_of(
        config(
            bookiePort=3181,
            journalDirectories="/j1,/j2/",
            ledgerDirectories="/l",
            httpServerEnabled=True,
            httpServerPort=8080,
        ),
        2,
        1000,
    )
    assert [instance.port for instance in found] == [3181, 3182]
    assert found[1].settings == {
        "bookiePort": "3182",
        "httpServerPort": "8081",
        "journalDirectories": "/j1/instance-2,/j2/instance-2",
        "ledgerDirectories": "/l/instance-2",
        "directMemoryBudgetMb": "500",
    }
    environment = as_environment(found[1].settings)
    again = ServerConfiguration.from_file("x", text="bookiePort=3181", environ=environment)
    assert again.bookiePort == 3182
    assert again.journalDirectories == ["/j1/instance-2", "/j2/instance-2"]


def test_memory_that_was_set_is_each_ones() -> None:
    for settings in ({"directMemoryBudgetMb": 300}, {"dbStorage_writeCacheMaxSizeMb": 64}):
        (only,) = instances_of(config(**settings), 1, 1000)
        assert "directMemoryBudgetMb" not in only.settings


def test_metrics_without_the_api_have_ports_too() -> None:
    found = instances_of(config(statsProviderClass="any", prometheusStatsHttpPort=8000), 2, 1)
    assert [instance.settings["prometheusStatsHttpPort"] for instance in found] == ["8000", "8001"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bookieId": "b"}, "remove bookieId"),
        ({"bookiePort": 0, "allowEphemeralPorts": True}, "set the first port"),
        ({"bookiePort": 65535}, "bookiePort=65535: 2 instances need ports up to 65536"),
        (
            {"bookiePort": 8079, "httpServerEnabled": True, "httpServerPort": 8080},
            "httpServerPort=8080 and bookiePort=8079: 2 instances would need port 8080 twice; set them 2 apart",
        ),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        instances_of(config(**settings), 2, 1000)
    assert said in str(refused.value)


def test_the_data_of_a_single_bookie_is_not_passed_over(tmp_path: Path) -> None:
    files = RealRuntime().files
    mine = config(journalDirectories=str(tmp_path / "j"), ledgerDirectories=str(tmp_path / "l"))
    check_directories(mine, files)
    (tmp_path / "l" / "current").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"ledgerDirectories: .*/l has the data of a bookie that ran without"):
        check_directories(mine, files)


def test_folders_beyond_the_number_are_told(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"instance-{number}").mkdir()
    mine = config(ledgerDirectories=str(tmp_path))
    assert left_out(mine, RealRuntime().files, 2) == [f"{tmp_path}/instance-3"]
    assert left_out(mine, RealRuntime().files, 3) == []


def test_booleans_in_the_environment() -> None:
    assert as_environment({"a": True, "b": 1, "c": "x"}) == {"BK_a": "true", "BK_b": "1", "BK_c": "x"}
