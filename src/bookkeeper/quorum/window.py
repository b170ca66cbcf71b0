"""The writer's window: every entry that was sent and not yet answered by all of its bookies.

It is the one register of what is outstanding at each ensemble index. Nothing else remembers a request: late errors,
time-outs, the loss of a connection and an ensemble change are all turned into entries here.

Life of an entry (spec client §5.3 to §5.5)

    push      it has an id, a size and its frame; it is *pending* and *open* at each index of its write set
    ack       an index stored it: no longer open there
    fail      an index refused it, or will not answer: still open there, and *failed*
    complete  open at no more than Wq - Aq indexes
    confirm   complete, and so are all before it: no longer pending; `head` moves, and with it the LAC
    settled   confirmed, and every index has answered: forgotten

An entry can be complete long before it is confirmed, and an ensemble change may take the completeness back (`revoke`):
an ack of a bookie that left the ensemble counts for nothing, because a recovering client will not look there.
A confirmed entry is never taken back.

Ids normally count up from 0. An advanced writer chooses them; then there may be gaps, and an entry behind a gap stays
pending until the gap is filled.

The per-entry state is one int (the open mask) and one tuple, in dicts that keep the order of sending: pushing an
entry and taking its three acks costs about one microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from ..errors import DuplicateEntryIdError, IncorrectParameterError
from .coverage import OK
from .distribution import Distribution

SHOWN = 20
"""Entries that `str` of a window shows; of the others it gives the number."""


class PendingWindow:
    """See the module. Indexes are ensemble indexes; masks have bit `i` for index `i`; times are the caller's clock."""

    __slots__ = (
        "_deferred_sync",
        "_ensemble_size",
        "_failed",
        "_held",
        "_masks",
        "_slack",
        "accept",
        "acked_times",
        "head",
        "lac",
        "lap",
        "length",
        "now",
        "open",
        "unsettled_bytes",
    )

    def __init__(
        self,
        distribution: Distribution,
        *,
        last_entry_id: int = -1,
        length: int = 0,
        deferred_sync: bool = False,
    ) -> None:
        """`last_entry_id` and `length`: where writing begins, as a recovering client found it."""
        self._ensemble_size = distribution.ensemble_size
        self._masks = distribution.masks
        self._slack = distribution.write_quorum - distribution.ack_quorum
        self._deferred_sync = deferred_sync
        self.open: dict[int, int] = {}
        """Unsettled id -> mask of the indexes of its write set that have not acked; in order of sending. Read only."""
        self._failed: dict[int, int] = {}  # id -> mask, not 0, within the open mask; only ids with a failure
        self._held: dict[int, tuple[int, float, bytes]] = {}  # same keys as open: payload size, time sent, frame
        self.acked_times = [float("-inf")] * distribution.ensemble_size
        """By index: when the latest of the entries was pushed that it acked since it was last sent entries again.
        Entries are sent in order, so one pushed before that and not answered was overtaken. Read only."""
        self.accept: Callable[[int], bool] | None = None
        """A further condition on the mask of acks before an entry is complete (fault domains)."""
        self.now = 0.0
        """Time given to entries pushed from here on. Set by the caller, from its clock; never decreases."""
        self.lap = last_entry_id
        """Last add pushed: the highest id given out. >= head."""
        self.head = last_entry_id
        """Everything up to here is confirmed."""
        self.lac = last_entry_id
        """Last add confirmed: `head`, except that with DEFERRED_SYNC only `force` moves it. <= head."""
        self.length = length
        """Payload bytes of the ledger, pending entries included."""
        self.unsettled_bytes = 0
        """Bytes of the frames of unsettled entries."""

    @property
    def pending(self) -> list[int]:
        """Ids not confirmed, ascending."""
        if self.lap == self.head:
            return []
        return sorted(entry_id for entry_id in self.open if entry_id > self.head)

    def frame(self, entry_id: int) -> bytes:
        """The frame of an unsettled entry."""
        return self._held[entry_id][2]

    # --- sending ---

    def check_id(self, entry_id: int) -> int:
        """For an advanced writer: 0 if the id may be pushed, else the error code."""
        if entry_id < 0:
            return IncorrectParameterError.code
        if entry_id <= self.head or entry_id in self.open:
            return DuplicateEntryIdError.code
        return OK

    def push(self, entry_id: int, size: int, frame: bytes) -> None:
        """Take in an entry of `size` payload bytes that is now sent to its write set.

        `entry_id` is `lap + 1`, or for an advanced writer one that `check_id` allows.
        """
        assert entry_id > self.head, self
        assert entry_id not in self.open, self
        if entry_id > self.lap:
            self.lap = entry_id
        self.length += size
        self.unsettled_bytes += len(frame)
        self.open[entry_id] = self._masks[entry_id % self._ensemble_size]
        self._held[entry_id] = (size, self.now, frame)

    # --- answers ---

    def ack(self, index: int, entry_ids: Sequence[int]) -> bool:
        """The bookie at `index` has stored these entries. Unknown and repeated ids are ignored.

        Returns whether the first pending entry has its acks now, and `confirm` may be worth a call.
        """
        bit = 1 << index
        if self._failed:
            self._forget_failures(bit, entry_ids)
        elif len(entry_ids) == 1:
            return self._ack_one(index, entry_ids[0])
        head = self.head
        open_masks = self.open
        held = self._held
        latest = held.get(entry_ids[-1]) if entry_ids else None
        if latest is not None and latest[1] > self.acked_times[index]:
            self.acked_times[index] = latest[1]
        freed = 0
        for entry_id in entry_ids:
            mask = open_masks.get(entry_id, 0)
            if mask & bit:
                if mask == bit and entry_id <= head:
                    del open_masks[entry_id]
                    freed += len(held.pop(entry_id)[2])
                else:
                    open_masks[entry_id] = mask ^ bit
        self.unsettled_bytes -= freed
        if self._failed:
            self._settle_answered(entry_ids)
        mask = open_masks.get(head + 1, -1)
        return mask >= 0 and mask.bit_count() <= self._slack

    def _ack_one(self, index: int, entry_id: int) -> bool:
        """`ack` of one entry while none has failed: where many ledgers are written nearly all are such."""
        open_masks = self.open
        mask = open_masks.get(entry_id, 0)
        bit = 1 << index
        if mask:
            _, pushed, frame = self._held[entry_id]
            if pushed > self.acked_times[index]:
                self.acked_times[index] = pushed
            if mask == bit and entry_id <= self.head:
                del open_masks[entry_id], self._held[entry_id]
                self.unsettled_bytes -= len(frame)
            elif mask & bit:
                open_masks[entry_id] = mask ^ bit
        mask = open_masks.get(self.head + 1, -1)
        return mask >= 0 and mask.bit_count() <= self._slack

    def _forget_failures(self, bit: int, entry_ids: Iterable[int]) -> None:
        """An ack that comes after a failure (time-out, second sending) is worth as much as any."""
        failed = self._failed
        for entry_id in entry_ids:
            mask = failed.get(entry_id, 0)
            if mask & bit:
                if mask == bit:
                    del failed[entry_id]
                else:
                    failed[entry_id] = mask ^ bit

    def _settle_answered(self, entry_ids: Iterable[int]) -> None:
        for entry_id in entry_ids:
            if entry_id <= self.head and entry_id in self.open and self._answered(entry_id):
                self._settle(entry_id)

    def _answered(self, entry_id: int) -> bool:
        return self.open[entry_id] == self._failed.get(entry_id, 0)

    def _settle(self, entry_id: int) -> None:
        del self.open[entry_id]
        self._failed.pop(entry_id, None)
        self.unsettled_bytes -= len(self._held.pop(entry_id)[2])

    def confirm(self) -> range:
        """Move `head` over the complete entries that follow it. Returns the ids newly confirmed.

        Not to be called while an ensemble change is under way: what is confirmed then might be taken back by it.
        """
        first = self.head + 1
        open_masks = self.open
        slack = self._slack
        entry_id = first
        plain = self.accept is None and not self._failed
        freed = 0
        while True:
            mask = open_masks.get(entry_id, -1)
            if mask < 0 or mask.bit_count() > slack:
                break
            if not mask:
                del open_masks[entry_id]
                freed += len(self._held.pop(entry_id)[2])
            elif not plain:
                if not self._complete(entry_id, mask):
                    break
                if self._answered(entry_id):
                    self._settle(entry_id)
            entry_id += 1
        self.unsettled_bytes -= freed
        self._advance(entry_id - 1)
        return range(first, entry_id)

    def _advance(self, head: int) -> None:
        assert self.head <= head <= self.lap, f"head {head}: {self}"
        self.head = head
        if not self._deferred_sync and head > self.lac:
            self.lac = head

    def _complete(self, entry_id: int, mask: int) -> bool:
        """Whether an entry with this open mask has its ack quorum."""
        if mask.bit_count() > self._slack:
            return False
        return self.accept is None or self.accept(self._masks[entry_id % self._ensemble_size] & ~mask)

    def synced(self, entry_id: int) -> None:
        """`force` made everything up to `entry_id` durable: move the LAC of a DEFERRED_SYNC writer."""
        assert entry_id <= self.head, f"synced {entry_id}: {self}"
        if entry_id > self.lac:
            self.lac = entry_id

    # --- failures ---

    def fail(self, index: int, entry_ids: Iterable[int]) -> tuple[int, list[int]]:
        """The bookie at `index` refused these entries, or will not answer.

        Returns how many of them were open there and not failed before, and those of these that are not complete.
        Acked, unknown and settled ids are ignored.
        """
        bit = 1 << index
        marked = 0
        incomplete = []
        for entry_id in entry_ids:
            mask = self.open.get(entry_id, 0)
            failed = self._failed.get(entry_id, 0)
            if not mask & bit or failed & bit:
                continue
            marked += 1
            self._failed[entry_id] = failed | bit
            if entry_id <= self.head:
                if self._answered(entry_id):
                    self._settle(entry_id)
            elif not self._complete(entry_id, mask):
                incomplete.append(entry_id)
        return marked, incomplete

    def unanswered(self, index: int) -> list[int]:
        """Ids that `index` has neither acked nor failed, in order of sending."""
        bit = 1 << index
        failed = self._failed
        return [e for e, mask in self.open.items() if mask & bit and not failed.get(e, 0) & bit]

    def unanswered_before(self, index: int, time: float) -> list[int]:
        """Those of `unanswered(index)` that were pushed before a time."""
        bit = 1 << index
        failed = self._failed
        found = []
        for entry_id, (_, pushed, _) in self._held.items():
            if pushed >= time:
                break
            if self.open[entry_id] & bit and not failed.get(entry_id, 0) & bit:
                found.append(entry_id)
        return found

    def any_before(self, time: float) -> bool:
        """Whether an unsettled entry was pushed before a time."""
        for _, pushed, _ in self._held.values():
            return pushed < time  # in order of sending
        return False

    def overdue(self, sent_before: float) -> int | None:
        """A pending entry, first sent at or before a time, that is not complete; None if there is none."""
        for entry_id, (_, sent, _) in self._held.items():
            if sent > sent_before:
                return None
            if entry_id > self.head and not self._complete(entry_id, self.open[entry_id]):
                return entry_id
        return None

    def failed_indexes(self, entry_id: int) -> list[int]:
        """Indexes that failed an entry."""
        mask = self._failed.get(entry_id, 0)
        return [i for i in range(self._ensemble_size) if mask >> i & 1]

    def hopeless(self, entry_id: int) -> bool:
        """Whether so many indexes failed an entry that the others cannot make its ack quorum."""
        return self._failed.get(entry_id, 0).bit_count() > self._slack

    # --- ensemble changes ---

    def revoke(self, indexes: Iterable[int]) -> None:
        """The bookies at these indexes were replaced: their acks of pending entries no longer count, and what confirmed
        entries still waited for from them will not come."""
        gone = 0
        for index in indexes:
            gone |= 1 << index
        for entry_id, mask in list(self.open.items()):
            here = gone & self._masks[entry_id % self._ensemble_size]
            if not here:
                continue
            if entry_id > self.head:
                self.open[entry_id] = mask | here
                self._unmark_failed(entry_id, here)
            elif mask & here:
                self._failed[entry_id] = self._failed.get(entry_id, 0) | mask & here
                if self._answered(entry_id):
                    self._settle(entry_id)

    def resend(self, index: int) -> list[int]:
        """Entries to send again to `index`, in their order: the pending ones it has not acked, and the confirmed ones
        it has not answered."""
        bit = 1 << index
        self.acked_times[index] = float("-inf")
        found = []
        for entry_id, mask in self.open.items():
            if not mask & bit:
                continue
            if entry_id > self.head:
                self._unmark_failed(entry_id, bit)
            elif self._failed.get(entry_id, 0) & bit:
                continue
            found.append(entry_id)
        return found

    def _unmark_failed(self, entry_id: int, bits: int) -> None:
        mask = self._failed.get(entry_id, 0) & ~bits
        if mask:
            self._failed[entry_id] = mask
        else:
            self._failed.pop(entry_id, None)

    # --- the end ---

    def shrink(self) -> None:
        """Give back the room of all the entries that there once were. Only when none is unsettled."""
        assert not self.open, self
        self.open, self._held, self._failed = {}, {}, {}

    def drain(self) -> list[int]:
        """Give up all pending entries. Returns their ids, ascending; the length no longer contains them."""
        ids = self.pending
        for entry_id in ids:
            self.length -= self._held[entry_id][0]
            self._settle(entry_id)
        self.lap = self.head
        return ids

    # --- for checks and reports ---

    def acked(self, entry_id: int) -> list[int]:
        """Indexes that acked an unsettled entry."""
        mask = self._masks[entry_id % self._ensemble_size] & ~self.open[entry_id]
        return [i for i in range(self._ensemble_size) if mask >> i & 1]

    def __str__(self) -> str:
        """On one line, such as `lac=7 head=9 lap=12 length=130 open=[9:aa. 10:a.f 12:-..]`.

        An entry has a letter for each index: acked, failed, still awaited (`.`), not in the write set (`-`).
        """
        shown = [f"{entry_id}:{self._answers(entry_id)}" for entry_id in islice(self.open, SHOWN)]
        if len(self.open) > SHOWN:
            shown.append(f"and {len(self.open) - SHOWN} more")
        return f"lac={self.lac} head={self.head} lap={self.lap} length={self.length} open=[{' '.join(shown)}]"

    def _answers(self, entry_id: int) -> str:
        write_set = self._masks[entry_id % self._ensemble_size]
        open_mask, failed = self.open[entry_id], self._failed.get(entry_id, 0)
        return "".join(
            "-" if not write_set >> i & 1 else "f" if failed >> i & 1 else "." if open_mask >> i & 1 else "a"
            for i in range(self._ensemble_size)
        )

    def check(self) -> None:
        """The relations that hold between any two calls. For tests: raises `AssertionError`."""
        assert self.lac <= self.head <= self.lap, f"lac <= head <= lap: {self}"
        assert self._deferred_sync or self.lac == self.head, f"the LAC follows the head: {self}"
        assert list(self.open) == list(self._held), f"what is open has a frame: {self}"
        assert self.unsettled_bytes == sum(len(frame) for _, _, frame in self._held.values()), f"bytes: {self}"
        times = [time for _, time, _ in self._held.values()]
        assert times == sorted(times), f"times in order of sending: {self}"
        assert all(time <= self.now for time in (*times, *self.acked_times)), f"nothing is of the future: {self}"
        for entry_id, mask in self.open.items():
            assert entry_id <= self.lap, f"{entry_id} was pushed: {self}"
            write_set = self._masks[entry_id % self._ensemble_size]
            assert mask & ~write_set == 0, f"{entry_id} is open inside its write set: {self}"
            settled = entry_id <= self.head and self._answered(entry_id)
            assert not settled, f"{entry_id} is settled and not forgotten: {self}"
        for entry_id, mask in self._failed.items():
            assert mask, f"{entry_id} has failed somewhere: {self}"
            assert mask & ~self.open.get(entry_id, 0) == 0, f"{entry_id} failed where it is open: {self}"
