"""A connection that speaks protocol version 2 (spec wire-protocol §2).

v2 has no transaction ids. An answer to an entry read belongs to the earliest outstanding read of the same ledger and
entry on this connection; equal reads wait in a queue. Batch reads carry a request id. Adds go by ledger and entry id
through the ledger's route.

The two answers that exist once per entry, add and read, are handled in bulk: for each socket read one call per ledger
(adds) and one per `ReadCall` (reads).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat

from ...errors import IllegalOpError, ProtocolError
from ...protocol import v2
from ...protocol.messages import (
    V2,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    Operation,
    ReadRequest,
    ReadResponse,
    Request,
)
from ...types import BookieId
from .add_channel import AddAnswers
from .calls import Answer, OnReply, ReadCall, ReadSink, deliver, side_by_side
from .connection import Connection
from .dialer import Dialer
from .results import LOCAL_FAILURES, OK, READ, TIMEOUT, WRITE, result_code, status_of

Waiting = ReadCall | deque[ReadCall]
"""Who waits for an entry: one call, or several in order of asking."""


class V2Connection(Connection):
    """See the module."""

    version = V2

    def __init__(self, dialer: Dialer, bookie: BookieId, on_closed: Callable[[Connection], None]) -> None:
        super().__init__(dialer, bookie, on_closed, v2.Responses(dialer.config.nettyMaxFrameSizeBytes))
        self._reads: dict[int, dict[int, Waiting]] = {}
        """Outstanding entry reads by ledger and entry id; no ledger maps to an empty dict."""
        self._reads_outstanding = 0

    @property
    def outstanding(self) -> int:
        return len(self._requests) + self._reads_outstanding

    # --- sending ---

    def request(self, message: Request, deadline: float, done: OnReply) -> None:
        message.version = V2
        if isinstance(message, BatchReadRequest):
            self._check_room()
            message.request_id = self._dialer.next_txn_id()
            self._register(message.request_id, Operation.BATCH_READ_ENTRY, deadline, done)
            self.send(v2.encode_request(message))
        elif isinstance(message, ReadRequest) and not message.flags and message.previous_lac is None:
            self.read_entries(
                message.ledger_id, (message.entry_id,), ReadCall(self.bookie, 0, _SingleRead(message, done), deadline)
            )
        else:
            raise IllegalOpError(f"v2 has no such {type(message).__name__}", bookie=self.bookie)

    def read_entries(self, ledger_id: int, entry_ids: Sequence[int], call: ReadCall) -> None:
        self._check_room(len(entry_ids))
        reads = self._reads.get(ledger_id)
        if reads is None:
            reads = self._reads[ledger_id] = {}
        for entry_id in entry_ids:
            waiting = reads.setdefault(entry_id, call)
            if waiting is not call:
                _enqueue(reads, entry_id, waiting, call)
        self._reads_outstanding += len(entry_ids)
        self._sent(call)
        self.send(v2.encode_read_requests(ledger_id, entry_ids))

    # --- receiving ---

    def _row_received(self, bodies: list[bytes]) -> bool:
        """Only entries of one ledger, each waited for by one call, are a row."""
        if min(map(len, bodies)) < v2.RESPONSE_HEAD_SIZE:
            return False
        count = len(bodies)
        words, codes, ledger_ids, entry_ids = zip(*map(v2.unpack_response_head, bodies), strict=True)
        reads = self._reads.get(ledger_ids[0])
        if reads is None or any(codes) or words.count(v2.READ_WORD) != count or len(set(ledger_ids)) > 1:
            return False
        waiting = [*map(reads.pop, entry_ids, repeat(None))]
        calls = [who for who in waiting if isinstance(who, ReadCall)]
        parts = side_by_side(calls) if len(calls) == count else []
        if not parts:  # as it was
            reads.update((entry_id, who) for entry_id, who in zip(entry_ids, waiting, strict=True) if who is not None)
            return False
        head_size = v2.RESPONSE_HEAD_SIZE
        for call, begin, end in parts:
            self._progress.answered(call.sent)
            call.rows.append((entry_ids[begin:end], [body[head_size:] for body in bodies[begin:end]], None))
        self._deliver([call for call, _, _ in parts], ledger_ids[:1])
        return True

    def _received_by_turns(self, bodies: list[bytes], adds: AddAnswers) -> bool:
        unpack = v2.unpack_response_head
        read_word = v2.READ_WORD
        head_size = v2.RESPONSE_HEAD_SIZE
        all_reads = self._reads
        answered = self._progress.answered
        calls: list[ReadCall] = []  # with answers to deliver
        ledgers: list[int] = []  # with answers taken from `all_reads`
        ledger: int | None = None
        reads: dict[int, Waiting] = {}
        try:
            for body in bodies:
                if len(body) < head_size:
                    raise ProtocolError(f"v2 response of {len(body)} bytes")
                word, code, ledger_id, entry_id = unpack(body)
                if word != read_word:
                    self._other_received(body, adds)
                    continue
                if ledger_id != ledger:
                    ledger = ledger_id
                    ledgers.append(ledger)
                    reads = all_reads.get(ledger_id) or {}
                failure = result_code(v2.status_of(code), READ) if code else OK
                waiting = reads.pop(entry_id, None)
                if waiting is None:
                    continue  # late: it has expired
                call = waiting if isinstance(waiting, ReadCall) else _next_in_queue(reads, entry_id, waiting)
                if not call.answers:
                    calls.append(call)
                    answered(call.sent)
                if failure:
                    self.count_failures(failure)
                    call.answers.append((entry_id, failure, None, None))
                else:
                    call.answers.append((entry_id, OK, body[head_size:], None))
        finally:
            self._deliver(calls, ledgers)  # also what came in front of an illegal message
        return True

    def _other_received(self, body: bytes, adds: AddAnswers) -> None:
        response = v2.decode_response(body)
        if isinstance(response, AddResponse):
            acked, failed = adds.setdefault(response.ledger_id, ([], []))
            if response.status:
                failed.append((response.entry_id, result_code(response.status, WRITE)))
            else:
                acked.append(response.entry_id)
        elif isinstance(response, BatchReadResponse):
            request = self._requests.pop(response.request_id, None)
            if request is not None:
                self._settle(request, result_code(response.status, READ), response)
        else:
            raise ProtocolError(f"a v2 bookie sent {type(response).__name__}")

    def _deliver(self, calls: Sequence[ReadCall], ledgers: Sequence[int]) -> None:
        """Forget ledgers without outstanding reads, then hand out the answers."""
        for ledger_id in ledgers:
            if ledger_id in self._reads and not self._reads[ledger_id]:
                del self._reads[ledger_id]
        for call in calls:
            self._reads_outstanding -= call.collected
        deliver(calls)

    # --- failing ---

    def _expire_requests(self, now: int, moving_since: float) -> None:
        super()._expire_requests(now, moving_since)

        def overdue(call: ReadCall) -> bool:
            if call.sent >= moving_since:
                call.deadline = max(call.deadline, now + call.patience)
            return call.deadline <= now

        self._fail_reads(TIMEOUT, overdue)

    def _fail_requests(self, code: int) -> None:
        super()._fail_requests(code)
        self._fail_reads(code, lambda _: True)

    def _fail_reads(self, code: int, which: Callable[[ReadCall], bool]) -> None:
        calls: dict[ReadCall, None] = {}
        ledgers = list(self._reads)
        for reads in self._reads.values():
            for entry_id, waiting in list(reads.items()):
                queue = [waiting] if isinstance(waiting, ReadCall) else list(waiting)
                left = [call for call in queue if not which(call)]
                if len(left) == len(queue):
                    continue
                for call in queue:
                    if which(call):
                        if code == TIMEOUT:
                            self.count_failures(code)
                        call.answers.append((entry_id, code, None, None))
                        calls[call] = None
                del reads[entry_id]
                if left:
                    reads[entry_id] = left[0] if len(left) == 1 else deque(left)
        self._deliver(list(calls), ledgers)


def _enqueue(reads: dict[int, Waiting], entry_id: int, waiting: Waiting, call: ReadCall) -> None:
    """Another read of an entry that is being read on this connection already."""
    if isinstance(waiting, ReadCall):
        reads[entry_id] = deque((waiting, call))
    else:
        waiting.append(call)


def _next_in_queue(reads: dict[int, Waiting], entry_id: int, waiting: deque[ReadCall]) -> ReadCall:
    """Who asked first of several; the others go on waiting."""
    call = waiting.popleft()
    reads[entry_id] = waiting if len(waiting) > 1 else waiting[0]
    return call


class _SingleRead(ReadSink):
    """Makes the outcome of a read of one entry a `ReadResponse`."""

    __slots__ = ("_done", "_message")

    def __init__(self, message: ReadRequest, done: OnReply) -> None:
        self._message = message
        self._done = done

    def on_answers(self, _call: ReadCall, answers: list[Answer]) -> None:
        ((entry_id, code, entry, _),) = answers
        if code in LOCAL_FAILURES:
            self._done(code, None)
            return
        self._done(code, ReadResponse(status_of(code), self._message.ledger_id, entry_id, entry))
