"""What clients and bookies say to each other. A message names its client and its bookie; it can be in flight once."""

from __future__ import annotations

from typing import NamedTuple

from bookkeeper.errors import (
    BookieUnavailableError,
    DataUnknownError,
    LedgerFencedError,
    NoSuchEntryError,
    ReadError,
    RequestTimeoutError,
    UnauthorizedError,
    WriteError,
    WriteOnReadOnlyError,
)

OK = 0
CODES = {
    "ok": OK,
    "no entry": NoSuchEntryError.code,
    "unknown": DataUnknownError.code,
    "fenced": LedgerFencedError.code,
    "timeout": RequestTimeoutError.code,
    "unavailable": BookieUnavailableError.code,
    "read-only": WriteOnReadOnlyError.code,
    "write error": WriteError.code,
    "read error": ReadError.code,
    "unauthorized": UnauthorizedError.code,
}
"""What a bookie, or the connection to it, can say, by name."""

NAMES = {code: name for name, code in CODES.items()}


class Add(NamedTuple):
    """An entry on its way to a bookie."""

    client: str
    bookie: str
    entry: int
    lac: int
    length: int
    payload: str
    recovery: bool

    def __str__(self) -> str:
        kind = "write-back" if self.recovery else "add"
        return f"{self.client} -> {self.bookie}: {kind} e{self.entry} (LAC {self.lac})"


class Added(NamedTuple):
    """The answer to an add."""

    client: str
    bookie: str
    entry: int
    code: int

    def __str__(self) -> str:
        return f"{self.bookie} -> {self.client}: e{self.entry} {'stored' if self.code == OK else NAMES[self.code]}"


class Fence(NamedTuple):
    """A fencing read of the last entry."""

    client: str
    bookie: str

    def __str__(self) -> str:
        return f"{self.client} -> {self.bookie}: fence, and what is your last entry?"


class Fenced(NamedTuple):
    """Its answer: the LAC in the last entry, and the length."""

    client: str
    bookie: str
    code: int
    lac: int
    length: int

    def __str__(self) -> str:
        said = f"LAC {self.lac}" if self.code == OK else NAMES[self.code]
        return f"{self.bookie} -> {self.client}: fence answered, {said}"


class Read(NamedTuple):
    """A recovery read of one entry."""

    client: str
    bookie: str
    entry: int
    fencing: bool

    def __str__(self) -> str:
        return f"{self.client} -> {self.bookie}: read e{self.entry}{' and fence' if self.fencing else ''}"


class Got(NamedTuple):
    """Its answer."""

    client: str
    bookie: str
    entry: int
    code: int
    length: int
    payload: str

    def __str__(self) -> str:
        return f"{self.bookie} -> {self.client}: e{self.entry} {'found' if self.code == OK else NAMES[self.code]}"


class StaleFence(NamedTuple):
    """What is left of a fencing request when nobody waits for its answer any more: it still fences."""

    client: str
    bookie: str
    of_entry: bool

    def __str__(self) -> str:
        return f"{self.client} -> {self.bookie}: fence (a late request of {self.client})"


Request = Add | Fence | Read | StaleFence
Answer = Added | Fenced | Got
Message = Request | Answer
REQUESTS = (Add, Fence, Read, StaleFence)
