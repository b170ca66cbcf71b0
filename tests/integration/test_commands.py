"""The command line as a user types it: the tour of the README, and mistakes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.config import parse_properties
from bookkeeper.runtime.ports import free_port
from tests.support.commands import run_command


class Result:
    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out_bytes = out
        self.out = out.decode(errors="replace")
        self.err = err.decode()

    @property
    def error(self) -> str:
        """The one line that says what was wrong."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        assert self.code != 0
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        return lines[0]


def environ(uri: str | None, **more: str) -> dict[str, str]:
    found = {**os.environ, "COLUMNS": "300", **more}
    found.pop("BOOKKEEPER_URI", None)
    return found if uri is None else {**found, "BOOKKEEPER_URI": uri}


async def start(*arguments: object, uri: str | None = None, **more: str) -> asyncio.subprocess.Process:
    """A command that goes on until it is done or stopped; `more`: environment variables."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bookkeeper", *map(str, arguments)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ(uri, **more),
    )


async def run(*arguments: object, uri: str | None = None, stdin: bytes = b"", **more: str) -> Result:
    """Run a command to its end; ids, ports and errors come out as a user sees them."""
    if not more:
        return Result(*await run_command(arguments, environ(uri), stdin))
    process = await start(*arguments, uri=uri, **more)
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return Result(process.returncode, out, err)


class Local:
    """A cluster run by `bookkeeper localbookie`, as a user has it."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bookkeeper", "localbookie", str(count), "--dir", str(directory)],
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("metadataServiceUri="), "the local cluster did not start"
        self.uri = line.strip().partition("=")[2]
        texts = [(directory / f"b{n}" / "bk_server.conf").read_text() for n in range(1, count + 1)]
        self.ports = [int(parse_properties(text)["bookiePort"]) for text in texts]
        self.ids = [f"127.0.0.1:{port}" for port in self.ports]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(60)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """One cluster for all tests of this file."""
    local = Local(tmp_path_factory.mktemp("cluster"), 3)
    yield local
    assert local.stop() == 0


@pytest.fixture(scope="module")
def uri(shared: Local) -> str:
    return shared.uri


async def test_the_life_of_a_ledger(uri: str, tmp_path: Path) -> None:
    created = await run("ledger", "create", "--password", "s", uri=uri)
    ledger_id = created.out.strip()
    assert ledger_id.isdigit()

    source = tmp_path / "lines"
    source.write_bytes(b"".join(b"line %d\n" % number for number in range(1000)) + b"last, without newline")
    appended = await run("ledger", "append", ledger_id, source, "--password", "s", "--json", uri=uri)
    assert json.loads(appended.out) == {
        "ledger": int(ledger_id),
        "entries": 1001,
        "bytes": len(source.read_bytes()) - 1000,
    }

    read = await run("ledger", "read", ledger_id, "--password", "s", uri=uri)
    assert read.out.encode() == source.read_bytes() + b"\n"
    part = await run("ledger", "read", ledger_id, "--from", 998, "--to", 999, "--password", "s", uri=uri)
    assert part.out == "line 998\nline 999\n"

    metadata = json.loads((await run("ledger", "metadata", ledger_id, "--json", uri=uri)).out)
    assert (metadata["state"], metadata["last_entry_id"]) == ("CLOSED", 1000)
    assert "password" not in metadata
    assert ledger_id in (await run("ledger", "list", uri=uri)).out.split()

    again = await run("ledger", "append", ledger_id, source, "--password", "s", uri=uri)
    assert "it has, or had, a writer" in again.error

    gone = await run("ledger", "delete", ledger_id, "--force", "--json", uri=uri)
    assert (gone.code, json.loads(gone.out)) == (0, {"deleted": [int(ledger_id)]})
    assert ledger_id not in (await run("ledger", "list", uri=uri)).out.split()


