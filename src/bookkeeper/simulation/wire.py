"""Listens on every connection to a bookie, and knows what each bookie has promised to whom.

This is independent of the bookie's own code but for the codecs: what a bookie was sent, what it acknowledged, which
ledgers it said it has fenced. Two promises are checked right here (spec safety §1.4):

- PI-11: after a bookie has answered a fencing request, it acknowledges no normal add of that ledger.
- An answer to an add names an entry that was sent on that connection.

What it has acknowledged and fenced is compared with its disk after each crash by `checkers.bookie_local`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import ProtocolError
from ..protocol import v2, v3
from ..protocol.frames import FrameSplitter
from ..protocol.messages import (
    AddRequest,
    AddResponse,
    Flags,
    ReadRequest,
    ReadResponse,
    Status,
)
from .history import Violation
from .network import SimulatedTransport

MAX_FRAME = 64 << 20

_FENCED = (Status.EOK, Status.ENOENTRY, Status.ENOLEDGER)


@dataclass
class BookiePromises:
    """What one bookie has answered, over all its lives."""

    acked: dict[int, dict[int, None]] = field(default_factory=dict)
    """Ledger -> ids of entries answered with OK."""
    versions: dict[tuple[int, int], dict[bytes, None]] = field(default_factory=dict)
    """(ledger, entry) -> every version of its bytes that the bookie was sent."""
    fenced: dict[int, None] = field(default_factory=dict)
    """Ledgers for which a fencing request was answered."""


class _Conversation:
    """One connection, seen from the bookie's end."""

    def __init__(self) -> None:
        self.requests = FrameSplitter(MAX_FRAME)
        self.responses = FrameSplitter(MAX_FRAME)
        self.adds: dict[tuple[int, int], list[bool]] = {}
        """(ledger, entry) -> for each add under way whether it is a recovery add."""
        self.fences: dict[tuple[int, int], int] = {}
        """(ledger, entry) -> fencing reads under way."""


class WireTap:
    """See the module. `World.tap`."""

    def __init__(self, bookies: list[str]) -> None:
        self.promises = {name: BookiePromises() for name in bookies}
        self.fence_answers = 0
        self.adds_refused = 0
        self._conversations: dict[SimulatedTransport, _Conversation] = {}

    def _conversation(self, transport: SimulatedTransport) -> _Conversation | None:
        if not transport.accepted or transport.owner.machine.name not in self.promises:
            return None
        conversation = self._conversations.get(transport)
        if conversation is None:
            conversation = self._conversations[transport] = _Conversation()
        return conversation

    def received(self, transport: SimulatedTransport, data: bytes) -> None:
        conversation = self._conversation(transport)
        if conversation is None:
            return
        promises = self.promises[transport.owner.machine.name]
        for body in conversation.requests.feed(data):
            request = v2.decode_request(body) if body[0] < 8 else v3.decode_request(body)
            if isinstance(request, AddRequest):
                key = request.ledger_id, request.entry_id
                conversation.adds.setdefault(key, []).append(bool(request.flags & Flags.RECOVERY_ADD))
                promises.versions.setdefault(key, {})[request.entry] = None
            elif isinstance(request, ReadRequest) and request.flags & Flags.DO_FENCING:
                key = request.ledger_id, request.entry_id
                conversation.fences[key] = conversation.fences.get(key, 0) + 1

    def sent(self, transport: SimulatedTransport, data: bytes) -> None:
        conversation = self._conversation(transport)
        if conversation is None:
            return
        name = transport.owner.machine.name
        for body in conversation.responses.feed(data):
            try:
                response = v2.decode_response(body) if body[0] < 8 else v3.decode_response(body)
            except ProtocolError as error:
                raise Violation(f"{name} sent a frame that cannot be read: {error}") from error
            if isinstance(response, AddResponse):
                self._add_answered(name, conversation, response)
            elif isinstance(response, ReadResponse):
                self._read_answered(name, conversation, response)

    def _add_answered(self, name: str, conversation: _Conversation, response: AddResponse) -> None:
        key = response.ledger_id, response.entry_id
        under_way = conversation.adds.get(key)
        if not under_way:
            raise Violation(f"{name} answered an add of {key} that it was not sent")
        recovery = under_way.pop(0)
        promises = self.promises[name]
        if response.status != Status.EOK:
            self.adds_refused += 1
            return
        if not recovery and response.ledger_id in promises.fenced:
            raise Violation(f"{name} acknowledged a normal add of {key} after it had fenced the ledger")
        promises.acked.setdefault(response.ledger_id, {})[response.entry_id] = None

    def _read_answered(self, name: str, conversation: _Conversation, response: ReadResponse) -> None:
        key = response.ledger_id, response.entry_id
        waiting = conversation.fences.get(key, 0)
        if not waiting:
            return
        conversation.fences[key] = waiting - 1
        if response.status in _FENCED:
            self.fence_answers += 1
            self.promises[name].fenced[response.ledger_id] = None
