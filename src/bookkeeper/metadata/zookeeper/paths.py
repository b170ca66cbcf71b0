"""Node paths of ledgers and of under-replication marks, both ways (spec metadata §5.1, §9.1). Pure.

With s10 and s19 the ledger id in 10 and 19 decimal digits, below the ledgers root:

| scheme | path | id 1234567 |
|---|---|---|
| flat | `L` s10 | `L0001234567` |
| short | s10[0:2] `/` s10[2:6] `/L` s10[6:10] | `00/0123/L4567` |
| long | s19[0:3] `/` s19[3:7] `/` s19[7:11] `/` s19[11:15] `/L` s19[15:19] | `000/0000/0000/0123/L4567` |
| mixed | below 2147483647 (2^31 - 1) short, else long | `00/0123/L4567` |
| mark | `hhhh/hhhh/hhhh/hhhh/urL` s10 (four groups of 16 bits in hex) | `0000/0000/0012/d687/urL0001234567` |

In every scheme the order of the paths is the order of the ids, short paths before long ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...errors import LedgerIdOverflow
from ...types import MAX_LEDGER_ID

FIRST_LONG_ID = 2**31 - 1
"""Where the mixed scheme changes from short to long paths."""

SPECIAL_NODES = (
    "available",
    "cookies",
    "LAYOUT",
    "INSTANCEID",
    "underreplication",
    "idgen",
    "idgen-long",
    "disableHealthCheck",
)
"""Names below the root that are no ledgers; besides them every `ID-...`."""

_FLAT_DIGITS = 10
_MOST_DIGITS = len(str(MAX_LEDGER_ID))


def is_special(name: str) -> bool:
    return name in SPECIAL_NODES or name.startswith("ID-")


@dataclass(frozen=True, slots=True)
class Tree:
    """One family of ledger paths: directories of the given numbers of digits, then `L` and the last digits."""

    widths: tuple[int, ...]
    limit: int
    """Ids are below this."""

    @property
    def digits(self) -> int:
        return sum(self.widths)

    def path(self, ledger_id: int) -> str:
        """Path below the root. Raises `LedgerIdOverflow`."""
        if not 0 <= ledger_id < self.limit:
            raise LedgerIdOverflow(f"ledger id {ledger_id} does not fit this layout: ids are below {self.limit}")
        text = str(ledger_id).zfill(self.digits)
        parts, start = [], 0
        for width in self.widths[:-1]:
            parts.append(text[start : start + width])
            start += width
        return "/".join([*parts, "L" + text[start:]])

    def is_directory(self, name: str, level: int) -> bool:
        """Whether a name can be a directory of this tree, `level` levels below the root."""
        return len(name) == self.widths[level] and name.isascii() and name.isdecimal()

    def ledger_id(self, parts: tuple[str, ...]) -> int | None:
        """The ledger of a path, given by its names; None if it is none of this tree."""
        *directories, leaf = parts
        if len(parts) != len(self.widths):
            return None
        if not all(self.is_directory(name, level) for level, name in enumerate(directories)):
            return None
        found = self.ledger_ids(directories, [leaf])
        return found[0] if found else None

    def ledger_ids(self, directories: Sequence[str], names: Iterable[str]) -> list[int]:
        """The ledgers among the names in a lowest directory of this tree, in the order of the names."""
        least = most = 1 + self.widths[-1]
        if not directories:
            most = 1 + _MOST_DIGITS
        digits = (name[1:] for name in names if least <= len(name) <= most and name[0] == "L")
        first = int("".join(directories) or "0") * 10 ** self.widths[-1]
        return [
            ledger_id
            for text in digits
            if text.isdecimal() and text.isascii() and (ledger_id := first + int(text)) < self.limit
        ]


FLAT_TREE = Tree((_FLAT_DIGITS,), MAX_LEDGER_ID + 1)
LEGACY_TREE = Tree((2, 4, 4), 10**10)
SHORT_TREE = Tree((2, 4, 4), FIRST_LONG_ID)
LONG_TREE = Tree((3, 4, 4, 4, 4), MAX_LEDGER_ID + 1)


@dataclass(frozen=True, slots=True)
class PathScheme:
    """How a ledger manager names ledgers: one tree, or the short one and then the long one."""

    trees: tuple[Tree, ...]
    parent: re.Pattern[str]
    """Names directly below the root under which, or as which, there are ledgers."""
    prunes: bool
    """Whether directories go with their last ledger."""

    def path(self, ledger_id: int) -> str:
        """Path below the root. Raises `LedgerIdOverflow`."""
        for tree in self.trees[:-1]:
            if ledger_id < tree.limit:
                return tree.path(ledger_id)
        return self.trees[-1].path(ledger_id)

    def ledger_id(self, path: str) -> int | None:
        """The ledger of a path below the root; None if it is none."""
        parts = tuple(path.split("/"))
        for tree in self.trees:
            found = tree.ledger_id(parts)
            if found is not None and self.path(found) == path:
                return found
        return None


FLAT = PathScheme((FLAT_TREE,), re.compile(r"L\d{10,19}", re.ASCII), prunes=False)
LEGACY = PathScheme((LEGACY_TREE,), re.compile(r"\d{2}", re.ASCII), prunes=False)
LONG = PathScheme((LONG_TREE,), re.compile(r"\d{3}", re.ASCII), prunes=True)
MIXED = PathScheme((SHORT_TREE, LONG_TREE), re.compile(r"\d{2,3}", re.ASCII), prunes=True)


MARK_LEVELS = 4
"""Directories between `underreplication/ledgers` and a mark."""

_MARK = re.compile(r"urL(\d{10,19})", re.ASCII)


def mark_name(ledger_id: int) -> str:
    """Name of a ledger's mark and of its lock."""
    return f"urL{ledger_id:010d}"


def mark_path(ledger_id: int) -> str:
    """Path of a mark below `underreplication/ledgers`."""
    text = f"{ledger_id:016x}"
    return f"{text[:4]}/{text[4:8]}/{text[8:12]}/{text[12:]}/{mark_name(ledger_id)}"


def mark_ledger_id(name: str) -> int | None:
    """The ledger of a mark's name; None if it is none."""
    match = _MARK.fullmatch(name)
    return int(match[1]) if match and mark_name(int(match[1])) == name else None