async def test_why_an_entry_can_or_cannot_be_read(uri: str) -> None:
    ledger_id = (await run("ledger", "create", uri=uri)).out.strip()
    await run("ledger", "append", ledger_id, uri=uri, stdin=b"a\nb\n")
    said = await run("shell", "why", ledger_id, uri=uri)
    assert said.code == 0
    assert said.out.count("has a good copy") == 3
    assert "entry 1 can be read from" in said.out
    told = json.loads((await run("shell", "why", ledger_id, 0, "--json", uri=uri)).out)
    assert (told["readable"], [copy["status"] for copy in told["copies"]]) == (True, ["good"] * 3)
    beyond = await run("shell", "why", ledger_id, 9, uri=uri)
    assert (beyond.code, "ends with entry 1" in beyond.out) == (1, True)
    assert "there is no ledger 4711" in (await run("shell", "why", 4711, uri=uri)).error


async def test_the_shell_tries_a_cluster_and_reads_its_ledgers(shared: Local, uri: str) -> None:
    conf = shared.directory / "b1" / "bk_server.conf"
    done = await run("shell", "simpletest", "-n", 250, uri=uri)
    assert (done.code, "250 entries written to ledger" in done.out) == (0, True)
    done = await run("shell", "bookiesanity", "--conf", conf, uri=uri)
    assert (done.code, done.out) == (0, "Bookie sanity test succeeded\n")
    assert "9 bookies needed" in (await run("shell", "simpletest", "-e", 9, uri=uri)).error
    found = json.loads((await run("shell", "bookieinfo", "--json", uri=uri)).out)
    assert [row["bookie"] for row in found["bookies"]] == sorted(shared.ids)
    assert found["free"] == sum(row["free"] for row in found["bookies"])
    text = (await run("shell", "bookieinfo", uri=uri)).out
    assert all(f"BookieID:{bookie}, IP:127.0.0.1" in text for bookie in shared.ids)
    ledger = (await run("ledger", "create", "-e", 3, "-w", 2, "-p", "secret", uri=uri)).out.strip()
    await run("ledger", "append", ledger, "-p", "secret", uri=uri, stdin=b"one\ntwo\nthree\n")
    done = await run("shell", "readledger", "-l", ledger, "-m", uri=uri)
    assert done.out.splitlines() == [
        line
        for number, (text, length) in enumerate([("one", 3), ("two", 6), ("three", 11)])
        for line in (f"--------- Lid={ledger}, Eid={number}, EntrySize={length} ---------", text)
    ]
    copies = [await run("shell", "readledger", "-l", ledger, "-b", bookie, "--json", uri=uri) for bookie in shared.ids]
    assert sorted(json.loads(line)["entry"] for copy in copies for line in copy.out.splitlines()) == [0, 0, 1, 1, 2, 2]
    done = await run("shell", "readledger", "-l", ledger, "-fe", 1, "-le", 9, uri=uri)
    assert (done.code, len(done.out.splitlines()), "there is no entry 9" in done.err) == (1, 2, True)


async def test_the_doctor_says_what_is_wrong(uri: str, tmp_path: Path) -> None:
    ledger_id = (await run("ledger", "create", uri=uri)).out.strip()
    said = await run("doctor", uri=uri)
    assert (said.code, "nothing needs to be done" in said.out) == (0, True)
    assert "3 writable bookies, 0 read-only, 0 gone" in said.out
    assert "note: no auditor" in said.out
    assert (await run("shell", "autorecovery", "-disable", uri=uri)).code == 0
    told = await run("doctor", "--json", uri=uri)
    assert (await run("shell", "autorecovery", "-enable", uri=uri)).code == 0
    found = json.loads(told.out)
    assert (told.code, found["findings"][0]["name"], found["findings"][0]["severity"]) == (
        1,
        "repair-disabled",
        "warning",
    )
    assert "-enable" in found["findings"][0]["advice"]
    assert (len(found["bookies"]["writable"]), found["bookies"]["gone"]) == (3, [])
    assert found["ledgers"]["count"] >= 1
    assert (await run("ledger", "delete", ledger_id, "--force", uri=uri)).code == 0

    empty = f"sqlite://{tmp_path}/meta.db"
    assert (await run("doctor", uri=empty)).code == 2
    assert (await run("shell", "initnewcluster", uri=empty)).code == 0
    nobody = await run("doctor", uri=empty)
    assert (nobody.code, "danger: no bookie can be written" in nobody.out) == (1, True)


