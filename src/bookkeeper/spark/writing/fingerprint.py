"""What a batch was made from: a hash of the query's offsets, out of its checkpoint (spec streams §17.6).

Two batches of one number are the same if they read the same. If a checkpoint is put back to an older state, its query
counts on from there, and reads on: the next batches have numbers that were published already, made of other data.

`<checkpoint>/offsets/<batch>` begins with a version and a header, which has the time; the lines behind them are the
offsets of the sources.
"""

from __future__ import annotations

import hashlib
import logging

log = logging.getLogger(__name__)

HEAD = 2
"""Lines before the offsets."""


def fingerprint_of(offsets: bytes) -> str | None:
    """Of the text of a batch's offsets; None if it is none."""
    lines = offsets.split(b"\n")
    if len(lines) <= HEAD or not lines[0].startswith(b"v"):
        return None
    return hashlib.sha256(b"\n".join(lines[HEAD:])).hexdigest()


def read_fingerprint(checkpoint: str | None, batch: int) -> str | None:
    """Of a batch; None: the checkpoint is not known here, or cannot be read. Then the number alone counts."""
    if checkpoint is None:
        return None
    import pyarrow as pa
    from pyarrow import fs

    place = f"{checkpoint.rstrip('/')}/offsets/{batch}"
    try:
        files, path = fs.FileSystem.from_uri(place) if ":" in place else (fs.LocalFileSystem(), place)
        with files.open_input_stream(path) as stream:
            return fingerprint_of(stream.read())
    except (OSError, pa.ArrowException, ValueError) as error:
        log.warning("batch %d has no fingerprint, because %s cannot be read: %s", batch, place, error)
        return None
