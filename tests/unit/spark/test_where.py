"""Conditions given at load time (docs/spark.md)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.spark.errors import OptionError
from bookkeeper.spark.where import Where

COLUMNS = ("ledger_id", "entry_id")
conditions = st.tuples(
    st.sampled_from(COLUMNS),
    st.one_of(
        st.tuples(st.sampled_from(["=", "==", "<", "<=", ">", ">="]), st.integers(-3, 12)),
        st.tuples(st.just("between"), st.integers(-3, 12), st.integers(-3, 12)),
        st.tuples(st.just("in"), st.lists(st.integers(-3, 12), min_size=1, max_size=4)),
    ),
)


def _text(condition: tuple[str, tuple[object, ...]]) -> str:
    column, (operator, *values) = condition
    if operator == "between":
        return f"{column} BETWEEN {values[0]} and {values[1]}"
    if operator == "in":
        return f"{column} in ({', '.join(map(str, values[0]))})"  # type: ignore[call-overload]
    return f"{column}{operator} {values[0]}"


def _holds(condition: tuple[str, tuple[object, ...]], row: dict[str, int]) -> bool:
    column, (operator, *values) = condition
    if operator == "between":
        return values[0] <= row[column] <= values[1]  # type: ignore[operator]
    if operator == "in":
        return row[column] in values[0]  # type: ignore[operator]
    return bool(eval(f"{row[column]} {'==' if operator == '=' else operator} {values[0]}"))


@given(st.lists(conditions, min_size=1, max_size=4), st.integers(0, 11), st.integers(0, 11))
def test_what_is_left_is_what_the_conditions_say(
    wanted: list[tuple[str, tuple[object, ...]]], ledger_id: int, entry_id: int
) -> None:
    where = Where.parse(" AND ".join(map(_text, wanted)))
    inside = ledger_id in where.ledgers and entry_id in where.entries
    assert inside == all(_holds(one, {"ledger_id": ledger_id, "entry_id": entry_id}) for one in wanted)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ledger_id",
        "ledger_id = ",
        "ledger_id = 5 and",
        "ledger_id = 5 or entry_id = 3",
        "ledger_id <> 5",
        "not ledger_id = 5",
        "ledger_id in ()",
        "length > 5",
        "ledger_id = 5; drop",
        "ledger_id = 5 entry_id = 3",
        "(ledger_id = 5)",
    ],
)
def test_what_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="joined by and"):
        Where.parse(text)