async def test_standard_input_and_raw_payloads(uri: str) -> None:
    ledger_id = (await run("ledger", "create", "-e", 2, "-w", 2, "-a", 1, uri=uri)).out.strip()
    data = bytes(range(256)) * 10
    assert (await run("ledger", "append", ledger_id, "--raw", uri=uri, stdin=data)).code == 0
    read = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bookkeeper", "ledger", "read", ledger_id, "--raw", "--uri", uri),
        stdout=subprocess.PIPE,
    )
    out, _ = await read.communicate()
    assert out == data


async def test_tail_follows_until_the_ledger_is_closed(uri: str) -> None:
    ledger_id = (await run("ledger", "create", uri=uri)).out.strip()
    tailing = asyncio.ensure_future(run("ledger", "tail", ledger_id, "--from", 0, uri=uri))
    appended = await run("ledger", "append", ledger_id, uri=uri, stdin=b"".join(b"%d\n" % n for n in range(500)))
    assert appended.code == 0
    assert (await tailing).out.split() == [str(number) for number in range(500)]


async def test_bench_writes_reads_and_tails(uri: str) -> None:
    written = json.loads((await run("bench", "write", "--seconds", 0.5, "--warm", 0, "--json", uri=uri)).out)
    assert written["entries"] > 0
    assert written["p50_ms"] <= written["p99_ms"] <= written["max_ms"]
    ids = (await run("ledger", "list", uri=uri)).out.split()
    for how in ("--batch", "--single", "--ranges"):
        read = json.loads((await run("bench", "read", max(ids, key=int), "-s", 0.5, how, "--json", uri=uri)).out)
        assert read["entries"] > 0
        part = ("--once", "--limit", 7, "--step", 3, how, "--json")
        read = json.loads((await run("bench", "read", max(ids, key=int), *part, uri=uri)).out)
        assert read["entries"] == 7
    for protocol in ("v2", "v3", "auto"):
        tailed = json.loads(
            (await run("bench", "tail", "-s", 1, "-r", 50, "--protocol", protocol, "--json", uri=uri)).out
        )
        assert tailed["entries"] > 10


# --- appending as it comes ---


