r"""Cookies: which bookie a set of directories belongs to (spec metadata §8).

The same text lies in the metadata store under the bookie id, and in the file `current/VERSION` of every journal,
ledger and index directory. A bookie starts only if all of them agree with its configuration: so that a bookie with a
lost disk, with another bookie's disk, or of another cluster does not answer for data it does not have.

    <layout version, decimal> LF body

| layout version | body |
|---|---|
| 3 (release 4.1) | three lines: bookie id; journal directory; ledger directories |
| 4 (4.2 to 4.15), 5 (current) | `CookieFormat` in text form; `indexDirs` and `instanceId` only if there are any |

Journal directories are joined by `,`. Ledger and index directories are `<count> TAB name TAB name ...`, the
configured names in configured order. Layouts 1 and 2 (before 4.1) have no body and need an upgrade by the old tools.

The decisions at start (§8.4) are pure here: `decide_start` and `decide_data_integrity_start` turn what was found
into what to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

from ...errors import CorruptMetadata, InvalidCookieError
from ...types import BookieId
from ..api import Version, Versioned
from . import text as text_format
from .messages import COOKIE
from .schema import Values

CURRENT_LAYOUT_VERSION = 5
OLDEST_LAYOUT_VERSION = 3

_VERSION = re.compile(r"[+-]?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Cookie:
    """One cookie. Directory fields hold the texts of the format, as equality is equality of these texts."""

    bookie_id: str
    journal_dir: str
    """Journal directories joined by `,`."""
    ledger_dirs: str
    """Count and names, separated by TAB."""
    index_dirs: str | None = None
    """Like `ledger_dirs`; None: the index lies in the ledger directories."""
    instance_id: str | None = None
    """The cluster's instance id; None if the cluster has none."""
    layout_version: int = CURRENT_LAYOUT_VERSION

    @classmethod
    def build(
        cls,
        bookie_id: BookieId,
        *,
        journal_dirs: Sequence[str],
        ledger_dirs: Sequence[str],
        index_dirs: Sequence[str] | None = None,
        instance_id: str | None = None,
    ) -> Self:
        """The cookie of a configuration, directories as configured (without `current`)."""
        return cls(
            bookie_id,
            ",".join(journal_dirs),
            encode_directories(ledger_dirs),
            None if index_dirs is None else encode_directories(index_dirs),
            instance_id or None,
        )

    def ledger_dir_names(self) -> tuple[str, ...]:
        return decode_directories(self.ledger_dirs)

    def index_dir_names(self) -> tuple[str, ...]:
        """The index directories; the ledger directories if there are none of their own."""
        return decode_directories(self.index_dirs or self.ledger_dirs)


def encode_directories(names: Sequence[str]) -> str:
    """`<count> TAB name TAB name ...`"""
    return "\t".join([str(len(names)), *names])


def decode_directories(text: str) -> tuple[str, ...]:
    """The names. The count is skipped, as in the Java system."""
    return tuple(text.split("\t")[1:])


def encode_cookie(cookie: Cookie) -> bytes:
    """The cookie's bytes; always in the current layout."""
    values: Values = {
        "bookieHost": cookie.bookie_id,
        "journalDir": cookie.journal_dir,
        "ledgerDirs": cookie.ledger_dirs,
    }
    if cookie.instance_id:
        values["instanceId"] = cookie.instance_id
    if cookie.index_dirs:
        values["indexDirs"] = cookie.index_dirs
    return f"{CURRENT_LAYOUT_VERSION}\n{text_format.print_message(COOKIE, values)}".encode()


def parse_cookie(data: bytes) -> Cookie:
    """The cookie in `data`; one of layout 1 or 2 has empty fields. Raises `CorruptMetadata`."""
    first, _, body = data.partition(b"\n")
    version_text = first.decode("latin-1").strip()
    if not _VERSION.fullmatch(version_text):
        raise CorruptMetadata(f"a cookie starts with its layout version, not with {first[:40]!r}")
    version = int(version_text)
    if version < OLDEST_LAYOUT_VERSION:
        return Cookie("", "", "", layout_version=version)
    if version == OLDEST_LAYOUT_VERSION:
        return _parse_lines(body)
    values = text_format.parse_message(COOKIE, body)
    return Cookie(
        values["bookieHost"],
        values["journalDir"],
        values["ledgerDirs"],
        values.get("indexDirs") or None,
        values.get("instanceId") or None,
        version,
    )


