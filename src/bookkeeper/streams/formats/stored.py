"""What is in an entry, in columns: a record is made an object only when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, repeat
from typing import Any, NamedTuple, overload


class StoredRecord(NamedTuple):
    """A record of an entry. Payloads of a record set are records of their own here."""

    slot: int
    flags: int
    position: int
    txid: int
    payload: bytes


_stored: Callable[[Iterable[Any]], StoredRecord] = partial(tuple.__new__, StoredRecord)
"""Makes one from its fields, much faster than by a call of the class."""


class StoredRecords(Sequence[StoredRecord]):
    """Records of an entry, in order. All columns are of one length."""

    __slots__ = ("flags", "payloads", "positions", "slots", "txids")

    def __init__(
        self,
        slots: Sequence[int],
        flags: Sequence[int] | None,
        positions: Sequence[int],
        txids: Sequence[int],
        payloads: Sequence[bytes],
    ) -> None:
        self.slots = slots
        self.flags = flags
        """None: no record has any."""
        self.positions = positions
        self.txids = txids
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[StoredRecord]:
        flags = repeat(0) if self.flags is None else self.flags
        return map(_stored, zip(self.slots, flags, self.positions, self.txids, self.payloads, strict=False))

    @overload
    def __getitem__(self, index: int) -> StoredRecord: ...
    @overload
    def __getitem__(self, index: slice) -> StoredRecords: ...
    def __getitem__(self, index: int | slice) -> StoredRecord | StoredRecords:
        flags: Any = None if self.flags is None else self.flags[index]
        columns = (self.positions[index], self.txids[index], self.payloads[index])
        if isinstance(index, slice):
            return StoredRecords(self.slots[index], flags, *columns)  # type: ignore[arg-type]
        return _stored((self.slots[index], flags or 0, *columns))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StoredRecords({list(self)})"

    def where(self, wanted: Iterable[bool]) -> StoredRecords:
        """Those for which it is true."""
        chosen = list(wanted)
        return StoredRecords(
            list(compress(self.slots, chosen)),
            None if self.flags is None else list(compress(self.flags, chosen)),
            list(compress(self.positions, chosen)),
            list(compress(self.txids, chosen)),
            list(compress(self.payloads, chosen)),
        )

    def users(self, slot: int = 0, txid: int = -1) -> StoredRecords:
        """Those of users, from a slot on and with no lower transaction id."""
        if self.flags is not None:
            some = self.where(not flags for flags in self.flags)
            return StoredRecords(some.slots, None, some.positions, some.txids, some.payloads).users(slot, txid)
        if not self.payloads or (slot <= self.slots[0] and txid <= self.txids[0]):
            return self
        return self.where(at >= slot and each >= txid for at, each in zip(self.slots, self.txids, strict=True))

    def not_below(self, txid: int) -> StoredRecords:
        """With this transaction id in place of lower ones."""
        return StoredRecords(
            self.slots, self.flags, self.positions, [max(each, txid) for each in self.txids], self.payloads
        )
