"""Metadata service addresses: spec metadata §4.1."""

from __future__ import annotations

import sys

import pytest

from bookkeeper.config import ClientConfiguration, ServerConfiguration
from bookkeeper.errors import ConfigurationError
from bookkeeper.metadata import configured_service_uri, open_driver
from bookkeeper.metadata.memory import MemoryDriver
from bookkeeper.metadata.sqlite import SqliteDriver
from bookkeeper.metadata.uri import parse_service_uri
from bookkeeper.runtime.real import RealRuntime


@pytest.mark.parametrize(
    ("text", "scheme", "manager", "hosts", "path"),
    [
        ("zk+hierarchical://zk1:2181;zk2:2181/ledgers", "zk", "hierarchical", ("zk1:2181", "zk2:2181"), "/ledgers"),
        ("zk://localhost:2181/cluster1/ledgers", "zk", None, ("localhost:2181",), "/cluster1/ledgers"),
        ("ZK+NULL://h:2181/ledgers/", "zk", None, ("h:2181",), "/ledgers"),
        ("zk+longhierarchical://h/ledgers", "zk", "longhierarchical", ("h",), "/ledgers"),
        ("zk+flat://a,b;c/ledgers", "zk", "flat", ("a", "b", "c"), "/ledgers"),
        ("zk://[::1]:2181/ledgers", "zk", None, ("[::1]:2181",), "/ledgers"),
        ("etcd://e1:2379;e2:2379/bk", "etcd", None, ("e1:2379", "e2:2379"), "/bk"),
        ("sqlite:///var/lib/meta.db", "sqlite", None, (), "/var/lib/meta.db"),
        ("memory://test", "memory", None, ("test",), ""),
    ],
)
def test_parts(text: str, scheme: str, manager: str | None, hosts: tuple[str, ...], path: str) -> None:
    uri = parse_service_uri(text)
    assert (uri.scheme, uri.manager, uri.hosts, uri.path) == (scheme, manager, hosts, path)


def test_hosts_form_a_connect_string_and_parameters_a_table() -> None:
    assert parse_service_uri("zk://a:1;b:2/l").connect_string == "a:1,b:2"
    assert parse_service_uri("sqlite:///m.db?root=x").parameters == {"root": "x"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "://"),
        ("localhost:2181/ledgers", "://"),
        ("://h/l", "scheme"),
        ("zk+a+b://h/l", "scheme"),
        ("zk+legacyhierarchical://h/l", "legacyhierarchical"),
        ("zk:///ledgers", "no server"),
        ("zk://h:2181", "path"),
        ("zk://h:2181/", "path"),
        ("zk://h:2181//ledgers", "empty part"),
        ("zk://h:port/l", "port"),
        ("zk://h:/l", "port"),
        ("zk://h:70000/l", "port"),
        ("zk://:2181/l", "host"),
        ("etcd+flat://h/l", "manager"),
        ("sqlite://var/lib/meta.db", "three slashes"),
        ("sqlite://", "path"),
        ("memory:///x", "name"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as raised:
        parse_service_uri(text)
    assert "zk1:2181" in str(raised.value)


def test_the_deprecated_keys_spell_an_address() -> None:
    old = ServerConfiguration.from_mapping({"zkServers": "a:1,b:2", "zkLedgersRootPath": "/l"})
    assert configured_service_uri(old) == "zk+null://a:1;b:2/l"
    java_class = "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory"
    named = ClientConfiguration.from_mapping({"zkServers": "a:1", "ledgerManagerFactoryClass": java_class})
    assert configured_service_uri(named) == "zk+longhierarchical://a:1/ledgers"
    new = ServerConfiguration.from_mapping({"zkServers": "a:1", "metadataServiceUri": "memory://x"})
    assert configured_service_uri(new) == "memory://x"


def test_no_address_or_an_unknown_manager_class_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="metadataServiceUri"):
        configured_service_uri(ServerConfiguration())
    with pytest.raises(ConfigurationError, match="Legacy"):
        configured_service_uri(
            ServerConfiguration.from_mapping(
                {
                    "zkServers": "a:1",
                    "ledgerManagerFactoryClass": "org.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory",
                }
            )
        )


def test_the_scheme_chooses_the_driver() -> None:
    runtime = RealRuntime()
    first = open_driver("memory://x", runtime, ServerConfiguration())
    second = open_driver("memory://x/ignored", runtime)
    assert isinstance(first, MemoryDriver)
    assert isinstance(second, MemoryDriver)
    assert first.store is second.store
    other = open_driver("memory://y", runtime)
    assert isinstance(other, MemoryDriver)
    assert other.store is not first.store
    assert isinstance(open_driver("sqlite:///m.db", runtime), SqliteDriver)


def test_runtimes_share_a_memory_store_through_their_services() -> None:
    one = RealRuntime()
    two = RealRuntime(services=one.services)
    first, second = open_driver("memory://x", one), open_driver("memory://x", two)
    assert isinstance(first, MemoryDriver)
    assert isinstance(second, MemoryDriver)
    assert first.store is second.store


@pytest.mark.parametrize("uri", ["etcd://h/x", "gopher://h/x", "sqlite:///m.db?rot=1"])
def test_an_address_without_a_driver_is_a_configuration_error(uri: str) -> None:
    with pytest.raises(ConfigurationError):
        open_driver(uri, RealRuntime())


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("bookkeeper.metadata.zookeeper")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "kazoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'bookkeeper-ledger\[zookeeper\]'"):
        open_driver("zk://h/l", RealRuntime())
