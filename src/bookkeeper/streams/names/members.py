"""Names and order of those who want a lock (spec streams §6). Pure.

    member_<client, URL-encoded>_s<session, 10 wide, padded with spaces>_<number>

The lowest number owns the lock. Older programs wrote `member_<number>` and `member_<client>_<number>`: whose these are
stands in the record's data, and in the session that the store knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote_plus, unquote_plus

PREFIX = "member"

_NUMBER = re.compile(r"-?\d+", re.ASCII)
_SESSION = re.compile(r"s *(-?\d+)", re.ASCII)

LAST = 2**63
"""Place of a name without a number: it never owns the lock while there is one with."""


class Identity(NamedTuple):
    """Who wants the lock."""

    client: str
    session: int


def member_prefix(client: str, session: int) -> str:
    """The name of a member, up to its number."""
    name = quote_plus(client, safe="*-._").replace("~", "%7E")
    return f"{PREFIX}_{name}_s{session:10d}_"


def place(name: str) -> int:
    """The number of a member, which orders them."""
    number = name.rpartition("_")[2]
    return int(number) if _NUMBER.fullmatch(number) else LAST


def in_order(names: Iterable[str]) -> list[str]:
    """The owner first."""
    return sorted(names, key=lambda name: (place(name), name))


def identity(name: str) -> Identity | None:
    """Who it is, if the name says so; a client whose own name has a `_` is not told from it."""
    parts = name.split("_")
    if len(parts) != 4 or not (match := _SESSION.fullmatch(parts[2])):
        return None
    return Identity(unquote_plus(parts[1]), int(match[1]))
