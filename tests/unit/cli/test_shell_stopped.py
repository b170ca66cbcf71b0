"""Verbs of the shell for a stopped bookie, as far as they need no bookie. With one: `tests/integration`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from typer.testing import CliRunner

from bookkeeper.bookie.file_names import journal_name
from bookkeeper.bookie.journal.format import explicit_lac_record, ledger_key_record
from bookkeeper.bookie.offline import ledgers as anew
from bookkeeper.bookie.offline.consistency import options_of
from bookkeeper.bookie.storage.directory_jobs import close_directory, open_directory
from bookkeeper.bookie.storage.entry_log.writer import EntryLogWriter
from bookkeeper.bookie.storage.index import ledgers
from bookkeeper.bookie.storage.index.ledger_data import NEEDS_INTEGRITY_CHECK, LedgerData
from bookkeeper.cli.app import app
from bookkeeper.config import ServerConfiguration
from bookkeeper.errors import CookieNotFound, CorruptStorageError
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.metadata.formats.cookie import Cookie, encode_cookie, parse_cookie
from bookkeeper.runtime.disk.files import RealFiles
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId
from tests.support.storage import entry
from tests.unit.cli.test_shell_files import KEY, write_journal

T = TypeVar("T")

IP, NAME = BookieId("127.0.0.1:3181"), BookieId("localhost:3181")


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """The settings of a bookie of an empty cluster, on the loopback interface."""
    path = tmp_path / "bk_server.conf"
    path.write_text(
        f"metadataServiceUri=sqlite://{tmp_path}/meta.db\nallowLoopback=true\nlisteningInterface=lo\n"
        f"journalDirectories={tmp_path}/j\nledgerDirectories={tmp_path}/l\n"
    )
    assert CliRunner().invoke(app, ["shell", "initnewcluster", "--conf", str(path)]).exit_code == 0
    return path


def shell(conf: Path, *words: str, answer: str = "") -> tuple[int, str, str]:
    environment = {"COLUMNS": "300", "BOOKIE_CONF": ""}
    done = CliRunner().invoke(app, ["shell", *words, "--conf", str(conf)], env=environment, input=answer)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def in_store(conf: Path, work: Callable[[MetadataDriver], Awaitable[T]]) -> T:
    async def main() -> T:
        driver = open_driver(f"sqlite://{conf.parent}/meta.db", RealRuntime())
        await driver.open()
        try:
            return await work(driver)
        finally:
            await driver.close()

    return asyncio.run(main())


def stamp(conf: Path, name: BookieId) -> None:
    """Give a bookie its cookies."""
    instance = in_store(conf, lambda driver: driver.admin.instance_id())
    journal, ledger = ([f"{conf.parent}/{place}"] for place in ("j", "l"))
    cookie = Cookie.build(name, journal_dirs=journal, ledger_dirs=ledger, instance_id=instance)
    for place in ("j", "l"):
        (conf.parent / place / "current").mkdir(parents=True)
        (conf.parent / place / "current" / "VERSION").write_bytes(encode_cookie(cookie))

    async def create(driver: MetadataDriver) -> None:
        await driver.cookies.create(name, encode_cookie(cookie))

    in_store(conf, create)


def stored(conf: Path, name: BookieId) -> str | None:
    """Whom the cookie under this name in the store is of."""

    async def read(driver: MetadataDriver) -> str | None:
        try:
            return parse_cookie((await driver.cookies.read(name)).value).bookie_id
        except CookieNotFound:
            return None

    return in_store(conf, read)


def in_directories(conf: Path) -> set[str]:
    return {parse_cookie(path.read_bytes()).bookie_id for path in conf.parent.rglob("current/VERSION")}


def test_a_bookie_gets_its_host_s_name(conf: Path) -> None:
    stamp(conf, IP)
    code, _, err = shell(conf, "updatecookie", "-bookieId", "hostname")
    assert (code, "needs useHostNameAsBookieID=true" in err) == (2, True)
    conf.write_text(conf.read_text() + "useHostNameAsBookieID=true\n")
    assert shell(conf, "updatecookie", "-b", "hostname") == (0, f"The cookies name {NAME} instead of {IP}\n", "")
    assert (stored(conf, NAME), stored(conf, IP), in_directories(conf)) == (NAME, None, {NAME})
    code, out, _ = shell(conf, "updatecookie", "-b", "hostname", "--json")
    assert (code, json.loads(out)) == (0, {"bookie": NAME, "was": None})
    listed = json.loads(shell(conf, "updatecookie", "-list", "--json")[1])
    assert {each["bookie"] for each in listed["cookies"].values()} == {NAME}
    assert len(listed["cookies"]) == 3


def test_a_cookie_of_another_bookie_is_left_alone(conf: Path) -> None:
    stamp(conf, IP)
    foreign = conf.parent / "l" / "current" / "VERSION"
    foreign.write_bytes(foreign.read_bytes().replace(b"127.0.0.1:3181", b"10.0.0.7:3181"))
    conf.write_text(conf.read_text() + "useHostNameAsBookieID=true\n")
    code, _, err = shell(conf, "updatecookie", "-b", "hostname")
    assert (code, "is the cookie of 10.0.0.7:3181" in err) == (1, True)
    assert (stored(conf, IP), stored(conf, NAME)) == (IP, None)


def test_a_bookie_s_cookies_are_removed_when_that_is_meant(conf: Path) -> None:
    stamp(conf, IP)
    assert shell(conf, "updatecookie", "-delete", answer="n\n")[0] == 1
    assert stored(conf, IP) == IP
    code, out, _ = shell(conf, "updatecookie", "-delete", "force")
    assert (code, len(out.splitlines())) == (0, 3)
    assert (stored(conf, IP), in_directories(conf)) == (None, set())
    code, _, err = shell(conf, "updatecookie", "-delete", "force")
    assert (code, err) == (1, f"error: there is no cookie of {IP}\n")


def test_new_directories_are_not_for_a_storage_that_finds_ledgers_by_place(conf: Path) -> None:
    code, _, err = shell(conf, "updatecookie", "-expandstorage")
    assert (code, "no storage to expand" in err) == (1, True)
    stamp(conf, IP)
    conf.write_text(conf.read_text().replace("/l\n", f"/l,{conf.parent}/more\n"))
    code, _, err = shell(conf, "updatecookie", "-e")
    assert (code, "directories cannot be added" in err) == (1, True)


@pytest.mark.parametrize("words", [[], ["-list", "-delete"], ["-list", "force"], ["-b", "nickname"]])
def test_updatecookie_wants_one_thing(conf: Path, words: list[str]) -> None:
    assert shell(conf, "updatecookie", *words)[0] == 2


def test_there_must_be_a_database_to_check_or_to_go_by(conf: Path) -> None:
    stamp(conf, IP)
    for verb in ("localconsistencycheck", "check-db-ledgers-index", "rebuild-db-ledger-locations-index"):
        code, _, err = shell(conf, verb)
        assert (code, "there is no database" in err) == (1, True), verb


def test_nothing_is_done_to_a_database_that_is_open_elsewhere(conf: Path) -> None:
    stamp(conf, IP)
    held = RealRuntime().open_key_value(f"{conf.parent}/l/current/ledgers", {"compression": "snappy"})
    try:
        for verb in ("localconsistencycheck", "rebuild-db-ledger-locations-index"):
            code, _, err = shell(conf, verb)
            assert (code, "has " in err, err.endswith("open: stop the bookie first\n")) == (1, True, True), verb
    finally:
        held.close()


def test_ledgers_are_known_by_journals_and_logs(tmp_path: Path) -> None:
    runtime, place = RealRuntime(), tmp_path / "j" / "current"
    place.mkdir(parents=True)
    write_journal(place, 26, ledger_key_record(7, KEY) + explicit_lac_record(7, b"lac"), count=2)
    (place / journal_name(30)).write_bytes(b"")  # its creation was cut short
    seen: list[str] = []
    found = anew.of_journals(runtime, [str(tmp_path / "j")], seen.append)
    assert found == {7: LedgerData(fenced=True, master_key=KEY, explicit_lac=b"lac")}
    assert [Path(path).name for path in seen] == ["1a.txn", "1e.txn"]
    writer = EntryLogWriter(RealFiles(), str(tmp_path), 1 << 30)
    writer.append(7, [entry(7, 0), entry(7, 1), entry(7, 2)])
    writer.append(8, [entry(8, 5)])
    writer.append(7, [entry(7, 1)])
    writer.close()
    anew.add_logs(runtime, str(tmp_path), found, seen.append)
    assert found[7].rewritten == (1, 1)
    assert found[8] == LedgerData(fenced=True)
    options = {"compression": "snappy"}
    anew.write_anew(runtime, str(tmp_path), options, found, limbo=True, flags=NEEDS_INTEGRITY_CHECK)
    store = runtime.open_key_value(f"{tmp_path}/ledgers", options)
    try:
        loaded = ledgers.load(store)
        assert ledgers.read_flags(store) == NEEDS_INTEGRITY_CHECK
    finally:
        store.close()
    assert all(data.fenced and data.limbo for data in loaded.values())
    assert loaded[7].explicit_lac == b"lac"


def test_a_sealed_log_that_cannot_be_read_may_hide_a_ledger(tmp_path: Path) -> None:
    writer = EntryLogWriter(RealFiles(), str(tmp_path), 1 << 30)
    writer.append(7, [entry(7, 0), entry(7, 1)])
    writer.close()
    (path,) = tmp_path.glob("*.log")
    data = bytearray(path.read_bytes())
    data[1024:1028] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(CorruptStorageError, match="cannot be read to its end"):
        anew.add_logs(RealRuntime(), str(tmp_path), {}, lambda _: None)


@pytest.mark.parametrize("left", ["ready", "ready, and the old one is away"])
def test_a_database_that_was_complete_takes_its_place_at_the_next_start(tmp_path: Path, left: str) -> None:
    """Without that the bookie would begin with an empty one, and know of no fence."""
    runtime, path = RealRuntime(), str(tmp_path)
    options = options_of(runtime, ServerConfiguration.from_mapping({"dbStorage_reservedSpaceMb": 0}))
    anew.write_anew(runtime, path, options.ledgers, {7: LedgerData(fenced=True)}, limbo=False, flags=0)
    (tmp_path / "ledgers").rename(tmp_path / "ledgers.ready")
    if left == "ready":
        (tmp_path / "ledgers").mkdir()
    opened = open_directory(runtime, options, path, path)
    close_directory(opened.writer, opened.locations, opened.ledgers, True)
    assert opened.loaded == {7: LedgerData(fenced=True)}
    assert not (tmp_path / "ledgers.ready").exists()
    assert (tmp_path / "ledgers.damaged").exists() is (left == "ready")
