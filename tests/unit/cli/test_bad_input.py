"""Whatever a command is given, what it says is one line, without a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bookkeeper.cli.app import app
from bookkeeper.cli.output import text_of

NO_STORE = "-u sqlite:///{dir}/none.db"

CASES = [
    (2, "metadata service address 'nonsense'", "ledger create -u nonsense"),
    (2, "there is no directory", "ledger create -u sqlite:///{dir}/no/meta.db"),
    (2, "say KEY=VALUE", f"ledger create -m x {NO_STORE}"),
    (2, "cannot read {dir}/no", f"ledger create --password-file {{dir}}/no {NO_STORE}"),
    (1, "is not a file", f"ledger append 0 {{dir}} {NO_STORE}"),
    (2, "--raw and --json exclude", f"ledger read 0 --raw --json {NO_STORE}"),
    (2, "--raw and --json exclude", f"ledger tail 0 --raw --json {NO_STORE}"),
    (1, "there is no metadata file", f"ledger list {NO_STORE}"),
    (1, "is damaged", "ledger list -u sqlite:///{binary}"),
    (1, "there is no metadata file", f"bookies list {NO_STORE}"),
    (1, "0 of 1 bookies", f"bookies list --wait 1 --timeout 0 {NO_STORE}"),
    (1, "cannot read {dir}/no", "bookie -c {dir}/no"),
    (1, "cannot read {binary}: it is no text", "bookie -c {binary}"),
    (1, "{binary}: File exists", "localbookie 1 --dir {binary}"),
    (2, "--protocol", f"bench write --protocol v9 {NO_STORE}"),
    (1, "is not a file", "demo {dir}/no"),
    (1, "{binary} is a file", f"spark export {{binary}} -n {NO_STORE}"),
    (2, "say KEY=VALUE", f"spark scrub -n -w x {NO_STORE}"),
    (2, "say KEY=VALUE", f"spark scrub -n -o x {NO_STORE}"),
    (2, "the range 5-2 is empty", f"spark usage -n -l 5-2 {NO_STORE}"),
    (2, "cannot read {binary}: it is no text", "shell initnewcluster -c {binary}"),
    (2, "{binary} is no cookie", f"shell cookie_create b:1 -cf {{binary}} {NO_STORE}"),
    (1, "{dir}/1.txn: No such file", "shell readjournal {dir}/1.txn"),
    (1, "there is no database", "shell ledger 1 -dir {dir}"),
    (2, "say --conf", "shell lastmark"),
    (1, "there is no directory {dir}/no/current", "shell lastmark -c {conf}"),
]


@pytest.mark.parametrize(("code", "text", "words"), CASES, ids=[words for _, _, words in CASES])
def test_one_line_says_what_is_wrong(code: int, text: str, words: str, tmp_path: Path) -> None:
    binary, conf = tmp_path / "binary", tmp_path / "bk_server.conf"
    binary.write_bytes(bytes(range(255, 0, -1)) * 20)
    conf.write_text(f"journalDirectories={tmp_path}/no\nledgerDirectories={tmp_path}/no\n")
    places = {"dir": tmp_path, "binary": binary, "conf": conf}
    environment = {"COLUMNS": "400", "BOOKIE_CONF": "", "BOOKKEEPER_URI": ""}
    done = CliRunner().invoke(app, words.format(**places).split(), env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert (done.exit_code, len(lines)) == (code, 1), done.stderr
    assert text.format(**places) in lines[0]
    assert "Traceback" not in done.stderr


def test_failed_calls_of_the_system_name_their_file() -> None:
    assert text_of(FileNotFoundError(2, "No such file or directory", "/x")) == "/x: No such file or directory"
    assert text_of(OSError(28, "No space left on device")) == "No space left on device"
    assert text_of(TimeoutError()) == "TimeoutError"


def test_what_is_printed_is_never_taken_for_a_picture(tmp_path: Path) -> None:
    cookie = tmp_path / "c"
    cookie.write_text("root:x:0\n")
    done = CliRunner().invoke(app, ["shell", "cookie_create", "b:1", "-cf", str(cookie), "-u", "memory://x"])
    assert "root:x:0" in done.stderr


def test_what_scripts_want_to_know_of_a_cluster_is_json(tmp_path: Path) -> None:
    where = ["-u", f"sqlite://{tmp_path}/meta.db", "--json"]

    def answer(*words: str) -> dict[str, str]:
        done = CliRunner().invoke(app, ["shell", *words, *where])
        assert done.exit_code == 0, done.stderr
        return dict(json.loads(done.stdout))

    made = answer("initnewcluster")
    assert answer("whatisinstanceid") == made
    assert answer("metaformat", "-n", "-f")["uri"] == made["uri"]
