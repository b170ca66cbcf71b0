"""A bookie's settings, for the command that runs one and for those that look at one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..config import ServerConfiguration
from .output import fail


def bookie_settings(conf: Path | None, exit_code: int, **overrides: Any) -> ServerConfiguration:
    """What a bk_server.conf and variables BK_<key> say, and above both the `overrides` that are not None.

    Ends the command with `exit_code` if the file cannot be read as text. Raises `ConfigurationError`.
    """
    try:
        text = conf.read_text() if conf is not None else ""
    except OSError as error:
        fail(f"cannot read {conf}: {error.strerror}", exit_code)
    except UnicodeDecodeError:
        fail(f"cannot read {conf}: it is no text", exit_code)
    return ServerConfiguration.from_file(str(conf or "environment"), text=text, environ=os.environ, **overrides)
