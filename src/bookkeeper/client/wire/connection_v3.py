"""A connection that speaks protocol version 3 (spec wire-protocol §3).

Answers belong to requests by transaction id. Answers to adds are routed by the ids inside them, because the writer
makes the frames. Reads of entries by their ids are kept by the transaction id as it stands on the wire, and their
answers handled in bulk: for each socket read one call per `ReadCall`. An answer without an operation's message (§3.4)
completes its request; for an add none could tell which one it was, so 'unauthorized' there ends the connection, and
so everything on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat

from ...errors import IllegalOpError, ProtocolError, UnauthorizedError
from ...protocol import v3
from ...protocol.messages import (
    V3,
    AddResponse,
    AuthRequest,
    BatchReadRequest,
    BatchReadResponse,
    HeaderOnlyResponse,
    Operation,
    ReadResponse,
    Request,
    Response,
    Status,
    UnsupportedRequest,
)
from ...protocol.protobuf import varints
from ...types import BookieId
from .add_channel import AddAnswers
from .calls import OnReply, ReadCall, deliver, side_by_side
from .connection import Connection
from .dialer import Dialer
from .results import OK, READ, TIMEOUT, WRITE, default_code, operation_of, result_code


class V3Connection(Connection):
    """See the module."""

    version = V3

    def __init__(self, dialer: Dialer, bookie: BookieId, on_closed: Callable[[Connection], None]) -> None:
        super().__init__(dialer, bookie, on_closed, v3.Responses(dialer.config.nettyMaxFrameSizeBytes))
        self._answers = v3.ReadAnswers()
        self._reads: dict[bytes, tuple[ReadCall, int, bytes]] = {}
        """Outstanding entry reads by transaction id: who waits, for which entry, and the entry's id on the wire."""

    @property
    def outstanding(self) -> int:
        return len(self._requests) + len(self._reads)

    # --- sending ---

    def request(self, message: Request, deadline: float, done: OnReply) -> None:
        if isinstance(message, BatchReadRequest | UnsupportedRequest | AuthRequest):
            raise IllegalOpError(f"v3 has no {type(message).__name__}", bookie=self.bookie)
        self._check_room()
        message.txn_id = self._dialer.next_txn_id()
        message.version = V3
        self._register(message.txn_id, operation_of(message), deadline, done)
        self.send(v3.encode_request(message))

    def read_entries(self, ledger_id: int, entry_ids: Sequence[int], call: ReadCall) -> None:
        self._check_room(len(entry_ids))
        tokens = varints(self._dialer.take_txn_ids(len(entry_ids)))
        numbers = varints(entry_ids)
        self._sent(call)
        self._reads.update(zip(tokens, zip(repeat(call), entry_ids, numbers, strict=False), strict=True))
        self.send(v3.encode_read_requests(ledger_id, numbers, tokens))

    # --- receiving ---

    def _row_received(self, bodies: list[bytes]) -> bool:
        row = self._answers.decode_row(bodies)
        if row is None:
            return False
        tokens, numbers, entries, lac = row
        waiting = [*map(self._reads.pop, tokens, repeat(None))]
        if None not in waiting:
            calls, entry_ids, wanted = zip(*waiting, strict=True)
            parts = side_by_side(calls) if wanted == numbers else []
            for call, begin, end in parts:
                self._progress.answered(call.sent)
                call.rows.append((entry_ids[begin:end], entries[begin:end], lac))
            if parts:
                deliver([call for call, _, _ in parts])
                return True
        self._reads.update((token, who) for token, who in zip(tokens, waiting, strict=True) if who is not None)
        return False

    def _received_by_turns(self, bodies: list[bytes], adds: AddAnswers) -> bool:
        decode = self._answers.decode
        reads = self._reads
        answered = self._progress.answered
        calls: list[ReadCall] = []  # with answers to deliver
        try:
            for body in bodies:
                found = decode(body)
                waiting = None if found is None else reads.get(found[0])
                if found is None or waiting is None or found[1] != waiting[2]:
                    if not self._other_received(v3.decode_response(body), adds, calls):
                        return False
                    continue
                token, _, entry, lac = found
                call, entry_id, _ = waiting
                del reads[token]
                if not call.answers:
                    calls.append(call)
                    answered(call.sent)
                call.answers.append((entry_id, OK, entry, lac))
        finally:
            deliver(calls)  # also what came in front of an illegal message
        return True

    def _other_received(self, response: Response, adds: AddAnswers, calls: list[ReadCall]) -> bool:
        """Whether the connection goes on."""
        assert not isinstance(response, BatchReadResponse)  # v3 has none
        request = self._requests.get(response.txn_id)
        token = v3.txn_token(response.txn_id)
        if isinstance(response, AddResponse) and (request is None or request.operation != Operation.ADD_ENTRY):
            acked, failed = adds.setdefault(response.ledger_id, ([], []))
            if response.status == Status.EOK:
                acked.append(response.entry_id)
            else:
                failed.append((response.entry_id, result_code(response.status, WRITE)))
        elif request is not None:
            del self._requests[response.txn_id]
            self._settle(request, result_code(response.status, default_code(request.operation)), response)
        elif token in self._reads:
            self._read_answered(token, response, calls)
        elif isinstance(response, HeaderOnlyResponse) and response.operation == Operation.ADD_ENTRY:
            self._refused(response)
            return False
        return True

    def _read_answered(self, token: bytes, response: Response, calls: list[ReadCall]) -> None:
        """An entry read has failed, or its answer is not in the usual form."""
        call, entry_id, _ = self._reads.pop(token)
        code = result_code(response.status, READ)
        if not call.answers:
            calls.append(call)
            self._progress.answered(call.sent)
        if code == OK and isinstance(response, ReadResponse):
            call.answers.append((entry_id, OK, response.entry or b"", response.max_lac))
        else:
            if code != OK:
                self.count_failures(code)
            call.answers.append((entry_id, code, None, None))

    def _refused(self, response: HeaderOnlyResponse) -> None:
        """An add was refused without saying which: all of them are lost."""
        if response.status == Status.EUA:
            self.lose(UnauthorizedError("the bookie wants authentication", bookie=self.bookie))
            return
        raise ProtocolError(f"an add was refused with status {response.status} and without its ids")

    # --- failing ---

    def _expire_requests(self, now: int, moving_since: float) -> None:
        super()._expire_requests(now, moving_since)
        overdue = []
        for token, (call, _, _) in self._reads.items():
            if call.sent >= moving_since:
                call.deadline = max(call.deadline, now + call.patience)
            elif call.deadline <= now:
                overdue.append(token)
        self._fail_reads(TIMEOUT, overdue)

    def _fail_requests(self, code: int) -> None:
        super()._fail_requests(code)
        self._fail_reads(code, list(self._reads))

    def _fail_reads(self, code: int, tokens: list[bytes]) -> None:
        calls: dict[ReadCall, None] = {}
        for call, entry_id, _ in [self._reads.pop(token) for token in tokens]:
            if code == TIMEOUT:
                self.count_failures(code)
            call.answers.append((entry_id, code, None, None))
            calls[call] = None
        deliver(calls)
