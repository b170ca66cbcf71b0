"""The folder of a local cluster: what is decided once, and what a later start may change."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bookkeeper.cli.local.cluster import BookieProcess, LocalCluster, _with_setting
from bookkeeper.config import parse_properties
from bookkeeper.errors import ConfigurationError
from bookkeeper.runtime.real import RealRuntime


class Unstarted(LocalCluster):
    """A cluster whose bookies are configured and not started."""

    def _spawn(self, bookie: BookieProcess) -> None:
        pass

    async def wait_registered(self, *bookies: BookieProcess, timeout: float = 0) -> None:
        pass


async def start(directory: Path, count: int, port_base: int = 0, **settings: object) -> Unstarted:
    cluster = Unstarted(RealRuntime(), directory, count, port_base, settings=settings)
    async with cluster:
        return cluster


async def ports(directory: Path, count: int) -> list[int]:
    return [bookie.port for bookie in (await start(directory, count)).bookies]


async def test_a_bookie_keeps_its_port_when_the_cluster_grows_and_shrinks(tmp_path: Path) -> None:
    two = await ports(tmp_path, 2)
    three = await ports(tmp_path, 3)
    assert three[:2] == two
    assert len(set(three)) == 3
    smaller = await start(tmp_path, 1)
    assert [bookie.port for bookie in smaller.bookies] == two[:1]
    assert smaller.left_out == ["b2", "b3"]
    assert await ports(tmp_path, 3) == three


async def test_what_a_user_changed_in_a_configuration_is_kept(tmp_path: Path) -> None:
    (bookie,) = (await start(tmp_path, 1, flushInterval=1000)).bookies
    with bookie.configuration.open("a") as file:
        file.write("# mine\njournalMaxSizeMB=100\n")
    before = bookie.configuration.read_text()
    await start(tmp_path, 1)
    assert bookie.configuration.read_text() == before
    await start(tmp_path, 1, flushInterval=2000)
    assert bookie.configuration.read_text() == before.replace("flushInterval=1000", "flushInterval=2000")


def test_a_setting_is_changed_where_it_stands_and_added_where_it_does_not() -> None:
    text = "# a=0\na = 1\nab=2\n"
    assert _with_setting(text, "a", r"\1") == "# a=0\na=\\1\nab=2\n"
    assert parse_properties(_with_setting(text, "c", "3"))["c"] == "3"


async def test_other_ports_for_the_bookies_of_a_folder_are_refused(tmp_path: Path) -> None:
    (port,) = await ports(tmp_path, 1)
    conf = (tmp_path / "b1" / "bk_server.conf").read_text()
    with pytest.raises(ConfigurationError, match=f"has port {port}, which belongs to its identity"):
        await start(tmp_path, 2, port_base=port - 1 if port > 60000 else port + 1)
    assert (tmp_path / "b1" / "bk_server.conf").read_text() == conf
    assert not (tmp_path / "b2").exists()


async def test_a_second_cluster_in_a_folder_is_refused(tmp_path: Path) -> None:
    async with Unstarted(RealRuntime(), tmp_path, 1):
        with pytest.raises(ConfigurationError, match=r"is running in .* already"):
            await start(tmp_path, 1)
    await start(tmp_path, 1)


async def test_somebody_else_on_a_bookies_port_is_noticed_before_anything_starts(tmp_path: Path) -> None:
    (port,) = await ports(tmp_path, 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(ConfigurationError, match=f"port {port} is in use"):
            await start(tmp_path, 1)


async def test_a_cluster_does_not_change_its_kind_of_metadata_store(tmp_path: Path) -> None:
    await start(tmp_path, 1)
    cluster = Unstarted(RealRuntime(), tmp_path, 1, uri="zk://127.0.0.1:1/ledgers")
    with pytest.raises(ConfigurationError, match="has its metadata in sqlite:"):
        await cluster.start()
    await cluster.stop()


def test_the_reason_of_an_end_is_of_this_run(tmp_path: Path) -> None:
    bookie = BookieProcess("b1", "127.0.0.1:1", 1, tmp_path)  # type: ignore[arg-type]
    bookie.log.write_text("error: of yesterday\n")
    bookie.log_start = bookie.log.stat().st_size

    class Ended:
        returncode = -9

    bookie.process = Ended()  # type: ignore[assignment]
    assert bookie.how_it_ended() == f"was ended by SIGKILL (log: {bookie.log})"
    with bookie.log.open("a") as log:
        log.write("error: of today\n")
    assert bookie.how_it_ended() == "was ended by SIGKILL: error: of today"


def test_a_run_serves_when_it_has_said_so_itself(tmp_path: Path) -> None:
    bookie = BookieProcess("b1", "127.0.0.1:1", 1, tmp_path)  # type: ignore[arg-type]
    assert not bookie.serves
    bookie.log.write_text("bookie 127.0.0.1:1 serves\n")
    assert bookie.serves
    bookie.log_start = bookie.log.stat().st_size
    with bookie.log.open("a") as log:
        log.write("INFO bookie 127.0.0.1:1 serves on port 1, writable\n")
    assert not bookie.serves
    with bookie.log.open("a") as log:
        log.write("bookie 127.0.0.1:1 serves\n")
    assert bookie.serves
