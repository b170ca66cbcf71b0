"""The records of a stream: where they are, and what the small ones hold (spec streams §3, §4.1). Pure.

<namespace>/<name>/<default>       the stream; below it
  maxtxid                          highest txid of completed segments, decimal
  version                          of this layout, -1 in four bytes
  lock, readLock                   parents of those who want to write, or to read alone
  ledgers                          highest number of a segment, decimal; parent of the segments
    inprogress_<18 digits>         a segment that is being written
    logrecs_<18 digits>            a completed one
  allocation                       a ledger for the next segment, decimal; empty: none
  subscribers/<id>                 positions of readers; made when they are needed
    readLock                       parent of those who want to read for it

Beside the streams, ours alone:

<namespace>/.retention/<name, percent-encoded>.<life>    how far the stream is to be truncated (`retention.mark`)
<namespace>/.offload/<name, percent-encoded>.<life>      parent of what says where copies of segments are (`offloaded`)
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from ...errors import IncorrectParameterError, StreamMetadataError
from .naming import stream_name

log = logging.getLogger(__name__)

IDENTIFIER = "<default>"
"""Java could split a stream into partitions; this is the name of the only one."""

LAYOUT_VERSION = b"\xff\xff\xff\xff"

END_OF_STREAM_TXID = 2**63 - 1
"""Of the record that ends a stream for good; as the highest txid: the stream is sealed."""

NO_TXID = -999
"""There is no valid txid."""

INPROGRESS = "inprogress_"
COMPLETED = "logrecs_"

_NUMBER = re.compile(rb"-?\d{1,19}", re.ASCII)
_NUMBERED = re.compile(r"logrecs_(\d+)|logrecs_[^_]*_[^_]*_(\d+)_[^_]*_[^_]*", re.ASCII)
"""A completed segment whose name says its number: today's, and an old form of five parts."""


@dataclass(frozen=True, slots=True)
class LogPaths:
    """Paths of one stream's records."""

    namespace: str
    name: str

    @property
    def top(self) -> str:
        """The stream's name; streams with longer names may be below it, too."""
        return f"{self.namespace}/{self.name}"

    @property
    def root(self) -> str:
        return f"{self.top}/{IDENTIFIER}"

    @property
    def max_txid(self) -> str:
        return f"{self.root}/maxtxid"

    @property
    def version(self) -> str:
        return f"{self.root}/version"

    @property
    def lock(self) -> str:
        return f"{self.root}/lock"

    @property
    def read_lock(self) -> str:
        return f"{self.root}/readLock"

    @property
    def segments(self) -> str:
        return f"{self.root}/ledgers"

    @property
    def allocation(self) -> str:
        return f"{self.root}/allocation"

    @property
    def subscribers(self) -> str:
        return f"{self.root}/subscribers"

    def subscriber(self, name: str) -> str:
        """Raises `IncorrectParameterError` for what is no name of one."""
        if "/" in name or not name:
            raise IncorrectParameterError(f"{name!r} is no name of a subscriber: give a word without slashes")
        return f"{self.subscribers}/{stream_name(name)}"

    def subscriber_lock(self, name: str) -> str:
        """Parent of those who want to read for a subscriber."""
        return f"{self.subscriber(name)}/readLock"

    def truncation(self, life: int) -> str:
        """`life`: `Node.stamp` of `root`. A stream that was deleted and made anew has another record."""
        return f"{self.namespace}/.retention/{quote(self.name, safe='')}.{life}"

    def offload(self, life: int) -> str:
        """`life`: as for `truncation`."""
        return f"{self.namespace}/.offload/{quote(self.name, safe='')}.{life}"

    def segment(self, name: str) -> str:
        return f"{self.segments}/{name}"

    def records(self) -> dict[str, bytes]:
        """What a new stream consists of, parents first: path and data."""
        above = self.name.split("/")
        ancestors = [f"{self.namespace}/{'/'.join(above[:count])}" for count in range(1, len(above) + 1)]
        return {
            **dict.fromkeys([*ancestors, self.root], b""),
            self.max_txid: b"0",
            self.version: LAYOUT_VERSION,
            self.lock: b"",
            self.read_lock: b"",
            self.segments: b"0",
            self.allocation: b"",
        }


def inprogress_name(number: int) -> str:
    """Name of segment `number` while it is being written."""
    return f"{INPROGRESS}{number:018d}"


def completed_name(number: int) -> str:
    """Name of segment `number` when it is complete."""
    return f"{COMPLETED}{number:018d}"


def names_of_interest_to_a_writer(names: Iterable[str]) -> list[str]:
    """Every segment in progress, the completed one with the highest number, and those whose name says no number.

    All that is needed to go on writing. In the order of `names`.
    """
    kept, last, highest = set(), "", -1
    known = list(names)
    for name in known:
        if name.startswith("inprogress"):
            kept.add(name)
        elif match := _NUMBERED.fullmatch(name):
            number = int(match[1] or match[2])
            if number > highest:
                last, highest = name, number
        elif name.startswith("logrecs"):
            kept.add(name)
        else:
            log.error("%s is no name of a segment: it is overlooked", name)
    return [name for name in known if name in kept or name == last]


def encode_number(number: int) -> bytes:
    """Decimal text."""
    return b"%d" % number


def parse_max_segment(data: bytes, path: str) -> int:
    """Raises `StreamMetadataError`: without it no segment can be numbered."""
    if not _NUMBER.fullmatch(data):
        raise StreamMetadataError(f"{path} holds {data!r}: the highest number of a segment is not decimal")
    return int(data)


def parse_max_txid(data: bytes) -> int:
    """What cannot be read is `NO_TXID`, as for Java."""
    return int(data) if _NUMBER.fullmatch(data) else NO_TXID


def parse_allocation(data: bytes, path: str) -> int | None:
    """The ledger's id, or None. Raises `StreamMetadataError`."""
    if not data:
        return None
    if not _NUMBER.fullmatch(data):
        raise StreamMetadataError(f"{path} holds {data!r}: that is no id of a ledger")
    return int(data)
