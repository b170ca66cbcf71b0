"""Where the files of a bookie are: by its configuration, or said directly."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...bookie.file_names import CURRENT
from ...bookie.node.directories import Directories
from ...config import ServerConfiguration
from ...errors import ConfigurationError
from ..output import EXIT_USAGE, fail
from ..settings import bookie_settings

_HEX = re.compile("[0-9a-fA-F]{1,16}")


def configured(conf: Path | None, **overrides: Any) -> ServerConfiguration:
    """The bookie's settings, as `bookkeeper bookie --conf` reads them. Ends the command if there are none.

    Above them come the `overrides` that are not None.
    """
    if conf is None and not any(name.startswith("BK_") for name in os.environ):
        fail(
            "say --conf with the bookie's bk_server.conf, or name the file itself where the command takes one",
            EXIT_USAGE,
        )
    try:
        return bookie_settings(conf, EXIT_USAGE, **overrides)
    except ConfigurationError as error:
        fail(str(error), EXIT_USAGE)


def directories(conf: Path | None) -> Directories:
    return Directories.of(configured(conf))


def current_of(root: str | Path) -> Path:
    """The directory with the data: `root`'s `current`, or itself if it has none."""
    inside = Path(root) / CURRENT
    return inside if inside.is_dir() else Path(root)


def as_file(named: str, suffix: str, base: int = 10) -> Path | None:
    """The path that was said; None for an id, or for a bare name that is not here."""
    path = Path(named)
    if path.name.endswith(suffix):
        return path if "/" in named or path.exists() else None
    if not (named.isdecimal() if base == 10 else _HEX.fullmatch(named)):
        kind = "decimal" if base == 10 else "hexadecimal"
        fail(f"{named} is neither a {kind} id nor a file <hex id>{suffix}", EXIT_USAGE)
    return None


def only_one(name: str, roots: Sequence[str | Path], advice: str) -> Path:
    """The file of this name below the configured directories. Ends the command if it is not there just once."""
    found = [path for root in roots if (path := current_of(root) / name).exists()]
    if not found:
        fail(f"there is no {name} in {', '.join(str(current_of(root)) for root in roots)}")
    if len(found) > 1:
        fail(f"there are several, {', '.join(map(str, found))}: {advice}", EXIT_USAGE)
    return found[0]
