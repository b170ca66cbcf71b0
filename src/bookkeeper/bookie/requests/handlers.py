"""What is done with each kind of request: a row each.

Rows of ordinary adds and of plain reads are told apart by their bytes, before anything is decoded (`connection`). All
else comes by here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...protocol import messages as m
from .caller import Caller
from .replies import Reply
from .service import RequestService


class Way(Enum):
    """How a connection treats a request."""

    AUTH = "answered by the connection itself"
    REFUSED = "answered EBADREQ"
    ADD = "with the adds that it came with"
    JOURNAL = "behind the adds that came before it, in the journal too"
    READ = "by itself; where it must wait, behind the reads that wait already"


@dataclass(frozen=True, slots=True)
class Handler:
    """One row."""

    way: Way
    serve: Callable[[RequestService, Caller, Reply[Any]], bool] | None = None
    """Serve it; False if it has to wait: nothing has happened then. None: the connection does it all."""
    any_version: bool = False
    """The version in its header does not matter (spec wire-protocol §4)."""
    waits_for_room: bool = False
    """JOURNAL: it waits for room as adds do, behind those that wait already."""


HANDLERS: dict[type[m.Request], Handler] = {
    m.AuthRequest: Handler(Way.AUTH, any_version=True),
    m.StartTlsRequest: Handler(Way.REFUSED, any_version=True),
    m.UnsupportedRequest: Handler(Way.REFUSED, any_version=True),
    m.AddRequest: Handler(Way.ADD),
    m.WriteLacRequest: Handler(
        Way.JOURNAL, lambda service, caller, reply: service.journaled.write_lac(caller, reply), waits_for_room=True
    ),
    m.ForceLedgerRequest: Handler(Way.JOURNAL, lambda service, caller, reply: service.journaled.force(caller, reply)),
    m.ReadRequest: Handler(Way.READ, lambda service, caller, reply: service.reads.read(caller, reply)),
    m.BatchReadRequest: Handler(Way.READ, lambda service, caller, reply: service.reads.batch_read(caller, reply)),
    m.ReadLacRequest: Handler(Way.READ, lambda service, caller, reply: service.reads.read_lac(caller, reply)),
    m.GetBookieInfoRequest: Handler(Way.READ, lambda service, caller, reply: service.reads.bookie_info(caller, reply)),
    m.GetListOfEntriesRequest: Handler(
        Way.READ, lambda service, caller, reply: service.reads.list_entries(caller, reply)
    ),
}
