"""What goes wrong between Spark and the bookies, in words for the person at the driver.

All of them survive pickling, and carry what they are about.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..errors import BookKeeperError, ConfigurationError


class OptionError(ConfigurationError):
    """An option of a read or a job is unknown, malformed, or contradicts another one."""


class MissingRequirementError(BookKeeperError):
    """Spark cannot be used here: a Python package or a Java is missing. The text says what to install."""


class ReplicaError(BookKeeperError):
    """An entry could be read from no replica. The text names ledger, entry, and each bookie with its reason."""

    def __init__(self, ledger_id: int, entry_id: int, reasons: Sequence[tuple[str, str]]) -> None:
        super().__init__(ledger_id, entry_id, tuple(reasons))
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.reasons = tuple(reasons)
        """(bookie, what it answered)."""

    def __str__(self) -> str:
        reasons = "; ".join(f"bookie {bookie}: {reason}" for bookie, reason in self.reasons)
        return f"ledger {self.ledger_id}, entry {self.entry_id}: {self.summary}. {reasons}"

    summary = "no replica could be read"


class DataLossError(ReplicaError):
    """Every replica answered, and none has a good copy."""

    summary = "no replica has a good copy"


class ReplicasUnavailableError(ReplicaError):
    """No good copy was read, but not every replica could be asked: trying again later may succeed."""

    summary = "no good copy within reach"


class StreamLossError(BookKeeperError):
    """What a query was to read next of a stream or ledger is not there any more."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return f"{self.name}: {self.why}. With failOnDataLoss=false the query goes on with what is left"


class ExportError(BookKeeperError):
    """What was written is not what was read, or not all of it."""


class ArchiveError(BookKeeperError):
    """A file that a segment was offloaded to is gone, damaged, or not what was written."""


class JobError(BookKeeperError):
    """Spark could not run a job to its end."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """In a Spark worker: let this package's errors reach the driver as their one line, without the worker's traceback.

    A worker ends with its first error, so that nothing else of it is silenced.
    """
    try:
        yield
    except BookKeeperError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


_RAISED = re.compile(r"(?!org\.|java\.)[\w.]*(Error|Exception): ")
_OURS = re.compile(r"\bbookkeeper(?:\.\w+)*\.(\w+): (.*)")


def from_spark(error: BaseException) -> BookKeeperError:
    """The error of this package that made a Spark job fail, as the driver should report it."""
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        return JobError(ours[2].strip())
    lines = text.strip().splitlines() or [type(error).__name__]
    raised = [line for line in lines if _RAISED.match(line)]  # a worker's traceback ends with such a line
    return JobError((raised or lines)[-1 if raised else 0].strip())
