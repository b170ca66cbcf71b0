"""Names and constants that every floor uses."""

from __future__ import annotations

import re
from enum import Enum, IntEnum, IntFlag
from typing import NamedTuple, NewType

from .errors import ConfigurationError

INVALID_ENTRY_ID = -1
"""No entry. As a read's entry id it means 'the last entry you have' (`LAST_ADD_CONFIRMED`)."""

LAST_ADD_CONFIRMED = -1

INVALID_LEDGER_ID = -0xABCDABCD

MAX_LEDGER_ID = 2**63 - 1

MASTER_KEY_LENGTH = 20

BookieId = NewType("BookieId", str)
"""A bookie's name: usually `host:port`, else whatever `bookieId` says."""

# `:-_` is a range (0x3A to 0x5F); BookKeeper has accepted it as such from the start.
_BOOKIE_ID = re.compile(r"[a-zA-Z0-9:-_.\-]+")


def parse_bookie_id(text: str) -> BookieId:
    """Check the syntax of a bookie id (spec metadata §7.2).

    Raises `ConfigurationError` if it is not one.
    """
    if not _BOOKIE_ID.fullmatch(text) or text.lower() == "readonly":
        raise ConfigurationError(
            f"{text!r} is not a bookie id: letters, digits and .-:;<=>?@[]^_ are allowed, 'readonly' is not"
        )
    return BookieId(text)


class Quorums(NamedTuple):
    """E, Wq and Aq of a ledger. They do not ascend, and the least of them is at least 1."""

    ensemble_size: int
    """Bookies that share the ledger."""
    write_quorum: int
    """Bookies that store each entry."""
    ack_quorum: int
    """Bookies that must have stored an entry before it is acknowledged."""

    def __str__(self) -> str:
        return f"{self.ensemble_size}/{self.write_quorum}/{self.ack_quorum}"


class DigestType(Enum):
    """How entries are protected. Values are the names of the public API."""

    CRC32 = "CRC32"
    """A check sum: finds damage. 8 bytes for each entry."""
    MAC = "MAC"
    """A keyed hash (HMAC-SHA-1): finds damage, and forgery by anyone without the password. 20 bytes."""
    CRC32C = "CRC32C"
    """A check sum that processors compute: finds damage. 4 bytes. The default."""
    DUMMY = "DUMMY"
    """None: damage is handed to the reader as data. 0 bytes."""


class WriteFlag(IntFlag):
    """How an append is acknowledged."""

    NONE = 0
    """When its ack quorum has the entry on disk."""
    DEFERRED_SYNC = 1
    """Acknowledge before the bookie's journal is synced; `force` makes it durable."""


class LedgerState(IntEnum):
    """A ledger's life. Values are those of the metadata formats."""

    OPEN = 1
    """Its writer may append."""
    IN_RECOVERY = 2
    """A client is ending it in place of its writer."""
    CLOSED = 3
    """Sealed: it never changes again."""
