"""How a bookie's process ends (spec bookie-server §1.11)."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the process. The first reason to end is the one that counts."""

    OK = 0
    INVALID_CONF = 1
    """Options or configuration file."""
    SERVER_EXCEPTION = 2
    """The bookie could not be built: cookies, directories, port, metadata store."""
    ZK_EXPIRED = 3
    """Auto-recovery lost its metadata session."""
    ZK_REG_FAIL = 4
    """Registration with the metadata store failed."""
    BOOKIE_EXCEPTION = 5
    """Journal, storage or disk failed; recovery from disk happens at the next start."""
