"""`bookkeeper shell updateledgers` and `updateBookieInLedger`: another id for a bookie, in all records."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.cli.shell import common
from bookkeeper.metadata import LedgerMetadata
from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.types import BookieId

from .test_shell import on_store, register, shell, uri
from .test_shell_autorecovery import cluster

__all__ = ["cluster", "uri"]

OLD, NEW, THIRD = (BookieId(f"10.0.0.{n}:3181") for n in (1, 2, 3))
RENAME = ("updateBookieInLedger", "-sb", OLD, "-db", NEW, "-s", "1000")


def store(uri: str, work: Any) -> Any:
    return asyncio.run(on_store(uri, work))


def put(uri: str, *ensembles: list[BookieId]) -> list[int]:
    """A ledger for each of these ensembles; returns their ids."""

    async def create(driver: MetadataDriver) -> list[int]:
        ids = []
        for ensemble in ensembles:
            ledger_id = await driver.ids.allocate()
            size = len(ensemble)
            await driver.ledgers.create(ledger_id, LedgerMetadata(ledger_id, size, size, 1, {0: tuple(ensemble)}))
            ids.append(ledger_id)
        return ids

    return list(store(uri, create))


def ensembles(uri: str, ids: list[int]) -> list[list[BookieId]]:
    async def read(driver: MetadataDriver) -> list[list[BookieId]]:
        return [list((await driver.ledgers.read(ledger_id)).value.ensembles[0]) for ledger_id in ids]

    return list(store(uri, read))


def test_a_bookie_gets_another_id_in_all_ledgers(cluster: str) -> None:
    ids = put(cluster, [OLD, THIRD], [THIRD], [THIRD, OLD])
    code, out, _ = shell(*RENAME, "-dr", "--json", "-u", cluster)
    assert (code, json.loads(out)) == (0, {"issued": 3, "updated": 2, "refused": []})
    assert ensembles(cluster, ids) == [[OLD, THIRD], [THIRD], [THIRD, OLD]]
    assert shell(*RENAME, "-u", cluster) == (0, "Number of ledgers issued=3, updated=2\n", "")
    assert ensembles(cluster, ids) == [[NEW, THIRD], [THIRD], [THIRD, NEW]]
    assert shell(*RENAME, "-u", cluster)[1] == "Number of ledgers issued=3, updated=0\n"


def test_the_limit_counts_ledgers_that_are_looked_at(cluster: str) -> None:
    ids = put(cluster, [THIRD], [OLD], [OLD])
    assert shell(*RENAME, "-l", "2", "-r", "1", "-u", cluster)[1] == "Number of ledgers issued=2, updated=1\n"
    assert ensembles(cluster, ids) == [[THIRD], [NEW], [OLD]]


def test_a_ledger_that_has_both_is_left_alone_and_named(cluster: str) -> None:
    ids = put(cluster, [OLD, NEW], [OLD, THIRD])
    code, out, err = shell(*RENAME, "-u", cluster)
    assert (code, out) == (1, "Number of ledgers issued=2, updated=1\n")
    assert f"ledgers {ids[0]}" in err
    assert ensembles(cluster, ids) == [[OLD, NEW], [NEW, THIRD]]


def test_a_bookie_that_runs_is_not_renamed(cluster: str) -> None:
    async def running(driver: MetadataDriver) -> tuple[int, str, str]:
        await register(driver)
        return await asyncio.to_thread(
            shell, "updateBookieInLedger", "-sb", "127.0.0.1:3181", "-db", NEW, "-u", cluster
        )

    code, _, err = store(cluster, running)
    assert code == 1
    assert "Source bookie 127.0.0.1:3181 can't be active" in err


def test_what_makes_no_sense_is_refused(cluster: str) -> None:
    for words, text in (
        (("-s", "0"), "Invalid updatespersec 0, should be > 0"),
        (("-r", "-1"), "Invalid maxOutstandingReads -1, should be > 0"),
        (("-l", "0"), "Invalid limit 0, should be > 0"),
        (("-v", "yes"), "Invalid verbose yes, should be true or false"),
    ):
        code, _, err = shell("updateBookieInLedger", "-sb", OLD, "-db", NEW, *words, "-u", cluster)
        assert (code, text in err) == (2, True), words
    code, _, err = shell("updateBookieInLedger", "-sb", OLD, "-db", OLD, "-u", cluster)
    assert (code, "before and after" in err) == (1, True)


def test_who_sits_at_a_terminal_is_asked(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = put(cluster, [OLD])
    monkeypatch.setattr("bookkeeper.cli.shell.renames.agreed", common.sure)
    code, out, err = shell(*RENAME, "-u", cluster, answer="n\n")
    assert (code, "Are you sure to put" in out, "nothing was changed" in err) == (1, True, True)
    assert ensembles(cluster, ids) == [[OLD]]
    assert shell(*RENAME, "-f", "-u", cluster)[0] == 0


def test_a_bookie_goes_from_its_address_to_its_host_name_and_back(cluster: str, tmp_path: Path) -> None:
    conf = tmp_path / "bk_server.conf"

    def configure(by_name: bool) -> None:
        conf.write_text(
            f"metadataServiceUri={cluster}\nallowLoopback=true\nlisteningInterface=lo\n"
            f"useHostNameAsBookieID={str(by_name).lower()}\n"
        )

    ids = put(cluster, [BookieId("127.0.0.1:3181")])
    configure(by_name=False)
    code, _, err = shell("updateledgers", "-b", "hostname", "--conf", str(conf))
    assert (code, "Expects configuration useHostNameAsBookieID=true" in err) == (2, True)
    assert shell("updateledgers", "-b", "name", "--conf", str(conf))[0] == 2
    configure(by_name=True)
    code, out, err = shell("updateledgers", "-bookieId", "hostname", "-v", "true", "--conf", str(conf))
    assert (code, out) == (0, "Number of ledgers issued=1, updated=1\n"), err
    assert ensembles(cluster, ids) == [[BookieId("localhost:3181")]]
    configure(by_name=False)
    assert shell("updateledgers", "-b", "ip", "--conf", str(conf))[0] == 0
    assert ensembles(cluster, ids) == [[BookieId("127.0.0.1:3181")]]
