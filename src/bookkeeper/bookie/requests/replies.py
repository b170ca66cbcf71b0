"""Answers: the response that belongs to a request, and its bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ...protocol import messages as m
from ...protocol import v2, v3
from ...protocol.messages import V2, V3, Response, Status
from .error_status import wire_status

URGENT = int(m.Flags.DO_FENCING | m.Flags.HIGH_PRIORITY)
"""Flags of reads that have queues of their own."""


R = TypeVar("R", bound=m.Request, covariant=True)


def _header_only(status: Status, request: m.StartTlsRequest | m.AuthRequest | m.UnsupportedRequest) -> Response:
    operation = request.operation if isinstance(request, m.UnsupportedRequest) else _OPERATIONS[type(request)]
    return m.HeaderOnlyResponse(status, operation, priority=request.priority)


_OPERATIONS: dict[type[m.Request], int] = {
    m.StartTlsRequest: m.Operation.START_TLS,
    m.AuthRequest: m.Operation.AUTH,
}

_PLAIN: dict[type[m.Request], Callable[[Status, Any], Response]] = {
    m.AddRequest: lambda status, add: m.AddResponse(status, add.ledger_id, add.entry_id),
    m.ReadRequest: lambda status, read: m.ReadResponse(status, read.ledger_id, read.entry_id),
    m.BatchReadRequest: lambda status, read: m.BatchReadResponse(
        status, read.ledger_id, read.entry_id, read.request_id
    ),
    m.WriteLacRequest: lambda status, write: m.WriteLacResponse(status, write.ledger_id),
    m.ReadLacRequest: lambda status, read: m.ReadLacResponse(status, read.ledger_id),
    m.ForceLedgerRequest: lambda status, force: m.ForceLedgerResponse(status, force.ledger_id),
    m.GetBookieInfoRequest: lambda status, _: m.GetBookieInfoResponse(status),
    m.GetListOfEntriesRequest: lambda status, get: m.GetListOfEntriesResponse(status, get.ledger_id),
    m.StartTlsRequest: _header_only,
    m.AuthRequest: _header_only,
    m.UnsupportedRequest: _header_only,
}
"""By kind of request: the response that carries nothing but the status, and the request's ids."""


class Reply(Generic[R]):
    """How to answer one request. `protocol` is the version of the codec that read it."""

    __slots__ = ("protocol", "request")

    def __init__(self, request: R, protocol: int) -> None:
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
    def fences(self) -> bool:
        return bool(getattr(self.request, "flags", 0) & m.Flags.DO_FENCING)

    @property
    def acceptable_version(self) -> bool:
        """Whether the request's header has a version that is served (spec wire-protocol §2.1, §4)."""
        return self.request.version == V3 if self.protocol == V3 else self.request.version <= V2

    def plain(self, status: Status) -> bytes:
        """The bytes of a response that says nothing but its status: errors, and the OK of WRITE_LAC and FORCE.

        Errors carry the operation's own message too, with the ids of the request (spec wire-protocol §3.4).
        """
        request: m.Request = self.request
        response = _PLAIN[type(request)](wire_status(status, self.protocol), request)
        response.txn_id = request.txn_id
        response.version = self.version
        return self.encode(response)

    def encode(self, response: Response) -> bytes:
        """The bytes of a response to this request."""
        return v3.encode_response(response) if self.protocol == V3 else v2.encode_response(response)
