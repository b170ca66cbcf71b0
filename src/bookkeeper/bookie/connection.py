"""One client connection: bytes in, requests out to where they are served, answers back.

Theory of operation

One socket read is cut into frames, and all of them are handled in the same turn of the loop. Whether a frame is v2 or
v3 is told by its first byte, frame by frame. Rows of adds go to `adds` as runs, rows of plain reads to `reads`;
everything else is decoded and dispatched one by one. Answers are gathered and written once per turn.

What bounds a connection:

- Input: while adds wait for room, or reads for a permit, or the peer does not take its answers, the socket is not
  read. What had been received by then is kept: it is at most one socket read. TCP does the rest.
- Work: reads that need the disk wait in bounded lanes; more get ETOOMANYREQUESTS.
- Output: above `serverWriteBufferHighWaterMark` no more is read from the socket, and the lanes stop, until the peer
  has taken what it was sent down to the low mark.

Adds that wait for room do not hold up the other requests that came with them, above all not a fence.

Bytes that are no legal message end the connection, without an answer. A connection that ends drops its answers; adds
that are on their way to the journal get there all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, cast

from bookkeeper.errors import ProtocolError
from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.auth import AUTH_DISABLED_PLUGIN
from bookkeeper.protocol.frames import FrameSplitter, version_of
from bookkeeper.protocol.messages import V2, V3, AddRun, Status
from bookkeeper.runtime import TimerHandle

from .adds import AddBatch, as_run
from .lanes import Lanes
from .replies import Reply

if TYPE_CHECKING:
    from .ledgers import LedgerHandle
    from .long_poll import LongPoll
    from .reads import ReadPath
    from .service import RequestService

log = logging.getLogger(__name__)

FLUSH_AT_ONCE = 256 << 10
"""Gathered answers of this size are written without waiting for the end of the turn."""

_ADDS, _READS, _OUTPUT = 1, 2, 4
"""Reasons for not reading the socket."""

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
        self._frames = FrameSplitter(service.config.nettyMaxFrameSizeBytes)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._paused = 0  # _ADDS | _READS | _OUTPUT; the socket is read while this is 0
        self._held_adds: deque[AddRun] = deque()  # not empty: _ADDS is set, and a task works on it
        self._held_reads: deque[Reply] = deque()  # not empty: _READS is set, and a task works on it
        self._out: list[bytes] = []  # answers gathered in this turn
        self._out_size = 0
        self._flush_due = False
        self._takes_output = asyncio.Event()  # clear exactly while _OUTPUT is set; set when the connection is gone
        self._takes_output.set()
        self._output_timer: TimerHandle | None = None
        self._dropping = False  # the peer has not read for too long: answers are dropped
        self.partial_since: float | None = None
        """When the frame that is incomplete now began to arrive."""
        self.polls: dict[LongPoll, None] = {}
        """Long polls of this connection that wait."""
        self.in_journal = 0
        """Fences, WRITE_LAC and FORCE requests that wait for the journal."""
        self.lanes, self.urgent_lanes = self._make_lanes()

    def _make_lanes(self) -> tuple[Lanes, Lanes]:
        service = self._service
        config = service.config

        def make(width: int) -> Lanes:
            return Lanes(
                partial(service.spawn, name="reads"),
                self.output_has_room,
                service.reads.permits.give_back,
                width=width,
                limit=config.maxPendingReadRequestsPerThread,
            )

        return make(config.numReadWorkerThreads), make(max(1, config.numHighPriorityWorkerThreads))

    # --- the transport's side ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        config = self._service.config
        self._transport.set_write_buffer_limits(
            config.serverWriteBufferHighWaterMark,
            min(config.serverWriteBufferLowWaterMark, config.serverWriteBufferHighWaterMark),
        )
        if not self._service.admit(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        frames = self._frames
        if self._service.runtime.buggify("connection breaks", 0.002) and self._transport is not None:
            self._transport.abort()
            return
        try:
            bodies = frames.feed(data)
            if bodies:
                self._serve(bodies)
            if frames.error is not None:
                raise frames.error
        except ProtocolError as error:
            self._break(error)
            return
        if not frames.pending:
            self.partial_since = None
        elif bodies or self.partial_since is None:
            self.partial_since = self._service.runtime.now()

    def eof_received(self) -> None:
        """The peer sends no more: the connection ends, as it would with any other client's end."""

    def pause_writing(self) -> None:
        self._takes_output.clear()
        self._pause(_OUTPUT)
        timeout = self._service.config.waitTimeoutOnResponseBackpressureMs
        if timeout >= 0:
            self._output_timer = self._service.runtime.call_later(timeout / 1000, self._output_stuck)

    def resume_writing(self) -> None:
        self._dropping = False
        if self._output_timer is not None:
            self._output_timer.cancel()
            self._output_timer = None
        self._takes_output.set()
        self._resume(_OUTPUT)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self._out.clear()
        self._out_size = 0
        if self._output_timer is not None:
            self._output_timer.cancel()
        self._takes_output.set()
        self._held_adds.clear()
        self._held_reads.clear()
        self.lanes.close()
        self.urgent_lanes.close()
        for poll in self.polls:
            self._service.reads.polls.cancel(poll)
        self._service.reads.permits.give_back(len(self.polls))
        self.polls.clear()
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

    def _serve(self, bodies: list[bytes]) -> None:
        """Handle all requests of one socket read. Raises `ProtocolError` at the first that is not legal."""
        batch = AddBatch(self._service.adds, self)
        try:
            at = 0
            end = len(bodies)
            while at < end:
                body = bodies[at]
                if taken := self._plain_reads(bodies, at):
                    at += taken
                    continue
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
        finally:
            batch.submit()

    def _plain_reads(self, bodies: list[bytes], at: int) -> int:
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
        return taken

    def _dispatch(self, batch: AddBatch, body: bytes) -> None:
        """Handle a request that is not an ordinary add."""
        if body[0] < 8:
            protocol, request = V2, v2.decode_request(body)
        else:
            protocol, request = V3, v3.decode_request(body)
        reply = Reply(request, protocol)
        if isinstance(request, m.AuthRequest):
            self._answer_auth(request, protocol)
        elif isinstance(request, m.StartTlsRequest | m.UnsupportedRequest):
            self.send(reply.plain(Status.EBADREQ))
        elif not reply.acceptable_version:
            self.send(reply.plain(Status.EBADVERSION))
        elif isinstance(request, m.AddRequest):
            self._single_add(batch, request, reply)
        elif isinstance(request, m.WriteLacRequest | m.ForceLedgerRequest):
            batch.submit()  # what came first is in the journal first
            self._service.to_journal(self, reply)
        else:
            if isinstance(request, m.ReadRequest | m.BatchReadRequest) and request.flags & m.Flags.DO_FENCING:
                batch.submit()
            self._read(reply)

    def _answer_auth(self, request: m.AuthRequest, protocol: int) -> None:
        """Authentication is off: say so (spec wire-protocol §7.2)."""
        if protocol == V2:
            self.send(v2.encode_response(m.AuthResponse(Status.EOK, AUTH_DISABLED_PLUGIN, b"", version=V2)))
            return
        self.send(
            v3.encode_response(
                m.AuthResponse(Status.EOK, AUTH_DISABLED_PLUGIN, b"", request.txn_id, request.priority, request.version)
            )
        )

    def _single_add(self, batch: AddBatch, request: m.AddRequest, reply: Reply) -> None:
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
            self._held_adds.append(run)
            if not self._paused & _ADDS:
                self._pause(_ADDS)
                self._service.stats.ADD_ENTRY_BLOCKED += 1
                self._service.spawn(self._add_held(), name="adds that wait for room")

    async def _add_held(self) -> None:
        """Work off the adds that wait for room; refuse all that find none when the wait has been too long."""
        adds = self._service.adds
        try:
            while self._held_adds:
                has_room = await adds.wait_for_room(self._held_adds[0])
                batch = AddBatch(adds, self)
                while self._held_adds:
                    if not batch.add(self._held_adds[0]):
                        if has_room:
                            break
                        batch.refuse(self._held_adds[0], Status.ETOOMANYREQUESTS)
                    self._held_adds.popleft()
                batch.submit()
        finally:
            self._service.stats.ADD_ENTRY_BLOCKED -= 1
            self._resume(_ADDS)

    def _read(self, reply: Reply) -> None:
        """Handle a read, behind those that wait already."""
        if self._held_reads or not self._service.read(self, reply):
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
                while self._held_reads and self._service.read(self, self._held_reads[0]):
                    self._held_reads.popleft()
        finally:
            self._service.stats.READ_ENTRY_BLOCKED -= 1
            self._resume(_READS)

    def wait_for_lac(
        self, reads: ReadPath, handle: LedgerHandle, previous_lac: int, timeout: float, reply: Reply
    ) -> None:
        """Leave a long poll behind that keeps its permit while it waits and ends with this connection."""

        def end(moved_at: int | None) -> None:
            del self.polls[poll]
            reads.permits.give_back()
            reads.poll_ended(self, reply, moved_at)

        poll = reads.polls.wait(handle, previous_lac, timeout, end)
        self.polls[poll] = None
        reads.permits.take()

    # --- flow control ---------------------------------------------------------------------------------------

    def _pause(self, reason: int) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused |= reason

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
        self._out.append(data)
        self._out_size += len(data)
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
        return not self._takes_output.is_set()

    async def output_has_room(self) -> None:
        """Wait until the peer takes answers."""
        if not self._takes_output.is_set():
            await self._takes_output.wait()

    def _end_of_turn(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        out = self._out
        if not out or self._transport is None:
            return
        self._out = []
        self._out_size = 0
        if len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)

    def _output_stuck(self) -> None:
        """The peer has not taken its answers for `waitTimeoutOnResponseBackpressureMs`."""
        self._output_timer = None
        if self._service.config.closeChannelOnResponseTimeout:
            log.info("closing the connection of %s, which does not read its answers", self.peer)
            self.abort()
        else:
            self._dropping = True
