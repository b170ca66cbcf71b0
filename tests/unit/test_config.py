"""What is said of settings that nobody knows."""

from __future__ import annotations

import logging

import pytest

from bookkeeper.config import ServerConfiguration


def said(caplog: pytest.LogCaptureFixture, text: str, **environ: str) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        ServerConfiguration.from_file("bk_server.conf", text=text, environ=environ)
    return [record.getMessage() for record in caplog.records if "ignored" in record.getMessage()]


def test_an_unknown_variable_is_not_blamed_on_the_file(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = said(caplog, "", BK_HOME="/opt/bookkeeper", HOME="/root")
    assert line == "environment variable BK_HOME names no setting and is ignored"
    (line,) = said(caplog, "", BK_bookiePrt="1")
    assert line == "environment variable BK_bookiePrt names no setting and is ignored; did you mean bookiePort?"


def test_only_a_setting_that_differs_by_little_is_proposed(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = said(caplog, "journalMaxSizeMb=1\n")
    assert line == "bk_server.conf: unknown setting journalMaxSizeMb is ignored; did you mean journalMaxSizeMB?"
    (line,) = said(caplog, "httpServerThreads=/x\n")
    assert line == "bk_server.conf: unknown setting httpServerThreads is ignored"


def test_variables_go_before_the_file_by_every_name_that_a_setting_has() -> None:
    environ = {"BK_bookiePort": "4000", "BK_journalDirectory": "/j"}
    config = ServerConfiguration.from_file("bk_server.conf", text="bookiePort=1\n", environ=environ)
    assert (config.bookiePort, config.journalDirectories) == (4000, ["/j"])
