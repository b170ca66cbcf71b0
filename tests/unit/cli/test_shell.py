"""`bookkeeper shell`: clusters are made, named and removed, and nothing is removed by mistake."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bookkeeper.bookie.node.cookies import NotInitialized
from bookkeeper.cli.app import app
from bookkeeper.metadata import LedgerMetadata, open_driver
from bookkeeper.metadata.api import BookieServiceInfo, Endpoint, MetadataDriver, Mode
from bookkeeper.metadata.formats.cookie import Cookie, encode_cookie
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, DigestType

BOOKIE = BookieId("127.0.0.1:3181")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/meta.db"


def shell(*words: str, answer: str = "") -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["shell", *words], input=answer, env={"COLUMNS": "300", "BOOKKEEPER_URI": ""})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


async def on_store(uri: str, work: Any) -> Any:
    driver: MetadataDriver = open_driver(uri, RealRuntime())
    await driver.open()
    try:
        return await work(driver)
    finally:
        await driver.close()


def instance_id(uri: str) -> str:
    code, out, _ = shell("whatisinstanceid", "--uri", uri, "--json")
    assert code == 0
    return str(json.loads(out)["instance_id"])


def test_a_cluster_is_made_once(uri: str) -> None:
    code, _, err = shell("whatisinstanceid", "-uri", uri)
    assert (code, "`bookkeeper shell initnewcluster` makes" in err) == (1, True)
    code, out, _ = shell("initnewcluster", "-uri", uri)
    assert code == 0
    first = instance_id(uri)
    assert first in out
    code, _, err = shell("initnewcluster", "-uri", uri)
    assert code == 1
    assert "already" in err
    assert instance_id(uri) == first
    assert shell("whatisinstanceid", "-uri", uri)[1] == f"Metadata Service Uri: {uri} InstanceId: {first}\n"


def test_a_configuration_says_where_the_cluster_is(uri: str, tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"metadataServiceUri={uri}\n")
    assert shell("initnewcluster", "--conf", str(conf))[0] == 0
    assert instance_id(uri)
    code, _, err = shell("initnewcluster", "--conf", str(tmp_path / "none.conf"))
    assert (code, "cannot read" in err) == (2, True)
    code, _, err = shell("initnewcluster")
    assert code == 2
    assert "metadataServiceUri" in err
    assert "--uri" in err


@pytest.mark.parametrize("word", ["-nonInteractive", "--nonInteractive", "-n"])
def test_a_format_without_questions_needs_force(uri: str, word: str) -> None:
    """SEC-48."""
    assert shell("initnewcluster", "-u", uri)[0] == 0
    before = instance_id(uri)
    assert shell("metaformat", "-u", uri, word)[0] == 1
    assert instance_id(uri) == before
    assert shell("metaformat", "-u", uri, word, "-force")[0] == 0
    assert instance_id(uri) != before


def test_a_format_asks_and_the_end_of_input_is_a_no(uri: str) -> None:
    """SEC-48."""
    assert shell("initnewcluster", "-u", uri)[0] == 0
    before = instance_id(uri)
    for answer in ("", "n\n", "what?\nno\n"):
        assert shell("metaformat", "-u", uri, answer=answer)[0] == 1
        assert instance_id(uri) == before
    assert shell("metaformat", "-u", uri, answer="Yes\n")[0] == 0
    assert instance_id(uri) != before


def test_a_format_of_nothing_makes_a_cluster(uri: str) -> None:
    assert shell("metaformat", "-u", uri)[0] == 0
    assert instance_id(uri)


def test_a_cluster_is_removed_when_it_is_surely_meant(uri: str) -> None:
    """SEC-48."""
    assert shell("initnewcluster", "-u", uri)[0] == 0
    name = instance_id(uri)
    for words in (["-i", "wrong"], ["-i", name, "-f"], ["-f", "-p", "/other"], [], ["--json"]):
        assert shell("nukeexistingcluster", "-u", uri, *words)[0] != 0
        assert instance_id(uri) == name
    path = uri.removeprefix("sqlite://")
    assert shell("nukeexistingcluster", "-u", uri, "-zkledgersrootpath", path, "-instanceid", name)[0] == 0
    assert shell("whatisinstanceid", "-u", uri)[0] == 1
    code, out, _ = shell("nukeexistingcluster", "-u", uri, "-f")
    assert (code, "there is no cluster" in out) == (0, True)


def test_what_changes_a_cluster_says_so_in_json(uri: str, tmp_path: Path) -> None:
    assert shell("initnewcluster", "-u", uri)[0] == 0
    name = instance_id(uri)
    cookie = Cookie.build(BOOKIE, journal_dirs=["/j"], ledger_dirs=["/l"], index_dirs=None, instance_id=name)
    file = tmp_path / "cookie"
    file.write_bytes(encode_cookie(cookie))
    at = ["-u", uri, "--json"]
    steps: list[tuple[list[str], dict[str, str | None]]] = [
        (["cookie_create", BOOKIE, "-cf", str(file)], {"bookie": BOOKIE, "cookie": "created"}),
        (["cookie_update", BOOKIE, "-cf", str(file)], {"bookie": BOOKIE, "cookie": "updated"}),
        (["cookie_delete", BOOKIE], {"bookie": BOOKIE, "cookie": "deleted"}),
        (["nukeexistingcluster", "-f"], {"uri": uri, "removed": name}),
        (["nukeexistingcluster", "-f"], {"uri": uri, "removed": None}),
    ]
    for words, expected in steps:
        code, out, err = shell(*words, *at)
        assert (code, json.loads(out), err) == (0, expected, "")
    code, out, err = shell("cookie_delete", BOOKIE, *at)
    assert (code, out, bool(err)) == (1, "", True)


def test_a_cluster_with_a_running_bookie_is_not_removed(uri: str) -> None:
    """SEC-48."""
    assert shell("initnewcluster", "-u", uri)[0] == 0

    async def meanwhile(driver: MetadataDriver) -> tuple[int, str, str]:
        await register(driver)
        return await asyncio.to_thread(shell, "nukeexistingcluster", "-u", uri, "-f")

    code, _, err = asyncio.run(on_store(uri, meanwhile))
    assert (code, "registered bookies" in err) == (1, True)
    assert instance_id(uri)


async def register(driver: MetadataDriver) -> None:
    info = BookieServiceInfo((Endpoint("bookie", "127.0.0.1", 3181),))
    await driver.registration.register(BOOKIE, Mode.WRITABLE, info)
    await driver.cookies.create(BOOKIE, b"cookie")


def test_bookies_are_listed_by_what_they_are_good_for(uri: str) -> None:
    assert shell("initnewcluster", "-u", uri)[0] == 0

    async def meanwhile(driver: MetadataDriver) -> list[str]:
        await register(driver)
        return [(await asyncio.to_thread(shell, "listbookies", "-u", uri, word))[1] for word in ("-rw", "-readonly")]

    writable, readonly = asyncio.run(on_store(uri, meanwhile))
    name = socket.getnameinfo(("127.0.0.1", 0), 0)[0]
    assert writable == f"ReadWrite Bookies :\nBookieID:127.0.0.1:3181, IP:127.0.0.1, Port:3181, Hostname:{name}\n"
    assert readonly == "No bookie exists!\n"
    everyone = shell("listbookies", "-u", uri, "-a")[1]
    assert everyone == "All Bookies :\nBookieID:127.0.0.1:3181, IP:UNKNOWN, Port:0, Hostname:UNKNOWN\n"
    for words in ([], ["-rw", "-a"]):
        assert shell("listbookies", "-u", uri, *words)[0] == 2


def test_ledgers_and_their_metadata_without_the_password(uri: str) -> None:
    assert shell("initnewcluster", "-u", uri)[0] == 0
    record = LedgerMetadata(
        123_456_789_012,
        1,
        1,
        1,
        {0: (BOOKIE,)},
        digest_type=DigestType.CRC32C,
        password=b"secret",
        custom_metadata={"app": b"demo"},
    ).close(9, 100)
    asyncio.run(on_store(uri, lambda driver: driver.ledgers.create(record.ledger_id, record)))
    line = (
        "LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, ackQuorumSize=1, state=CLOSED, length=100, "
        "lastEntryId=9, digestType=CRC32C, password=OMITTED, ensembles={0=[127.0.0.1:3181]}, "
        "customMetadata={app=base64:ZGVtbw==}}\n"
    )
    head = "ledgerID: 123456789012\n"
    assert shell("listledgers", "-u", uri)[1] == head
    assert shell("listledgers", "-u", uri, "-m")[1] == head + line
    assert shell("ledgermetadata", "-u", uri, "-ledgerid", "123456789012")[1] == head + line
    code, _, err = shell("ledgermetadata", "-u", uri, "-l", "5")
    assert (code, "there is no ledger 5" in err) == (1, True)


def test_a_cookie_is_saved_taken_away_and_put_back(uri: str, tmp_path: Path) -> None:
    assert shell("initnewcluster", "-u", uri)[0] == 0
    file = tmp_path / "cookie"
    for directory in ("/j", "/other"):
        cookie = Cookie.build(BOOKIE, journal_dirs=[directory], ledger_dirs=["/l"], index_dirs=None, instance_id="i")
        (tmp_path / directory[1:]).write_bytes(encode_cookie(cookie))
    file.write_bytes((tmp_path / "j").read_bytes())
    code, _, err = shell("cookie_get", BOOKIE, "-u", uri)
    assert (code, "Cookie not found for bookie '127.0.0.1:3181'" in err) == (1, True)
    assert shell("cookie_update", BOOKIE, "-cf", str(file), "-u", uri)[0] == 1
    assert shell("cookie_create", BOOKIE, "-cf", str(file), "-u", uri)[0] == 0
    code, _, err = shell("cookie_create", BOOKIE, "--cookie-file", str(file), "-u", uri)
    assert (code, "Cookie already exist for bookie '127.0.0.1:3181'" in err) == (1, True)
    printed = f"Cookie for bookie '127.0.0.1:3181' is:\n---\n{file.read_text()}\n---\n"
    assert shell("cookie_get", BOOKIE, "-u", uri)[1] == printed
    assert shell("cookie_update", BOOKIE, "-cf", str(tmp_path / "other"), "-u", uri)[0] == 0
    assert "/other" in shell("cookie_get", BOOKIE, "-u", uri)[1]
    assert shell("cookie_delete", BOOKIE, "-u", uri)[0] == 0
    assert shell("cookie_delete", BOOKIE, "-u", uri)[0] == 1
    (tmp_path / "nonsense").write_text("hello\n")
    assert shell("cookie_create", BOOKIE, "-cf", str(tmp_path / "nonsense"), "-u", uri)[0] == 2
    assert shell("cookie_create", BOOKIE, "-cf", str(tmp_path / "none"), "-u", uri)[0] == 2


def test_a_bookie_without_a_cluster_says_how_to_make_one() -> None:
    assert "`bookkeeper shell initnewcluster`" in (NotInitialized.__doc__ or "")
