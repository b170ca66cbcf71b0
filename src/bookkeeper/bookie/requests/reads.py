"""Reads: entries, the last entry, runs of entries, long polls, and what a ledger's LAC and entries are.

Theory of operation (spec bookie-server §2.6 to §2.15, wire-protocol §2.6, §4.2 to §4.10)

A plain read of an entry that is in memory is answered at once, in the turn of the loop that received it. All others
go through the connection's queues (`ledger_queues`), fencing and high-priority ones through queues of their own, so
that recovery does not wait behind a reader that is catching up. For the same reason there are two sets of slots for
reads under way, and an urgent read does not wait for a permit (`maxReadsInProgressLimit`), though it counts.

A connection that has too many requests waiting gets ETOOMANYREQUESTS, whatever others have: how many are too many is
`maxPendingReadRequestsPerThread`, and less when memory gets short (`memory`).

A fencing read first fences, and is queued when the fence is durable. So whatever it finds, also nothing, is
said after that; and it finds every add that was accepted before the fence, as those are in the storage already.

A bookie answers what it has, not what is confirmed: readers keep to the LAC. With each entry a v3 read gets the LAC
that the bookie knows, except in limbo and with a fence.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from struct import Struct
from typing import TypeVar

from ...errors import BookieError, LimboError, NoEntryError, NoLedgerError
from ...protocol import messages as m
from ...protocol import v2, v3
from ...protocol.availability import encode_availability
from ...protocol.messages import V2, Flags, ReadRun, Status
from ...types import LAST_ADD_CONFIRMED
from ..ground import Ground
from ..ledgers import BookieLedger
from ..node.disks import DiskMonitor
from ..sharing.memory import read_slots
from ..sharing.permits import Permits
from ..sharing.shares import Shares
from ..stats import OpStats
from ..storage.api import RUN_READS
from .caller import Caller
from .error_status import READ, status_of
from .fencing import Fences
from .ledger_queues import Work
from .long_poll import LongPolls
from .replies import Reply

ANSWERS_AT_ONCE = 256 * 1024
"""Bytes of answers from memory, after which it is looked whether the peer takes them."""

FENCED_AT_ONCE = 64
"""Reads of durable fences that go on in one turn of the loop."""

RUN_READS_BESIDE_LIGHT = 2
"""Reads of the logs that a batch read may make for a peer that wants much, beside others that want little: they are one
step of its queue (`ledger_queues`), and entries that lie far from each other may take one each."""

_BATCH_FRAME = 36
"""Bytes of a batch read response without entries: length, head, request id."""
_SIZE_WORD = 4
_UNLIMITED = 2**31 - 1
_LARGEST_ID = 2**63 - 1
_DO_FENCING = int(Flags.DO_FENCING)
_PIGGYBACK = int(Flags.ENTRY_PIGGYBACK)
_size = Struct(">i").unpack_from

Q = TypeVar("Q", bound=m.Request)
F = TypeVar("F", m.ReadRequest, m.BatchReadRequest)
Read = Callable[[Caller, Reply[Q]], Awaitable[bytes]]
"""Answers one request; may raise whatever `status.READ` knows."""


class ReadPath:
    """What all reads of a bookie share."""

    def __init__(self, ground: Ground, fences: Fences, disks: DiskMonitor) -> None:
        runtime, config, ledgers = ground.runtime, ground.config, ground.ledgers
        self._runtime = runtime
        self._storage = ground.storage
        self._ledgers = ledgers
        self._fences = fences
        self._disks = disks
        self._stats = ground.stats
        self._max_batch = config.maxBatchReadSize
        self._max_poll_seconds = config.longPollMaxTimeoutMs / 1000
        self._encoder = runtime.workers("list-entries")
        self.permits = Permits(config.maxReadsInProgressLimit)
        """Reads that wait for the disk, a fence or a LAC."""
        slots, urgent_slots = read_slots(runtime, config)
        self.slots = Shares(slots, max(1, slots * 3 // 4))
        """Reads that are under way."""
        self.urgent_slots = Shares(urgent_slots, max(1, urgent_slots * 3 // 4))
        self._fenced: deque[Callable[[], None]] = deque()  # not empty: _go_on_fenced is scheduled
        self.polls = LongPolls(runtime, config)
        ledgers.on_polls_due = self.polls.due

    # --- the ways in -------------------------------------------------------------------------------------

    def read(self, caller: Caller, reply: Reply[m.ReadRequest]) -> bool:
        """A READ_ENTRY of any kind; False if it has to wait for a permit: nothing has happened then."""
        request = reply.request
        if request.flags & _DO_FENCING:
            return self._fence(caller, reply, self._read_fenced)
        if request.previous_lac is not None:
            return self._start(caller, reply, self._long_poll, self._stats.READ_ENTRY_LONG_POLL_REQUEST)
        if self._read_from_memory(caller, reply, request):
            return True
        return self._start(caller, reply, self._read, self._stats.READ_ENTRY)

    def read_from_memory(self, caller: Caller, run: ReadRun) -> int:
        """Answer plain reads from memory; returns how many, from the first on.

        Ends at the first that is not in memory, and when there is much to send.
        """
        if caller.output_full:
            return 0
        lac = None
        if run.version != V2 and (lac := self._lac_in_memory(run.ledger_id)) is None:
            return 0
        cached = self._storage.cached_entry
        ledger_id = run.ledger_id
        entries: list[bytes] = []
        size = 0
        for entry_id in run.entry_ids:
            entry = cached(ledger_id, entry_id)
            if entry is None:
                break
            entries.append(entry)
            size += len(entry)
            if size > ANSWERS_AT_ONCE:
                break
        if entries:
            self._stats.READ_BYTES += size
            self._stats.READ_ENTRY.ok(0.0, len(entries))
            caller.send(_encode(run, entries, lac))
        return len(entries)

    def read_together(self, caller: Caller, run: ReadRun) -> int:
        """Queue plain reads as one piece of work; returns how many: 0, if they must be looked at one by one."""
        count = len(run.entry_ids)
        work = Work(partial(self._answer_together, caller, run, self._runtime.now()), count)
        if (
            count < 2
            or not self.permits.free()
            or not caller.may_ask_more()
            or not caller.queues.submit(run.ledger_id, work)
        ):
            return 0
        caller.requests_wait(count)
        return count

    async def _answer_together(self, caller: Caller, run: ReadRun, started: float) -> Work | None:
        """Answer the reads of a run; returns the rest when the peer does not take its answers."""
        while run.entry_ids:
            if caller.gone:
                return None
            try:
                found = await self._storage.read_some(run.ledger_id, run.entry_ids, ANSWERS_AT_ONCE)
            except Exception as error:
                found = [error]
            good = [place for place, entry in enumerate(found) if isinstance(entry, bytes)]
            if len(good) == len(found):
                await self._send_together(caller, run, found, started)  # type: ignore[arg-type]  # all are bytes
            else:
                self._refuse(caller, run, found, started)
                await self._send_together(caller, run.only(good), [found[place] for place in good], started)  # type: ignore[misc]
            run = run.part(len(found))
            if caller.output_full and run.entry_ids:
                return Work(partial(self._answer_together, caller, run, started), len(run.entry_ids))
        return None

    def _refuse(self, caller: Caller, run: ReadRun, found: Sequence[bytes | Exception], started: float) -> None:
        """Answer those reads of a run that found no entry."""
        for place, error in enumerate(found):
            if isinstance(error, Exception):
                txn_id = v3.txn_id(run.txn_tokens[place]) if run.version != V2 else 0
                request = m.ReadRequest(run.ledger_id, run.entry_ids[place], txn_id=txn_id, version=run.version)
                caller.send(Reply(request, run.version).plain(status_of(error, READ)))
                self._stats.READ_ENTRY.fail(self._runtime.now() - started)

    async def _send_together(self, caller: Caller, run: ReadRun, entries: Sequence[bytes], started: float) -> None:
        if not entries:
            return
        lac = await self._lac(run.ledger_id) if run.version != V2 else None
        self._stats.READ_BYTES += sum(map(len, entries))
        self._stats.READ_ENTRY.ok(self._runtime.now() - started, len(entries))
        answers = _encode(run, entries, lac)
        caller.answer_has(len(answers))
        caller.send(answers)

    def batch_read(self, caller: Caller, reply: Reply[m.BatchReadRequest]) -> bool:
        request = reply.request
        if request.entry_id < 0:
            caller.send(reply.plain(Status.EBADREQ))
            return True
        if request.flags & _DO_FENCING:
            return self._fence(caller, reply, self._batch_read)
        return self._start(caller, reply, self._batch_read, self._stats.READ_ENTRY)

    def read_lac(self, caller: Caller, reply: Reply[m.ReadLacRequest]) -> bool:
        return self._start(caller, reply, self._read_lac, self._stats.READ_LAC)

    def list_entries(self, caller: Caller, reply: Reply[m.GetListOfEntriesRequest]) -> bool:
        return self._start(caller, reply, self._list_entries, self._stats.GET_LIST_OF_ENTRIES_OF_LEDGER)

    def bookie_info(self, caller: Caller, reply: Reply[m.GetBookieInfoRequest]) -> bool:
        return self._start(caller, reply, self._bookie_info, self._stats.GET_BOOKIE_INFO)

    async def close(self) -> None:
        self.polls.close()
        await self._encoder.close()

    # --- admission and queues -------------------------------------------------------------------------------

    def _start(self, caller: Caller, reply: Reply[Q], read: Read[Q], stats: OpStats) -> bool:
        """Queue a request."""
        if not (self.permits.free() or reply.urgent):
            return False
        self._queue(caller, reply, read, stats)
        return True

    def _queue(self, caller: Caller, reply: Reply[Q], read: Read[Q], stats: OpStats) -> None:
        if caller.gone:
            return
        queues = caller.urgent_queues if reply.urgent else caller.queues
        work = Work(partial(self._answer, caller, reply, read, stats, self._runtime.now()))
        caller.requests_wait(1)
        busy = not caller.may_ask_more() or self._runtime.buggify("read refused", 0.01)
        if busy or not queues.submit(getattr(reply.request, "ledger_id", -1), work):
            caller.requests_ended(1)
            self._stats.READ_ENTRY_REJECTED += 1
            caller.send(reply.plain(Status.ETOOMANYREQUESTS))

    async def _answer(self, caller: Caller, reply: Reply[Q], read: Read[Q], stats: OpStats, started: float) -> None:
        """Run `read` and send what comes of it."""
        if caller.gone:
            return
        try:
            answer = await read(caller, reply)
        except Exception as error:
            answer = reply.plain(status_of(error, READ))
            stats.fail(self._runtime.now() - started)
        else:
            stats.ok(self._runtime.now() - started)
        if answer:
            caller.answer_has(len(answer))
            caller.send(answer)

    def _fence(self, caller: Caller, reply: Reply[F], read: Read[F]) -> bool:
        """Fence; once that is durable, read."""
        request = reply.request
        stats = self._stats.READ_ENTRY_FENCE_REQUEST
        if request.ledger_id < 0 or request.master_key is None:
            stats.fail()
            caller.send(reply.plain(Status.EBADREQ if request.ledger_id < 0 else Status.EUA))
            return True
        if not caller.may_use_journal:
            caller.send(reply.plain(Status.ETOOMANYREQUESTS))
            return True

        def go_on() -> None:
            caller.journal_has_it()
            self._queue(caller, reply, read, stats)

        def durable() -> None:
            self._fenced.append(go_on)
            if len(self._fenced) == 1:
                asyncio.get_running_loop().call_soon(self._go_on_fenced)

        caller.waits_for_journal()
        try:
            self._fences.fence(request.ledger_id, request.master_key, durable)
        except Exception as error:
            caller.journal_has_it()
            stats.fail()
            caller.send(reply.plain(status_of(error, READ)))
        return True

    def _go_on_fenced(self) -> None:
        """Queue the reads of fences that have become durable, of which the journal may tell thousands together."""
        try:
            for _ in range(min(len(self._fenced), FENCED_AT_ONCE)):
                self._fenced.popleft()()
        finally:
            if self._fenced:
                asyncio.get_running_loop().call_soon(self._go_on_fenced)

    # --- entries -------------------------------------------------------------------------------------------

    def _read_from_memory(self, caller: Caller, reply: Reply[m.ReadRequest], request: m.ReadRequest) -> bool:
        """Answer at once what is in memory, unless the peer does not take its answers."""
        ledger_id = request.ledger_id
        entry_id = request.entry_id
        if entry_id < 0 or caller.output_full:
            return False
        entry = self._storage.cached_entry(ledger_id, entry_id)
        if entry is None:
            return False
        lac = None
        if reply.protocol != V2 and (lac := self._lac_in_memory(ledger_id)) is None:
            return False
        self._stats.READ_BYTES += len(entry)
        self._stats.READ_ENTRY.ok(0.0)
        caller.send(self._entry(reply, request, entry, lac))
        return True

    def _lac_in_memory(self, ledger_id: int) -> int | None:
        """The LAC that goes with entries of a ledger; None if one would have to wait for it."""
        try:
            handle = self._ledgers.find(ledger_id)
        except NoLedgerError:
            return None
        return handle.lac if handle.lac_known else None

    async def _lac(self, ledger_id: int) -> int | None:
        """The LAC that goes with entries of a ledger, which are there whatever became of it (G7)."""
        try:
            return await self._ledgers.load_lac(self._ledgers.find(ledger_id))
        except (BookieError, OSError):
            return None

    @staticmethod
    def _entry(reply: Reply[m.ReadRequest], request: m.ReadRequest, entry: bytes, lac: int | None) -> bytes:
        return reply.encode(
            m.ReadResponse(
                Status.EOK,
                request.ledger_id,
                request.entry_id,
                entry,
                lac,
                txn_id=request.txn_id,
                version=reply.version,
            )
        )

    async def _read(self, _: Caller, reply: Reply[m.ReadRequest]) -> bytes:
        """A plain read."""
        request = reply.request
        entry = await self._load(request.ledger_id, request.entry_id)
        return self._entry(reply, request, entry, await self._lac(request.ledger_id) if reply.protocol != V2 else None)

    async def _read_fenced(self, _: Caller, reply: Reply[m.ReadRequest]) -> bytes:
        """A fencing read, after its fence."""
        request = reply.request
        return self._entry(reply, request, await self._load(request.ledger_id, request.entry_id), None)

    async def _load(self, ledger_id: int, entry_id: int) -> bytes:
        if entry_id == LAST_ADD_CONFIRMED:
            entry = await self._storage.last_entry(ledger_id)
        elif entry_id < 0:
            raise self._absent(ledger_id, entry_id)
        else:
            cached = self._storage.cached_entry(ledger_id, entry_id)
            entry = cached if cached is not None else await self._storage.read_entry(ledger_id, entry_id)
        self._stats.READ_BYTES += len(entry)
        return entry

    def _absent(self, ledger_id: int, entry_id: int) -> BookieError:
        """Why an id that no entry can have is not there."""
        if not self._storage.ledger_exists(ledger_id):
            return NoLedgerError(f"ledger {ledger_id} is not here")
        if self._storage.is_limbo(ledger_id):
            return LimboError(f"ledger {ledger_id} is in limbo")
        return NoEntryError(f"ledger {ledger_id} has no entry {entry_id}")

    async def _batch_read(self, caller: Caller, reply: Reply[m.BatchReadRequest]) -> bytes:
        request = reply.request
        room = min(request.max_size, self._max_batch) - _BATCH_FRAME
        max_count = request.max_count if request.max_count > 0 else _UNLIMITED
        max_count = 1 if self._runtime.buggify("batch read of one") else max_count
        if request.entry_id == _LARGEST_ID:  # no range of ids can begin there
            entry = await self._load(request.ledger_id, request.entry_id)
            body = len(entry).to_bytes(_SIZE_WORD, "big") + entry
        else:
            reads = RUN_READS_BESIDE_LIGHT if caller.must_spare else RUN_READS
            body = await self._storage.read_run(request.ledger_id, request.entry_id, max_count, max(room, 0), reads)
            body = limit_run(body, room)
        self._stats.READ_BYTES += len(body)
        return reply.encode(
            m.BatchReadResponse(
                Status.EOK, request.ledger_id, request.entry_id, request.request_id, body, version=request.version
            )
        )

    # --- long polls ------------------------------------------------------------------------------------------

    async def _long_poll(self, caller: Caller, reply: Reply[m.ReadRequest]) -> bytes:
        """Answer if the LAC has moved on already, else leave a waiting poll behind."""
        request = reply.request
        assert request.previous_lac is not None
        handle = self._ledgers.find(request.ledger_id)
        if request.timeout_ms is not None and request.timeout_ms > 0:
            lac = await self._ledgers.load_lac(handle)
            handle = self._ledgers.find(request.ledger_id)
            if max(lac, handle.lac) <= request.previous_lac:
                if not (self.polls.may_wait(handle, len(caller.polls)) and caller.may_ask_more()):
                    return reply.plain(Status.ETOOMANYREQUESTS)
                timeout = min(request.timeout_ms / 1000, self._max_poll_seconds)
                timeout = 0.001 if self._runtime.buggify("long poll ends early") else timeout
                self._wait_for_lac(caller, handle, request.previous_lac, timeout, reply)
                return b""
        return await self._answer_poll(None, caller, reply)

    def _wait_for_lac(
        self, caller: Caller, handle: BookieLedger, previous_lac: int, timeout: float, reply: Reply[m.ReadRequest]
    ) -> None:
        """Leave a poll behind that keeps its permit while it waits. When it is over it is queued to be answered.

        One whose caller is gone is not in `caller.polls` any more.
        """

        def end(moved_at: int | None) -> None:
            if poll not in caller.polls:
                return
            del caller.polls[poll]
            caller.requests_ended(1)
            read = partial(self._answer_poll, moved_at)
            self._queue(caller, reply, read, self._stats.READ_ENTRY_LONG_POLL_REQUEST)

        poll = self.polls.wait(handle, previous_lac, timeout, end)
        caller.polls[poll] = None
        caller.requests_wait(1)

    async def _answer_poll(self, moved_at: int | None, caller: Caller, reply: Reply[m.ReadRequest]) -> bytes:
        request = reply.request
        assert request.previous_lac is not None
        if not request.flags & _PIGGYBACK:
            return await self._read(caller, reply)
        if request.entry_id != LAST_ADD_CONFIRMED:
            return reply.plain(Status.EBADREQ)
        ledger_id = request.ledger_id
        lac = await self._ledgers.load_lac(self._ledgers.find(ledger_id))
        if lac == LAST_ADD_CONFIRMED:
            await self._storage.last_entry(ledger_id)  # a ledger without any entry is answered ENOENTRY
        entry_id, entry = LAST_ADD_CONFIRMED, None
        if lac > request.previous_lac:
            try:
                entry = await self._load(ledger_id, request.previous_lac + 1)
                entry_id = request.previous_lac + 1
            except NoEntryError:
                entry = None  # striping: another bookie has it
        return reply.encode(
            m.ReadResponse(
                Status.EOK,
                ledger_id,
                entry_id,
                entry,
                lac,
                moved_at,
                txn_id=request.txn_id,
                version=reply.version,
            )
        )

    # --- about a ledger, about the bookie -------------------------------------------------------------------

    async def _read_lac(self, _: Caller, reply: Reply[m.ReadLacRequest]) -> bytes:
        request = reply.request
        ledger_id = request.ledger_id
        if not self._storage.ledger_exists(ledger_id):
            return reply.plain(Status.ENOENTRY)
        if self._storage.is_limbo(ledger_id):
            return reply.plain(Status.EUNKNOWNLEDGERSTATE)
        explicit = self._storage.explicit_lac(ledger_id)
        try:
            last: bytes | None = await self._storage.last_entry(ledger_id)
        except (NoEntryError, NoLedgerError):
            last = None
        if explicit is None and last is None:
            return reply.plain(Status.ENOENTRY)
        return reply.encode(m.ReadLacResponse(Status.EOK, ledger_id, explicit, last, txn_id=request.txn_id))

    async def _list_entries(self, _: Caller, reply: Reply[m.GetListOfEntriesRequest]) -> bytes:
        request = reply.request
        ids = await self._storage.list_entries(request.ledger_id)
        encoded = await self._encoder.submit(encode_availability, ids)
        return reply.encode(m.GetListOfEntriesResponse(Status.EOK, request.ledger_id, encoded, txn_id=request.txn_id))

    async def _bookie_info(self, _: Caller, reply: Reply[m.GetBookieInfoRequest]) -> bytes:
        request = reply.request
        total, usable = await self._disks.total_and_usable()
        return reply.encode(
            m.GetBookieInfoResponse(
                Status.EOK,
                total if request.requested & m.TOTAL_CAPACITY else None,
                usable if request.requested & m.FREE_SPACE else None,
                txn_id=request.txn_id,
            )
        )


def _encode(run: ReadRun, entries: Sequence[bytes], lac: int | None) -> bytes:
    """The answers to the first reads of a run."""
    if run.version == V2:
        return v2.encode_read_responses(run, entries)
    return v3.encode_read_responses(run, entries, lac)


def limit_run(body: bytes, room: int) -> bytes:
    """Cut a run of entries (each a size word and the entry) to what a batch read response may have.

    The first entry's size decides how many there may be: as many of that size as `room` holds, and at least the first.
    Smaller ones that follow do not raise that number (spec bookie-server §2.15).
    """
    first = _size(body)[0] + _SIZE_WORD
    count = 1 + max(0, room - first) // first
    end = 0
    while end < len(body) and count > 0:
        end += _SIZE_WORD + _size(body, end)[0]
        count -= 1
    return body if end == len(body) else body[:end]
