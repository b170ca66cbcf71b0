"""What the text of an option says: numbers, sizes, times, words.

Each takes the options by their names in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .errors import OptionError

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(i?b?)", re.IGNORECASE)
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIMES = {None: 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0}


def number(given: Mapping[str, str], name: str, default: Any, *, least: int) -> Any:
    """A whole number. Raises `OptionError`."""
    text = given.get(name.lower())
    if text is None:
        return default
    if not re.fullmatch(r"\s*\d+\s*", text) or int(text) < least:
        raise OptionError(f"{name}={text!r} is not a number from {least} up")
    return int(text)


def size(given: Mapping[str, str], name: str, default: int) -> int:
    """Bytes. Raises `OptionError`."""
    text = given.get(name.lower())
    if text is None:
        return default
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise OptionError(f"{name}={text!r} is not a size such as 1048576, 64m or 128MiB")
    return int(match[1]) * _UNITS[match[2].lower()]


def seconds(given: Mapping[str, str], name: str, default: float) -> float:
    """A time. Raises `OptionError`."""
    text = given.get(name.lower())
    if text is None:
        return default
    match = _SECONDS.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise OptionError(f"{name}={text!r} is not a time such as 30, 30s or 500ms")
    return float(match[1]) * _TIMES[match[2].lower() if match[2] else None]


def choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of several words; the first is the default. Raises `OptionError`."""
    value = given.get(name.lower(), choices[0]).strip().lower()
    if value not in choices:
        raise OptionError(f"{name}={value!r} is none of {', '.join(choices)}")
    return value


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    """True or false. Raises `OptionError`."""
    value = given.get(name.lower())
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise OptionError(f"{name}={value!r} is neither true nor false")
    return value.strip().lower() == "true"
