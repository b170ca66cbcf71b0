"""Which entries of a ledger a bookie holds: the answer to GET_LIST_OF_ENTRIES_OF_LEDGER (spec wire-protocol §9).

    offset  size  field
    0       4     version: 0
    4       4     number of groups
    8       56    zero

then for each group, ascending:

    0       8     first: entry id at which its first sequence starts
    8       8     last: entry id at which its last sequence starts
    16      4     size: consecutive entries in each sequence
    20      4     period: distance between the starts of two sequences; 0 if there is only one

A group stands for the entries `first + k * period + j` with `first + k * period <= last` and `0 <= j < size`. A reader
looks an entry up in the group with the greatest `first` that is not beyond it, so groups must not overlap. A striped
segment is one group here; Java bookies send one group per sequence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from ..errors import ProtocolError

_VERSION = 0
_HEADER = Struct(">ii56x")
_GROUP = Struct(">qqii")
_MAX_INT32 = 2**31 - 1

_Group = tuple[int, int, int, int]
"""first, last, size, period"""


def encode_availability(entry_ids: Iterable[int]) -> bytes:
    """Encode the entry ids that a bookie holds, in ascending order, without negative ones; repeated ids count once."""
    groups: list[_Group] = []
    for start, size in _sequences(entry_ids):
        if groups:
            first, last, group_size, period = groups[-1]
            distance = start - last
            if size == group_size and (distance == period or (period == 0 and distance <= _MAX_INT32)):
                groups[-1] = (first, start, size, distance)
                continue
        groups.append((start, start, size, 0))
    return _HEADER.pack(_VERSION, len(groups)) + b"".join([_GROUP.pack(*group) for group in groups])


def decode_availability(data: bytes) -> Availability:
    """Read an answer. Raises `ProtocolError` if it is not well formed."""
    if len(data) < _HEADER.size:
        raise ProtocolError(f"availability of {len(data)} bytes is shorter than its header")
    version, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise ProtocolError(f"availability has the unknown version {version}")
    if count < 0 or _HEADER.size + count * _GROUP.size != len(data):
        raise ProtocolError(f"availability of {count} groups has {len(data)} bytes")
    groups: list[_Group] = []
    end = 0
    for first, last, size, period in _GROUP.iter_unpack(data[_HEADER.size :]):
        repeats = last != first
        if first < end or last < first or size <= 0 or (repeats and (period < size or (last - first) % period)):
            raise ProtocolError(f"availability has a broken group: {first} to {last}, size {size}, period {period}")
        groups.append((first, last, size, period))
        end = last + size
    return Availability(groups)


class Availability:
    """The entries that a bookie says it holds. As small as the answer, however many entries that are."""

    __slots__ = ("_firsts", "_groups")

    def __init__(self, groups: Sequence[_Group]) -> None:
        self._groups = groups  # ascending and not overlapping
        self._firsts = [group[0] for group in groups]

    @property
    def groups(self) -> Sequence[_Group]:
        """What it consists of, ascending: first, last, size, period (see the module)."""
        return self._groups

    @property
    def count(self) -> int:
        """How many entries there are."""
        return sum(
            size * (1 + (last - first) // period if last != first else 1) for first, last, size, period in self._groups
        )

    def __contains__(self, entry_id: int) -> bool:
        index = bisect_right(self._firsts, entry_id) - 1
        if index < 0:
            return False
        first, last, size, period = self._groups[index]
        start = last if entry_id >= last else entry_id - (entry_id - first) % period
        return entry_id - start < size

    def __iter__(self) -> Iterator[int]:
        """All of them, ascending. A peer chooses how many: prefer `missing` to collecting them."""
        for first, last, size, period in self._groups:
            for start in range(first, last + 1, period if last != first else 1):
                yield from range(start, start + size)

    def missing(self, expected: Iterable[int]) -> list[int]:
        """Those of the expected entries that are not there."""
        return [entry_id for entry_id in expected if entry_id not in self]


def _sequences(entry_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Start and size of each row of consecutive ids."""
    start = size = 0
    for entry_id in entry_ids:
        if size and entry_id == start + size:
            if size < _MAX_INT32:
                size += 1
                continue
        elif size and start <= entry_id < start + size:
            continue
        assert entry_id >= start + size, "entry ids must ascend"
        if size:
            yield start, size
        start, size = entry_id, 1
    if size:
        yield start, size
