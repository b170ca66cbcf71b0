"""Listens on every connection to a bookie, and knows what each bookie has promised to which client.

This is independent of the bookie's own code but for the codecs: what a bookie was sent, what it acknowledged, which
ledgers it said it has fenced. Three promises are checked right here (spec safety §1.4):

- PI-11: after a bookie has answered a fencing request, it acknowledges no normal add of that ledger.
- PI-12: nor does it, for all it says later, get an entry that it has denied to a fencing read, but by a recovery add;
  which is the same check, as a denial counts as an answer.
- An answer to an add names an entry that was sent on that connection.

What it has acknowledged and fenced is compared with its disk after each crash by `checkers.bookie_local`, and with the
metadata by `checkers.quorums`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..errors import ProtocolError
from ..protocol import v2, v3
from ..protocol.frames import FrameSplitter
from ..protocol.messages import (
    AddRequest,
    AddResponse,
    Flags,
    ForceLedgerRequest,
    ForceLedgerResponse,
    ReadRequest,
    ReadResponse,
    Request,
    Response,
    Status,
    WriteLacRequest,
    WriteLacResponse,
)
from ..types import WriteFlag
from .history import Violation
from .world.network import SimulatedTransport

T = TypeVar("T")

MAX_FRAME = 64 << 20

_FENCED = (Status.EOK, Status.ENOENTRY, Status.ENOLEDGER)
_LAC = struct.Struct(">16xq")


@dataclass
class BookiePromises:
    """What one bookie has answered, over all its lives."""

    acked: dict[int, dict[int, None]] = field(default_factory=dict)
    """Ledger -> ids of entries answered with OK."""
    unforced: dict[int, dict[int, None]] = field(default_factory=dict)
    """Those of them that were added with DEFERRED_SYNC and not forced yet: a crash may take them."""
    lost: dict[int, dict[int, None]] = field(default_factory=dict)
    """Those that may be lost for good: see `lose`."""
    versions: dict[tuple[int, int], dict[bytes, None]] = field(default_factory=dict)
    """(ledger, entry) -> every version of its bytes that the bookie was sent."""
    copied_from: Sequence[BookiePromises] = ()
    """Since it has lost something: of the others."""
    fenced: dict[int, None] = field(default_factory=dict)
    """Ledgers for which a fencing request was answered."""
    explicit_lac: dict[int, int] = field(default_factory=dict)
    """Ledger -> the greatest explicit LAC answered with OK."""

    def must_have(self, ledger_id: int) -> list[int]:
        """Ids of the entries of a ledger that no crash may take."""
        gone = {**self.unforced.get(ledger_id, {}), **self.lost.get(ledger_id, {})}
        return [entry_id for entry_id in self.acked.get(ledger_id, {}) if entry_id not in gone]

    def may_have(self, ledger_id: int, entry_id: int, entry: bytes) -> bool:
        """Whether the bookie was sent these bytes, or had them from one that was."""
        key = ledger_id, entry_id
        return any(entry in promises.versions.get(key, ()) for promises in (self, *self.copied_from))

    def lose(self, peers: Iterable[BookiePromises]) -> None:
        """It loses what it has acknowledged so far; what of that belongs to a ledger comes back from its peers."""
        self.copied_from = [promises for promises in peers if promises is not self]
        self.lost = {ledger_id: dict(entries) for ledger_id, entries in self.acked.items()}
        self.explicit_lac.clear()

    def restarted(self, deleted: Callable[[int], bool]) -> None:
        """Whoever has a deleted ledger's entries no more has lost the fence with them, once its memory is gone."""
        for ledger_id in filter(deleted, [*self.fenced]):
            del self.fenced[ledger_id]

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Whether it has acknowledged the entry."""
        return entry_id in self.acked.get(ledger_id, ())

    def keeps(self, ledger_id: int, entry_id: int) -> bool:
        """Whether it has, and no crash may take it."""
        return self.has(ledger_id, entry_id) and entry_id not in self.unforced.get(ledger_id, ())


@dataclass(slots=True)
class _Add:
    """One add under way."""

    recovery: bool
    deferred: bool


class _Conversation:
    """One connection, seen from the bookie's end."""

    def __init__(self) -> None:
        self.requests = FrameSplitter(MAX_FRAME)
        self.responses = FrameSplitter(MAX_FRAME)
        self.adds: dict[tuple[int, int], list[_Add]] = {}
        """(ledger, entry) -> the adds of it under way, in order."""
        self.fences: dict[tuple[int, int, int], int] = {}
        """(ledger, entry, transaction) -> fencing reads under way. In v2, all transactions are 0."""
        self.plain_reads: dict[tuple[int, int, int], int] = {}
        """The same of reads that do not fence."""
        self.forces: dict[int, list[int]] = {}
        """Transaction -> of a force under way, the entries that were acknowledged when it came."""
        self.lacs: dict[int, int] = {}
        """Transaction -> the explicit LAC under way."""