@pytest.mark.parametrize(("how", "code"), [(None, 0), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_lines_of_a_live_pipe_are_stored_as_they_come_and_kept_at_the_end(
    uri: str, how: signal.Signals | None, code: int
) -> None:
    ledger_id = (await run("ledger", "create", uri=uri)).out.strip()
    appending = await start("ledger", "append", ledger_id, uri=uri)
    assert appending.stdin is not None
    lines: list[str] = []
    async with asyncio.timeout(120):
        for number in range(3):  # each is there for readers while the pipe is open, and they disturb nobody
            lines.append(f"line {number}")
            appending.stdin.write(lines[-1].encode() + b"\n")
            while (await run("ledger", "read", ledger_id, uri=uri)).out.splitlines() != lines:
                assert appending.returncode is None
    if how is not None:
        appending.send_signal(how)
        err = (await appending.communicate())[1].decode()
        assert f"interrupted; stored: {len(lines)} entries (ids 0 to {len(lines) - 1}) in ledger {ledger_id}" in err
    else:
        err = (await appending.communicate(b""))[1].decode()
        assert err.startswith(f"{len(lines)} entries")
    assert appending.returncode == code
    assert (await run("ledger", "read", ledger_id, uri=uri)).out.splitlines() == lines
    assert json.loads((await run("ledger", "metadata", ledger_id, "--json", uri=uri)).out)["state"] == "CLOSED"


async def test_lines_before_one_that_is_too_large_are_stored(uri: str) -> None:
    ledger_id = (await run("ledger", "create", uri=uri)).out.strip()
    result = await run("ledger", "append", ledger_id, uri=uri, stdin=b"one\ntwo\n" + b"x" * 6_000_000 + b"\nfour\n")
    assert "standard input, line 3" in result.error
    assert f"stored before it: 2 entries (ids 0 to 1) in ledger {ledger_id}, which is closed" in result.error
    assert (await run("ledger", "read", ledger_id, uri=uri)).out == "one\ntwo\n"


async def test_a_ledger_that_was_looked_at_still_waits_for_its_writer(uri: str) -> None:
    ledger_id = (await run("ledger", "create", uri=uri)).out.strip()
    looked = await run("ledger", "read", ledger_id, uri=uri)
    assert (looked.code, looked.out) == (0, "")
    assert "waits for its first" in looked.err
    assert "nothing to recover" in (await run("ledger", "read", ledger_id, "-r", uri=uri)).error
    assert (await run("ledger", "metadata", ledger_id, uri=uri)).code == 0
    assert (await run("ledger", "append", ledger_id, uri=uri, stdin=b"one\n")).code == 0


async def test_a_ledger_whose_writer_died_is_closed_when_that_is_asked_for(uri: str) -> None:
    ledger_id = (await run("ledger", "create", uri=uri)).out.strip()
    appending = await start("ledger", "append", ledger_id, uri=uri)
    assert appending.stdin is not None
    count = 0
    async with asyncio.timeout(120):
        while not (await run("ledger", "read", ledger_id, uri=uri)).out:
            appending.stdin.write(b"%d\n" % count)
            count += 1
    appending.kill()
    await appending.communicate()
    assert "is not closed" in (await run("ledger", "read", ledger_id, uri=uri)).err
    recovered = await run("ledger", "read", ledger_id, "--recover", uri=uri)
    assert recovered.out.split() == [str(number) for number in range(count)]
    assert json.loads((await run("ledger", "metadata", ledger_id, "--json", uri=uri)).out)["state"] == "CLOSED"


# --- looking ---


async def test_parts_of_a_ledger_and_what_is_not_there(uri: str) -> None:
    ledger_id = (await run("ledger", "create", "-e", 1, "-m", "app=demo", uri=uri)).out.strip()
    assert (await run("ledger", "append", ledger_id, uri=uri, stdin=b"a\nb\n\xff\n")).code == 0
    assert (await run("ledger", "read", ledger_id, "-n", 2, uri=uri)).out == "a\nb\n"
    assert (await run("ledger", "tail", ledger_id, "--from", 0, "-n", 1, uri=uri)).out == "a\n"
    rows = (await run("ledger", "read", ledger_id, "--json", "--from", 1, uri=uri)).out.splitlines()
    assert [json.loads(row) for row in rows] == [
        {"entry": 1, "length": 1, "data": "b"},
        {"entry": 2, "length": 1, "data_base64": "/w=="},
    ]
    beyond = await run("ledger", "read", ledger_id, "--from", 1, "--to", 7, "--raw", uri=uri)
    assert "there is no entry 3" in beyond.error
    assert beyond.out_bytes == b"b\xff"
    assert "there is no entry 5" in (await run("ledger", "read", ledger_id, "--from", 5, uri=uri)).error
    listed = (await run("ledger", "list", "--long", uri=uri)).out.splitlines()
    assert [ledger_id, "CLOSED", "3", "3", "B", "1/1/1"] in [line.split() for line in listed]
    described = json.loads((await run("ledger", "metadata", ledger_id, "--json", uri=uri)).out)
    assert described["custom_metadata"] == {"app": "demo"}
    shown = (await run("ledger", "metadata", ledger_id, uri=uri)).out
    assert f"\nledger           {ledger_id}\n" in shown
    assert "UTC" in shown


async def test_a_password_need_not_be_on_the_command_line(uri: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    ledger_id = (await run("ledger", "create", "--password-file", file, uri=uri)).out.strip()
    appended = await run("ledger", "append", ledger_id, uri=uri, stdin=b"a\n", BOOKKEEPER_PASSWORD="secret")
    assert appended.code == 0
    assert (await run("ledger", "read", ledger_id, "--password", "secret", uri=uri)).out == "a\n"
    assert "wrong password" in (await run("ledger", "read", ledger_id, uri=uri)).error
    assert "cannot read" in (await run("ledger", "read", 0, "--password-file", tmp_path / "no", uri=uri)).error


async def test_an_empty_cluster_says_that_it_is_empty(tmp_path: Path) -> None:
    uri = f"sqlite://{tmp_path}/meta.db"
    assert (await run("shell", "initnewcluster", uri=uri)).code == 0
    assert "no bookie has registered" in (await run("bookies", "list", uri=uri)).error
    assert "0 of 1 bookies" in (await run("bookies", "list", "--wait", 1, "--timeout", 0.1, uri=uri)).error
    assert "`bookkeeper bookies list`" in (await run("ledger", "create", uri=uri)).error


# --- stopping ---


@pytest.mark.parametrize("what", ["write", "tail"])
async def test_a_bench_that_is_stopped_tells_what_it_measured(uri: str, what: str) -> None:
    ids = (await run("ledger", "list", uri=uri)).out.split()
    running = await start("bench", what, "--seconds", 100, "--json", *(["--warm", 0] * (what == "write")), uri=uri)
    async with asyncio.timeout(120):
        while (await run("ledger", "list", uri=uri)).out.split() == ids:
            await asyncio.sleep(0.1)
    running.send_signal(signal.SIGINT)
    out, err = await running.communicate()
    assert running.returncode == 130
    assert json.loads(out)["entries"] >= 0
    assert len(err.splitlines()) == 1, err.decode()
    assert err.startswith(b"interrupted: measured for ")


async def test_bookies_list_shows_every_bookie(shared: Local) -> None:
    listed = json.loads((await run("bookies", "list", "--json", uri=shared.uri)).out)
    assert {row["bookie"]: row["state"] for row in listed} == dict.fromkeys(shared.ids, "writable")
    assert all(0 < row["free_bytes"] <= row["total_bytes"] for row in listed)


async def test_help_and_version() -> None:
    assert "localbookie" in (await run("--help")).out
    assert json.loads((await run("version", "--json")).out)["bookkeeper"]


# --- mistakes: one line, no traceback ---


async def test_a_wrong_password(uri: str) -> None:
    ledger_id = (await run("ledger", "create", "--password", "right", uri=uri)).out.strip()
    assert "wrong password" in (await run("ledger", "append", ledger_id, "--password", "wrong", uri=uri)).error
    assert "wrong password" in (await run("ledger", "read", ledger_id, "--password", "wrong", uri=uri)).error


async def test_an_unknown_ledger(uri: str) -> None:
    for command in (("read",), ("tail",), ("metadata",), ("append",), ("delete", "--force")):
        assert "there is no ledger 987654" in (await run("ledger", *command, 987654, uri=uri)).error


async def test_more_copies_than_bookies(uri: str) -> None:
    assert "3 writable" in (await run("ledger", "create", "-e", 7, uri=uri)).error
    assert (await run("ledger", "create", "-e", 2, "-w", 3, uri=uri)).code != 0


async def test_a_bad_address(tmp_path: Path) -> None:
    assert "nonsense" in (await run("ledger", "list", uri="nonsense")).error
    assert "ftp" in (await run("ledger", "list", uri="ftp://somewhere/ledgers")).error
    missing = await run("ledger", "list", uri=f"sqlite://{tmp_path}/nothing/here.db")
    assert str(tmp_path) in missing.error


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "is not a file" in (await run("ledger", "append", 0, tmp_path / "gone", uri="sqlite:///x/y.db")).error


async def test_no_address_at_all() -> None:
    result = await run("ledger", "list")
    assert result.code == 2
    assert "--uri" in result.err


# --- a bookie's own mistakes ---


def conf(directory: Path, uri: str, port: int, **changes: object) -> Path:
    settings: dict[str, object] = {
        "metadataServiceUri": uri,
        "bookiePort": port,
        "advertisedAddress": "127.0.0.1",
        "allowLoopback": "true",
        "journalDirectories": directory / "journal",
        "ledgerDirectories": directory / "ledgers",
        **changes,
    }
    directory.mkdir(exist_ok=True)
    path = directory / "bk_server.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


async def test_a_bookie_whose_port_is_taken(shared: Local, tmp_path: Path) -> None:
    """FX-58, gap G5."""
    taken = shared.ports[0]
    result = await run(
        "bookie", "--log-level", "ERROR", "--conf", conf(tmp_path, shared.uri, taken, bookieId="another")
    )
    assert result.code == 2
    assert str(taken) in result.error


async def test_a_bookie_on_the_directories_of_another(shared: Local, tmp_path: Path) -> None:
    """SEC-51, FX-58, RT-18."""
    mine = shared.directory / "b1"
    path = conf(
        tmp_path, shared.uri, free_port(), journalDirectories=mine / "journal", ledgerDirectories=mine / "ledgers"
    )
    result = await run("bookie", "--log-level", "ERROR", "--conf", path)
    assert result.code == 2
    assert shared.ids[0] in result.error


async def test_a_bookie_with_bad_settings(tmp_path: Path) -> None:
    for key, value in (("bookiePort", "high"), ("journalAlignmentSize", "100"), ("diskUsageThreshold", "1.5")):
        result = await run("bookie", "--conf", conf(tmp_path, "sqlite:///x/y.db", 3181, **{key: value}))
        assert result.code == 1
        assert key in result.error
    assert (await run("bookie", "--conf", tmp_path / "none.conf")).code == 1


async def test_a_bookie_without_its_metadata_store(tmp_path: Path) -> None:
    path = conf(tmp_path, f"sqlite://{tmp_path}/gone/meta.db", free_port())
    result = await run("bookie", "--log-level", "ERROR", "--conf", path)
    assert result.code == 1
    assert "gone" in result.error


async def test_a_misspelt_setting_is_pointed_out(shared: Local, tmp_path: Path) -> None:
    path = conf(tmp_path, shared.uri, free_port(), journalMaxSizeMb=100)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bookkeeper", "bookie", "--conf", str(path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert b"serves" in await process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, err = await process.communicate()
    assert process.returncode == 0
    assert b"did you mean journalMaxSizeMB?" in err
    for said in (b"BookKeeper for Python", b"ledgerDirectories: ", b" serves on port ", b"stopping", b"exit code 0"):
        assert said in err, "a bookie says who it is and what it does"


async def test_localbookie_with_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = await run("localbookie", 1, "--dir", tmp_path, "--port-base", port)
    assert f"port {port} is in use" in result.error


async def test_a_bookie_whose_settings_are_all_in_the_environment(shared: Local, tmp_path: Path) -> None:
    settings = parse_properties(conf(tmp_path, shared.uri, free_port()).read_text())
    bookie = await start("bookie", **{f"BK_{key}": value for key, value in settings.items()})
    assert bookie.stdout is not None
    assert b"serves" in await bookie.stdout.readline()
    bookie.send_signal(signal.SIGTERM)
    await bookie.communicate()
    assert bookie.returncode == 0
    assert "--conf" in (await run("bookie")).error


# --- a local cluster's life ---


async def bookies_end(ports: list[int]) -> None:
    """Until nobody listens on these ports."""
    async with asyncio.timeout(60):
        for port in ports:
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)):
                        break
                await asyncio.sleep(0.05)


async def test_a_local_cluster_grows_and_keeps_its_ledgers(tmp_path: Path) -> None:
    one = Local(tmp_path, 1)
    ledger_id = (await run("ledger", "create", "-e", 1, uri=one.uri)).out.strip()
    assert (await run("ledger", "append", ledger_id, uri=one.uri, stdin=b"kept\n")).code == 0
    assert one.stop() == 0
    two = Local(tmp_path, 2)
    assert two.ids[:1] == one.ids
    assert (await run("ledger", "create", "-e", 2, uri=two.uri)).code == 0
    assert two.stop() == 0
    again = Local(tmp_path, 1)
    assert again.ids == one.ids
    assert (await run("ledger", "read", ledger_id, uri=again.uri)).out == "kept\n"
    assert again.stop() == 0


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGKILL, signal.SIGINT])
async def test_the_bookies_of_a_local_cluster_end_with_it(tmp_path: Path, how: signal.Signals) -> None:
    local = Local(tmp_path, 2)
    assert "is running in" in (await run("localbookie", 2, "--dir", tmp_path)).error
    assert local.stop(how) == (-how if how is signal.SIGKILL else 0)
    await bookies_end(local.ports)
    again = Local(tmp_path, 2)
    assert again.ids == local.ids
    assert (await run("ledger", "create", "-e", 2, uri=again.uri)).code == 0
    assert again.stop() == 0


async def test_a_zookeeper_without_kazoo_is_explained() -> None:
    program = "import sys; sys.modules['kazoo'] = None; from bookkeeper.cli.main import main; main()"
    for words in (["localbookie", "1", "--zookeeper"], ["bookies", "list", "--uri", "zk://127.0.0.1:1/ledgers"]):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        assert "[zookeeper]'" in Result(process.returncode, out, err).error
