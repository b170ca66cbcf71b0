"""One client connection: bytes in, requests out to where they are served, answers back.

Theory of operation

One socket read is cut into frames, which are handled in the same turn of the loop as long as this peer has time left in
it (`sharing.turns`). Whether a frame is v2 or v3 is told by its first byte, frame by frame. Rows of adds go to `adds`
as runs, rows of plain reads to `reads`; everything else is decoded and dispatched one by one. Answers go out by
`output`.

What bounds a connection:

- Input: while adds wait for room, or reads for a permit, or a large frame for memory (`incoming`), or requests for
  their turn, or the peer does not take its answers, the socket is not read. What had been received by then is kept
  (`held`): it is at most one socket read. TCP does the rest.
- Work: reads that need the disk wait in bounded queues (`ledger_queues`); more get ETOOMANYREQUESTS.
- Output: while the peer does not take its answers the queues stop too; in the end it is disconnected (`output`).
- Memory: everything that is held for it is counted in its account (`sharing.memory`).

Adds that wait for room do not hold up the other requests that came with them, above all not a fence; nor do reads that
wait for a permit hold up an urgent one.

Bytes that are no legal message end the connection, without an answer. A connection that ends drops its answers; adds
that are on their way to the journal get there all the same.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, cast

from ...errors import ProtocolError
from ...protocol import messages as m
from ...protocol import v2, v3
from ...protocol.auth import AUTH_DISABLED_PLUGIN
from ...protocol.frames import version_of
from ...protocol.messages import V2, V3, AddRun, MixedAdds, Status
from ..sharing.log_rate import LogRate
from ..sharing.memory import REQUEST_COST, Peer
from ..sharing.shares import Shares
from .adds import AddBatch, as_run
from .handlers import HANDLERS, Way
from .held import Backlog, HeldAdds, HeldReads
from .incoming import Incoming
from .ledger_queues import LedgerQueues
from .long_poll import LongPoll
from .output import Output
from .replies import Reply
from .service import RequestService

log = logging.getLogger(__name__)
log.addFilter(LogRate())

_ADDS, _READS, _OUTPUT, _FRAME, _TURN = 1, 2, 4, 8, 16
"""Reasons for not reading the socket."""

UNLIMITED = 1 << 62
"""`maxPendingReadRequestsPerThread` <= 0 means no bound of that kind (spec bookie-server §4.4)."""

MAX_IN_JOURNAL_PER_CONNECTION = 10_000
"""Fences, WRITE_LAC and FORCE requests of one connection that may wait for the journal."""

ADDS_AT_ONCE = 256
"""Adds that are decoded and cached together before the time is looked at again, even where the slice has no time for so
many: 0.2 ms of one ledger, up to 1 ms of as many ledgers."""

MOST_ADDS_AT_ONCE = 1024
"""So many where it has: what is done once for all of them is a tenth of what they take, and more where they are of
hundreds of ledgers."""

READS_AT_ONCE = 512
"""Plain reads that are looked up in memory together."""

READS_TOGETHER = 64
"""Plain reads of one ledger that may need the disk and are answered by one piece of work."""

_V2_ADD = bytes((V2, v2.OP_ADD))
_V2_READ = bytes((V2, v2.OP_READ))
_V3_READ = v3.READ_HEADER
_V3_READ_AT = slice(v3.HEADER_AT, v3.HEADER_AT + len(_V3_READ))


def adds_at_once(seconds: float, add_seconds: float) -> int:
    """How many adds to take together where there is so much time, if each takes so long."""
    if seconds >= MOST_ADDS_AT_ONCE * add_seconds:
        return MOST_ADDS_AT_ONCE
    return max(ADDS_AT_ONCE, int(seconds / add_seconds))


class BookieConnection(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, service: RequestService) -> None:
        config, now = service.config, service.runtime.now
        self._service = service
        self._now = now
        self._transport: asyncio.Transport | None = None
        self._paused = 0  # the reasons; the socket is read while this is 0
        self.source: Peer = service.nobody
        """The peer that it comes from, once it is connected."""
        self.account = service.new_account(self.source)
        """What it holds."""
        self.incoming = Incoming(
            config.nettyMaxFrameSizeBytes, service.frames, self.account, now, partial(self._pause_for, _FRAME)
        )
        """The frame that is incomplete now."""
        self._output = Output(service.runtime, config, service.stats, self.account, self._takes_nothing, self._wrote)
        self.send = self._output.send
        """Send the bytes of one or more answers; dropped if the connection is gone."""
        self.answer_has = self._output.answer_has
        """So large was an answer: it is what the next ones are expected to be."""
        # While one of these is not empty, its reason is set.
        self._backlog = Backlog(self.account)
        self._held_adds = HeldAdds(service, self, self.account, self._ask, self._adds_wait)
        self._held_reads = HeldReads(service, self._ask, partial(self._pause_for, _READS))
        self.quiet_ticks = 0
        """Looks of the service since anything was received."""
        self.polls: dict[LongPoll, None] = {}
        """Long polls of this connection that wait."""
        self.waiting = 0
        """Requests that wait for something: for the disk, a LAC, the journal."""
        self._add_seconds = 4e-6  # that an add took, of late
        self.in_journal = 0
        """Fences, WRITE_LAC and FORCE requests that wait for the journal."""
        self.queues = self._make_queues(service.reads.slots, config.numReadWorkerThreads)
        self.urgent_queues = self._make_queues(service.reads.urgent_slots, max(1, config.numHighPriorityWorkerThreads))

    def _make_queues(self, slots: Shares, width: int) -> LedgerQueues:
        limit = self._service.config.maxPendingReadRequestsPerThread
        return LedgerQueues(
            partial(self._service.spawn, name="reads"),
            self._output.gate,
            self.requests_ended,
            slots,
            self._service.turns,
            lambda: self.source,
            width=partial(self._output.side_by_side, width),
            limit=limit if limit > 0 else UNLIMITED,
        )

    # --- the transport's side ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._output.begin(self._transport)
        address = transport.get_extra_info("peername")
        self.source = self.account.peer = self._service.peer_at(address[0] if address else "")
        if not self._service.admit(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._service.runtime.buggify("connection breaks", 0.002) and self._transport is not None:
            self._transport.abort()
            return
        incoming, turns = self.incoming, self._service.turns
        frames = incoming.splitter
        incoming.heard_at = started = self._now()
        self.quiet_ticks = 0
        try:
            bodies = frames.feed(data)
            if bodies:
                incoming.asked = True
                incoming.frame_ticks = 0
                if self._paused & _TURN or not turns.may_serve(self.source, started):
                    self._wait_for_turn(bodies, 0)
                else:
                    at = self._serve(bodies, 0, started, started + turns.slice_seconds(started))
                    now = self._now()
                    turns.spent(self.source, now - started, now)
                    if at < len(bodies):
                        self._wait_for_turn(bodies, at)
            if frames.pending or incoming.charge:
                incoming.count(keep=bool(self._paused & _ADDS))
            if frames.error is not None and not self._paused & _TURN:
                raise frames.error
        except ProtocolError as error:
            self._break(error)

    def _wait_for_turn(self, bodies: list[bytes], at: int) -> None:
        """Keep frames until it is their turn."""
        if self._backlog.keep(bodies, at):
            self._pause_for(_TURN, True)
            self._service.turns.wait(self.source, self)

    def serve_more(self, until: float) -> bool:
        """It is this connection's turn; whether something is left after it."""
        if self._transport is None:
            return False
        backlog, frames = self._backlog, self.incoming.splitter
        try:
            now = self._now()
            bodies = backlog.slice(self._service.turns.slice_requests(self.source, now))
            if backlog.served(self._serve(bodies, 0, now, until)):
                return True
            if frames.error is not None:
                raise frames.error
        except ProtocolError as error:
            backlog.drop()
            self._break(error)
        except Exception:  # as the loop does with `data_received`: it ends this connection, and no other
            log.exception("closing the connection of %s, whose requests cannot be handled", self.peer)
            backlog.drop()
            self.abort()
        else:
            self._pause_for(_TURN, False)
        return False

    def eof_received(self) -> None:
        """The peer sends no more: the connection ends, as it would with any other client's end."""

    def pause_writing(self) -> None:
        self._output.full()
        self._pause_for(_OUTPUT, True)

    def resume_writing(self) -> None:
        self._output.drained()
        self._pause_for(_OUTPUT, False)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._output.close()
        self._pause_for(_OUTPUT, False)
        self._service.turns.forget(self.source, self)
        self._backlog.drop()
        self._held_adds.drop()
        self._held_reads.drop()
        self.incoming.close()
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
        """The peer is gone: answers are dropped."""
        return self._transport is None

    @property
    def peer(self) -> str:
        """Where the connection comes from, for logs."""
        address = self._transport.get_extra_info("peername") if self._transport else None
        return f"{address[0]}:{address[1]}" if address else "a client"

    def close(self) -> None:
        """Close after what was sent has gone out."""
        if self._transport is not None:
            self._output.flush()
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
        now, fills_journal = self._now, self._service.turns.fills_journal
        moment = started
        try:
            end = len(bodies)
            while at < end:
                adds = 0
                if taken := self._plain_reads(bodies, at, until):
                    at += taken
                elif adds := self._plain_adds(batch, bodies, at, until - moment):
                    at += adds
                else:
                    self._dispatch(batch, bodies[at])
                    at += 1
                if at < end:
                    before, moment = moment, now()
                    if adds:
                        self._add_seconds = (moment - before) / adds
                    if moment > until or fills_journal(self.source, moment):
                        break
        finally:
            batch.submit()
        return at

    def _plain_adds(self, batch: AddBatch, bodies: list[bytes], at: int, seconds: float) -> int:
        """Handle adds in bulk, about as many as there is time for; returns how many, 0 if what stands there must be
        looked at by itself."""
        row = bodies
        if at or len(row) > ADDS_AT_ONCE:
            row = bodies[at : at + adds_at_once(seconds, self._add_seconds)]
        codec: Any = v3 if version_of(row[0]) == V3 else v2
        if codec is v2 and row[0][:2] != _V2_ADD:
            return 0
        mixed: MixedAdds | None = codec.decode_mixed_adds(row)
        if mixed is not None:
            if self._paused & _ADDS or not batch.add_mixed(mixed):
                self._add(batch, mixed.runs())
            return len(mixed.entries)
        runs, taken = codec.decode_add_runs(row)
        if runs:
            self._add(batch, runs)
        return int(taken)

    def _plain_reads(self, bodies: list[bytes], at: int, until: float) -> int:
        """Handle plain reads in bulk; returns how many, 0 if what stands there must be looked at by itself."""
        body = bodies[at]
        if body[:2] == _V2_READ:
            decode = v2.decode_read_run
        elif body[_V3_READ_AT] == _V3_READ:
            decode = v3.decode_read_run
        else:
            return 0
        run = None if self._paused & _READS else decode(bodies, at, at + READS_AT_ONCE)
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
                if (handler.waits_for_room and self._paused & _ADDS) or not self._ask(reply):
                    self._held_adds.hold(reply)
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
            self._add(batch, [run])
        elif self._service.state.refuses_writes(bool(request.flags & m.Flags.HIGH_PRIORITY)):
            self.send(reply.plain(Status.EREADONLY))
        else:
            self._service.stats.ADD_ENTRY.fail()
            self.send(reply.plain(Status.EBADREQ))

    def _add(self, batch: AddBatch, runs: list[AddRun]) -> None:
        """Handle runs of adds, behind those that wait already."""
        taken = 0 if self._paused & _ADDS else batch.add_all(runs)
        for run in runs[taken:]:
            self._held_adds.hold(run)

    def _read(self, reply: Reply[Any]) -> None:
        """Handle a read, behind those that wait already if it is not urgent."""
        if (self._paused & _READS and not reply.urgent) or not self._ask(reply):
            self._held_reads.hold(reply)

    @property
    def may_use_journal(self) -> bool:
        """Whether one more fence, WRITE_LAC or FORCE request of it may wait for the journal."""
        return self.in_journal < MAX_IN_JOURNAL_PER_CONNECTION and self.may_ask_more()

    def waits_for_journal(self) -> None:
        self.in_journal += 1
        self._service.turns.journal_gets(self.source)
        self._count_waiting(1)

    def journal_has_it(self) -> None:
        self.in_journal -= 1
        self._service.turns.journal_has(self.source)
        self._count_waiting(-1)

    def adds_wait_for_journal(self, size: int, count: int) -> None:
        self._service.turns.journal_gets_adds(self.source, size, count)

    def journal_has_adds(self, size: int, count: int) -> None:
        self._service.turns.journal_has_adds(self.source, size, count)

    @property
    def must_spare(self) -> bool:
        return self._service.turns.must_spare(self.source, self._now())

    async def turn(self) -> None:
        await self._service.turns.turn(self.source)

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

    def _pause_for(self, reason: int, waits: bool) -> None:
        """Do not read the socket for this reason, or no longer for this one."""
        paused = self._paused
        if waits:
            self._paused = paused | reason
            self.incoming.frame_ticks = 0  # it cannot go on with its frame
        else:
            self._paused = paused & ~reason
        if bool(paused) != bool(self._paused) and self._transport is not None and not self._transport.is_closing():
            if waits:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _adds_wait(self, waits: bool) -> None:
        if not waits and self.incoming.has_room:
            self.incoming.count(keep=False)  # the adds that it was kept for wait no more
        self._pause_for(_ADDS, waits)

    @property
    def paused(self) -> bool:
        """The socket is not read: see the reasons."""
        return bool(self._paused)

    @property
    def output_full(self) -> bool:
        """The peer does not keep up with its answers."""
        return bool(self._paused & _OUTPUT)

    def _wrote(self, seconds: float) -> None:
        """Answers took so long to be written: that is part of what the peer asks for."""
        self._service.turns.owe(self.source, seconds)

    def _takes_nothing(self) -> None:
        log.info("closing the connection of %s, which does not read its answers", self.peer)
        self.abort()

    # --- memory -----------------------------------------------------------------------------------------------

    @property
    def still_since(self) -> float:
        """When what it holds became less, or a frame more complete, for the last time."""
        output, incoming = self._output, self.incoming
        return output.taken_at if output.charge > incoming.charge else incoming.heard_at

    def measure(self) -> None:
        """Correct what is counted for answers."""
        self._output.measure()

    def give_way(self) -> None:
        """End, to free memory."""
        log.warning("closing the connection of %s: memory for requests and answers is used up", self.peer)
        self.abort()

    @property
    def idle(self) -> bool:
        """Nothing is asked and nothing is to be answered."""
        return not (self.account.held or self._paused or self.in_journal)
