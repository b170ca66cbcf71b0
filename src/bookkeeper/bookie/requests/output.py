"""The output side of a connection: answers go out once a turn, and the peer has to take them.

Theory of operation

Answers are gathered and written once per turn of the loop, or sooner when there are many. What the peer has not taken
stays in the transport, and is counted in the connection's account.

Above `serverWriteBufferHighWaterMark` the gate closes until the peer has taken what it was sent, down to the low mark.
The connection then reads no more from the socket, and its queues stop. A peer that takes nothing at all for
`waitTimeoutOnResponseBackpressureMs` is given up, or its answers are dropped from then on
(`closeChannelOnResponseTimeout`). One that takes a little is slow, not dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...config import ServerConfiguration
from ...runtime import Runtime, TimerHandle
from ..sharing.memory import Account
from ..stats import BookieStats
from .ledger_queues import Gate

FLUSH_AT_ONCE = 256 << 10
"""Gathered answers of this size are written without waiting for the end of the turn."""

ANSWERS_UNDER_WAY = 4 << 20
"""Bytes of answers that a connection's queues work on at once, if they are as large as its last ones."""


class Output:
    """The answers of one connection. Those before `begin` and after `close` are dropped."""

    __slots__ = (
        "_account",
        "_config",
        "_dropping",
        "_flush_due",
        "_give_up",
        "_joins",
        "_large",
        "_loop",
        "_out",
        "_out_size",
        "_runtime",
        "_sent",
        "_stats",
        "_taken",
        "_timer",
        "_took",
        "_transport",
        "charge",
        "gate",
        "taken_at",
    )

    def __init__(
        self,
        runtime: Runtime,
        config: ServerConfiguration,
        stats: BookieStats,
        account: Account,
        give_up: Callable[[], None],
        took: Callable[[float], None],
    ) -> None:
        """`give_up` is called when the peer takes nothing for too long, `took` with the seconds that answers took of
        the loop's time to be written."""
        self._runtime = runtime
        self._config = config
        self._stats = stats
        self._account = account
        self._give_up = give_up
        self._took = took
        self._loop = asyncio.get_running_loop()
        # asyncio's own `writelines` of 3.12 and 3.13 does not tell when too much is written, and does not see that the
        # connection is being closed: it goes on to wait for a socket whose number is another's by then.
        self._joins = isinstance(self._loop, asyncio.BaseEventLoop)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []  # answers gathered in this turn
        self._out_size = 0
        self._flush_due = False
        self._timer: TimerHandle | None = None
        self._dropping = False  # the peer has not read for too long
        self._large = 0  # the largest of the last answers, fading
        self._sent = 0  # bytes given to the transport since the beginning
        self._taken = 0  # of these, taken by the peer when it was looked last
        self.taken_at = 0.0
        """When the peer was last seen to have taken something."""
        self.charge = 0
        """Bytes counted in the account for answers that were not taken."""
        self.gate = Gate()
        """Closed while the peer has too many answers to take; open when the connection is gone."""

    def begin(self, transport: asyncio.Transport) -> None:
        """Answers go here from now on."""
        self._transport = transport
        high = self._config.serverWriteBufferHighWaterMark
        transport.set_write_buffer_limits(high, min(self._config.serverWriteBufferLowWaterMark, high))

    def send(self, data: bytes) -> None:
        """Send the bytes of one or more answers; dropped if the connection is gone."""
        if self._transport is None:
            return
        if self._dropping:
            self._stats.responses_dropped += 1
            return
        self._out.append(data)
        self._out_size += len(data)
        if self._out_size >= FLUSH_AT_ONCE:
            self.flush()
        elif not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        self._flush_due = False
        started = self._runtime.now()
        self.flush()
        self._took(self._runtime.now() - started)

    def flush(self) -> None:
        """Write what is gathered."""
        out, transport = self._out, self._transport
        if not out or transport is None:
            return
        self._out = []
        self._sent += self._out_size
        self._out_size = 0
        if len(out) == 1:
            transport.write(out[0])
        elif self._joins:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)
        charge = transport.get_write_buffer_size()
        if charge != self.charge:
            self._count(charge)

    def _count(self, charge: int) -> None:
        more, self.charge = charge - self.charge, charge
        self._account.add(more)

    def measure(self) -> None:
        """Correct what is counted: the peer may have taken some since."""
        if self.charge and self._transport is not None:
            self._look()
            self._count(self._transport.get_write_buffer_size())

    # --- how large answers are ---------------------------------------------------------------------------------

    def answer_has(self, size: int) -> None:
        """So large was an answer: it is what the next ones are expected to be."""
        self._large = max(size, self._large - (self._large >> 3))

    def side_by_side(self, most: int) -> int:
        """How many answers may be in the making at once: `most`, or less when they are large."""
        return min(most, max(2, ANSWERS_UNDER_WAY // (self._large or 1)))

    # --- a peer that does not take its answers -----------------------------------------------------------------

    def full(self) -> None:
        """The transport holds more than the high mark."""
        self.gate.set(False)
        self._watch()

    def drained(self) -> None:
        """The transport holds no more than the low mark."""
        self._dropping = False
        self._stop_watching()
        self.gate.set(True)

    def close(self) -> None:
        """The connection is gone: drop what is gathered."""
        self._transport = None
        self._out.clear()
        self._out_size = 0
        self._stop_watching()
        self.gate.set(True)

    def _look(self) -> bool:
        """Whether the peer has taken any of its answers since the last look."""
        if self._transport is None:
            return True
        taken = self._sent - self._transport.get_write_buffer_size()
        if taken == self._taken:
            return False
        self._taken = taken
        self.taken_at = self._runtime.now()
        return True

    def _watch(self) -> None:
        timeout = self._config.waitTimeoutOnResponseBackpressureMs
        if timeout >= 0:
            self._look()
            self._timer = self._runtime.call_later(timeout / 1000, self._waited)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _waited(self) -> None:
        """The gate has been closed for `waitTimeoutOnResponseBackpressureMs` at least."""
        self._timer = None
        if self._look():
            self._watch()
        elif self._config.closeChannelOnResponseTimeout:
            self._give_up()
        else:
            self._dropping = True
