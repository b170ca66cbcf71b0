"""Node paths of ledgers and marks: the tables of spec metadata §5.1 and §9.1, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import LedgerIdOverflow
from bookkeeper.metadata.zookeeper import paths
from bookkeeper.types import MAX_LEDGER_ID

TABLE = [
    (0, "00/0000/L0000", "000/0000/0000/0000/L0000", "short"),
    (1, "00/0000/L0001", "000/0000/0000/0000/L0001", "short"),
    (9999, "00/0000/L9999", "000/0000/0000/0000/L9999", "short"),
    (10000, "00/0001/L0000", "000/0000/0000/0001/L0000", "short"),
    (1234567, "00/0123/L4567", "000/0000/0000/0123/L4567", "short"),
    (2147483646, "21/4748/L3646", "000/0000/0021/4748/L3646", "short"),
    (2147483647, None, "000/0000/0021/4748/L3647", "long"),
    (4294967296, None, "000/0000/0042/9496/L7296", "long"),
    (81985529216486895, None, "008/1985/5292/1648/L6895", "long"),
    (9223372036854775807, None, "922/3372/0368/5477/L5807", "long"),
]

ids = st.integers(0, MAX_LEDGER_ID)


@pytest.mark.parametrize(("ledger_id", "short", "long", "mixed"), TABLE)
def test_paths_are_those_of_the_table(ledger_id: int, short: str | None, long: str, mixed: str) -> None:
    assert paths.LONG.path(ledger_id) == long
    assert paths.LONG.ledger_id(long) == ledger_id
    expected = short if mixed == "short" else long
    assert paths.MIXED.path(ledger_id) == expected
    assert expected is not None
    assert paths.MIXED.ledger_id(expected) == ledger_id
    if short is not None:
        assert paths.LEGACY.path(ledger_id) == short
        assert paths.LEGACY.ledger_id(short) == ledger_id


@given(ids)
def test_every_id_has_one_path_and_the_path_gives_it_back(ledger_id: int) -> None:
    for scheme in (paths.FLAT, paths.LONG, paths.MIXED):
        assert scheme.ledger_id(scheme.path(ledger_id)) == ledger_id


@given(ids, ids)
def test_paths_order_as_ids_do(a: int, b: int) -> None:
    def key(path: str) -> tuple[int, str]:
        return path.count("/"), path

    for scheme in (paths.LONG, paths.MIXED):
        assert (a < b) == (key(scheme.path(a)) < key(scheme.path(b)))


def test_flat_paths_have_ten_digits_and_grow() -> None:
    assert paths.FLAT.path(7) == "L0000000007"
    assert paths.FLAT.path(5000000000) == "L5000000000"
    assert paths.FLAT.path(50000000000) == "L50000000000"
    assert paths.FLAT.ledger_id("L50000000000") == 50000000000


@pytest.mark.parametrize("ledger_id", [-1, 10**10, 12345678901])
def test_the_legacy_layout_refuses_ids_it_would_cut(ledger_id: int) -> None:
    with pytest.raises(LedgerIdOverflow):
        paths.LEGACY.path(ledger_id)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "available",
        "LAYOUT",
        "00",
        "00/0000",
        "00/0000/0001",
        "00/0000/L001",
        "00/0000/L00001",
        "0/0000/L0001",
        "00/00a0/L0001",
        "21/4748/L3647",  # belongs to the long tree
        "000/0000/0000/0000/L0001",  # belongs to the short tree
        "999/9999/9999/9999/L9999",
        "\u0660\u0660/0000/L0001",
    ],
)
def test_other_names_are_no_ledgers(path: str) -> None:
    """SEC-36."""
    assert paths.MIXED.ledger_id(path) is None


@given(st.lists(ids, max_size=30), st.sampled_from([paths.FLAT_TREE, paths.SHORT_TREE, paths.LONG_TREE]))
def test_the_names_of_a_directory_are_read_together(ledger_ids: list[int], tree: paths.Tree) -> None:
    directories: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for ledger_id in ledger_ids:
        *above, name = tree.path(ledger_id % tree.limit).split("/")
        directories.setdefault(tuple(above), []).append((ledger_id % tree.limit, name))
    others = ["available", "L", "L1", "Lxxxx", "L-001", "L\u0660000", "M0001", "", "L" + 5000 * "9"]
    for names_above, held in directories.items():
        assert tree.ledger_ids(names_above, [*others, *(name for _, name in held)]) == [each for each, _ in held]


def test_flat_does_not_take_other_nodes_for_ledgers() -> None:
    """SEC-36."""
    for name in ("ID-0000000001", "LAYOUT", "L1", "L00000000001", "available"):
        assert paths.FLAT.ledger_id(name) is None


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (1, "0000/0000/0000/0001/urL0000000001"),
        (1234567, "0000/0000/0012/d687/urL0001234567"),
        (4294967299, "0000/0001/0000/0003/urL4294967299"),
        (5000000000, "0000/0001/2a05/f200/urL5000000000"),
        (81985529216486895, "0123/4567/89ab/cdef/urL81985529216486895"),
    ],
)
def test_marks_are_where_the_table_says(ledger_id: int, path: str) -> None:
    assert paths.mark_path(ledger_id) == path
    assert paths.mark_ledger_id(path.rpartition("/")[2]) == ledger_id


@pytest.mark.parametrize("name", ["urL1", "urL00000000001", "L0000000001", "urL-000000001", "urLxxxxxxxxxx"])
def test_other_names_are_no_marks(name: str) -> None:
    """SEC-36."""
    assert paths.mark_ledger_id(name) is None


def test_special_nodes() -> None:
    assert paths.is_special("ID-0000000000")
    assert paths.is_special("disableHealthCheck")
    assert not paths.is_special("00")
