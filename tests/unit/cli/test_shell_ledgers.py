"""`bookkeeper shell`: what it says of a cluster and its bookies, and ledgers by bookie, saved, restored and deleted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.admin.sizes import size_text
from bookkeeper.errors import NoSuchLedger
from bookkeeper.metadata import LedgerMetadata
from bookkeeper.metadata.api import BookieServiceInfo, Endpoint, MetadataDriver, Mode
from bookkeeper.metadata.formats.cookie import Cookie, parse_cookie
from bookkeeper.types import BookieId, DigestType, LedgerState

from .test_shell import BOOKIE, instance_id, on_store, shell, uri

__all__ = ["uri"]

OTHERS = [BookieId(f"127.0.0.1:{port}") for port in (3182, 3183)]


@pytest.fixture
def cluster(uri: str) -> str:
    assert shell("initnewcluster", "-u", uri)[0] == 0
    return uri


def store(uri: str, work: Any) -> Any:
    return asyncio.run(on_store(uri, work))


def ledger(ledger_id: int, *members: BookieId, last: int | None = None) -> LedgerMetadata:
    state = LedgerState.OPEN if last is None else LedgerState.CLOSED
    return LedgerMetadata(
        ledger_id,
        len(members),
        1,
        1,
        {0: members},
        state=state,
        last_entry_id=-1 if last is None else last,
        length=0 if last is None else 10 * (last + 1),
        digest_type=DigestType.CRC32C,
        password=b"secret",
        custom_metadata={"app": b"demo"},
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (999, "999"), (1000, "1000(1KB)"), (1500, "1500(1.5KB)"), (73571024896, "73571024896(73.571GB)")],
)
def test_sizes_are_as_java_writes_them(size: int, text: str) -> None:
    assert size_text(size) == text


@given(st.integers(1000, 10**18))
def test_a_size_is_rounded_down_to_three_decimals(size: int) -> None:
    number, _, unit = size_text(size).removesuffix(")").partition("(")
    power = {"KB": 3, "MB": 6, "GB": 9, "TB": 12}[unit[-2:]]
    whole, _, decimals = unit[:-2].partition(".")
    thousandths = int(whole) * 1000 + int(decimals.ljust(3, "0") or 0)
    assert int(number) == size
    assert thousandths == size * 1000 // 10**power
    assert int(whole) < 1000 or unit.endswith("TB")


def test_how_the_cluster_stands(cluster: str) -> None:
    stands = json.loads(shell("clusterinfo", "-u", cluster, "--json")[1])
    assert stands == {
        "auditorElected": False,
        "auditorId": "",
        "clusterUnderReplicated": False,
        "ledgerReplicationEnabled": True,
        "totalBookiesCount": 0,
        "writableBookiesCount": 0,
        "readonlyBookiesCount": 0,
        "unavailableBookiesCount": 0,
    }

    async def change(driver: MetadataDriver) -> None:
        for bookie in (BOOKIE, *OTHERS):
            await driver.cookies.create(bookie, b"cookie")
        await driver.registration.register(BOOKIE, Mode.WRITABLE, BookieServiceInfo((Endpoint("bookie", "h", 1),)))
        await driver.registration.register(OTHERS[0], Mode.READ_ONLY, BookieServiceInfo(()))
        await driver.underreplication.mark(7, [OTHERS[1]])
        await driver.underreplication.disable()
        said = await asyncio.to_thread(shell, "clusterinfo", "-u", cluster)
        headline, _, text = said[1].partition("\n")
        assert headline == "--------- Cluster Info ---------"
        found = json.loads(text)
        assert found.pop("clusterUnderReplicated") is True
        assert found.pop("ledgerReplicationEnabled") is False
        assert [found[f"{kind}BookiesCount"] for kind in ("total", "writable", "readonly", "unavailable")] == [
            3,
            1,
            1,
            1,
        ]

    store(cluster, change)


def test_what_a_bookie_says_of_itself(cluster: str) -> None:
    info = BookieServiceInfo((Endpoint("bookie", "10.0.0.1", 3181, auth=("a", "b")),), {"zone": "z1"})

    async def look(driver: MetadataDriver) -> None:
        await driver.registration.register(BOOKIE, Mode.WRITABLE, info)
        _, out, _ = await asyncio.to_thread(shell, "endpointinfo", "-b", BOOKIE, "-u", cluster)
        assert out.splitlines() == [
            f"BookiedId: {BOOKIE}",
            "Properties",
            "zone : z1",
            "Endpoint: bookie",
            "Protocol: bookie-rpc",
            "Address: 10.0.0.1 : 3181",
            "Auth: [a, b]",
            "Extensions: []",
        ]
        _, out, _ = await asyncio.to_thread(shell, "endpointinfo", "-b", BOOKIE, "-u", cluster, "--json")
        assert json.loads(out)["endpoints"][0]["auth"] == ["a", "b"]

    store(cluster, look)
    code, _, err = shell("endpointinfo", "-b", "nobody:1", "-u", cluster)
    assert (code, "nobody:1 is not there" in err) == (1, True)


def test_ledgers_of_a_bookie_are_those_with_entries_on_it(cluster: str) -> None:
    async def fill(driver: MetadataDriver) -> None:
        for record in (
            ledger(1, BOOKIE, OTHERS[0], last=5),
            ledger(2, OTHERS[0], BOOKIE, last=0),  # its only entry is on the other one
            ledger(3, OTHERS[0], BOOKIE),  # the next entry may be
            ledger(4, *OTHERS, last=5),
        ):
            await driver.ledgers.create(record.ledger_id, record)

    store(cluster, fill)
    assert shell("listledgers", "-bookieid", BOOKIE, "-u", cluster)[1] == "ledgerID: 1\nledgerID: 3\n"
    _, out, _ = shell("listledgers", "-bookieid", OTHERS[1], "-m", "-u", cluster)
    assert "ledgerID: 4\nLedgerMetadata{" in out


def test_a_record_is_saved_restored_and_deleted(cluster: str, tmp_path: Path) -> None:
    file, record = tmp_path / "saved", ledger(7, BOOKIE, last=5)
    at = ("-l", "7", "-u", cluster)

    async def make(driver: MetadataDriver) -> None:
        await driver.ledgers.create(7, record)

    async def read(driver: MetadataDriver) -> LedgerMetadata:
        return (await driver.ledgers.read(7)).value

    store(cluster, make)
    before = store(cluster, read)
    assert shell("ledgermetadata", *at, "-dumptofile", str(file))[0] == 0
    code, _, err = shell("ledgermetadata", *at, "-restorefromfile", str(file))
    assert (code, "7" in err) == (1, True)  # it is there
    assert shell("deleteledger", *at, "-f")[0] == 0
    with pytest.raises(NoSuchLedger):
        store(cluster, read)
    assert shell("deleteledger", *at, "-f")[0] == 0  # as there
    for words in (["-restorefromfile", str(file)], ["-restorefromfile", str(file), "-update"]):
        code, out, _ = shell("ledgermetadata", *at, *words)
        assert (code, "lastEntryId=5" in out) == (0, True)
        restored = store(cluster, read)
        assert (restored.ensembles, restored.password, restored.last_entry_id) == (before.ensembles, b"secret", 5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-dumptofile", "a", "-restorefromfile", "b"], "exclude"),
        (["-restorefromfile", "/none"], "cannot read /none"),
        (["-dumptofile", "/none/there"], "cannot write /none/there"),
    ],
)
def test_files_that_cannot_be(cluster: str, words: list[str], said: str) -> None:
    async def make(driver: MetadataDriver) -> None:
        await driver.ledgers.create(7, ledger(7, BOOKIE))

    store(cluster, make)
    code, _, err = shell("ledgermetadata", "-l", "7", "-u", cluster, *words)
    assert (code != 0, said in err) == (True, True)


def test_a_file_that_holds_no_record_is_refused(cluster: str, tmp_path: Path) -> None:
    file = tmp_path / "saved"
    file.write_bytes(b"no record")
    code, _, err = shell("ledgermetadata", "-l", "7", "-u", cluster, "-restorefromfile", str(file))
    assert (code, "holds no record" in err) == (2, True)
    assert shell("listledgers", "-u", cluster)[1] == ""


def test_a_cookie_is_made_from_a_configuration(cluster: str, tmp_path: Path) -> None:
    file = tmp_path / "cookie"
    where = ["-j", "/j1,/j2", "-l", "/l1, /l2", "-o", str(file), "-u", cluster]
    code, out, _ = shell("cookie_generate", BOOKIE, *where)
    assert (code, out) == (0, f"Successfully saved the generated cookie to {file}\n")
    assert parse_cookie(file.read_bytes()) == Cookie.build(
        BOOKIE, journal_dirs=["/j1", "/j2"], ledger_dirs=["/l1", "/l2"], instance_id=instance_id(cluster)
    )
    assert shell("cookie_create", BOOKIE, "-cf", str(file), "-u", cluster)[0] == 0
    assert shell("cookie_generate", BOOKIE, *where, "-ix", "/i", "-i", "other")[0] == 0
    assert parse_cookie(file.read_bytes()).instance_id == "other"
    code, _, err = shell("cookie_generate", "no id", *where)
    assert (code, err.startswith("error: ")) == (2, True)
