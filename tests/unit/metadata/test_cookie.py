"""Cookies: spec metadata §8, conformance tests 54 and 55."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookkeeper.errors import CorruptMetadata, InvalidCookieError
from bookkeeper.metadata.api import Versioned
from bookkeeper.metadata.formats.cookie import (
    Cookie,
    DirectoryFacts,
    StartAction,
    decide_data_integrity_start,
    decide_start,
    encode_cookie,
    parse_cookie,
    verify,
)
from bookkeeper.types import BookieId

BOOKIE = BookieId("10.0.0.1:3181")
INSTANCE = "b8e5a6f0-5b0e-4a53-9d4b-2f1f5cf1f6a1"
MASTER = Cookie.build(
    BOOKIE,
    journal_dirs=["/data/j1", "/data/j2"],
    ledger_dirs=["/data/l1", "/data/l2"],
    index_dirs=["/data/i1"],
    instance_id=INSTANCE,
)
V5 = bytes.fromhex(
    "350a626f6f6b6965486f73743a202231302e302e302e313a33313831220a6a6f75726e616c4469723a20222f646174612f6a312c2f"
    "646174612f6a32220a6c6564676572446972733a2022325c742f646174612f6c315c742f646174612f6c32220a696e7374616e6365"
    "49643a202262386535613666302d356230652d346135332d396434622d326631663563663166366131220a696e646578446972733a"
    "2022315c742f646174612f6931220a"
)
V4 = bytes.fromhex(
    "340a626f6f6b6965486f73743a202231302e302e302e313a33313831220a6a6f75726e616c4469723a20222f646174612f6a31220a"
    "6c6564676572446972733a2022315c742f646174612f6c31220a696e7374616e636549643a202262386535613666302d356230652d"
    "346135332d396434622d326631663563663166366131220a"
)
V3 = bytes.fromhex("330a31302e302e302e313a333138310a2f646174612f6a310a32092f646174612f6c31092f646174612f6c320a")


def test_version_5_vector_both_ways() -> None:
    assert len(V5) == 174
    assert parse_cookie(V5) == MASTER
    assert encode_cookie(MASTER) == V5


def test_older_vectors_are_read() -> None:
    assert (len(V4), len(V3)) == (130, 45)
    assert parse_cookie(V4) == Cookie(BOOKIE, "/data/j1", "1\t/data/l1", None, INSTANCE, 4)
    assert parse_cookie(V3) == Cookie(BOOKIE, "/data/j1", "2\t/data/l1\t/data/l2", layout_version=3)


def test_a_cookie_is_always_written_in_the_current_layout() -> None:
    assert encode_cookie(parse_cookie(V4)) == b"5" + V4[1:]
    assert parse_cookie(encode_cookie(parse_cookie(V3))) == replace(parse_cookie(V3), layout_version=5)


def test_a_later_layout_is_read_like_the_current_one() -> None:
    assert parse_cookie(b" 6 " + V5[1:]) == replace(MASTER, layout_version=6)


@pytest.mark.parametrize("data", [b"", b"\n", b"x\n", b"5\n", b"5\nbookieHost: 3", b"3\na\nb\n", b"3\n\xff", b"5.0\n"])
def test_what_is_not_a_cookie_is_corrupt(data: bytes) -> None:
    """SEC-39."""
    with pytest.raises(CorruptMetadata):
        parse_cookie(data)


@pytest.mark.parametrize("superset", [False, True])
def test_an_equal_cookie_passes(superset: bool) -> None:
    for version in (3, 4, 5):
        verify(MASTER, replace(MASTER, layout_version=version), superset=superset)


@pytest.mark.parametrize("superset", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {"bookie_id": "10.0.0.2:3181"},
        {"journal_dir": "/data/j2,/data/j1"},
        {"ledger_dirs": "3\t/data/l1\t/data/l2\t/data/l3"},  # FX-55: one fewer than there were
        {"index_dirs": None},
        {"index_dirs": "1\t/data/other"},
        {"instance_id": None},
        {"instance_id": "other"},
        {"layout_version": 2},
        {"layout_version": 1},
    ],
)
def test_one_different_field_fails(change: dict[str, str | int | None], superset: bool) -> None:
    """BI-20."""
    with pytest.raises(InvalidCookieError):
        verify(MASTER, replace(MASTER, **change), superset=superset)  # type: ignore[arg-type]


def test_an_instance_id_in_the_cookie_only_fails() -> None:
    with pytest.raises(InvalidCookieError):
        verify(replace(MASTER, instance_id=None), MASTER)
    verify(replace(MASTER, instance_id=None), replace(MASTER, instance_id=None))


@pytest.mark.parametrize("dirs", ["1\t/data/l1", "2\t/data/l2\t/data/l1"])
def test_fewer_or_reordered_directories_pass_as_a_superset_only(dirs: str) -> None:
    """R14."""
    stored = replace(MASTER, ledger_dirs=dirs)
    verify(MASTER, stored, superset=True)
    with pytest.raises(InvalidCookieError):
        verify(MASTER, stored)


def test_absent_index_directories_are_the_ledger_directories() -> None:
    plain = replace(MASTER, index_dirs=None)
    verify(plain, replace(plain, index_dirs=plain.ledger_dirs))
    verify(replace(plain, index_dirs=plain.ledger_dirs), plain, superset=True)
    with pytest.raises(InvalidCookieError):
        verify(MASTER, plain)


def test_the_count_of_directories_is_not_checked_in_superset_mode() -> None:
    verify(MASTER, replace(MASTER, ledger_dirs="9\t/data/l1"), superset=True)


# --- the decision at start ---

PATHS = ("/data/j1", "/data/j2", "/data/l1", "/data/l2", "/data/i1")
STORED = [Versioned(MASTER, 7)]


def directories(*, without: str = "", empty: bool = True, cookie: Cookie | None = MASTER) -> list[DirectoryFacts]:
    return [
        DirectoryFacts(path, None, empty) if path == without else DirectoryFacts(path, cookie, False) for path in PATHS
    ]


def new_directories(*, empty: bool = True) -> list[DirectoryFacts]:
    return [DirectoryFacts(path, None, empty or path != "/data/l2") for path in PATHS]


def test_a_new_bookie_writes_its_cookie_everywhere() -> None:
    decision = decide_start(MASTER, [], new_directories())
    assert (decision.action, decision.store_version, decision.store_first) == (StartAction.NEW_BOOKIE, None, False)


def test_a_new_bookie_needs_empty_directories() -> None:
    with pytest.raises(InvalidCookieError, match="/data/l2"):
        decide_start(MASTER, [], new_directories(empty=False))


def test_a_restart_writes_nothing() -> None:
    for stored in (MASTER, replace(MASTER, layout_version=4)):
        decision = decide_start(MASTER, [Versioned(stored, 7)], directories(cookie=stored))
        assert decision.action is StartAction.NOTHING


@pytest.mark.parametrize("empty", [False, True])
def test_a_directory_that_lost_its_cookie_stops_the_start(empty: bool) -> None:
    for expansion in (False, True):
        with pytest.raises(InvalidCookieError, match="/data/l1"):
            decide_start(MASTER, STORED, directories(without="/data/l1", empty=empty), allow_expansion=expansion)


def test_cookies_without_one_in_the_store_stop_the_start() -> None:
    with pytest.raises(InvalidCookieError, match="metadata store"):
        decide_start(MASTER, [], directories())


def test_a_first_start_that_was_cut_short_before_the_store_had_the_cookie_is_begun_again() -> None:
    written = [DirectoryFacts(path, MASTER, True) for path in PATHS]
    assert decide_start(MASTER, [], written).action is StartAction.NEW_BOOKIE
    half = [*written[:2], *(DirectoryFacts(path, None, True) for path in PATHS[2:])]
    assert decide_start(MASTER, [], half).action is StartAction.NEW_BOOKIE


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("ledgerDirectories", replace(MASTER, ledger_dirs="2\t/data/l2\t/data/l1")),
        ("ledgerDirectories", replace(MASTER, ledger_dirs="1\t/data/l1")),
        ("indexDirectories", replace(MASTER, index_dirs="2\t/data/i2\t/data/i1")),
    ],
)
def test_with_fixed_places_directories_are_neither_added_nor_put_in_another_order(key: str, stored: Cookie) -> None:
    """BI-20, defect A14."""
    master = replace(MASTER, index_dirs="2\t/data/i1\t/data/i2") if key == "indexDirectories" else MASTER
    decide_start(master, [Versioned(stored, 7)], directories(cookie=stored), allow_expansion=True)
    for where in ("store", "directory"):
        in_store = [Versioned(stored if where == "store" else master, 7)]
        found = directories(cookie=stored if where == "directory" else master)
        with pytest.raises(InvalidCookieError, match=f"{key}: /data/.*the cookie says /data/"):
            decide_start(master, in_store, found, allow_expansion=True, fixed_places=True)


def test_messages_show_directories_as_they_are_configured() -> None:
    with pytest.raises(InvalidCookieError) as raised:
        verify(MASTER, replace(MASTER, ledger_dirs="1\t/data/l1"))
    assert str(raised.value) == "ledger directories: /data/l1,/data/l2 is configured, the cookie says /data/l1"


def test_a_cookie_under_another_id_stops_the_start() -> None:
    """BI-20, FX-66."""
    other = replace(MASTER, bookie_id=BookieId("host:3181"))
    with pytest.raises(InvalidCookieError, match="bookie id"):
        decide_start(MASTER, [Versioned(other, 3)], new_directories())


def test_a_foreign_directory_stops_the_start() -> None:
    """BI-20."""
    found = directories()
    found[3] = replace(found[3], cookie=replace(MASTER, bookie_id=BookieId("10.0.0.9:3181")))
    with pytest.raises(InvalidCookieError, match="/data/l2"):
        decide_start(MASTER, STORED, found)


SMALLER = replace(MASTER, ledger_dirs="1\t/data/l1")


def test_expansion_by_an_empty_directory() -> None:
    found = directories(without="/data/l2", cookie=SMALLER)
    decision = decide_start(MASTER, [Versioned(SMALLER, 7)], found, allow_expansion=True)
    assert (decision.action, decision.store_version, decision.cookie) == (StartAction.EXPAND, 7, MASTER)
    with pytest.raises(InvalidCookieError):
        decide_start(MASTER, [Versioned(SMALLER, 7)], found)


def test_expansion_by_a_directory_with_data_stops_the_start() -> None:
    found = directories(without="/data/l2", empty=False, cookie=SMALLER)
    with pytest.raises(InvalidCookieError, match="/data/l2"):
        decide_start(MASTER, [Versioned(SMALLER, 7)], found, allow_expansion=True)


def test_data_integrity_stamps_a_new_bookie_store_first() -> None:
    decision = decide_data_integrity_start(MASTER, [], new_directories(empty=False))
    assert (decision.action, decision.store_first) == (StartAction.NEW_BOOKIE, True)
    with pytest.raises(InvalidCookieError):
        decide_data_integrity_start(MASTER, [], directories())


def test_data_integrity_repairs_what_is_missing_or_different_if_allowed() -> None:
    cases = [
        (STORED[0], directories(without="/data/l1")),
        (Versioned(replace(MASTER, layout_version=4), 7), directories()),
        (STORED[0], directories(cookie=replace(MASTER, layout_version=4))),
    ]
    for stored, found in cases:
        with pytest.raises(InvalidCookieError, match="dataIntegrityStampMissingCookies"):
            decide_data_integrity_start(MASTER, [stored], found)
        decision = decide_data_integrity_start(MASTER, [stored], found, stamp_missing=True)
        assert (decision.action, decision.store_version) == (StartAction.CHECK_AND_STAMP, 7)
    assert decide_data_integrity_start(MASTER, STORED, directories()).action is StartAction.NOTHING


@pytest.mark.parametrize("changes", [{"bookie_id": "10.0.0.2:3181"}, {"instance_id": "another"}])
def test_data_integrity_never_replaces_the_cookie_of_another_bookie_or_cluster(changes: dict[str, str]) -> None:
    other = replace(MASTER, **changes)
    for stored, found in [(STORED, directories(cookie=other)), ([Versioned(other, 7)], new_directories())]:
        with pytest.raises(InvalidCookieError, match="is configured"):
            decide_data_integrity_start(MASTER, stored, found, stamp_missing=True)


def test_data_integrity_needs_an_instance_id() -> None:
    with pytest.raises(InvalidCookieError, match="instance id"):
        decide_data_integrity_start(replace(MASTER, instance_id=None), [], new_directories())
