"""`where`: conditions on ids, given when ledgers are loaded.

    ledger_id in (5, 7) and entry_id between 100 and 200

Spark cannot be left to push such conditions down into a Python data source: it keeps one plan for each `load()`, and
the filter of one query on a DataFrame would decide what another query on it reads. Given at load time they belong to
the DataFrame itself: only the ledgers that fit are looked up, and only the entries that fit are read.

A condition compares `ledger_id` or `entry_id` with whole numbers: `=`, `<`, `<=`, `>`, `>=`, `between`, `in`. They are
joined by `and`. Everything else belongs into `DataFrame.where`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..types import MAX_LEDGER_ID
from .bounds import ALL, Bounds
from .errors import OptionError

_CONDITION = re.compile(
    r"""\s*(?P<column>ledger_id|entry_id)\s*
    (?:(?P<operator><=|>=|==?|<|>)\s*(?P<value>-?\d+)
      |between\s+(?P<least>-?\d+)\s+and\s+(?P<greatest>-?\d+)
      |in\s*\(\s*(?P<members>-?\d+(?:\s*,\s*-?\d+)*)\s*\)
    )\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_AND = re.compile(r"and\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Where:
    """What is left of ledger ids and of entry ids."""

    ledgers: Bounds = ALL
    entries: Bounds = ALL

    @classmethod
    def parse(cls, text: str) -> Where:
        """Raises `OptionError` that says where a text is no such condition."""
        found = cls()
        rest = text
        while (condition := _CONDITION.match(rest)) is not None:
            found = found._and(condition)
            rest = rest[condition.end() :]
            joined = _AND.match(rest)
            if joined is None:
                break
            rest = rest[joined.end() :]
        if rest or condition is None:
            raise OptionError(
                f"where={text!r}: cannot be understood from {rest.strip()[:40]!r} on. It takes comparisons of "
                "ledger_id and entry_id with numbers (=, <, <=, >, >=, between, in), joined by and; anything else goes "
                "into the DataFrame's own where()"
            )
        return found

    def _and(self, condition: re.Match[str]) -> Where:
        if condition["column"].lower() == "ledger_id":
            return Where(_narrowed(self.ledgers, condition), self.entries)
        return Where(self.ledgers, _narrowed(self.entries, condition))


def _narrowed(bounds: Bounds, condition: re.Match[str]) -> Bounds:
    if condition["members"] is not None:
        return bounds.one_of(int(member) for member in condition["members"].split(","))
    if condition["least"] is not None:
        return bounds.within(int(condition["least"]), int(condition["greatest"]))
    value = int(condition["value"])
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