class WireTap:
    """See the module. `World.tap`."""

    def __init__(
        self, bookies: list[str], sometimes: Callable[[str], None], fail: Callable[[BaseException], None]
    ) -> None:
        """`sometimes` counts rare events, `fail` gets violations (raised, the code under test would catch them)."""
        self._fail = fail
        self.promises = {name: BookiePromises() for name in bookies}
        self.outsiders: dict[str, None] = {}
        """Machines that nothing was promised to, and that may send anything."""
        self.on_refused: Callable[[str, int], None] | None = None
        """Called for a bookie that has too much to do for a read, and how many reads it was asked for by others than
        outsiders, this one included."""
        self.on_lac: Callable[[int, int], None] | None = None
        """Called with the LAC in each entry that is added: ledger, LAC."""
        self.on_moment: Callable[[str], None] | None = None
        """Called at moments that faults may wait for (`nemesis.MOMENTS`)."""
        self._sometimes = sometimes
        self._conversations: dict[SimulatedTransport, _Conversation] = {}

    def kept_by(self, ledger_id: int, entry_id: int) -> int:
        """How many bookies have promised that no crash takes an entry."""
        return sum(promises.keeps(ledger_id, entry_id) for promises in self.promises.values())

    def _conversation(self, transport: SimulatedTransport) -> _Conversation | None:
        if not transport.accepted or transport.owner.machine.name not in self.promises:
            return None
        if transport.peer_machine in self.outsiders:
            return None
        conversation = self._conversations.get(transport)
        if conversation is None:
            conversation = self._conversations[transport] = _Conversation()
        return conversation

    # --- requests ---

    def received(self, transport: SimulatedTransport, data: bytes) -> None:
        conversation = self._conversation(transport)
        if conversation is not None:
            codecs = v2.decode_request, v3.decode_request
            self._hear(transport, conversation, conversation.requests, data, codecs, self._requested)

    def _requested(self, name: str, conversation: _Conversation, request: Request) -> None:
        promises = self.promises[name]
        match request:
            case AddRequest():
                key = request.ledger_id, request.entry_id
                add = _Add(
                    bool(request.flags & Flags.RECOVERY_ADD), bool(request.write_flags & WriteFlag.DEFERRED_SYNC)
                )
                conversation.adds.setdefault(key, []).append(add)
                promises.versions.setdefault(key, {})[request.entry] = None
                if self.on_lac is not None:
                    self.on_lac(request.ledger_id, _LAC.unpack_from(request.entry)[0])
            case ReadRequest():
                reads = conversation.fences if request.flags & Flags.DO_FENCING else conversation.plain_reads
                read = request.ledger_id, request.entry_id, request.txn_id
                reads[read] = reads.get(read, 0) + 1
            case ForceLedgerRequest():
                conversation.forces[request.txn_id] = list(promises.acked.get(request.ledger_id, ()))
            case WriteLacRequest():
                conversation.lacs[request.txn_id] = request.lac
            case _:
                pass

    # --- answers ---

    def sent(self, transport: SimulatedTransport, data: bytes) -> None:
        conversation = self._conversation(transport)
        if conversation is not None:
            codecs = v2.decode_response, v3.decode_response
            self._hear(transport, conversation, conversation.responses, data, codecs, self._answered)

    def _hear(
        self,
        transport: SimulatedTransport,
        conversation: _Conversation,
        frames: FrameSplitter,
        data: bytes,
        codecs: tuple[Callable[[bytes], T], Callable[[bytes], T]],
        note: Callable[[str, _Conversation, T], None],
    ) -> None:
        """Note what a bookie got or sent, read as v2 or v3."""
        name = transport.owner.machine.name
        try:
            for body in frames.feed(data):
                note(name, conversation, codecs[0 if body[0] < 8 else 1](body))
        except ProtocolError as error:
            self._fail(Violation(f"{name}: a frame cannot be read: {error}"))
        except Violation as violation:
            self._fail(violation)

    def _answered(self, name: str, conversation: _Conversation, response: Response) -> None:
        match response:
            case AddResponse():
                self._add_answered(name, conversation, response)
            case ReadResponse():
                self._read_answered(name, conversation, response)
            case ForceLedgerResponse():
                covered = conversation.forces.pop(response.txn_id)
                if response.status == Status.EOK:
                    unforced = self.promises[name].unforced.get(response.ledger_id, {})
                    for entry_id in covered:
                        unforced.pop(entry_id, None)
                    self._sometimes("wire: forced")
                    self._moment("force is answered")
            case WriteLacResponse():
                lac = conversation.lacs.pop(response.txn_id)
                if response.status == Status.EOK:
                    known = self.promises[name].explicit_lac
                    known[response.ledger_id] = max(lac, known.get(response.ledger_id, -1))
                    self._sometimes("wire: explicit LAC acknowledged")
            case _:
                pass

    def _add_answered(self, name: str, conversation: _Conversation, response: AddResponse) -> None:
        ledger_id, entry_id = key = response.ledger_id, response.entry_id
        under_way = conversation.adds.get(key)
        if not under_way:
            raise Violation(f"{name} answered an add of {key} that it was not sent")
        add = under_way.pop(0)
        promises = self.promises[name]
        if response.status != Status.EOK:
            self._sometimes(f"wire: {'recovery ' if add.recovery else ''}add refused: {_name(response.status)}")
            return
        if not add.recovery and ledger_id in promises.fenced:
            raise Violation(f"{name} acknowledged a normal add of {key} after it had fenced the ledger")
        if add.recovery:
            self._sometimes("wire: recovery add acknowledged")
        acked = promises.acked.setdefault(ledger_id, {})
        if not add.deferred:
            promises.unforced.get(ledger_id, {}).pop(entry_id, None)
        elif entry_id not in acked:
            promises.unforced.setdefault(ledger_id, {})[entry_id] = None
        acked[entry_id] = None
        promises.lost.get(ledger_id, {}).pop(entry_id, None)

    def _read_answered(self, name: str, conversation: _Conversation, response: ReadResponse) -> None:
        if response.status not in _FENCED:
            self._sometimes(f"wire: read refused: {_name(response.status)}")
        if response.status == Status.ETOOMANYREQUESTS and self.on_refused is not None:
            self.on_refused(name, self._reads_under_way(name))
        read = response.ledger_id, response.entry_id, response.txn_id
        for reads in (conversation.plain_reads, conversation.fences):  # v2 does not say which it is: expect the less
            if waiting := reads.get(read, 0):
                break
        else:
            return
        reads[read] = waiting - 1
        if reads is conversation.fences and response.status in _FENCED:
            self._sometimes(f"wire: fencing read answered: {_name(response.status)}")
            self.promises[name].fenced[response.ledger_id] = None
            self._moment("fence is answered")

    def _reads_under_way(self, name: str) -> int:
        return sum(
            sum(conversation.plain_reads.values()) + sum(conversation.fences.values())
            for transport, conversation in self._conversations.items()
            if transport.owner.machine.name == name and transport.owner.alive
        )

    def _moment(self, what: str) -> None:
        if self.on_moment is not None:
            self.on_moment(what)


def _name(status: int) -> str:
    return Status(status).name
