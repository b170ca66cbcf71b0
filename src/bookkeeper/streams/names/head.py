"""What the owner of a stream changes: start, complete, truncate and remove segments (spec streams §4.4).

Theory of operation

Each change is one transaction, in the order of operations that Java has. It names the versions of `ledgers`, `maxtxid`
and `allocation` that this owner has seen last, so that of two owners only one succeeds: the other gets `NotOwnerError`,
and must be given up. That, and the fencing of ledgers, is what keeps a stream in one piece; the lock only keeps clients
from getting in each other's way.

Data of segments are bytes here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import NoSuchRecord, NotOwnerError, RecordChanged, RecordExists, StreamStateError
from ...metadata.api import ANY, Versioned
from ...metadata.tree import Create, Delete, Operation, RecordTree, Write, Written
from .logs import LogRecords
from .paths import completed_name, encode_number, inprogress_name


class LogHead:
    """The records of a stream as its owner knows them, and the only way that it changes them."""

    def __init__(self, tree: RecordTree, records: LogRecords) -> None:
        self._tree = tree
        self._paths = records.paths
        self._max_segment = records.max_segment
        self._max_txid = records.max_txid

    @property
    def max_segment(self) -> int:
        """Highest number that a segment ever had."""
        return self._max_segment.value

    @property
    def max_txid(self) -> int:
        """Highest txid of completed segments."""
        return self._max_txid.value

    async def start(self, number: int, data: bytes, *, handover: Sequence[Operation]) -> Written:
        """Begin segment `number`. `handover` takes its ledger out of `allocation`, in the same transaction: a ledger
        that stood in both places would be deleted by the next owner.

        Raises `NotOwnerError`, and `StreamStateError` for a number that does not follow.
        """
        if number not in (self.max_segment, self.max_segment + 1) or number < 1:
            raise StreamStateError(f"stream {self._paths.name}: segment {number} does not follow {self.max_segment}")
        return await self._commit(
            [
                *handover,
                Create(self._paths.segment(inprogress_name(number)), data),
                Write(self._paths.segments, encode_number(number), self._max_segment.version),
            ],
            max_segment=number,
        )

    async def complete(self, number: int, data: bytes, *, last_txid: int) -> None:
        """End segment `number`, whose ledger is closed. Raises `NotOwnerError`."""
        segment, txid = max(number, self.max_segment), max(last_txid, self.max_txid)
        await self._commit(
            [
                Create(self._paths.segment(completed_name(number)), data),
                Delete(self._paths.segment(inprogress_name(number)), ANY),
                Write(self._paths.segments, encode_number(segment), self._max_segment.version),
                Write(self._paths.max_txid, encode_number(txid), self._max_txid.version),
            ],
            max_segment=segment,
            max_txid=txid,
        )

    def attach(self, segments: Sequence[tuple[int, bytes]], *, last_txid: int) -> list[Operation]:
        """What a transaction must do to add completed segments behind all others; by number, which follow each other.

        After that transaction this head is of no use any more. Raises `StreamStateError` for numbers that do not
        follow.
        """
        number = segments[0][0]
        if number not in (self.max_segment, self.max_segment + 1) or number < 1:
            raise StreamStateError(f"stream {self._paths.name}: segment {number} does not follow {self.max_segment}")
        txid = max(last_txid, self.max_txid)
        return [
            *(Create(self._paths.segment(completed_name(number)), data) for number, data in segments),
            Write(self._paths.segments, encode_number(segments[-1][0]), self._max_segment.version),
            Write(self._paths.max_txid, encode_number(txid), self._max_txid.version),
        ]

    async def _commit(self, changes: Sequence[Operation], *, max_segment: int, max_txid: int | None = None) -> Written:
        try:
            written = await self._tree.commit(changes)
        except (RecordChanged, RecordExists, NoSuchRecord) as error:
            raise NotOwnerError(f"another client has taken over stream {self._paths.name}: {error}") from error
        self._max_segment = Versioned(max_segment, written[self._paths.segments])
        if max_txid is not None:
            self._max_txid = Versioned(max_txid, written[self._paths.max_txid])
        return written

    async def retract(self, number: int) -> None:
        """Take back a segment in progress that has no records; its number is used again. Raises `NotOwnerError`.

        Of several the highest first: the highest number falls with each, or none could follow. Unlike `remove` for
        owners only: by now another one may have begun a segment of this number.
        """
        left = self.max_segment - 1 if number == self.max_segment else self.max_segment
        await self._commit(
            [
                Delete(self._paths.segment(inprogress_name(number)), ANY),
                Write(self._paths.segments, encode_number(left), self._max_segment.version),
            ],
            max_segment=left,
        )

    async def replace(self, segments: Mapping[str, bytes]) -> None:
        """Give completed segments other data, all or none: how they are marked truncated. By name.

        Raises `NoSuchRecord` if one was removed meanwhile: then look at a new list.
        """
        changes: list[Operation] = []
        for name, data in segments.items():
            path = self._paths.segment(name)
            changes += [Delete(path, ANY), Create(path, data)]
        await self._tree.commit(changes)

    async def remove(self, name: str) -> None:
        """Remove a segment whose ledger is deleted; one that is gone is fine."""
        try:
            await self._tree.delete(self._paths.segment(name))
        except NoSuchRecord:
            return
