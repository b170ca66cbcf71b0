"""What callers hand in, checked before anything is done with it.

An argument of a wrong type is a `WrongTypeError` (an `IncorrectParameterError` and a `TypeError`) that says what was
wanted. Python would take many of them for something else: `bytes(3)` is three zeros, and `bytes` is iterable.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import IncorrectParameterError, NoSuchLedgerOnMetadataError, WrongTypeError
from ..protocol.digest import Digest, digest_for, master_key
from ..types import MAX_LEDGER_ID, DigestType, Quorums, WriteFlag

Payload = bytes | bytearray | memoryview


def payload_bytes(data: Payload) -> bytes:
    """The bytes of a payload that is not `bytes` itself, copied. Raises `WrongTypeError`."""
    try:
        view = memoryview(data)
    except TypeError:
        view = None
    if view is None:
        wrong_type("an entry", "bytes, bytearray or memoryview", data)
    return bytes(view)


def check_payloads(payloads: object) -> None:
    """Whether this may be many payloads. Raises `WrongTypeError`."""
    if isinstance(payloads, bytes | bytearray | memoryview | str):
        raise WrongTypeError(
            f"append_many takes an iterable of entries, and a single {type(payloads).__name__} is none: use append, or "
            "put it into a list"
        )
    if not isinstance(payloads, Iterable | AsyncIterable):
        wrong_type("the entries", "an iterable, or an asynchronous one", payloads)


def check_password(password: object) -> None:
    """Raises `WrongTypeError`."""
    if not isinstance(password, bytes):
        wrong_type("the password", "bytes", password)


def check_digest(digest: object) -> None:
    """Raises `IncorrectParameterError`."""
    if isinstance(digest, DigestType):
        return
    names = ", ".join(f"DigestType.{kind.name}" for kind in DigestType)
    if isinstance(digest, str):
        raise IncorrectParameterError(f"the digest must be one of {names}, not the text {digest!r}")
    wrong_type("the digest", f"one of {names}", digest)


def check_ledger_id(ledger_id: object) -> None:
    """Whether there may be such a ledger. Raises `WrongTypeError`, `NoSuchLedgerOnMetadataError` below zero."""
    check_integer("the ledger id", ledger_id)
    assert isinstance(ledger_id, int)
    if ledger_id < 0:
        raise NoSuchLedgerOnMetadataError(ledger_id=ledger_id)


def check_new_ledger_id(ledger_id: int | None) -> None:
    """Whether a caller may have chosen it. Raises `IncorrectParameterError`."""
    if ledger_id is None:
        return
    check_integer("the ledger id", ledger_id)
    if not 0 <= ledger_id <= MAX_LEDGER_ID:
        raise IncorrectParameterError(f"{ledger_id} is no ledger id")


def check_write_flags(write_flags: object) -> None:
    """Raises `WrongTypeError`."""
    if not isinstance(write_flags, WriteFlag):
        wrong_type("write_flags", "a WriteFlag, such as WriteFlag.DEFERRED_SYNC", write_flags)


def check_integer(what: str, value: object) -> None:
    """Raises `WrongTypeError`."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
        wrong_type(what, "an int", value)


def wrong_type(what: str, wanted: str, value: object) -> NoReturn:
    """Raises `WrongTypeError`."""
    hint = ": str is not bytes, encode it (text.encode())" if isinstance(value, str) and "bytes" in wanted else ""
    raise WrongTypeError(f"{what} must be {wanted}, not {type(value).__name__}{hint}")


@dataclass(frozen=True, slots=True)
class LedgerShape:
    """What a new ledger is to be like."""

    quorums: Quorums
    password: bytes
    digest: DigestType
    custom_metadata: Mapping[str, bytes]

    def check(self) -> None:
        """Raises `IncorrectParameterError`."""
        for name, number in self.quorums._asdict().items():
            check_integer(name, number)
        size, write, ack = self.quorums
        if not size >= write >= ack > 0:
            raise IncorrectParameterError(
                f"ensemble size {size}, write quorum {write} and ack quorum {ack} must not ascend and be at least 1"
            )
        check_password(self.password)
        check_digest(self.digest)

    def keys(self) -> tuple[Digest, bytes]:
        """Digest and master key."""
        return digest_for(self.digest, self.password), master_key(self.password)


def custom_metadata_of(given: Mapping[str, bytes] | None) -> dict[str, bytes]:
    """A copy, checked. Raises `WrongTypeError`."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        wrong_type("custom_metadata", "a mapping of str to bytes", given)
    pairs: dict[Any, Any] = dict(given)
    for key, value in pairs.items():
        if not isinstance(key, str):
            wrong_type(f"the key {key!r} of custom_metadata", "str", key)
        if not isinstance(value, bytes):
            wrong_type(f"the value of {key!r} in custom_metadata", "bytes", value)
    return pairs
