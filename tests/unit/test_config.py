"""Where settings come from."""

from __future__ import annotations

from bookkeeper.config import ServerConfiguration


def test_variables_go_before_the_file_by_every_name_that_a_setting_has() -> None:
    environ = {"BK_bookiePort": "4000", "BK_journalDirectory": "/j", "BK_HOME": "/opt"}
    config = ServerConfiguration.from_file("bk_server.conf", text="bookiePort=1\n", environ=environ)
    assert (config.bookiePort, config.journalDirectories) == (4000, ["/j"])
