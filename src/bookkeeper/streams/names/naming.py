"""Which names streams can have (spec streams §2.3). Pure.

Names may have several parts, `orders/eu`. A name whose first character is `.` or `<` is reserved: records of ours
beside streams have such names, and Java overlooks them.
"""

from __future__ import annotations

from ...errors import InvalidStreamNameError

RESERVED = (".", "<")
"""First characters of what is no stream."""

_BANNED = "<> "

_BANNED_RANGES = ((0x00, 0x1F), (0x7F, 0x9F), (0xD800, 0xF8FF), (0xFFF0, 0x10FFFF))
"""Control characters, and what ZooKeeper refuses; inclusive."""


def stream_name(text: str) -> str:
    """The name, without a leading slash. Raises `InvalidStreamNameError` that says what is wrong."""

    def wrong(what: str) -> InvalidStreamNameError:
        return InvalidStreamNameError(f"a stream cannot be called {text!r}: {what}")

    name = text.removeprefix("/")
    if not name:
        raise wrong("the name is empty")
    if is_reserved(text) or is_reserved(name):
        raise wrong(f"names that begin with {name[0]} are reserved")
    for part in name.split("/"):
        if part in ("", ".", ".."):
            raise wrong(f"{part!r} is no part of a name")
    for character in name:
        code = ord(character)
        if character in _BANNED or any(first <= code <= last for first, last in _BANNED_RANGES):
            raise wrong(f"it has the character {character!r}")
    return name


def is_reserved(name: str) -> bool:
    """Whether this is a record beside streams."""
    return name.startswith(RESERVED)
