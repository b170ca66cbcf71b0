"""Byte code for the archive from which Spark's Python processes import PySpark.

    python -m tests.support.compiled_spark

Each such process, several for a query, would compile the same three hundred modules: half a second. With byte code
beside each module in the archive, where Python looks first, it does not.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import struct
import time
import warnings
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo


def archive() -> Path:
    """The one of the PySpark that is installed here."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "python" / "lib" / "pyspark.zip"


def byte_code(source: bytes, info: ZipInfo) -> bytes | None:
    """As in a `.pyc` file that is valid for the source as it stands in the archive; None: it is not for this Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, info.filename, "exec", dont_inherit=True)
    except SyntaxError:
        return None
    changed = int(time.mktime((*info.date_time, -1, -1, -1)))
    header = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, changed & 0xFFFFFFFF, len(source) & 0xFFFFFFFF)
    return header + marshal.dumps(code)


def compile_archive(path: Path) -> None:
    """Put byte code into it. Idempotent; nobody ever sees half of it."""
    fresh = path.with_name(path.name + ".new")
    with ZipFile(path) as old:
        if any(name.endswith(".pyc") for name in old.namelist()):
            return
        with ZipFile(fresh, "w", ZIP_DEFLATED) as new:
            for info in old.infolist():
                source = old.read(info)
                new.writestr(info, source)
                code = byte_code(source, info) if info.filename.endswith(".py") else None
                if code is not None:
                    place = ZipInfo(info.filename + "c", info.date_time)
                    place.compress_type = ZIP_DEFLATED
                    new.writestr(place, code)
    os.replace(fresh, path)


if __name__ == "__main__":
    compile_archive(archive())
