"""`where`: conditions given when something is loaded.

    ledger_id in (5, 7) and entry_id between 100 and 200        of ledgers
    txid >= 1700000000000 and segment < 12                      of streams (`streaming.conditions`)

Spark cannot be left to push such conditions down into a Python data source: it keeps one plan for each `load()`, and
the filter of one query on a DataFrame would decide what another query on it reads. Given at load time they belong to
the DataFrame itself: only the ledgers that fit are looked up, and only the entries that fit are read.

A condition compares a column with whole numbers: `=`, `<`, `<=`, `>`, `>=`, `between`, `in`. They are joined by `and`.
Everything else belongs into `DataFrame.where`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..types import MAX_LEDGER_ID
from .bounds import ALL, Bounds
from .errors import OptionError

_VALUE = r"(?:-?\d+|'[^']*')"
_CONDITION = re.compile(
    rf"""\s*(?P<column>\w+)\s*
    (?:(?P<operator><=|>=|==?|<|>)\s*(?P<value>{_VALUE})
      |between\s+(?P<least>{_VALUE})\s+and\s+(?P<greatest>{_VALUE})
      |in\s*\(\s*(?P<members>{_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)
    )\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_AND = re.compile(r"and\b", re.IGNORECASE)

Read = Callable[[str], int]
"""What the text of a value means. Raises `ValueError`."""


@dataclass(frozen=True, slots=True)
class Where:
    """What is left of ledger ids and of entry ids."""

    ledgers: Bounds = ALL
    entries: Bounds = ALL

    @classmethod
    def parse(cls, text: str) -> Where:
        """Raises `OptionError` that says where a text is no such condition."""
        found = parse_conditions(text, {"ledger_id": int, "entry_id": int})
        return cls(found["ledger_id"], found["entry_id"])


def parse_conditions(text: str, columns: Mapping[str, Read]) -> dict[str, Bounds]:
    """What is left of each column's values. Raises `OptionError` that says where a text is no such condition.

    - `columns`: those that may be named, in lower case, and how their values are read.
    """
    found = dict.fromkeys(columns, ALL)
    rest = text
    while (condition := _CONDITION.match(rest)) is not None:
        column = condition["column"].lower()
        try:
            found[column] = _narrowed(found[column], condition, columns[column])
        except (KeyError, ValueError):
            break
        rest = rest[condition.end() :]
        joined = _AND.match(rest)
        if joined is None:
            break
        rest = rest[joined.end() :]
    if rest or condition is None:
        names = " and ".join(filter(None, (", ".join([*columns][:-1]), [*columns][-1])))
        raise OptionError(
            f"where={text!r}: cannot be understood from {rest.strip()[:40]!r} on. It takes comparisons of "
            f"{names} with numbers (=, <, <=, >, >=, between, in), joined by and; anything else goes "
            "into the DataFrame's own where()"
        )
    return found


def _narrowed(bounds: Bounds, condition: re.Match[str], read: Read) -> Bounds:
    if condition["members"] is not None:
        return bounds.one_of(read(member) for member in re.findall(_VALUE, condition["members"]))
    if condition["least"] is not None:
        return bounds.within(read(condition["least"]), read(condition["greatest"]))
    value = read(condition["value"])
    least, greatest = {
        "=": (value, value),
        "==": (value, value),
        "<": (0, value - 1),
        "<=": (0, value),
        ">": (value + 1, MAX_LEDGER_ID),
        ">=": (value, MAX_LEDGER_ID),
    }[condition["operator"]]
    return bounds.within(least, greatest)


EVERYWHERE = Where()
