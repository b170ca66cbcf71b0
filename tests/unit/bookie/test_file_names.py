"""What files are called, and what a name tells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.bookie.file_names import (
    compacted,
    current,
    is_compacting,
    is_log_stray,
    journal_ids,
    journal_name,
    journal_strays,
    log_ids,
    log_name,
    mark_name,
    needs_upgrade,
    parse_log_name,
)

any_name = st.text(st.sampled_from("0123456789abcdefF.-logtxncmpig"), max_size=20)


@given(st.lists(st.integers(0, 2**63 - 1), unique=True, max_size=5))
def test_journals_come_back_from_their_names_in_order(ids: list[int]) -> None:
    assert journal_ids([journal_name(id_) for id_ in ids]) == sorted(ids)


@given(st.integers(0, 2**31 - 1))
def test_a_log_comes_back_from_its_name(log_id: int) -> None:
    assert parse_log_name(log_name(log_id)) == log_id
    assert log_ids(log_name(log_id)) == [log_id]


@given(any_name)
def test_any_name_is_a_journals_or_a_stray_or_neither(name: str) -> None:
    assert len(journal_ids([name])) + len(journal_strays([name])) == name.endswith(".txn")


@given(any_name)
def test_any_name_is_a_logs_or_a_stray_or_neither(name: str) -> None:
    assert (parse_log_name(name) is not None) + is_log_stray(name) == name.endswith(".log")
    assert not (is_compacting(name) and compacted(name) is not None)


def test_journals_have_hexadecimal_names_that_sort_as_numbers() -> None:
    """R6."""
    assert journal_name(1700000000001) == "18bcfe56801.txn"
    assert journal_ids(["VERSION", "ff.txn", "100.txn", "lastMark", "1.txn"]) == [1, 0xFF, 0x100]


def test_only_the_exact_name_of_a_journal_is_one() -> None:
    """SEC-37."""
    others = ["old.txn", "ff-1.txn", "0ff.txn", "FF.txn", "ff.txn.tmp", "-1.txn", ".txn", f"{'f' * 16}.txn"]
    assert journal_ids([*others, "ff.txn", f"7{'f' * 15}.txn"]) == [0xFF, 2**63 - 1]
    assert journal_strays([*others, "ff.txn", "VERSION"]) == [name for name in others if name != "ff.txn.tmp"]


def test_a_single_journals_mark_has_no_number() -> None:
    assert mark_name(0, 1) == "lastMark"
    assert [mark_name(i, 2) for i in range(2)] == ["lastMark.0", "lastMark.1"]


def test_logs_have_unpadded_hexadecimal_names() -> None:
    """R6."""
    assert log_name(0) == "0.log"
    assert log_name(31) == "1f.log"
    assert parse_log_name("1f.log") == 31
    for other in ("1F.log", "01.log", "00.log", "x.log", "1f.log.compacting", "lastId", "0x1.log", "-1.log", ".log"):
        assert parse_log_name(other) is None
        assert is_log_stray(other) == other.endswith(".log")


def test_compactions_of_a_java_bookie_claim_ids_too() -> None:
    assert log_ids("a.log.b.compacted") == [10, 11]
    assert compacted("a.log.b.compacted") == (10, 11)
    assert log_ids("c.log.compacting") == [12]
    assert is_compacting("c.log.compacting")
    assert compacted("c.log.compacting") is None
    assert log_ids("VERSION") == []


def test_files_of_the_oldest_layout_ask_for_an_upgrade() -> None:
    assert needs_upgrade(["VERSION"])
    assert needs_upgrade(["current", "0.log"])
    assert not needs_upgrade(["current", "lost+found"])


def test_data_lies_in_current() -> None:
    assert current("/l") == current("/l/") == "/l/current"
