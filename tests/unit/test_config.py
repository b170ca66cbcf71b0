"""Where settings come from."""

from __future__ import annotations

import pytest

from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import ConfigurationError


def test_variables_go_before_the_file_by_every_name_that_a_setting_has() -> None:
    environ = {"BK_bookiePort": "4000", "BK_journalDirectory": "/j", "BK_HOME": "/opt"}
    config = ServerConfiguration.from_file("bk_server.conf", text="bookiePort=1\n", environ=environ)
    assert (config.bookiePort, config.journalDirectories) == (4000, ["/j"])


def test_a_bookies_own_client_reads_the_same_file() -> None:
    text = (
        "zkTimeout=7000\nensemblePlacementPolicy=ZoneawareEnsemblePlacementPolicy\nnumChannelsPerBookie=2\nbookiePort=1"
    )
    config = ServerConfiguration.from_file("bk_server.conf", text=text, environ={"BK_reppDnsResolverClass": "a:B"})
    clients = config.client_settings()
    assert clients.ensemblePlacementPolicy == "ZoneawareEnsemblePlacementPolicy"
    assert (clients.zkTimeout, clients.numChannelsPerBookie, clients.reppDnsResolverClass) == (7000, 2, "a:B")
    with pytest.raises(ConfigurationError, match=r"settings of clients: numChannelsPerBookie: .*got 'two'"):
        ServerConfiguration.from_mapping({"numChannelsPerBookie": "two"}).client_settings()


@pytest.mark.parametrize(("text", "value"), [("auto", "auto"), ("Auto", "auto"), ("TRUE", True), ("no", False)])
def test_direct_io_is_asked_for_or_not_or_left_to_the_bookie(text: str, value: object) -> None:
    settings = ServerConfiguration.from_mapping({"dbStorage_directIOEntryLogger": text})
    assert settings.dbStorage_directIOEntryLogger == value


def test_what_is_neither_true_nor_false_nor_auto_is_complained_about_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ServerConfiguration.from_mapping({"dbStorage_directIOEntryLogger": "sometimes"}, source="bk.conf")
    assert str(caught.value) == (
        "bk.conf: dbStorage_directIOEntryLogger: Value error, should be true, false or auto (got 'sometimes')"
    )


@pytest.mark.parametrize("value", [-1, 10**20])
@pytest.mark.parametrize(
    "name",
    ["blockCacheSize", "writeBufferSizeMB", "sstSizeInMB", "blockSize", "numFilesInLevel0", "maxSizeInLevel1MB"],
)
def test_sizes_that_rocksdb_cannot_have_are_refused(name: str, value: int) -> None:
    with pytest.raises(ConfigurationError, match=f"dbStorage_rocksDB_{name}: .*got '{value}'"):
        ServerConfiguration.from_mapping({f"dbStorage_rocksDB_{name}": str(value)})
