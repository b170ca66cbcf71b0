"""Where jobs write files: a directory, or an address such as `s3://bucket/path` that Arrow knows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from .errors import OptionError


def open_files(place: str) -> tuple[fs.FileSystem, str]:
    """The file system of a place and the path in it. Raises `OptionError` for an address that is none."""
    if "://" not in place:
        return fs.LocalFileSystem(), str(Path(place).absolute())
    try:
        files, path = fs.FileSystem.from_uri(place)
    except (pa.ArrowInvalid, OSError) as error:
        raise OptionError(f"{place} is no place for files: {error}") from error
    return files, path