def _parse_lines(body: bytes) -> Cookie:
    try:
        lines = body.decode().splitlines()
    except UnicodeDecodeError:
        raise CorruptMetadata("a cookie of layout 3 is not text") from None
    if len(lines) < 3:
        raise CorruptMetadata("a cookie of layout 3 has three lines behind its version")
    return Cookie(lines[0], lines[1], lines[2], layout_version=OLDEST_LAYOUT_VERSION)


def verify(master: Cookie, other: Cookie, *, superset: bool = False) -> None:
    """Check a stored cookie against that of the configuration (§8.3).

    With `superset` the configuration may have more ledger and index directories, in any order.
    Raises `InvalidCookieError` saying which field differs.
    """
    if other.layout_version < OLDEST_LAYOUT_VERSION:
        raise InvalidCookieError(
            f"the cookie has layout {other.layout_version}, too old: upgrade the directories with BookKeeper 4.1"
        )
    _same("bookie id", master.bookie_id, other.bookie_id)
    _same("journal directories", master.journal_dir, other.journal_dir)
    if superset:
        _covers("ledger directories", master.ledger_dir_names(), other.ledger_dir_names())
        _covers("index directories", master.index_dir_names(), other.index_dir_names())
    else:
        _same_directories("ledger directories", master.ledger_dirs, other.ledger_dirs)
        _same_directories("index directories", *_index_directories(master, other))
    _same("cluster instance id", master.instance_id, other.instance_id)


def verify_places(master: Cookie, other: Cookie) -> None:
    """Check that every ledger and index directory has the place in its list that it had when the cookie was written.

    For storages that find a ledger's directory by its place (spec bookie-storage §1.1): with any other list they would
    look for ledgers where they are not, and deny them. Raises `InvalidCookieError`.
    """
    for key, configured, stored in (
        ("ledgerDirectories", master.ledger_dirs, other.ledger_dirs),
        ("indexDirectories", *_index_directories(master, other)),
    ):
        if configured != stored:
            raise InvalidCookieError(
                f"{key}: {_readable(configured)} is configured, the cookie says {_readable(stored)}: with this storage "
                "directories cannot be added, removed or put in another order, as ledgers would be looked for in other "
                "directories than they are in. Configure what the cookie says; for other directories start a new "
                "bookie and decommission this one"
            )


def _index_directories(master: Cookie, other: Cookie) -> tuple[str, str]:
    return master.index_dirs or master.ledger_dirs, other.index_dirs or other.ledger_dirs


def _same(what: str, configured: str | None, stored: str | None) -> None:
    if configured != stored:
        raise InvalidCookieError(f"{what}: {configured!r} is configured, the cookie says {stored!r}")


def _same_directories(what: str, configured: str, stored: str) -> None:
    if configured != stored:
        raise InvalidCookieError(f"{what}: {_readable(configured)} is configured, the cookie says {_readable(stored)}")


def _readable(directories: str) -> str:
    return ",".join(decode_directories(directories)) or "none"


def _covers(what: str, configured: Sequence[str], stored: Sequence[str]) -> None:
    missing = [name for name in stored if name not in configured]
    if missing:
        raise InvalidCookieError(f"{what}: the cookie has {', '.join(missing)}, which the configuration lacks")


# --- the decision at start (§8.4) ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """What a bookie found in one of its directories."""

    path: str
    """The configured name, without `current`."""
    cookie: Cookie | None
    """From `current/VERSION`; None only if that file does not exist: any other failure to read it stops the start."""
    empty: bool
    """Whether `current` holds nothing, the cookie aside, if there is one."""


class StartAction(Enum):
    """What a bookie has to do about its cookies before it may serve."""

    NOTHING = "nothing"
    NEW_BOOKIE = "new bookie"
    """Create the cookie everywhere: the store has none, and the directories hold nothing else. Some or all of them may
    have it already, from a first start that was cut short."""
    EXPAND = "expand"
    """Write the cookie to all directories, then to the store over the version that was read."""
    CHECK_AND_STAMP = "check and stamp"
    """Run the data-integrity preparation, then write the cookie to the store, then to all directories."""


@dataclass(frozen=True, slots=True)
class StartDecision:
    """The action, the cookie to write, and the version of the store's cookie that it replaces."""

    action: StartAction
    cookie: Cookie
    store_version: Version | None = None
    """None: the store has no cookie."""
    store_first: bool = False
    """Whether the store is written before the directories."""


