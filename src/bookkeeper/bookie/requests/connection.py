"""One client connection: bytes in, requests out to where they are served, answers back.

Theory of operation

One socket read is cut into frames, which are handled in the same turn of the loop as long as this peer has time left in
it (`sharing.turns`). Whether a frame is v2 or v3 is told by its first byte, frame by frame. Rows of adds go to `adds`
as runs, rows of plain reads to `reads`; everything else is decoded and dispatched one by one. Answers are gathered and
written once per turn.

What bounds a connection:

- Input: while adds wait for room, or reads for a permit, or a large frame for memory, or requests for their turn, or
  the peer does not take its answers, the socket is not read. What had been received by then is kept: it is at most one
  socket read. TCP does the rest.
- Work: reads that need the disk wait in bounded queues; more get ETOOMANYREQUESTS.
- Output: above `serverWriteBufferHighWaterMark` no more is read from the socket, and the queues stop, until the peer
  has taken what it was sent down to the low mark. A peer that takes nothing at all for
  `waitTimeoutOnResponseBackpressureMs` is disconnected.
- Memory: everything that is held for it is counted in its account (`memory`).

Adds that wait for room do not hold up the other requests that came with them, above all not a fence; nor do reads that
wait for a permit hold up an urgent one.

Bytes that are no legal message end the connection, without an answer. A connection that ends drops its answers; adds
that are on their way to the journal get there all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any, cast

from bookkeeper.errors import ProtocolError
from bookkeeper.protocol import large_frames, v2, v3
from bookkeeper.protocol import messages as m
from bookkeeper.protocol.auth import AUTH_DISABLED_PLUGIN
from bookkeeper.protocol.frames import LENGTH_SIZE, FrameSplitter, version_of
from bookkeeper.protocol.messages import V2, V3, AddRun, Status
from bookkeeper.runtime import TimerHandle

from ..sharing.log_rate import LogRate
from ..sharing.memory import REQUEST_COST, SMALL_FRAME, Account, Peer
from ..sharing.shares import Shares
from ..sharing.turns import IN_JOURNAL_BESIDE_OTHERS, SLICE_REQUESTS
from .adds import AddBatch, as_run
from .handlers import HANDLERS, Way
from .ledger_queues import Gate, LedgerQueues
from .long_poll import LongPoll
from .replies import Reply
from .service import RequestService

log = logging.getLogger(__name__)
log.addFilter(LogRate())

FLUSH_AT_ONCE = 256 << 10
"""Gathered answers of this size are written without waiting for the end of the turn."""

_ADDS, _READS, _OUTPUT, _FRAME, _TURN = 1, 2, 4, 8, 16
"""Reasons for not reading the socket."""

SLOWEST_FRAME = 64 << 10
"""Bytes per second. A large frame that is slower, after a second, loses its memory to others that wait for some."""

ANSWERS_UNDER_WAY = 4 << 20
"""Bytes of answers that a connection's queues work on at once, if they are as large as its last ones."""

UNLIMITED = 1 << 62
"""`maxPendingReadRequestsPerThread` <= 0 means no bound of that kind (spec bookie-server §4.4)."""

MAX_IN_JOURNAL_PER_CONNECTION = 10_000
"""Fences, WRITE_LAC and FORCE requests of one connection that may wait for the journal."""

READS_AT_ONCE = 512
"""Plain reads that are looked up in memory together."""

READS_TOGETHER = 64
"""Plain reads of one ledger that may need the disk and are answered by one piece of work."""

_V2_ADD = bytes((V2, v2.OP_ADD))
_V2_READ = bytes((V2, v2.OP_READ))
_V3_READ = v3.READ_HEADER
_V3_READ_AT = slice(v3.HEADER_AT, v3.HEADER_AT + len(_V3_READ))


