"""What the parts of a client share, and the contracts between them.

One `ClientContext` per client object. The connections (`wire.pool`) implement `BookieClient`; `placement` implements
`Placement`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakSet

from ..config import ClientConfiguration
from ..metadata.api import BookieDirectory, LedgerIdAllocator, LedgerStore
from ..metadata.tree import RecordTree
from ..protocol.messages import Request, Response
from ..runtime.api import Runtime
from ..runtime.awake import SharedClock
from ..runtime.tasks import TaskScope, guarded
from ..types import BookieId, Quorums, WriteFlag
from .lac_rounds import LacRounds
from .placement.policy import Adherence
from .stats import ClientStats
from .store import Home
from .wire.add_channel import AddChannel, AddSink, ChannelOwner
from .wire.batch_support import BatchSupport
from .wire.calls import OnReply, ReadCall
from .wire.departures import Departures


class BookieClient(Protocol):
    """Connections to bookies."""

    def open_add_channel(
        self, bookie: BookieId, ledger_id: int, sink: AddSink, *, version: int, owner: ChannelOwner | None = None
    ) -> AddChannel:
        """A channel for adds of `version` 2 or 3. A second open handle of a ledger gets connections of its own.

        `owner`: who puts frames into the connection without the channel, if anyone does.
        """

    async def request(self, bookie: BookieId, message: Request, *, timeout: float | None = None) -> Response:
        """Send anything but an add and wait for its answer, `timeout` seconds at most (None: the configured one).

        Raises the `BKError` of a failed connection, failed authentication or an expired timeout; a refusal by the
        bookie is a response with a status.
        """

    def add_version(self, write_flags: WriteFlag) -> int:
        """Protocol version for adds: v2, or v3 where the configuration or the flags need it."""

    @property
    def read_version(self) -> int:
        """Protocol version of plain reads. Only v2 has batch reads."""

    @property
    def v2_only(self) -> bool:
        """Whether v3 is for what v2 cannot say at all (`protocol=v2`)."""

    def call(
        self, bookie: BookieId, message: Request, timeout: float | None, done: OnReply, *, apart: bool = False
    ) -> None:
        """`request` for callers that cannot afford a task: `done(code, response)` hears the outcome once, later.

        `apart`: on a connection that carries nothing else than such requests.
        """

    def read_entries(self, ledger_id: int, entry_ids: Sequence[int], call: ReadCall) -> None:
        """Plain reads of entries from `call.bookie`; the call's sink hears one answer for each.

        Raises `ClientClosedError`, `TooManyRequestsError` at once; then nothing was sent.
        """

    def read_deadline(self) -> float:
        """When an entry read that is sent now expires."""

    @property
    def read_timeout(self) -> float:
        """Seconds until a read expires; zero or less: never."""


class Placement(Protocol):
    """Chooses bookies for ledgers. Knows which are writable, quarantined, and where they stand."""

    def new_ensemble(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],
        excluded: Sequence[BookieId] = (),
    ) -> list[BookieId]:
        """Raises `NotEnoughBookiesError`, `IncorrectParameterError`."""

    def replace(
        self,
        quorums: Quorums,
        custom_metadata: Mapping[str, bytes],
        ensemble: Sequence[BookieId],
        index: int,
        excluded: Sequence[BookieId] = (),
    ) -> BookieId:
        """A bookie for `ensemble[index]`: none of `excluded`, none of the ensemble.

        Raises `NotEnoughBookiesError`, `IncorrectParameterError`.
        """

    def adherence(self, ensemble: Sequence[BookieId], quorums: Quorums) -> Adherence:
        """How well an ensemble stands, by the policy."""

    def replace_to_adhere(self, quorums: Quorums, ensemble: Sequence[BookieId]) -> list[BookieId]:
        """The ensemble, with as few others in it as possible, so that it stands as the policy asks for.

        Raises `NotEnoughBookiesError`, `IncorrectParameterError`.
        """

    @property
    def writable(self) -> tuple[BookieId, ...]:
        """The bookies that are known to be writable."""

    async def refresh(self, known: tuple[BookieId, ...] | None = None) -> bool:
        """Look again which bookies are writable; True if they are others than `known`, or than were known just now.

        Raises `MetadataError`.
        """

    def acks_span_domains(self, acked: Sequence[BookieId], write_quorum: int, ack_quorum: int) -> bool:
        """Whether these bookies lie in enough fault domains (`enforceMinNumFaultDomainsForWrite`)."""

    def reorder_read(self, ensemble: Sequence[BookieId], write_set: Sequence[int]) -> tuple[int, ...]:
        """In which order to ask the replicas `write_set` (ensemble indexes). Valid while `version` stays the same."""

    @property
    def version(self) -> int | None:
        """Changes when `reorder_read` may answer differently; None if it may at any time."""

    def note_slow(self, bookies: Sequence[BookieId]) -> None:
        """These did not answer a read before another bookie did."""

    def note_failed(self, bookie: BookieId) -> None:
        """It denied an entry that is waited for."""


class Store(Protocol):
    """The parts of a metadata driver that a client uses; a driver is one, and `store.ClientStore`."""

    @property
    def ledgers(self) -> LedgerStore: ...
    @property
    def ids(self) -> LedgerIdAllocator: ...
    @property
    def discovery(self) -> BookieDirectory: ...
    @property
    def tree(self) -> RecordTree: ...


class RestingWriter(Protocol):
    """A writer with nothing under way."""

    def client_closed(self) -> None:
        """The client has ended."""


@dataclass(slots=True)
class ClientContext:
    """Filled by the client object; handed to everything it opens."""

    runtime: Runtime
    config: ClientConfiguration
    driver: Store
    bookies: BookieClient
    placement: Placement
    tasks: TaskScope
    """Owner of the client's background tasks."""
    stats: ClientStats = field(default_factory=ClientStats)
    departures: Departures = field(default_factory=Departures)
    """When frames leave."""
    clocks: dict[float, SharedClock] = field(default_factory=dict)
    """See `clock`."""
    batch_support: BatchSupport = field(default_factory=BatchSupport)
    ensemble_change_disabled: bool = False
    """The feature `disable_ensemble_change`: failed bookies are not replaced."""
    closed: bool = False
    resting: WeakSet[RestingWriter] = field(default_factory=WeakSet)
    """Writers that have no channel by which they would hear that the client ends (`adds.appending`)."""
    home: Home = field(default_factory=Home)
    """The loop that all of this belongs to."""
    lac_rounds: LacRounds = field(init=False)
    """When writers are looked at, to see whether they are quiet."""

    def __post_init__(self) -> None:
        self.lac_rounds = LacRounds(self.runtime, self.config.explicitLacInterval / 1000)

    def end_resting(self) -> None:
        """Tell the writers that rest that the client has ended."""
        for writer in list(self.resting):
            with guarded("end of a writer with its client"):
                writer.client_closed()

    def clock(self, interval: float) -> SharedClock:
        """The clock with a tick every `interval` seconds: one for all writers, which need it while they have adds under
        way."""
        clock = self.clocks.get(interval)
        if clock is None:
            clock = self.clocks[interval] = SharedClock(self.runtime, interval, "timeouts of adds")
        return clock
