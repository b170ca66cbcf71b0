"""The players of a ledger, as the explorer sees them.

A player has a *key* (two states with equal keys behave alike from there on), *choices* (what it may do without being
told), and takes *events*. Three reductions keep the number of states small; none loses a behaviour:

- What cannot matter any more is left out of the keys: the answers to the fencing reads once the coverage is reached,
  frames that cannot be sent again, codes that only choose the name of an error.
- A message that can no longer have an effect is dropped (`Checker` asks `wants...`). It may also be lost at any time
  simply by never being delivered.
- A fencing read nobody waits for any more becomes a `StaleFence`, whoever sent it for whatever entry.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from bookkeeper.errors import BookieUnavailableError, RequestTimeoutError
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.recovery import Phase
from bookkeeper.quorum.window import PendingWindow
from bookkeeper.types import BookieId
from tests.support.actors.adds import Adds
from tests.support.actors.bookie import Bookie
from tests.support.actors.messages import OK, Added, Fenced, Got, Message
from tests.support.actors.recoverer import Recoverer
from tests.support.actors.store import Record, Store
from tests.support.actors.writer import Writer

from .freeze import freeze


@dataclass(frozen=True)
class Event:
    """Something that a player does of itself, or that befalls it."""

    what: str
    bookie: str = ""
    entry: int = -1

    def __str__(self) -> str:
        return self.what.format(bookie=self.bookie, entry=self.entry)


APPEND = Event("appends an entry")
CLOSE = Event("closes")
START = Event("starts recovery")
STORE = Event("has its turn at the store")
STORE_EVENTS = (START, STORE)
"""Events that need the store."""
LOSS = "gives up on {bookie}"
SILENCE = "hears nothing from {bookie} about e{entry}"


def payload(entry: int) -> str:
    """What is appended. Sizes are powers of two: every set of entries has a length of its own."""
    return str(entry).rjust(1 << entry)


_NEVER_MATTERS = frozenset(
    {
        "window",  # the keeper's, frozen on its own
        "_since",
        "late_failures",
        "rounds",
        "_last_error",
        "_error",
        "winner",
        "_distribution",
        "_rules",
        "_policy",
        "_order",
        "_index",
    }
)
"""Attributes that no later decision depends on, or that are the same in all states."""
_NOT_WITHOUT_CHANGES = _NEVER_MATTERS | {"_failed_before"}
_NOT_AFTER_FENCING = _NEVER_MATTERS | {"_coverage", "_best_lac"}


def _known(record: Record | None) -> Hashable:
    if record is None:
        return None
    value = record.value
    return record.version, value.state, freeze(value.ensembles), value.last_entry_id, value.length


def _adds_key(adds: Adds | None, changes: bool) -> Hashable:
    if adds is None:
        return None
    skip = _NEVER_MATTERS if changes else _NOT_WITHOUT_CHANGES
    return _window_key(adds.window, changes), freeze(adds.keeper, skip), adds.stopped is None


def _window_key(window: PendingWindow, changes: bool) -> Hashable:
    """What it has and what was answered, whether it keeps that by masks or not."""
    entries = tuple(
        (entry_id, window.answers(entry_id), (size, frame) if changes else None)
        for entry_id, (size, _, frame, _) in window.open.items()
    )
    return window.lac, window.head, window.lap, window.length, entries


class WriterPlayer:
    """The writer: appends, closes when it likes, may lose bookies."""

    def __init__(self, actor: Writer, *, appends: int, losses: int, closes: bool) -> None:
        self.actor = actor
        self.appends = appends
        self.losses = losses
        """How many more times it may find a bookie unreachable."""
        self.closes = closes

    def key(self) -> Hashable:
        actor = self.actor
        update = actor.update.name if actor.update else None
        answered = actor.answered and (actor.answered[0], _known(actor.answered[1]))
        if actor.ended is not None:
            known = _known(actor.known) if update else None
            return actor.acked, actor.ended, update, actor._end if update else None, known, answered
        changes = self.losses > 0 or update is not None
        return (
            actor.acked,
            self.appends,
            self.losses,
            update,
            freeze(actor._change) if update else None,
            answered,
            _known(actor.known),
            _adds_key(actor.adds, changes),
        )

    @property
    def idle(self) -> bool:
        """Nothing it does or hears from now on can matter."""
        return self.actor.ended is not None and self.actor.update is None

    def choices(self) -> list[Event]:
        actor = self.actor
        events = []
        if actor.ended is None:
            if self.appends:
                events.append(APPEND)
            if self.losses:
                events += [
                    Event(LOSS, bookie) for bookie in actor.adds.keeper.ensemble if actor.adds.unanswered(bookie)
                ]
            if self.closes:
                events.append(CLOSE)
        if actor.update is not None:
            events.append(STORE)
        return events

    def take(self, event: Event, store: Store | None) -> None:
        actor = self.actor
        if event is APPEND:
            self.appends -= 1
            actor.append(payload(len(actor.payloads)))
        elif event is CLOSE:
            actor.close()
        elif event is STORE:
            assert store is not None
            actor.store_turn(store)
        else:
            assert event.what == LOSS
            self.losses -= 1
            actor.adds.on_lost(BookieId(event.bookie), BookieUnavailableError.code)

    def hear(self, message: Message) -> None:
        assert isinstance(message, Added)
        self.actor.adds.on_added(message)

    def wants_added(self, bookie: str, entry: int, code: int) -> bool:
        actor = self.actor
        if actor.ended is not None:
            return False
        returning = self.losses > 0 or actor.update is not None
        return code != OK or actor.adds.awaits(bookie, entry, returning=returning)

    def wants_fenced(self, bookie: str) -> bool:
        return False

    def wants_got(self, bookie: str, entry: int) -> bool:
        return False


class RecovererPlayer:
    """A recoverer: starts when it likes, may lose bookies or stop for good at any point (by having no more turns)."""

    def __init__(self, actor: Recoverer, *, losses: int, timeouts: int) -> None:
        self.actor = actor
        self.losses = losses
        """How many more times it may find a bookie unreachable for write-backs."""
        self.timeouts = timeouts
        """How many more of its reads may time out."""
        self.started = False

    def key(self) -> Hashable:
        actor = self.actor
        if not self.started or actor.ended is not None:
            return self.started
        core = actor.core
        assert core is not None
        skip = _NEVER_MATTERS if core.phase is Phase.FENCING else _NOT_AFTER_FENCING
        if core.phase is Phase.DONE:
            return "closing", freeze(core.recovered), actor._close, _known(actor.known), actor.update is None
        return (
            freeze(core, skip),
            _adds_key(actor.adds, self.losses > 0),
            _known(actor.known),
            tuple(sorted(actor.asked)),
            self.losses,
            self.timeouts,
            actor.update.name if actor.update else None,
        )

    @property
    def idle(self) -> bool:
        return self.actor.ended is not None

    def choices(self) -> list[Event]:
        actor = self.actor
        if not self.started:
            return [START]
        events = []
        if self.losses and actor.adds is not None:
            events += [Event(LOSS, bookie) for bookie in actor.adds.keeper.ensemble if actor.adds.unanswered(bookie)]
        if self.timeouts:
            events += [Event(SILENCE, bookie, entry) for entry, bookie in actor.asked]
        if actor.update is not None:
            events.append(STORE)
        return events

    def take(self, event: Event, store: Store | None) -> None:
        actor = self.actor
        if event is START:
            assert store is not None
            self.started = True
            actor.start(store)
        elif event is STORE:
            assert store is not None
            actor.store_turn(store)
        elif event.what == LOSS:
            assert actor.adds is not None
            self.losses -= 1
            actor.adds.on_lost(BookieId(event.bookie), BookieUnavailableError.code)
        else:
            self.timeouts -= 1
            actor.on_silence(event.entry, event.bookie, RequestTimeoutError.code)

    def hear(self, message: Message) -> None:
        actor = self.actor
        if isinstance(message, Fenced):
            actor.on_fenced(message)
        elif isinstance(message, Got):
            actor.on_got(message)
        else:
            assert isinstance(message, Added)
            actor.on_added(message)

    def wants_added(self, bookie: str, entry: int, code: int) -> bool:
        adds = self.actor.adds
        if adds is None or adds.stopped is not None:
            return False
        return code != OK or adds.awaits(bookie, entry, returning=self.losses > 0)

    def wants_fenced(self, bookie: str) -> bool:
        return self.actor.awaits(-1, bookie)

    def wants_got(self, bookie: str, entry: int) -> bool:
        return self.actor.awaits(entry, bookie)


class BookiePlayer:
    """A bookie. Its accidents come from the explorer, which has a budget of them."""

    def __init__(self, actor: Bookie, *, lacs_matter: bool) -> None:
        self.actor = actor
        self.lacs_matter = lacs_matter

    def key(self) -> Hashable:
        actor = self.actor
        entries = tuple(sorted(actor.entries))
        last_lac = actor.entries[entries[-1]][2] if entries else -1
        lac = actor.lac if self.lacs_matter else -1
        return entries, last_lac, lac, actor.fenced, actor.limbo, actor.promised


Client = WriterPlayer | RecovererPlayer


def unpromised_ack_quorum(distribution: Distribution, ensemble: tuple[BookieId, ...], promised: set[str]) -> bool:
    """Whether some write set has an ack quorum of bookies that did not answer a fencing request."""
    return any(
        sum(ensemble[index] not in promised for index in write_set) >= distribution.ack_quorum
        for write_set in distribution.write_sets
    )
