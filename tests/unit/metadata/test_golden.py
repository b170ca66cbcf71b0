"""Every value that Java 4.17.3 left in its metadata store is read, and written back byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bookkeeper.metadata.formats import ledger as ledger_serde
from bookkeeper.metadata.formats.cookie import Cookie, encode_cookie, parse_cookie, verify
from bookkeeper.metadata.formats.layout import DEFAULT, encode_layout, parse_layout
from bookkeeper.metadata.formats.service_info import encode_service_info, parse_service_info
from bookkeeper.types import BookieId, LedgerState

DATA = Path(__file__).parents[2] / "data" / "metadata"


def nodes(name: str) -> dict[str, bytes]:
    tree = json.loads((DATA / f"{name}.json").read_text())
    return {path: bytes.fromhex(node["data"]) for path, node in tree.items()}


ALL = [(name, path, data) for name in ("db", "interleaved", "sorted", "dlog") for path, data in nodes(name).items()]


def test_every_ledger_record_is_written_back_byte_for_byte() -> None:
    records = [data for _, _, data in ALL if data.startswith(ledger_serde.MAGIC)]
    assert len(records) >= 45
    for data in records:
        metadata = ledger_serde.parse(data, 1)
        assert metadata.format_version == 3
        assert ledger_serde.serialize(metadata) == data


def test_ledger_records_mean_what_java_wrote() -> None:
    written: dict[str, dict[str, int]] = {
        "L0004": {"state": LedgerState.CLOSED, "last": 29, "length": 6000},
        "L0005": {"state": LedgerState.OPEN},
        "L0006": {"state": LedgerState.CLOSED},  # empty
    }
    for name, expected in written.items():
        metadata = ledger_serde.parse(nodes("db")[f"/ledgers/00/0000/{name}"], int(name[1:]))
        assert metadata.state == expected["state"]
        assert metadata.last_entry_id == expected.get("last", -1)
        assert metadata.length == expected.get("length", 0)
    closed = ledger_serde.parse(nodes("db")["/ledgers/00/0000/L0004"], 4)
    assert closed.custom_metadata == {"colour": b"value"}


def test_every_cookie_is_written_back_byte_for_byte_and_is_that_of_its_configuration() -> None:
    cookies = [(name, path, data) for name, path, data in ALL if "/cookies/" in path]
    assert len(cookies) == 9
    for name, path, data in cookies:
        cookie = parse_cookie(data)
        assert encode_cookie(cookie) == data
        bookie = BookieId(path.rpartition("/")[2])
        directory = f"/data/b{bookie[-1]}"
        master = Cookie.build(
            bookie,
            journal_dirs=[f"{directory}/journal"],
            ledger_dirs=[f"{directory}/ledgers"],
            instance_id=nodes(name)["/ledgers/INSTANCEID"].decode(),
        )
        assert encode_cookie(master) == data
        verify(master, cookie)


def test_every_registration_is_written_back_byte_for_byte() -> None:
    found = [(path, data) for _, path, data in ALL if "/available/" in path and data]
    assert len(found) == 9
    for path, data in found:
        bookie = BookieId(path.rpartition("/")[2])
        info = parse_service_info(data, bookie)
        assert encode_service_info(info) == data
        endpoint = info.bookie_rpc()
        assert endpoint is not None
        assert f"{endpoint.host}:{endpoint.port}" == bookie


@pytest.mark.parametrize("name", ["db", "interleaved", "sorted"])
def test_layout_is_the_default_one(name: str) -> None:
    data = nodes(name)["/ledgers/LAYOUT"]
    assert parse_layout(data) == DEFAULT
    assert encode_layout(DEFAULT) == data