def decide_start(
    master: Cookie,
    stored: Sequence[Versioned[Cookie]],
    directories: Sequence[DirectoryFacts],
    *,
    allow_expansion: bool = False,
    fixed_places: bool = False,
) -> StartDecision:
    """What to do, given the cookies in the store and the directories.

    `stored` are those found in the store under any of the ids this bookie may have had (IP address, host name,
    advertised address); as the id is part of the cookie, one under another id ends the start. With `fixed_places` the
    storage finds ledgers by the places of directories in their lists, so that these must not change (`verify_places`).
    Raises `InvalidCookieError` when the bookie must not start.
    """
    for found in stored:
        verify(master, found.value, superset=allow_expansion)
    for directory in directories:
        if directory.cookie is not None:
            _verify_directory(master, directory.path, directory.cookie, superset=allow_expansion)
    if fixed_places:
        for cookie in _all_cookies(stored, directories):
            verify_places(master, cookie)
    missing = [directory for directory in directories if directory.cookie is None]
    if not stored:
        if not missing and not all(directory.empty for directory in directories):
            raise InvalidCookieError(
                "the directories have cookies but the metadata store has none: "
                "it is not the store they were written with, or the bookie was decommissioned"
            )
        _all_empty(missing, "there is no cookie in the metadata store (a new bookie)")
        return StartDecision(StartAction.NEW_BOOKIE, master)
    version = stored[-1].version
    if not missing:
        return StartDecision(StartAction.NOTHING, master, version)
    names = ", ".join(directory.path for directory in missing)
    if not allow_expansion:
        raise InvalidCookieError(
            f"no cookie in {names}: is a disk missing? (To add directories, set allowStorageExpansion)"
        )
    known = [name for cookie in _all_cookies(stored, directories) for name in _data_dirs(cookie)]
    lost = [directory.path for directory in missing if directory.path in known]
    if lost:
        raise InvalidCookieError(f"{', '.join(lost)} had a cookie and has lost it: the data that was there is missing")
    _all_empty(missing, "storage can only be expanded by empty directories")
    return StartDecision(StartAction.EXPAND, master, version)


def decide_data_integrity_start(
    master: Cookie,
    found: Sequence[Versioned[Cookie]],
    directories: Sequence[DirectoryFacts],
    *,
    stamp_missing: bool = False,
) -> StartDecision:
    """As `decide_start`, for `dataIntegrityChecking`: lost or changed directories may be accepted and repaired.

    Here cookies must be equal in all fields, the layout version included. A cookie of another bookie or another cluster
    is never replaced: what it stands for is no loss of this bookie.
    """
    if master.instance_id is None:
        raise InvalidCookieError("dataIntegrityChecking needs a cluster with an instance id")
    for cookie in _all_cookies(found, directories):
        _same("bookie id", master.bookie_id, cookie.bookie_id)
        _same("cluster instance id", master.instance_id, cookie.instance_id)
    stored = found[-1] if found else None
    if stored is None:
        if any(directory.cookie is not None for directory in directories):
            raise InvalidCookieError("a directory has a cookie but the metadata store has none")
        return StartDecision(StartAction.NEW_BOOKIE, master, store_first=True)
    different = [directory.path for directory in directories if directory.cookie != master]
    if stored.value == master and not different:
        return StartDecision(StartAction.NOTHING, master, stored.version)
    if not stamp_missing:
        where = ", ".join(different) or "the metadata store"
        raise InvalidCookieError(
            f"the cookie in {where} is missing or not that of the configuration; "
            "with dataIntegrityStampMissingCookies the bookie would check its data and go on"
        )
    return StartDecision(StartAction.CHECK_AND_STAMP, master, stored.version, store_first=True)


def _all_cookies(stored: Sequence[Versioned[Cookie]], directories: Sequence[DirectoryFacts]) -> list[Cookie]:
    return [found.value for found in stored] + [each.cookie for each in directories if each.cookie is not None]


def _data_dirs(cookie: Cookie) -> tuple[str, ...]:
    return cookie.ledger_dir_names() + cookie.index_dir_names()


def _verify_directory(master: Cookie, path: str, cookie: Cookie, *, superset: bool) -> None:
    try:
        verify(master, cookie, superset=superset)
    except InvalidCookieError as error:
        raise InvalidCookieError(f"directory {path}: {error}") from None


def _all_empty(directories: Sequence[DirectoryFacts], reason: str) -> None:
    full = [directory.path for directory in directories if not directory.empty]
    if full:
        raise InvalidCookieError(f"{', '.join(full)} holds data but no cookie, and {reason}")
