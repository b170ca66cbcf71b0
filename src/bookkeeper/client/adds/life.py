"""The life of a writer, from its first append to the end of its ledger (spec client §5.6, §8).

    open       it takes appends
    unable     no protocol version that it may speak can carry its appends: the first one ends it
    draining   `close(drain=True)` waits for what is pending; further appends are refused
    sealing    it takes no appends, pending ones have failed, and the metadata is being closed at its last entry
    sealed     the metadata is closed where this writer would close it
    unsealed   the metadata store could not be reached: the next `close` tries again
    contested  the metadata cannot be closed there: another client closed the ledger elsewhere, or deleted it
    withdrawn  it has ended and leaves the metadata alone: the ledger is in recovery, or the client was closed

A writer ends once, at the first `seal` or `withdraw`. Later ones change nothing, except that `seal` of an unsealed
ledger is another attempt.
"""

from __future__ import annotations

from enum import Enum

from ...runtime.transitions import Transitions


class WriterState(Enum):
    """See the module."""

    OPEN = "open"
    UNABLE = "unable"
    DRAINING = "draining"
    SEALING = "sealing"
    SEALED = "sealed"
    UNSEALED = "unsealed"
    CONTESTED = "contested"
    WITHDRAWN = "withdrawn"

    @property
    def ended(self) -> bool:
        """Whether it takes no more appends, for good."""
        return self not in _ALIVE


class WriterEvent(Enum):
    """What happens to a writer."""

    DRAIN = "drain"
    """A `close` begins to wait for what is pending."""
    STAY = "stay"
    """The last `close` that waited was cancelled."""
    SEAL = "seal"
    """`close`, or a failure that the writer cannot get over."""
    STORED = "stored"
    """The metadata says: closed, with this writer's last entry and length."""
    NO_STORE = "no store"
    """The metadata store could not be reached."""
    REFUSED = "refused"
    """The metadata store says no."""
    WITHDRAW = "withdraw"
    """The ledger is in recovery, or the client is closed."""


_ALIVE = frozenset((WriterState.OPEN, WriterState.UNABLE, WriterState.DRAINING))

WRITER_LIFE = Transitions(
    "writer",
    WriterState,
    WriterEvent,
    {
        WriterState.OPEN: {
            WriterEvent.DRAIN: WriterState.DRAINING,
            WriterEvent.SEAL: WriterState.SEALING,
            WriterEvent.WITHDRAW: WriterState.WITHDRAWN,
        },
        WriterState.UNABLE: {
            WriterEvent.DRAIN: WriterState.UNABLE,
            WriterEvent.SEAL: WriterState.SEALING,
            WriterEvent.WITHDRAW: WriterState.WITHDRAWN,
        },
        WriterState.DRAINING: {
            WriterEvent.DRAIN: WriterState.DRAINING,
            WriterEvent.STAY: WriterState.OPEN,
            WriterEvent.SEAL: WriterState.SEALING,
            WriterEvent.WITHDRAW: WriterState.WITHDRAWN,
        },
        WriterState.SEALING: {
            WriterEvent.DRAIN: WriterState.SEALING,
            WriterEvent.SEAL: WriterState.SEALING,
            WriterEvent.STORED: WriterState.SEALED,
            WriterEvent.NO_STORE: WriterState.UNSEALED,
            WriterEvent.REFUSED: WriterState.CONTESTED,
            WriterEvent.WITHDRAW: WriterState.WITHDRAWN,
        },
        WriterState.SEALED: {
            WriterEvent.DRAIN: WriterState.SEALED,
            WriterEvent.SEAL: WriterState.SEALED,
        },
        WriterState.UNSEALED: {
            WriterEvent.DRAIN: WriterState.UNSEALED,
            WriterEvent.SEAL: WriterState.SEALING,
        },
        WriterState.CONTESTED: {
            WriterEvent.DRAIN: WriterState.CONTESTED,
            WriterEvent.SEAL: WriterState.CONTESTED,
        },
        WriterState.WITHDRAWN: {
            WriterEvent.DRAIN: WriterState.WITHDRAWN,
            WriterEvent.SEAL: WriterState.WITHDRAWN,
        },
    },
)