class BookieConnection(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, service: RequestService) -> None:
        self._service = service
        self._now = service.runtime.now
        self._turns = service.turns
        self._frames = FrameSplitter(service.config.nettyMaxFrameSizeBytes)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._paused = 0  # the reasons; the socket is read while this is 0
        # Frames that wait for their turn, from _backlog_at on. Not empty: _TURN is set.
        self._backlog: list[bytes] = []
        self._backlog_at = 0
        self._backlog_charge = 0  # counted in the account for it
        # Not empty: _ADDS is set, and a task works on it. At most one socket read.
        self._held_adds: deque[AddRun | Reply[m.WriteLacRequest]] = deque()
        self._held_reads: deque[Reply[Any]] = deque()  # the same with _READS
        self._out: list[bytes] = []  # answers gathered in this turn
        self._out_size = 0
        self._flush_due = False
        self._output = Gate()  # closed exactly while _OUTPUT is set; open when the connection is gone
        self._output_timer: TimerHandle | None = None
        self._sent = 0  # bytes given to the transport since the beginning
        self._taken = 0  # of these, taken by the peer when it was looked last
        self._taken_at = 0.0
        self._dropping = False  # the peer has not read for too long: answers are dropped
        self._large = 0  # the largest of the last answers, fading
        self._frame_charge = 0  # counted in the account for the frame that is incomplete now
        self._frame_grant = 0  # units of `service.frames` that it has
        self._frame_wait: asyncio.Future[None] | None = None  # not None exactly while _FRAME is set
        self._frame_units = 0  # what _frame_wait waits for
        self._output_charge = 0  # counted in the account for answers that were not taken
        self._heard_at = self._now()
        self.source: Peer = service.nobody
        """Whom it comes from, once it is connected."""
        self.account: Account = service.new_account(self.source)
        """What it holds."""
        self.frame_ticks = 0
        """Looks of the service since the frame that is incomplete now began, or grew complete the last time."""
        self.quiet_ticks = 0
        """Looks of the service since anything was received."""
        self.asked = False
        """It has sent a request."""
        self.polls: dict[LongPoll, None] = {}
        """Long polls of this connection that wait."""
        self.waiting = 0
        """Requests that wait for something: for the disk, a LAC, the journal."""
        self.in_journal = 0
        """Fences, WRITE_LAC and FORCE requests that wait for the journal."""
        self.queues = self._make_queues(service.reads.slots, service.config.numReadWorkerThreads)
        self.urgent_queues = self._make_queues(
            service.reads.urgent_slots, max(1, service.config.numHighPriorityWorkerThreads)
        )

    def _make_queues(self, slots: Shares, width: int) -> LedgerQueues:
        limit = self._service.config.maxPendingReadRequestsPerThread
        return LedgerQueues(
            partial(self._service.spawn, name="reads"),
            self._output,
            self.requests_ended,
            slots,
            lambda: self.source,
            width=lambda: min(width, max(2, ANSWERS_UNDER_WAY // (self._large or 1))),
            limit=limit if limit > 0 else UNLIMITED,
        )

    # --- the transport's side ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        config = self._service.config
        self._transport.set_write_buffer_limits(
            config.serverWriteBufferHighWaterMark,
            min(config.serverWriteBufferLowWaterMark, config.serverWriteBufferHighWaterMark),
        )
        address = transport.get_extra_info("peername")
        self.source = self._service.peer_at(address[0] if address else "")
        self.account = self._service.new_account(self.source)
        if not self._service.admit(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._service.runtime.buggify("connection breaks", 0.002) and self._transport is not None:
            self._transport.abort()
            return
        frames, turns = self._frames, self._turns
        self._heard_at = started = self._now()
        self.quiet_ticks = 0
        try:
            bodies = frames.feed(data)
            if bodies:
                self.asked = True
                self.frame_ticks = 0
                if self._backlog or not turns.may_serve(self.source, started):
                    self._wait_for_turn(bodies, 0)
                else:
                    at = self._serve(bodies, 0, started, started + turns.slice_seconds(started))
                    now = self._now()
                    turns.spent(self.source, now - started, now)
                    if at < len(bodies):
                        self._wait_for_turn(bodies, at)
            if frames.pending or self._frame_charge:
                self._charge_frame()
            if frames.error is not None and not self._backlog:
                raise frames.error
        except ProtocolError as error:
            self._break(error)

    def _wait_for_turn(self, bodies: list[bytes], at: int) -> None:
        """Keep frames until it is their turn."""
        size = sum(map(len, bodies))
        self._backlog_charge += size
        self.account.add(size)
        if self._backlog:
            self._backlog += bodies
            return
        self._backlog, self._backlog_at = bodies, at
        self._pause(_TURN)
        self._turns.wait(self.source, self)

    def serve_more(self, until: float) -> bool:
        """It is this connection's turn; whether something is left after it."""
        if self._transport is None:
            return False
        bodies = self._backlog[self._backlog_at : self._backlog_at + SLICE_REQUESTS]
        try:
            self._backlog_at += self._serve(bodies, 0, self._now(), until)
            if self._backlog_at < len(self._backlog):
                return True
            self._drop_backlog()
            if self._frames.error is not None:
                raise self._frames.error
        except ProtocolError as error:
            self._drop_backlog()
            self._break(error)
        except Exception:  # as the loop does with `data_received`: it ends this connection, and no other
            log.exception("closing the connection of %s, whose requests cannot be handled", self.peer)
            self._drop_backlog()
            self.abort()
        else:
            self._resume(_TURN)
        return False

    def _drop_backlog(self) -> None:
        self._backlog = []
        self.account.add(-self._backlog_charge)
        self._backlog_charge = 0

    def _charge_frame(self) -> None:
        """Count the frame that is incomplete now. A large one goes on only when there is room for all of it."""
        pending, needed = self._frames.pending, self._frames.needed
        if needed > SMALL_FRAME and self._transport is not None:
            asks = self._frame_wait is None and self._service.frames.units(needed) > self._frame_grant
            if asks and pending >= LENGTH_SIZE + large_frames.ENOUGH_TO_JUDGE:
                if fault := large_frames.fault_of(self._frames.start(large_frames.ENOUGH_TO_JUDGE), needed):
                    raise ProtocolError(fault)
                self._give_frame_back()
                self._ask_for_frame(needed)
        elif self._frame_grant and not self._held_adds:  # adds that wait for room keep what they came with
            self._give_frame_back()
        charge = max(pending, self._frame_grant)
        if charge != self._frame_charge:
            more, self._frame_charge = charge - self._frame_charge, charge
            self.account.add(more)

    def _ask_for_frame(self, needed: int) -> None:
        frames = self._service.frames
        self._frame_units = units = frames.units(needed)
        if frames.try_acquire(self.source, units):
            self._frame_grant = units
            return
        self._pause(_FRAME)
        self._frame_wait = frames.wait(self.source, self, units)
        self._frame_wait.add_done_callback(self._frame_granted)

    def _frame_granted(self, wait: asyncio.Future[None]) -> None:
        if wait.cancelled() or self._frame_wait is not wait:
            return
        self._frame_wait = None
        self._frame_grant = self._frame_units
        self._heard_at = self._now()  # it could not send before
        self._charge_frame()
        self._resume(_FRAME)

    def _give_frame_back(self) -> None:
        if self._frame_grant:
            units, self._frame_grant = self._frame_grant, 0
            self._service.frames.release(self.source, units)
        elif self._frame_wait is not None:
            wait, self._frame_wait = self._frame_wait, None
            self._service.frames.forget(self.source, self._frame_units, wait)

    def eof_received(self) -> None:
        """The peer sends no more: the connection ends, as it would with any other client's end."""

    def pause_writing(self) -> None:
        self._output.set(False)
        self._pause(_OUTPUT)
        self._watch_output()

    def resume_writing(self) -> None:
        self._dropping = False
        if self._output_timer is not None:
            self._output_timer.cancel()
            self._output_timer = None
        self._output.set(True)
        self._resume(_OUTPUT)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._out.clear()
        self._out_size = 0
        if self._output_timer is not None:
            self._output_timer.cancel()
        self._output.set(True)
        self._turns.forget(self.source, self)
        self._backlog = []
        self._held_adds.clear()
        self._held_reads.clear()
        self._give_frame_back()
        self._frames.take_pending()
        self.queues.close()
        self.urgent_queues.close()
        polls, self.polls = self.polls, {}
        for poll in polls:
            self._service.reads.polls.cancel(poll)
        self._service.reads.permits.release(len(polls))
        self.account.close()
        self._service.left(self)

    @property
    def gone(self) -> bool:
        """Nobody is there any more who could be answered."""
        return self._transport is None

    @property
    def peer(self) -> str:
        """Where the connection comes from, for logs."""
        address = self._transport.get_extra_info("peername") if self._transport else None
        return f"{address[0]}:{address[1]}" if address else "a client"

    def close(self) -> None:
        """Close after what was sent has gone out."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    def _break(self, error: ProtocolError) -> None:
        self._service.stats.connections_broken += 1
        log.info("closing the connection of %s: %s", self.peer, error)
        self.close()

    # --- requests -------------------------------------------------------------------------------------------

    def _serve(self, bodies: list[bytes], at: int, started: float, until: float) -> int:
        """Handle requests from `at` on, to the end or up to about `until`; returns where it ended.

        Raises `ProtocolError` at the first that is not legal.
        """
        batch = AddBatch(self._service.adds, self, started)
        now = self._now
        try:
            end = len(bodies)
            while at < end:
                body = bodies[at]
                if taken := self._plain_reads(bodies, at, until):
                    at += taken
                else:
                    if version_of(body) == V3:
                        runs, at = v3.decode_add_runs(bodies, at)
                    elif body[:2] == _V2_ADD:
                        runs, at = v2.decode_add_runs(bodies, at)
                    else:
                        runs = []
                    for run in runs:
                        self._add(batch, run)
                    if at < end and not runs:
                        self._dispatch(batch, bodies[at])
                        at += 1
                if at < end and (now() > until or self._fills_journal):
                    break
        finally:
            batch.submit()
        return at

    @property
    def _fills_journal(self) -> bool:
        source = self.source
        return source.in_journal >= IN_JOURNAL_BESIDE_OTHERS and self._turns.fills_journal(source, self._now())

    def _plain_reads(self, bodies: list[bytes], at: int, until: float) -> int:
        """Handle plain reads in bulk; returns how many, 0 if what stands there must be looked at by itself."""
        body = bodies[at]
        if body[:2] == _V2_READ:
            decode = v2.decode_read_run
        elif body[_V3_READ_AT] == _V3_READ:
            decode = v3.decode_read_run
        else:
            return 0
        run = None if self._held_reads else decode(bodies, at, at + READS_AT_ONCE)
        if run is None:
            return 0
        path = self._service.reads
        taken = 0
        while run.entry_ids:
            count = path.read_from_memory(self, run) or path.read_together(self, run.part(0, READS_TOGETHER))
            if not count:
                break
            taken += count
            run = run.part(count)
            if run.entry_ids and self._now() > until:  # sending much takes time too
                break
        return taken

    def _dispatch(self, batch: AddBatch, body: bytes) -> None:
        """Handle a request that is not an ordinary add."""
        if body[0] < 8:
            protocol, request = V2, v2.decode_request(body)
        else:
            protocol, request = V3, v3.decode_request(body)
        reply: Reply[Any] = Reply(request, protocol)
        handler = HANDLERS[type(request)]
        if not (handler.any_version or reply.acceptable_version):
            self.send(reply.plain(Status.EBADVERSION))
            return
        match handler.way:
            case Way.AUTH:
                self._answer_auth(reply)
            case Way.REFUSED:
                self.send(reply.plain(Status.EBADREQ))
            case Way.ADD:
                self._single_add(batch, reply)
            case Way.JOURNAL:
                batch.submit()  # what came first is in the journal first
                if (handler.waits_for_room and self._held_adds) or not self._ask(reply):
                    self._hold_add(reply)
            case Way.READ:
                if reply.fences:
                    batch.submit()
                self._read(reply)

    def _ask(self, reply: Reply[Any]) -> bool:
        """Have a request served; False if it has to wait."""
        serve = HANDLERS[type(reply.request)].serve
        assert serve is not None
        return serve(self._service, self, reply)

    def _answer_auth(self, reply: Reply[m.AuthRequest]) -> None:
        """Authentication is off: say so (spec wire-protocol §7.2)."""
        request = reply.request
        if reply.protocol == V2:
            self.send(v2.encode_response(m.AuthResponse(Status.EOK, AUTH_DISABLED_PLUGIN, b"", version=V2)))
            return
        self.send(
            v3.encode_response(
                m.AuthResponse(
                    Status.EOK,
                    AUTH_DISABLED_PLUGIN,
                    b"",
                    txn_id=request.txn_id,
                    priority=request.priority,
                    version=request.version,
                )
            )
        )

    def _single_add(self, batch: AddBatch, reply: Reply[m.AddRequest]) -> None:
        request = reply.request
        run = as_run(request, reply.protocol)
        if run is not None:
            self._add(batch, run)
        elif self._service.state.refuses_writes(bool(request.flags & m.Flags.HIGH_PRIORITY)):
            self.send(reply.plain(Status.EREADONLY))
        else:
            self._service.stats.ADD_ENTRY.fail()
            self.send(reply.plain(Status.EBADREQ))

    def _add(self, batch: AddBatch, run: AddRun) -> None:
        """Handle a run of adds, behind those that wait already."""
        if self._held_adds or not batch.add(run):
            self._hold_add(run)

    def _hold_add(self, waiting: AddRun | Reply[m.WriteLacRequest]) -> None:
        self._held_adds.append(waiting)
        self.account.add(_size_of(waiting))
        if not self._paused & _ADDS:
            self._pause(_ADDS)
            self._service.stats.ADD_ENTRY_BLOCKED += 1
            self._service.spawn(self._add_held(), name="adds that wait for room")

    async def _add_held(self) -> None:
        """Work off the adds that wait for room; refuse all that find none when the wait has been too long."""
        adds = self._service.adds
        held = self._held_adds
        try:
            while held:
                first = held[0]
                if isinstance(first, Reply):
                    await self._service.journaled.wait_for_room(first)
                    has_room = True
                else:
                    has_room = await adds.wait_for_room(first)
                batch = AddBatch(adds, self, self._now())
                while held and self._add_one_held(batch, held[0], has_room):
                    self.account.add(-_size_of(held.popleft()))
                batch.submit()
        finally:
            self._service.stats.ADD_ENTRY_BLOCKED -= 1
            if self._frame_grant and self._transport is not None:
                self._charge_frame()
            self._resume(_ADDS)

    def _add_one_held(self, batch: AddBatch, waiting: AddRun | Reply[m.WriteLacRequest], has_room: bool) -> bool:
        """Try again; False if it has to wait on."""
        if isinstance(waiting, Reply):
            batch.submit()
            return self._ask(waiting)
        if not batch.add(waiting):
            if has_room:
                return False
            batch.refuse(waiting, Status.ETOOMANYREQUESTS)
        return True

    def _read(self, reply: Reply[Any]) -> None:
        """Handle a read, behind those that wait already if it is not urgent."""
        if (self._held_reads and not reply.urgent) or not self._ask(reply):
            self._held_reads.append(reply)
            if not self._paused & _READS:
                self._pause(_READS)
                self._service.stats.READ_ENTRY_BLOCKED += 1
                self._service.spawn(self._read_held(), name="reads that wait for a permit")

    async def _read_held(self) -> None:
        """Work off the reads that wait for a permit."""
        try:
            while self._held_reads:
                await self._service.reads.permits.wait()
                while self._held_reads and self._ask(self._held_reads[0]):
                    self._held_reads.popleft()
        finally:
            self._service.stats.READ_ENTRY_BLOCKED -= 1
            self._resume(_READS)

    @property
    def may_use_journal(self) -> bool:
        """Whether one more fence, WRITE_LAC or FORCE request of it may wait for the journal."""
        return self.in_journal < MAX_IN_JOURNAL_PER_CONNECTION and self.may_ask_more()

    def waits_for_journal(self) -> None:
        self.in_journal += 1
        self.source.in_journal += 1
        self._count_waiting(1)

    def journal_has_it(self) -> None:
        self.in_journal -= 1
        self._turns.journal_has(self.source)
        self._count_waiting(-1)

    def answer_has(self, size: int) -> None:
        """So large was an answer: it is what the next ones are expected to be."""
        self._large = max(size, self._large - (self._large >> 3))

    def may_ask_more(self) -> bool:
        """Whether the requests that it has waiting leave room for more."""
        return self.waiting * REQUEST_COST < self._service.memory.allowance()

    def requests_wait(self, count: int) -> None:
        """So many requests begin to wait."""
        self._service.reads.permits.acquire(count)
        self._count_waiting(count)

    def requests_ended(self, count: int) -> None:
        """So many requests that waited are finished or dropped."""
        self._count_waiting(-count)
        self._service.reads.permits.release(count)

    def _count_waiting(self, count: int) -> None:
        self.waiting += count
        self.account.add(count * REQUEST_COST)

    # --- flow control ---------------------------------------------------------------------------------------

    def _pause(self, reason: int) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused |= reason
        self.frame_ticks = 0  # it cannot go on with its frame

    def _resume(self, reason: int) -> None:
        if not self._paused & reason:
            return
        self._paused &= ~reason
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # --- answers ----------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send the bytes of one or more answers; dropped if the connection is gone."""
        if self._transport is None:
            return
        if self._dropping:
            self._service.stats.responses_dropped += 1
            return
        size = len(data)
        self._out.append(data)
        self._out_size += size
        if self._out_size >= FLUSH_AT_ONCE:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._end_of_turn)

    @property
    def paused(self) -> bool:
        """The socket is not read: adds wait for room, reads for a permit, or the peer for its answers."""
        return bool(self._paused)

    @property
    def output_full(self) -> bool:
        """The peer does not keep up with its answers."""
        return not self._output.open

    def _end_of_turn(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        out, transport = self._out, self._transport
        if not out or transport is None:
            return
        self._out = []
        self._sent += self._out_size
        self._out_size = 0
        if len(out) == 1:
            transport.write(out[0])
        else:
            transport.writelines(out)
        charge = transport.get_write_buffer_size()
        if charge != self._output_charge:
            more, self._output_charge = charge - self._output_charge, charge
            self.account.add(more)

    def _look_at_output(self) -> bool:
        """Whether the peer has taken any of its answers since the last look."""
        if self._transport is None:
            return True
        taken = self._sent - self._transport.get_write_buffer_size()
        if taken == self._taken:
            return False
        self._taken = taken
        self._taken_at = self._now()
        return True

    def _watch_output(self) -> None:
        timeout = self._service.config.waitTimeoutOnResponseBackpressureMs
        if timeout >= 0:
            self._look_at_output()
            self._output_timer = self._service.runtime.call_later(timeout / 1000, self._output_waited)

    def _output_waited(self) -> None:
        """The peer has too many answers to take since `waitTimeoutOnResponseBackpressureMs` at least."""
        self._output_timer = None
        if self._look_at_output():
            self._watch_output()  # it is slow, not dead
        elif self._service.config.closeChannelOnResponseTimeout:
            log.info("closing the connection of %s, which does not read its answers", self.peer)
            self.abort()
        else:
            self._dropping = True

    # --- memory -----------------------------------------------------------------------------------------------

    @property
    def still_since(self) -> float:
        """When what it holds became less, or a frame more complete, for the last time."""
        return self._taken_at if self._output_charge > self._frame_charge else self._heard_at

    def measure(self) -> None:
        """Correct what is counted for answers."""
        if self._output_charge and self._transport is not None:
            self._look_at_output()
            charge = self._transport.get_write_buffer_size()
            more, self._output_charge = charge - self._output_charge, charge
            self.account.add(more)

    def give_way(self) -> None:
        """End, to free memory."""
        log.warning("closing the connection of %s: memory for requests and answers is used up", self.peer)
        self.abort()

    @property
    def idle(self) -> bool:
        """Nothing is asked and nothing is to be answered."""
        return not (self.account.held or self._paused or self.in_journal or self._backlog)

    def frame_is_slow(self, seconds: float) -> bool:
        """Whether it has memory for its frame and has not used it fast enough, in so many seconds in which it could."""
        return bool(self._frame_grant) and self._frames.pending < (seconds - 1.0) * SLOWEST_FRAME

    @property
    def frame_begun(self) -> bool:
        """A frame is incomplete, and it is the peer's turn to go on with it."""
        return self._frames.pending > 0 and not self._paused


def _size_of(waiting: AddRun | Reply[m.WriteLacRequest]) -> int:
    """What a waiting add or WRITE_LAC is counted for."""
    return REQUEST_COST if isinstance(waiting, Reply) else REQUEST_COST + sum(map(len, waiting.entries))
