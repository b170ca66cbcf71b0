"""The life of a connection to a bookie (spec client §12.4).

    connecting  the dialer is at work; frames wait
    connected   frames go out, answers come in
    closed      everything outstanding has failed; the pool makes a new connection at the next use

A connection lives once, and nothing leads back. There is no state for authentication: bookies that ask for it are not
supported yet, so being asked is an end.
"""

from __future__ import annotations

from enum import Enum

from ...runtime.transitions import Transitions


class ConnectionState(Enum):
    """See the module."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    CLOSED = "closed"


class ConnectionEvent(Enum):
    """What happens to a connection."""

    MADE = "made"
    """The transport is there. After the end it comes too late, and is aborted."""
    UNREACHABLE = "unreachable"
    """The bookie could not be reached, or not in time."""
    LOST = "lost"
    """The bookie closed the connection, or sent what cannot be understood or taken."""
    DISMISSED = "dismissed"
    """This client needs the connection no longer: it closes, or the one add channel that the connection served has
    its last answer, or will get none in time."""


CONNECTION_LIFE = Transitions(
    "connection",
    ConnectionState,
    ConnectionEvent,
    {
        ConnectionState.CONNECTING: {
            ConnectionEvent.MADE: ConnectionState.CONNECTED,
            ConnectionEvent.UNREACHABLE: ConnectionState.CLOSED,
            ConnectionEvent.DISMISSED: ConnectionState.CLOSED,
        },
        ConnectionState.CONNECTED: {
            ConnectionEvent.UNREACHABLE: ConnectionState.CLOSED,  # made, and yet dialling failed: a socket option
            ConnectionEvent.LOST: ConnectionState.CLOSED,
            ConnectionEvent.DISMISSED: ConnectionState.CLOSED,
        },
        ConnectionState.CLOSED: {
            ConnectionEvent.MADE: ConnectionState.CLOSED,
            ConnectionEvent.UNREACHABLE: ConnectionState.CLOSED,
            ConnectionEvent.LOST: ConnectionState.CLOSED,
            ConnectionEvent.DISMISSED: ConnectionState.CLOSED,
        },
    },
)
