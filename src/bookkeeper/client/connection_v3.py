"""A connection that speaks protocol version 3 (spec wire-protocol §3).

Answers belong to requests by transaction id. Answers to adds are routed by the ids inside them, because the writer
makes the frames. An answer without an operation's message (§3.4) completes its request; for an add nobody could say
which one it was, so 'unauthorized' there ends the connection, and so everything on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import IllegalOpError, ProtocolError, UnauthorizedError
from ..protocol import v3
from ..protocol.messages import (
    V3,
    AddResponse,
    AuthRequest,
    BatchReadRequest,
    BatchReadResponse,
    HeaderOnlyResponse,
    Operation,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    UnsupportedRequest,
)
from ..types import BookieId
from .add_channel import AddAnswers, by_ledger
from .connection import Connection, Dialer, OnReply, ReadCall
from .results import OK, WRITE, default_code, operation_of, result_code


class V3Connection(Connection):
    """See the module."""

    version = V3

    def __init__(self, dialer: Dialer, bookie: BookieId, on_closed: Callable[[Connection], None]) -> None:
        super().__init__(dialer, bookie, on_closed)
        self._responses = v3.ResponseSplitter(dialer.config.nettyMaxFrameSizeBytes)

    def request(self, message: Request, deadline: float, done: OnReply) -> None:
        if isinstance(message, BatchReadRequest | UnsupportedRequest | AuthRequest):
            raise IllegalOpError(f"v3 has no {type(message).__name__}", bookie=self.bookie)
        self._check_room()
        message.txn_id = self._dialer.next_txn_id()
        message.version = V3
        self._register(message.txn_id, operation_of(message), deadline, done)
        self._send(v3.encode_request(message))

    def read_entries(self, ledger_id: int, entry_ids: Sequence[int], call: ReadCall) -> None:
        self._check_room(len(entry_ids))
        for entry_id in entry_ids:
            self.request(ReadRequest(ledger_id, entry_id), call.deadline, _EntryReply(call, entry_id))

    def data_received(self, data: bytes) -> None:
        responses = self._responses
        try:
            acks, bodies = responses.feed(data)
            adds = by_ledger(acks) if acks else {}
            if bodies:
                self._bodies_received(bodies, adds)
            self._deliver_adds(adds)
            if responses.error is not None:
                raise responses.error
        except ProtocolError as error:
            self.broken(error)

    def _bodies_received(self, bodies: list[bytes], adds: AddAnswers) -> None:
        """Everything but plain acks. Answers to adds are put into `adds`."""
        for body in bodies:
            response = v3.decode_response(body)
            assert not isinstance(response, BatchReadResponse)  # v3 has none
            request = self._requests.get(response.txn_id)
            if isinstance(response, AddResponse) and (request is None or request.operation != Operation.ADD_ENTRY):
                acked, failed = adds.setdefault(response.ledger_id, ([], []))
                if response.status == Status.EOK:
                    acked.append(response.entry_id)
                else:
                    failed.append((response.entry_id, result_code(response.status, WRITE)))
            elif request is not None:
                del self._requests[response.txn_id]
                self._settle(request, result_code(response.status, default_code(request.operation)), response)
            elif isinstance(response, HeaderOnlyResponse) and response.operation == Operation.ADD_ENTRY:
                self._refused(response)
                return

    def _refused(self, response: HeaderOnlyResponse) -> None:
        """An add was refused without saying which: all of them are lost."""
        if response.status == Status.EUA:
            self.fail(UnauthorizedError("the bookie wants authentication", bookie=self.bookie))
            return
        raise ProtocolError(f"an add was refused with status {response.status} and without its ids")


class _EntryReply:
    """Turns the answer to one entry read into an `Answer`."""

    __slots__ = ("call", "entry_id")

    def __init__(self, call: ReadCall, entry_id: int) -> None:
        self.call = call
        self.entry_id = entry_id

    def __call__(self, code: int, response: Response | None) -> None:
        call = self.call
        if code == OK and isinstance(response, ReadResponse):
            call.answers.append((self.entry_id, OK, response.entry or b"", response.max_lac))
        else:
            call.answers.append((self.entry_id, code, None, None))
        call.deliver()
