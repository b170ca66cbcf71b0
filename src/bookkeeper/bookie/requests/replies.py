"""Answers: the response that belongs to a request, and its bytes."""

from __future__ import annotations

from bookkeeper.protocol import messages as m
from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.messages import V2, V3, Response, Status

from .error_status import wire_status

URGENT = int(m.Flags.DO_FENCING | m.Flags.HIGH_PRIORITY)
"""Flags of reads that have lanes of their own."""


class Reply:
    """How to answer one request. `protocol` is the version of the codec that read it."""

    __slots__ = ("protocol", "request")

    def __init__(self, request: m.Request, protocol: int) -> None:
        self.request = request
        self.protocol = protocol

    @property
    def version(self) -> int:
        """The version that the response carries: a v2 request's own, which may be 0 or 1; in v3 always 3."""
        return V3 if self.protocol == V3 else self.request.version

    @property
    def urgent(self) -> bool:
        """It fences, or its sender says that it must not wait behind others: recovery."""
        return bool(getattr(self.request, "flags", 0) & URGENT)

    @property
    def acceptable_version(self) -> bool:
        """Whether the request's header has a version that is served (spec wire-protocol §2.1, §4)."""
        return self.request.version == V3 if self.protocol == V3 else self.request.version <= V2

    def plain(self, status: Status) -> bytes:
        """The bytes of a response that says nothing but its status: errors, and the OK of WRITE_LAC and FORCE.

        Errors carry the operation's own message too, with the ids of the request (spec wire-protocol §3.4).
        """
        request, version = self.request, self.version
        status = wire_status(status, self.protocol)
        response: Response
        match request:
            case m.AddRequest():
                response = m.AddResponse(status, request.ledger_id, request.entry_id, request.txn_id, version)
            case m.ReadRequest():
                response = m.ReadResponse(
                    status, request.ledger_id, request.entry_id, txn_id=request.txn_id, version=version
                )
            case m.BatchReadRequest():
                response = m.BatchReadResponse(
                    status, request.ledger_id, request.entry_id, request.request_id, version=version
                )
            case m.WriteLacRequest():
                response = m.WriteLacResponse(status, request.ledger_id, request.txn_id)
            case m.ReadLacRequest():
                response = m.ReadLacResponse(status, request.ledger_id, txn_id=request.txn_id)
            case m.ForceLedgerRequest():
                response = m.ForceLedgerResponse(status, request.ledger_id, request.txn_id)
            case m.GetBookieInfoRequest():
                response = m.GetBookieInfoResponse(status, txn_id=request.txn_id)
            case m.GetListOfEntriesRequest():
                response = m.GetListOfEntriesResponse(status, request.ledger_id, txn_id=request.txn_id)
            case m.StartTlsRequest():
                response = self._header_only(m.Operation.START_TLS, status, request)
            case m.AuthRequest():
                response = self._header_only(m.Operation.AUTH, status, request)
            case m.UnsupportedRequest():
                response = self._header_only(request.operation, status, request)
        return self.encode(response)

    @staticmethod
    def _header_only(
        operation: int, status: Status, request: m.StartTlsRequest | m.AuthRequest | m.UnsupportedRequest
    ) -> Response:
        return m.HeaderOnlyResponse(status, operation, request.txn_id, request.priority, request.version)

    def encode(self, response: Response) -> bytes:
        """The bytes of a response to this request."""
        return v3.encode_response(response) if self.protocol == V3 else v2.encode_response(response)
