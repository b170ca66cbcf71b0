"""Every known setting is live, refused, without effect, or always so; and what is said about it."""

from __future__ import annotations

import ast
import logging
from pathlib import Path
from typing import Any

import pytest

import bookkeeper
from bookkeeper import promises
from bookkeeper.bookie.node.validate import validate, warn
from bookkeeper.config import ClientConfiguration, ServerConfiguration, Settings
from bookkeeper.errors import ConfigurationError

ROOT = Path(bookkeeper.__file__).parent
LISTS = ("config.py", "promises.py")
NOT_LIVE = {*promises.REFUSED, *promises.WITHOUT_EFFECT, *promises.ALWAYS_SO}

ASKED: dict[str, Any] = {
    "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
    "bookieAuthProviderFactoryClass": "x.Y",
    "authorizedRoles": "admin",
    "permittedStartupUsers": "bookie",
    "httpServerTlsEnable": "true",
}

SHIPPED = """
bookiePort=3181
allowLoopback=false
journalDirectories=/tmp/bk-txn
ledgerDirectories=/tmp/bk-data
metadataServiceUri=zk+hierarchical://localhost:2181/ledgers
openFileLimit=0
pageLimit=0
lostBookieRecoveryDelay=0
httpServerEnabled=false
httpServerPort=8080
httpServerClass=org.apache.bookkeeper.http.vertx.VertxHttpServer
statsProviderClass=org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider
storageserver.grpc.port=4181
"""
"""What is active in the file that Apache ships, as far as it matters here."""


@pytest.fixture(scope="module")
def read() -> dict[str, list[str]]:
    """Names that some code asks a configuration for, and where."""
    found: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        if path.name in LISTS or "simulation" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = None
            if isinstance(node, ast.Attribute):
                name = node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value  # for `getattr`, and lists of settings that a driver copies
            if name is not None:
                found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return found


@pytest.mark.parametrize("key", ServerConfiguration.model_fields)
def test_every_setting_of_a_bookie_is_read_or_is_said_to_do_nothing(key: str, read: dict[str, list[str]]) -> None:
    if key not in NOT_LIVE:
        assert key in read, f"{key} does nothing: make it live, or put it into a list of bookkeeper.promises"
    elif key in promises.WITHOUT_EFFECT:
        assert not set(read.get(key, ())) - {"bookie/node/validate.py"}, f"{key} is live: take it off the list"


@pytest.mark.parametrize("key", ClientConfiguration.model_fields)
def test_every_setting_of_a_client_is_read_or_refused(key: str, read: dict[str, list[str]]) -> None:
    assert key in read or key in promises.REFUSED_BY_CLIENTS


def test_lists_name_settings_that_exist_and_each_in_one_list_only() -> None:
    lists = [*promises.REFUSED, *promises.WITHOUT_EFFECT, *promises.ALWAYS_SO]
    assert len(lists) == len(set(lists))
    assert set(lists) <= set(ServerConfiguration.model_fields)
    assert set(promises.REFUSED_BY_CLIENTS) <= set(ClientConfiguration.model_fields)


@pytest.mark.parametrize("key", promises.REFUSED)
def test_a_bookie_refuses_what_it_cannot_promise_and_says_what_to_do(key: str) -> None:
    config = ServerConfiguration.from_mapping({key: ASKED[key]})
    with pytest.raises(ConfigurationError, match=rf"^{key}={ASKED[key]} is not supported: .*(remove the line|use )"):
        validate(config)


@pytest.mark.parametrize("key", promises.REFUSED_BY_CLIENTS)
def test_a_client_refuses_what_it_cannot_promise(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key}=x.Y is not supported: .*remove the line"):
        ClientConfiguration.from_mapping({key: "x.Y"})
    with pytest.raises(ConfigurationError, match=f"{key}=x.Y is not supported"):
        bookkeeper.connect("memory://nowhere", config=ClientConfiguration(**{key: "x.Y"}))


def test_what_is_off_is_not_refused() -> None:
    off = {"permittedStartupUsers": "", "journalWriteData": "true"}
    validate(ServerConfiguration.from_mapping({**off, "tlsProviderFactoryClass": "", "httpServerEnabled": "false"}))


def test_the_file_that_apache_ships_is_accepted_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = ServerConfiguration.from_file("bk_server.conf", text=SHIPPED)
        validate(config)
        warn(config)
    assert not caplog.records


def test_settings_without_effect_are_named_in_one_line_if_somebody_chose_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn(
        ServerConfiguration.from_mapping(
            {
                "auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec": "5",
                "tlsKeyStore": "/k",
                "httpServerPort": "8080",
            }
        )
    )
    (record,) = caplog.records
    assert record.getMessage().endswith(": tlsKeyStore, auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec")


def test_syncing_no_data_is_dangerous_and_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    warn(ServerConfiguration.from_mapping({"journalSyncData": "false"}))
    assert "deny entries that it has acknowledged" in caplog.text


def test_the_page_names_every_setting_that_is_not_live() -> None:
    page = (ROOT.parent.parent / "docs" / "not-there-yet.md").read_text()
    for key in (*NOT_LIVE, *promises.REFUSED_BY_CLIENTS):
        assert f"`{key}" in page, key


def test_environment_variables_that_are_no_settings_are_blamed_on_nobody(caplog: pytest.LogCaptureFixture) -> None:
    environ = {"BK_HOME": "/opt", "BK_CONF": "x", "BK_bookiePort": "4000", "BK_journalDirectorys": "/j", "OTHER": "y"}
    config = ServerConfiguration.from_file("bk_server.conf", text="", environ=environ)
    assert config.bookiePort == 4000
    (record,) = caplog.records
    assert "environment variable BK_journalDirectorys" in record.getMessage()
    assert "BK_journalDirectories?" in record.getMessage()


def test_secrets_are_not_among_the_settings_that_are_shown() -> None:
    config: Settings = ServerConfiguration.from_mapping({"zkAuth": "digest:user:secret", "ledgerDirectories": "/a, /b"})
    assert config.changed_settings() == {"zkAuth": "(hidden)", "ledgerDirectories": "/a,/b"}
