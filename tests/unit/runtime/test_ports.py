"""Ports for servers that are started here to try things out."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bookkeeper.errors import ConfigurationError
from bookkeeper.runtime import ports
from bookkeeper.runtime.ports import FIRST_PORT, HOST, PORTS_VARIABLE, first_outgoing, free_port, is_free


@pytest.fixture(autouse=True)
def _nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PORTS_VARIABLE, raising=False)


def test_they_follow_each_other_are_free_and_are_given_to_no_outgoing_connection() -> None:
    for _ in range(50):
        first = free_port(5)
        assert first >= FIRST_PORT
        assert first + 4 < first_outgoing()
        assert all(is_free(port) for port in range(first, first + 5))


def test_one_that_somebody_listens_on_is_not_free() -> None:
    port = free_port()
    with socket.socket() as taken:
        taken.bind((HOST, port))
        taken.listen()
        assert not is_free(port)
    assert is_free(port)


def test_what_is_taken_or_not_wanted_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_port(2)
    monkeypatch.setattr(ports, "_given", set())
    others = {*range(FIRST_PORT, first_outgoing())} - {first, first + 1}
    assert free_port(2, but=others) == first
    with pytest.raises(OSError, match="no 2 ports"):
        free_port(2, but=others)  # it was given
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(OSError, match=f"no 2 ports that are free and follow each other between {FIRST_PORT} and"):
        free_port(2)


@pytest.mark.parametrize(
    ("text", "first"), [("32768\t60999\n", 32768), ("1024 65535\n", 49152), ("", 49152), ("a b", 49152)]
)
def test_where_the_range_of_outgoing_connections_begins(
    text: str, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "OUTGOING", tmp_path / "range")
    assert first_outgoing() == 49152, "no such file"
    (tmp_path / "range").write_text(text)
    assert first_outgoing() == first


def test_ports_are_from_the_range_that_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_port(3)
    monkeypatch.setattr(ports, "_given", set())
    monkeypatch.setenv(PORTS_VARIABLE, f"{first}-{first + 2}")
    assert sorted(free_port() for _ in range(3)) == [first, first + 1, first + 2]
    with pytest.raises(
        OSError, match=f"no 1 ports that are free and follow each other between {first} and {first + 2}"
    ):
        free_port()


@pytest.mark.parametrize("text", ["", "20000", "20001-20000", "0-10", "1-65536", "a-b", "20000-20010 "])
def test_what_is_no_range_is_said(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, text)
    with pytest.raises(ConfigurationError, match=f"BOOKKEEPER_PORTS={text} is no range of ports, such as 20000-20999"):
        free_port()
