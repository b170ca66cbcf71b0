"""What `bookkeeper shell` shows of a bookie's files: any of them can be read, and stays as it is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bookkeeper.bookie.file_names import journal_name
from bookkeeper.bookie.journal.format import (
    CURRENT_VERSION,
    SealHeader,
    encode_header,
    entry_prefix,
    explicit_lac_record,
    fence_record,
    ledger_key_record,
    sealed_padding,
)
from bookkeeper.bookie.journal.last_mark import LogMark
from bookkeeper.bookie.storage.entry_log.writer import EntryLogWriter
from bookkeeper.bookie.storage.index import ledger_data, ledgers
from bookkeeper.bookie.storage.index.ledger_data import LedgerData
from bookkeeper.bookie.storage.index.locations import LocationIndex
from bookkeeper.cli.app import app
from bookkeeper.runtime.disk.files import RealFiles
from bookkeeper.runtime.real import RealRuntime
from tests.support import golden
from tests.support.storage import entry, located

KEY = bytes(range(20))
MASKED = "sha256:" + hashlib.sha256(KEY).hexdigest()[:8]


def shell(*words: str | Path) -> tuple[int, str, str]:
    environment = {"COLUMNS": "300", "BOOKIE_CONF": ""}
    done = CliRunner().invoke(app, ["shell", *map(str, words)], env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def objects(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in directory.rglob("*")
        if path.is_file()
    }


def write_journal(
    directory: Path, journal_id: int, *batches: bytes, previous: tuple[int, int] = (0, 0), count: int = 1
) -> Path:
    """A sealed journal of these batches of `count` records."""
    data = encode_header(CURRENT_VERSION, SealHeader(journal_id, *previous))
    for batch in batches:
        start = len(data)
        data += batch + sealed_padding([batch], journal_id, start, count, start, 512)
    path = directory / journal_name(journal_id)
    path.write_bytes(data)
    return path


def add(entry_id: int) -> bytes:
    body = entry(7, entry_id)
    return entry_prefix(len(body)) + body


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """A configuration and the directories that it names: one journal, one log, one index."""
    journal, data = tmp_path / "j" / "current", tmp_path / "l" / "current"
    journal.mkdir(parents=True)
    data.mkdir(parents=True)
    batch = ledger_key_record(7, KEY) + add(0) + fence_record(7) + explicit_lac_record(7, b"lac")
    write_journal(journal, 26, batch, count=4)
    writer = EntryLogWriter(RealFiles(), str(data), 1 << 30)
    places = writer.append(7, [entry(7, 0), entry(7, 1)])
    writer.append(8, [entry(8, 0)])
    writer.close()
    runtime = RealRuntime()
    index = LocationIndex(runtime.open_key_value(f"{data}/locations"))
    index.write([], located((7, [0, 1], places)), lambda: None)
    index.close()
    store = runtime.open_key_value(f"{data}/ledgers")
    ledgers.write(store, {7: ledger_data.encode(LedgerData(fenced=True, master_key=KEY))}, lambda: None)
    store.close()
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"journalDirectories={tmp_path}/j\nledgerDirectories={tmp_path}/l\n")
    return conf


# --- journals ---


def test_a_journal_is_printed_as_a_replay_would_read_it(bookie: Path) -> None:
    code, out, err = shell("readjournal", "26", "--conf", bookie)
    assert (code, err) == (0, "")
    size = len(entry(7, 0))
    at = 512 + len(ledger_key_record(7, KEY))
    assert out.startswith(
        "Scan journal 26 (1a.txn)\nJournal Version : 6\n"
        "--------- Lid=7, Eid=-4096, ByteOffset=512, EntrySize=40 ---------\n"
        f"Type:           META\nMasterKey:      {MASKED}\n\n"
        f"--------- Lid=7, Eid=0, ByteOffset={at}, EntrySize={size} ---------\n"
        "Type:           DATA\nLastConfirmed:  "
    )
    assert "\nFenced\n" in out
    assert "\nExplicit lac\n" in out
    assert "Data:" not in out
    assert "Data:           " + entry(7, 0)[32:].hex() in shell("readjournal", "-m", "26", "--conf", bookie)[1]
    root = bookie.parent / "j"
    for words in (["1a.txn", "--conf", bookie], [root / "current/1a.txn"], ["26", "-dir", root]):
        assert shell("readjournal", *words)[:2] == (0, out)
    found = objects(shell("readjournal", "26", "--conf", bookie, "--json")[1])
    assert [item["type"] for item in found] == ["META", "DATA", "META", "META"]
    assert found[1]["offset"] == at


def test_a_torn_journal_is_printed_up_to_where_it_ends(tmp_path: Path) -> None:
    path = write_journal(tmp_path, 26, add(0), add(1))
    path.write_bytes(path.read_bytes()[:-300])
    code, out, err = shell("readjournal", path)
    assert (code, out.count("Lid=7")) == (1, 1)
    assert "ends at 1024" in err
    assert shell("readjournal", path, "--json")[0] == 1


def test_a_damaged_journal_is_told_from_a_torn_one(tmp_path: Path) -> None:
    """The next journal says that this one was synced behind the damage."""
    path = write_journal(tmp_path, 26, add(0), add(1))
    end = path.stat().st_size
    write_journal(tmp_path, 27, add(2), previous=(26, end))
    assert shell("readjournal", path)[0] == 0
    data = bytearray(path.read_bytes())
    data[1024 + 40] ^= 1
    path.write_bytes(data)
    code, out, err = shell("readjournal", path)
    assert (code, out.count("Lid=7")) == (1, 1)
    assert "cannot be read beyond 1024" in err
    assert f"synced up to {end}" in err


def test_what_is_no_journal_gets_one_line(tmp_path: Path, bookie: Path) -> None:
    empty = tmp_path / "1.txn"
    empty.write_bytes(bytes(1024))
    assert (shell("readjournal", empty)[0], "has no header" in shell("readjournal", empty)[2]) == (1, True)
    for words, code, text in (
        (["5", "--conf", bookie], 1, "there is no 5.txn in"),
        ([tmp_path / "none" / "5.txn"], 1, "No such file"),
        (["hello"], 2, "neither a decimal id nor a file"),
        (["5"], 2, "--conf"),
        (["5", "--conf", tmp_path / "none.conf"], 2, "cannot read"),
    ):
        found, _, err = shell("readjournal", *words)
        assert (found, text in err, err.count("\n")) == (code, True, 1), err


def test_the_last_mark_is_the_greatest_copy(bookie: Path) -> None:
    mark = bookie.parent / "l/current/lastMark"
    assert shell("lastmark", "--conf", bookie) == (0, "LastLogMark : Journal Id - 0(0.txn), Pos - 0\n", "")
    mark.write_bytes(LogMark(26, 1024).encode())
    assert shell("lastmark", "--conf", bookie) == (0, "LastLogMark : Journal Id - 26(1a.txn), Pos - 1024\n", "")
    (found,) = objects(shell("lastmark", "--conf", bookie, "--json")[1])
    assert found == {"journal": 26, "pos": 1024, "dir": f"{bookie.parent}/j/current"}
    other = bookie.parent / "l2/current"
    other.mkdir(parents=True)
    (other / "lastMark").write_bytes(LogMark(27, 0).encode())
    bookie.write_text(bookie.read_text().strip() + f",{bookie.parent}/l2\n")
    assert "27(1b.txn), Pos - 0" in shell("lastmark", "--conf", bookie)[1]
    assert shell("lastmark")[0] == 2


def test_keys_are_shown_only_when_that_is_asked_for(bookie: Path) -> None:
    for words in (["readjournal", "26"], ["ledger", "-m", "7"]):
        for form in ([], ["--json"]):
            masked = shell(*words, "--conf", bookie, *form)[1]
            assert MASKED in masked
            assert KEY.hex() not in masked
            assert KEY.hex() in shell(*words, "--conf", bookie, "--show-keys", *form)[1]


# --- entry logs ---


def test_a_log_is_printed_whole_or_in_part(bookie: Path) -> None:
    code, out, err = shell("readlog", "0", "--conf", bookie)
    assert (code, err) == (0, "")
    size = len(entry(7, 0))
    assert out.startswith(
        "Scan entry log 0 (0.log)\n"
        f"--------- Lid=7, Eid=0, ByteOffset=1024, EntrySize={size} ---------\n"
        "Type:           DATA\n"
    )
    log = bookie.parent / "l/current/0.log"

    def ids(*words: str) -> list[tuple[object, object]]:
        code, out, _ = shell("readlog", log, "--json", *words)
        assert code == 0
        return [(item["ledger"], item["entry"]) for item in objects(out)]

    assert ids() == [(7, 0), (7, 1), (8, 0)]
    assert ids("-l", "7") == [(7, 0), (7, 1)]
    assert ids("-l", "7", "-e", "1") == [(7, 1)]
    second = 1024 + 4 + size
    assert ids("-sp", str(second)) == [(7, 1), (8, 0)]
    assert ids("-sp", str(second), "-ep", str(second)) == [(7, 1)]
    assert shell("readlog", log, "-e", "1")[0] == 2


def test_a_log_that_was_cut_short_is_printed_up_to_there(bookie: Path, tmp_path: Path) -> None:
    whole = (bookie.parent / "l/current/0.log").read_bytes()
    size = len(entry(7, 0))
    sealed = tmp_path / "0.log"
    sealed.write_bytes(whole[: 1024 + size + 4 + 30])
    code, out, err = shell("readlog", sealed)
    assert (code, out.count("Lid=7"), "it was sealed" in err) == (1, 1, True)
    assert str(1024 + size + 4) in err
    unsealed = tmp_path / "1.log"
    unsealed.write_bytes(whole[:8] + bytes(1016) + whole[1024 : 1024 + size + 4 + 30])
    code, out, err = shell("readlog", unsealed)
    assert (code, out.count("Lid=7"), "was not sealed" in err) == (1, 1, True)
    nonsense = tmp_path / "2.log"
    nonsense.write_bytes(b"hello" * 1000)
    code, _, err = shell("readlog", nonsense)
    assert (code, "header begins with" in err) == (1, True)


def test_sizes_of_ledgers_in_a_log(bookie: Path, tmp_path: Path) -> None:
    size = len(entry(7, 0)) + 4
    code, out, err = shell("readlogmetadata", "0", "--conf", bookie)
    assert (code, err) == (0, "")
    assert out == (
        f"entryLogId: 0, remaining size: {3 * size}, total size: {3 * size}, usage: 1.0\n"
        f"--------- Lid=7, TotalSizeOfEntriesOfLedger={2 * size}  ---------\n"
        f"--------- Lid=8, TotalSizeOfEntriesOfLedger={size}  ---------\n"
    )
    log = bookie.parent / "l/current/0.log"
    ledgers = [{"ledger": 7, "size": 2 * size}, {"ledger": 8, "size": size}]
    whole = {"log": 0, "sealed": True, "total_size": 3 * size, "ledgers": ledgers}
    assert json.loads(shell("readlogmetadata", log, "--json")[1]) == whole
    unsealed = tmp_path / "1f.log"
    unsealed.write_bytes(log.read_bytes()[:8] + bytes(1016) + log.read_bytes()[1024 : 1024 + 3 * size])
    found = json.loads(shell("readlogmetadata", unsealed, "--json")[1])
    assert found == whole | {"log": 31, "sealed": False}
    unsealed.write_bytes(unsealed.read_bytes()[:-5])
    code, out, err = shell("readlogmetadata", unsealed)
    assert (code, out.count("Lid="), err.count("\n")) == (1, 1, 1)


def test_the_id_of_a_log_whose_sizes_are_wanted_is_hexadecimal(bookie: Path) -> None:
    assert "there is no 1f.log in" in shell("readlogmetadata", "1f", "--conf", bookie)[2]
    assert "neither a hexadecimal id nor a file" in shell("readlogmetadata", "xyz", "--conf", bookie)[2]


# --- the index ---


def test_the_index_says_where_a_ledgers_entries_are(bookie: Path) -> None:
    size = len(entry(7, 0))
    lines = f"entry 0\t:\t(log: 0, pos: 1028)\nentry 1\t:\t(log: 0, pos: {1028 + 4 + size})\n"
    assert shell("ledger", "7", "--conf", bookie) == (0, lines, "")
    assert shell("ledger", "7", "--conf", bookie, "-l", "0")[1] == lines
    assert shell("ledger", "7", "-dir", bookie.parent / "l")[1] == lines
    head = f"master key  : {MASKED}\nisFenced     : true\n"
    assert shell("ledger", "-m", "7", "--conf", bookie)[1] == head + lines
    found = objects(shell("ledger", "-m", "7", "--conf", bookie, "--json")[1])
    assert [item.get("pos") for item in found] == [None, 1028, 1028 + 4 + size]
    code, out, err = shell("ledger", "9", "--conf", bookie)
    assert (code, out, "ledger 9 is not in the index" in err) == (1, "", True)
    assert shell("ledger", "7", "--conf", bookie, "-l", "1")[0] == 2
    code, _, err = shell("ledger", "7", "-dir", bookie.parent / "j")
    assert (code, "there is no database" in err) == (1, True)


def test_a_damaged_index_gets_one_line(bookie: Path) -> None:
    (bookie.parent / "l/current/locations/CURRENT").write_text("hello\n")
    code, _, err = shell("ledger", "7", "--conf", bookie)
    assert (code, err.count("\n"), "l/current/locations" in err) == (1, 1, True), err


def test_nothing_is_written(bookie: Path) -> None:
    """Also while the bookie has its index open."""
    runtime = RealRuntime()
    stores = [runtime.open_key_value(f"{bookie.parent}/l/current/{name}") for name in ("locations", "ledgers")]
    before = contents(bookie.parent)
    for words in (
        ["readjournal", "26"],
        ["readlog", "0"],
        ["ledger", "-m", "7"],
        ["lastmark"],
        ["readlogmetadata", "0"],
    ):
        assert shell(*words, "--conf", bookie)[0] == 0
    assert contents(bookie.parent) == before
    for store in stores:
        store.close()


def test_files_that_java_wrote(tmp_path: Path) -> None:
    current = golden.unpack(tmp_path) / "b1" / "ledgers" / "current"
    before = contents(tmp_path)
    places = objects(shell("ledger", "0", "-dir", current, "--json")[1])
    assert [item["entry"] for item in places] == list(range(50))
    code, out, _ = shell("readlog", current / f"{places[0]['log']}.log", "-l", "0", "-e", "0", "-m", "--json")
    (found,) = objects(out)
    assert (code, found["offset"]) == (0, int(str(places[0]["pos"])) - 4)
    assert str(found["data"]).endswith(golden.payload(0, 100).hex())
    for path in sorted((tmp_path / "b1" / "journal" / "current").glob("*.txn")):
        code, out, err = shell("readjournal", path)
        assert (code, err) == (0, "")
        assert "Type:           META\nMasterKey:" in out
    assert contents(tmp_path) == before
