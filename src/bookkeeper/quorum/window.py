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

Bookies answer in order, as a rule. As long as they do one number for each index says what it has acked (`_acked_to`):
an ack is compared with it, and an entry is touched twice, when it is pushed and when it is settled. Where one entry
after the other is stored by all at once, as in a ledger among thousands, one number for all says it (`_settled_to`),
and there is less to look at (`confirm_next`).
What does not fit (an ack out of order, a failure, an ensemble change, ids chosen by the caller, entries of which an
index gets some only) has the window keep a mask for each entry (`_masks`), until all is in order again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Protocol

from ..errors import DuplicateEntryIdError, IncorrectParameterError
from .coverage import OK
from .distribution import Distribution

SHOWN = 20
"""Entries that `str` of a window shows; of the others it gives the number."""

_OUT_OF_ORDER = -(1 << 64)
"""In `_acked_to` and `_settled_to` while there are masks: no id follows it."""


class Waiter(Protocol):
    """Who waits for an entry, such as a future."""

    def done(self) -> bool:
        """It waits no more."""

    def set_result(self, entry_id: int, /) -> None:
        """Its entry is confirmed. Must not call the window."""


class PendingWindow:
    """See the module. Indexes are ensemble indexes; masks have bit `i` for index `i`; times are the caller's clock."""

    __slots__ = (
        "_acked_to", "_deferred_sync", "_ensemble_size", "_failed", "_masks", "_next_look", "_quorum_at",
        "_settled_time", "_settled_to", "_slack", "_times", "_write_masks", "accept", "head", "lac", "lap", "length",
        "now", "open", "unsettled_bytes",
    )  # fmt: skip

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
        self._write_masks = distribution.masks
        self._slack = distribution.write_quorum - distribution.ack_quorum
        self._quorum_at = distribution.ensemble_size - distribution.ack_quorum  # in a sorted `_acked_to`
        self._deferred_sync = deferred_sync
        self.open: dict[int, tuple[int, float, bytes, Waiter | None]] = {}
        """Unsettled id -> payload size, time sent, frame, who waits; in order of sending. Read only."""
        self._acked_to = [last_entry_id] * distribution.ensemble_size
        """While answers come in order, by index: it has acked this entry and all before it; where this is less than
        `_settled_to`, everything up to there."""
        self._settled_to = last_entry_id  # while they do: everything up to here is settled
        self._masks: dict[int, int] | None = None
        """Else, unsettled id -> mask of the indexes of its write set that have not acked."""
        self._failed: dict[int, int] = {}  # id -> mask, not 0, within its mask; only ids with a failure
        self._times = [float("-inf")] * distribution.ensemble_size  # `acked_times` when there last were masks
        self._settled_time = float("-inf")  # and of those settled in order since
        self._next_look = 0  # acks until it is looked whether all is in order
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
        if distribution.write_quorum < distribution.ensemble_size:
            self._by_masks()

    @property
    def pending(self) -> list[int]:
        """Ids not confirmed, ascending."""
        if self.lap == self.head:
            return []
        return sorted(entry_id for entry_id in self.open if entry_id > self.head)

    @property
    def acked_times(self) -> list[float]:
        """By index: when the latest of the entries was pushed that it acked since it was last sent entries again.
        Entries are sent in order, so one pushed before that and not answered was overtaken."""
        if self._masks is not None:
            return list(self._times)
        latest = map(self.open.get, self._acked_to)
        settled = self._settled_time
        return [
            max(before, settled) if sent is None else sent[1] for before, sent in zip(self._times, latest, strict=True)
        ]

    def frame(self, entry_id: int) -> bytes:
        """The frame of an unsettled entry."""
        return self.open[entry_id][2]

    # --- in order, or not ---

    def _by_masks(self) -> dict[int, int]:
        """The masks; they are kept from here on."""
        if self._masks is None:
            self._times, self._settled_time = self.acked_times, float("-inf")
            self._masks = {entry_id: self._mask(entry_id) for entry_id in self.open}
            self._acked_to = [_OUT_OF_ORDER] * self._ensemble_size
            self._settled_to = _OUT_OF_ORDER
            self._next_look = 2 * len(self.open)
        return self._masks

    def _mask(self, entry_id: int) -> int:
        """Which indexes of an unsettled entry's write set have not acked it."""
        if self._masks is not None:
            return self._masks.get(entry_id, 0)
        return sum(1 << index for index, last in enumerate(self._acked_to) if last < entry_id)

    def _look_for_order(self, acks: int) -> None:
        """So many acks came: forget the masks, if there is nothing that only they can tell."""
        self._next_look -= acks
        masks = self._masks
        striped = self._write_masks[0] != (1 << self._ensemble_size) - 1
        if striped or masks is None or self._failed or (self.open and self._next_look > 0):
            return
        self._next_look = 2 * len(self.open)
        first = self.lap + 1 - len(self.open)
        if first > self.head + 1 or [*self.open] != [*range(first, self.lap + 1)]:
            return  # something is missing still
        acked_to = [self.lap] * self._ensemble_size
        before = 0
        for entry_id in range(first, self.lap + 1):
            mask = masks[entry_id]
            if before & ~mask:
                return
            for index in range(self._ensemble_size) if mask != before else ():
                if (mask & ~before) >> index & 1:
                    acked_to[index] = entry_id - 1
            before = mask
        self._masks, self._acked_to, self._settled_to = None, acked_to, first - 1

    # --- sending ---

    def check_id(self, entry_id: int) -> int:
        """For an advanced writer: 0 if the id may be pushed, else the error code."""
        if entry_id < 0:
            return IncorrectParameterError.code
        if entry_id <= self.head or entry_id in self.open:
            return DuplicateEntryIdError.code
        return OK

    def push(self, entry_id: int, size: int, frame: bytes, waiter: Waiter | None = None) -> None:
        """Take in an entry of `size` payload bytes that is now sent to its write set.

        `entry_id` is `lap + 1`, or for an advanced writer one that `check_id` allows. `waiter` is told when the entry
        is confirmed.
        """
        if entry_id == self.lap + 1 and self._masks is None:
            self.lap = entry_id
        else:
            self._push_by_masks(entry_id)
        self.length += size
        self.unsettled_bytes += len(frame)
        self.open[entry_id] = (size, self.now, frame, waiter)

    def _push_by_masks(self, entry_id: int) -> None:
        assert entry_id > self.head, self
        assert entry_id not in self.open, self
        self._by_masks()[entry_id] = self._write_masks[entry_id % self._ensemble_size]
        self.lap = max(self.lap, entry_id)

    # --- answers ---

    def ack(self, index: int, entry_ids: Sequence[int]) -> bool:
        """The bookie at `index` has stored these entries. Unknown and repeated ids are ignored.

        Returns whether the first pending entry has its acks now, and `confirm` may be worth a call.
        """
        if self._masks is not None or not entry_ids:
            return self._ack_by_masks(index, entry_ids)
        first, last = max(self._acked_to[index], self._settled_to) + 1, entry_ids[-1]
        if last <= self.lap and first == entry_ids[0] and (first == last or [*entry_ids] == [*range(first, last + 1)]):
            return self._ack_to(index, last)
        if all(entry_id < first or entry_id > self.lap for entry_id in entry_ids):
            return self._first_is_complete()
        return self._ack_by_masks(index, entry_ids)

    def ack_one(self, index: int, entry_id: int) -> bool:
        """`ack` of one entry: where many ledgers are written nearly all are such."""
        acked_to = self._acked_to
        before, settled = acked_to[index], self._settled_to
        if entry_id != (before if before > settled else settled) + 1 or entry_id > self.lap:
            return self.ack(index, (entry_id,))
        acked_to[index] = entry_id
        head = self.head
        if entry_id <= head:
            if (least := min(acked_to)) > settled:
                self._settle_to(least)
            return False
        missing = self._slack
        for last in acked_to:
            if last <= head:
                missing -= 1
        return missing >= 0

    def ack_by(self, indexes: Sequence[int], entry_ids: Sequence[int]) -> bool:
        """`ack` of each of these indexes in turn."""
        single = len(entry_ids) == 1
        ready = False
        for index in indexes:
            if self.ack_one(index, entry_ids[0]) if single else self.ack(index, entry_ids):
                ready = True
        return ready

    def confirm_next(self, entry_id: int) -> bool:
        """`ack_by` all and `confirm` of this entry, where all is in order and it is the next one: all before are
        settled. Else False is returned, and nothing has happened."""
        head = self.head
        if entry_id != head + 1 or head != self._settled_to or entry_id > self.lap or self.accept is not None:
            return False
        self.head = self._settled_to = entry_id
        if not self._deferred_sync:
            self.lac = entry_id
        _, self._settled_time, frame, waiter = self.open.pop(entry_id)
        self.unsettled_bytes -= len(frame)
        if waiter is not None and not waiter.done():
            waiter.set_result(entry_id)
        return True

    def confirm_row(self, entry_ids: Sequence[int]) -> bool:
        """`confirm_next` of each of these, one at least; of all or of none."""
        head, last = self.head, entry_ids[-1]
        if entry_ids[0] != head + 1 or head != self._settled_to or last > self.lap or self.accept is not None:
            return False
        if [*entry_ids] != [*range(head + 1, last + 1)]:
            return False
        self._advance(last)
        self._settled_to = last
        take = self.open.pop
        freed = 0
        for entry_id in entry_ids:
            _, pushed, frame, waiter = take(entry_id)
            freed += len(frame)
            if waiter is not None and not waiter.done():
                waiter.set_result(entry_id)
        self._settled_time = pushed
        self.unsettled_bytes -= freed
        return True

    def _ack_to(self, index: int, last: int) -> bool:
        """In order, up to `last`."""
        acked_to = self._acked_to
        acked_to[index] = last
        ordered = sorted(acked_to)
        self._settle_to(ordered[0])
        return ordered[self._quorum_at] > self.head

    def _settle_to(self, last: int) -> None:
        """In order: all have acked everything up to `last`; forget what is confirmed of it."""
        last = min(last, self.head)
        if last <= self._settled_to:
            return
        take = self.open.pop
        _, pushed, frame, _ = take(last)
        freed = len(frame)
        for entry_id in range(self._settled_to + 1, last):
            freed += len(take(entry_id)[2])
        self._settled_time = pushed
        self._settled_to = last
        self.unsettled_bytes -= freed

    def _first_is_complete(self) -> bool:
        """Whether the first pending entry has its acks."""
        if self._masks is None:
            return sorted(self._acked_to)[self._quorum_at] > self.head
        mask = self._masks.get(self.head + 1, -1)
        return mask >= 0 and mask.bit_count() <= self._slack

    def _ack_by_masks(self, index: int, entry_ids: Sequence[int]) -> bool:
        masks = self._by_masks()
        bit = 1 << index
        if self._failed:
            self._forget_failures(bit, entry_ids)
        head = self.head
        latest = self.open.get(entry_ids[-1]) if entry_ids else None
        if latest is not None and latest[1] > self._times[index]:
            self._times[index] = latest[1]
        freed = 0
        for entry_id in entry_ids:
            mask = masks.get(entry_id, 0)
            if mask & bit:
                if mask == bit and entry_id <= head:
                    del masks[entry_id]
                    freed += len(self.open.pop(entry_id)[2])
                else:
                    masks[entry_id] = mask ^ bit
        self.unsettled_bytes -= freed
        if self._failed:
            self._settle_answered(entry_ids)
        self._look_for_order(len(entry_ids))
        return self._first_is_complete()

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
        return self._mask(entry_id) == self._failed.get(entry_id, 0)

    def _settle(self, entry_id: int) -> None:
        del self._by_masks()[entry_id]
        self._failed.pop(entry_id, None)
        self.unsettled_bytes -= len(self.open.pop(entry_id)[2])

    def confirm(self) -> range:
        """Move `head` over the complete entries that follow it, and tell who waits. Returns the ids newly confirmed.

        Not to be called while an ensemble change is under way: what is confirmed then might be taken back by it.
        """
        first = self.head + 1
        if self._masks is None and self.accept is None:
            ordered = sorted(self._acked_to)
            head = ordered[self._quorum_at]
            if head >= first:
                self._advance(head)
                self._tell(first, head)
                if ordered[0] > self._settled_to:
                    self._settle_to(ordered[0])
        else:
            head = self._confirmed_by_masks(self._by_masks())
            if head >= first:
                self._advance(head)
                self._tell(first, head)
                self._settle_confirmed(first, head)
        return range(first, self.head + 1)

    def _confirmed_by_masks(self, masks: dict[int, int]) -> int:
        """The last of the complete entries that follow the head."""
        slack = self._slack
        entry_id = self.head + 1
        while (mask := masks.get(entry_id, -1)) >= 0 and mask.bit_count() <= slack:
            if self.accept is not None and not self._complete(entry_id, mask):
                break
            entry_id += 1
        return entry_id - 1

    def _settle_confirmed(self, first: int, head: int) -> None:
        """By masks: forget those of these entries, just confirmed, that all have answered."""
        masks = self._by_masks()
        failed = self._failed
        freed = 0
        for entry_id in range(first, head + 1):
            mask = masks[entry_id]
            if not mask:
                del masks[entry_id]
                freed += len(self.open.pop(entry_id)[2])
            elif failed and mask == failed.get(entry_id, 0):
                self._settle(entry_id)
        self.unsettled_bytes -= freed

    def _tell(self, first: int, last: int) -> None:
        """Those who wait for these entries, which are confirmed."""
        entries = self.open
        for entry_id in range(first, last + 1):
            waiter = entries[entry_id][3]
            if waiter is not None and not waiter.done():
                waiter.set_result(entry_id)

    def _advance(self, head: int) -> None:
        assert self.head <= head <= self.lap, f"head {head}: {self}"
        self.head = head
        if not self._deferred_sync and head > self.lac:
            self.lac = head

    def _complete(self, entry_id: int, mask: int) -> bool:
        """Whether an entry with this open mask has its ack quorum."""
        if mask.bit_count() > self._slack:
            return False
        return self.accept is None or self.accept(self._write_masks[entry_id % self._ensemble_size] & ~mask)

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
        masks = self._by_masks()
        bit = 1 << index
        marked = 0
        incomplete = []
        for entry_id in entry_ids:
            mask = masks.get(entry_id, 0)
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
        return [e for e in self.open if self._mask(e) & bit and not failed.get(e, 0) & bit]

    def unanswered_before(self, index: int, time: float) -> list[int]:
        """Those of `unanswered(index)` that were pushed before a time."""
        bit = 1 << index
        failed = self._failed
        found = []
        for entry_id, (_, pushed, _, _) in self.open.items():
            if pushed >= time:
                break
            if self._mask(entry_id) & bit and not failed.get(entry_id, 0) & bit:
                found.append(entry_id)
        return found

    def any_before(self, time: float) -> bool:
        """Whether an unsettled entry was pushed before a time."""
        for _, pushed, _, _ in self.open.values():
            return pushed < time  # in order of sending
        return False

    def overdue(self, sent_before: float) -> int | None:
        """A pending entry, first sent at or before a time, that is not complete; None if there is none."""
        for entry_id, (_, sent, _, _) in self.open.items():
            if sent > sent_before:
                return None
            if entry_id > self.head and not self._complete(entry_id, self._mask(entry_id)):
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
        masks = self._by_masks()
        gone = 0
        for index in indexes:
            gone |= 1 << index
        for entry_id, mask in list(masks.items()):
            here = gone & self._write_masks[entry_id % self._ensemble_size]
            if not here:
                continue
            if entry_id > self.head:
                masks[entry_id] = mask | here
                self._unmark_failed(entry_id, here)
            elif mask & here:
                self._failed[entry_id] = self._failed.get(entry_id, 0) | mask & here
                if self._answered(entry_id):
                    self._settle(entry_id)

    def resend(self, index: int) -> list[int]:
        """Entries to send again to `index`, in their order: the pending ones it has not acked, and the confirmed ones
        it has not answered."""
        masks = self._by_masks()
        bit = 1 << index
        self._times[index] = float("-inf")
        found = []
        for entry_id, mask in masks.items():
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
        self.open, self._failed = {}, {}
        if self._masks is not None:
            self._masks = {}

    def drain(self) -> dict[int, Waiter | None]:
        """Give up all pending entries. Returns their ids, ascending, and who waits; the length no longer contains
        them."""
        given_up = {}
        for entry_id in self.pending:
            size, _, _, given_up[entry_id] = self.open[entry_id]
            self.length -= size
            self._settle(entry_id)
        self.lap = self.head
        return given_up

    # --- for checks and reports ---

    def acked(self, entry_id: int) -> list[int]:
        """Indexes that acked an unsettled entry."""
        mask = self._write_masks[entry_id % self._ensemble_size] & ~self._mask(entry_id)
        return [i for i in range(self._ensemble_size) if mask >> i & 1]

    def __str__(self) -> str:
        """On one line, such as `lac=7 head=9 lap=12 length=130 open=[9:aa. 10:a.f 12:-..]`, with `answers`."""
        shown = [f"{entry_id}:{self.answers(entry_id)}" for entry_id in islice(self.open, SHOWN)]
        if len(self.open) > SHOWN:
            shown.append(f"and {len(self.open) - SHOWN} more")
        return f"lac={self.lac} head={self.head} lap={self.lap} length={self.length} open=[{' '.join(shown)}]"

    def answers(self, entry_id: int) -> str:
        """What each index has to do with an entry: acked (`a`), failed (`f`), still awaited (`.`), not in the write set
        (`-`). An empty string for what is not unsettled."""
        if entry_id not in self.open:
            return ""
        write_set = self._write_masks[entry_id % self._ensemble_size]
        open_mask, failed = self._mask(entry_id), self._failed.get(entry_id, 0)
        return "".join(
            "-" if not write_set >> i & 1 else "f" if failed >> i & 1 else "." if open_mask >> i & 1 else "a"
            for i in range(self._ensemble_size)
        )

    def check(self) -> None:
        """The relations that hold between any two calls. For tests: raises `AssertionError`."""
        assert self.lac <= self.head <= self.lap, f"lac <= head <= lap: {self}"
        assert self._deferred_sync or self.lac == self.head, f"the LAC follows the head: {self}"
        assert self.unsettled_bytes == sum(len(frame) for _, _, frame, _ in self.open.values()), f"bytes: {self}"
        times = [time for _, time, _, _ in self.open.values()]
        assert times == sorted(times), f"times in order of sending: {self}"
        assert all(time <= self.now for time in (*times, *self.acked_times)), f"nothing is of the future: {self}"
        if self._masks is None:
            assert self._settled_to <= self.head, f"what is settled is confirmed: {self}"
            assert [*self.open] == [*range(self._settled_to + 1, self.lap + 1)], f"the others are open: {self}"
            assert not self._failed, f"failures are kept by masks: {self}"
            assert all(last <= self.lap for last in self._acked_to), f"acks of what is open: {self}"
        else:
            assert [*self.open] == [*self._masks], f"each has a mask: {self}"
        for entry_id in self.open:
            mask = self._mask(entry_id)
            assert entry_id <= self.lap, f"{entry_id} was pushed: {self}"
            write_set = self._write_masks[entry_id % self._ensemble_size]
            assert mask & ~write_set == 0, f"{entry_id} is open inside its write set: {self}"
            settled = entry_id <= self.head and self._answered(entry_id)
            assert not settled, f"{entry_id} is settled and not forgotten: {self}"
        for entry_id, mask in self._failed.items():
            assert mask, f"{entry_id} has failed somewhere: {self}"
            assert entry_id in self.open, f"{entry_id} failed where it is open: {self}"
            assert mask & ~self._mask(entry_id) == 0, f"{entry_id} failed where it is open: {self}"
