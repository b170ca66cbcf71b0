"""Breadth-first search over everything that can happen to one ledger.

A state is a flat tuple of small numbers: the store's record, the accidents still allowed, each client, each bookie,
then the messages in flight, ascending. Numbers stand for states of single players: what one player does in one of its
states on one event is worked out once, by running it, and remembered. There are a few thousand such reactions and up
to millions of states, so the shipped code costs next to nothing, and a state takes a few hundred bytes.

Any message in flight may be delivered next, in any order; one that is never delivered is lost; a client that is given
no more turns is dead. Bookies handle a request at once and completely.
"""

from __future__ import annotations

import gc
import pickle
import time
from array import array
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.recovery import Phase
from tests.support.actors.bookie import Bookie
from tests.support.actors.messages import OK, REQUESTS, Add, Added, Fence, Fenced, Message, Read, Request, StaleFence
from tests.support.actors.store import Record, Store

from .invariants import Broken, View, broken
from .players import (
    STORE_EVENTS,
    BookiePlayer,
    Client,
    Event,
    RecovererPlayer,
    WriterPlayer,
    payload,
    unpromised_ack_quorum,
)

RECORD = 0
ACCIDENTS = 1
FIRST_CLIENT = 2
NOBODY = -1


class Violation(NamedTuple):
    """The first state in which an invariant does not hold, and the shortest way to it."""

    invariant: str
    what: str
    trace: list[str]


@dataclass
class Result:
    """What a search found."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    """Processor time."""
    exhausted: bool = False
    violation: Violation | None = None
    notes: set[str] = field(default_factory=set)
    """Everything any application was told in any state: what the search has reached."""
    reactions: int = 0
    """How often a player was run."""


class _Reaction(NamedTuple):
    state: int
    sent: tuple[int, ...]
    record: int
    breaches: tuple[Broken, ...]


class Explorer:
    """One search. `players`: clients, then bookies."""

    def __init__(
        self,
        record: Record,
        clients: Sequence[Client],
        bookies: Sequence[BookiePlayer],
        *,
        in_flight: Sequence[Message] = (),
        accidents: int = 0,
        accident: str = "loses everything",
        check: Sequence[str],
        max_states: int = 50_000_000,
    ) -> None:
        self.accident = accident
        self.check = frozenset(check)
        self._check_early_reads = "PI-13" in self.check
        self.max_states = max_states
        value = record.value
        self.distribution = Distribution(value.ensemble_size, value.write_quorum, value.ack_quorum)
        self.first_bookie = FIRST_CLIENT + len(clients)
        self.first_message = self.first_bookie + len(bookies)
        self.slots: dict[str, int] = {}
        self.records: list[Record] = []
        self.messages: list[Message] = []
        self.players: list[list[Client | BookiePlayer]] = [[] for _ in range(self.first_message)]
        self.choices: list[list[list[Event]]] = [[] for _ in range(self.first_message)]
        self._frozen: list[list[bytes]] = [[] for _ in range(self.first_message)]
        self._ids: list[dict[Hashable, int]] = [{} for _ in range(self.first_message)]
        self._message_ids: dict[Message, int] = {}
        self._slots_of: list[tuple[int, int, int]] = []  # message -> receiver, client, bookie
        self._reactions: dict[tuple[int, int, object, int], _Reaction] = {}
        self._kept: dict[tuple[int, int, int], int] = {}
        self._broken: dict[tuple[int, ...], Broken | None] = {}
        self._overs: dict[tuple[int, int], bool] = {}
        self._harmless: set[tuple[int, int, int]] = set()  # changes of clients that are no beginning to read
        self.result = Result()
        for slot, player in enumerate([*clients, *bookies], FIRST_CLIENT):
            self.slots[player.actor.name] = slot
        self.lacs_matter = any(bookie.lacs_matter for bookie in bookies)
        self._stale_kinds_differ = not bookies[0].actor.rules.fence_unknown_ledgers
        state = [self._record_id(record), accidents]
        state += [self._player_id(self.slots[player.actor.name], player) for player in [*clients, *bookies]]
        self.start = self._settled(state, NOBODY, (), tuple(self._message_id(message) for message in in_flight))

    # --- numbers for things ---

    def _record_id(self, record: Record) -> int:
        value = record.value
        key = record.version, value.state, tuple(value.ensembles.items()), value.last_entry_id, value.length
        ids = self._ids[RECORD]
        if key not in ids:
            ids[key] = len(self.records)
            self.records.append(record)
        return ids[key]

    def _player_id(self, slot: int, player: Client | BookiePlayer) -> int:
        ids = self._ids[slot]
        key = player.key()
        if key not in ids:
            ids[key] = len(self.players[slot])
            self.players[slot].append(player)
            self.choices[slot].append([] if isinstance(player, BookiePlayer) else player.choices())
            self._frozen[slot].append(pickle.dumps(player))
        return ids[key]

    def _message_id(self, message: Message) -> int:
        if message not in self._message_ids:
            self._message_ids[message] = len(self.messages)
            self.messages.append(message)
            client = self.slots.get(message.client, NOBODY)
            bookie = self.slots[message.bookie]
            self._slots_of.append((bookie if isinstance(message, REQUESTS) else client, client, bookie))
        return self._message_ids[message]

    # --- what a player does ---

    def _react(self, slot: int, state: int, event: Event | int, record: int) -> _Reaction:
        """What the player of a slot does in one of its states on an event or message."""
        key = slot, state, event, record
        reaction = self._reactions.get(key)
        if reaction is None:
            reaction = self._reactions[key] = self._run(slot, state, event, record)
        return reaction

    def _run(self, slot: int, state: int, event: Event | int, record: int) -> _Reaction:
        self.result.reactions += 1
        player = pickle.loads(self._frozen[slot][state])
        store = Store(self.records[record]) if record >= 0 else None
        if isinstance(player, BookiePlayer):
            sent, breaches = self._run_bookie(player.actor, event, store)
        else:
            sent, breaches = self._run_client(player, event, store)
        return _Reaction(
            self._player_id(slot, player),
            tuple(self._message_id(message) for message in sent),
            self._record_id(store.record) if store is not None else record,
            tuple(breach for breach in breaches if breach[0] in self.check),
        )

    def _run_bookie(
        self, bookie: Bookie, event: Event | int, store: Store | None
    ) -> tuple[list[Message], list[Broken]]:
        if isinstance(event, Event):
            assert store is not None
            if event.what == "loses everything":
                bookie.lose(closed=store.record.value.closed)
            else:
                bookie.crash()
            return [], []
        request = self.messages[event]
        assert isinstance(request, REQUESTS)
        answer = bookie.handle(request)
        breaches, bookie.breaches = bookie.breaches, []
        return [] if answer is None else [answer], breaches

    def _run_client(
        self, player: Client, event: Event | int, store: Store | None
    ) -> tuple[list[Message], list[Broken]]:
        actor = player.actor
        if isinstance(event, Event):
            player.take(event, store)
        else:
            player.hear(self.messages[event])
        actor.check()
        self.result.notes.update(f"{actor.name}: {note}" for note in actor.notes)
        actor.notes.clear()
        sent, actor.out = actor.out, []
        breaches, actor.breaches = actor.breaches, []
        if store is not None:
            breaches += store.breaches
        return sent, breaches

    # --- steps ---

    def successors(self, state: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[Broken, ...]]]:
        """Every state one step away, and what was done wrong in the step; always in the same order."""
        reactions, slots_of, first_message = self._reactions, self._slots_of, self.first_message
        players = state[:first_message]
        in_flight = state[first_message:]
        for position, message in enumerate(in_flight):
            slot = slots_of[message][0]
            before = state[slot]
            reaction = reactions.get((slot, before, message, NOBODY))
            if reaction is None:
                reaction = self._react(slot, before, message, NOBODY)
            flying = in_flight[:position] + in_flight[position + 1 :]
            if reaction.state == before and not reaction.sent:
                yield players + flying, reaction.breaches
                continue
            after = list(players)
            after[slot] = reaction.state
            breaches = reaction.breaches
            if slot < self.first_bookie and self._check_early_reads:
                breaches += self._early_reads(state, slot, reaction.state)
            yield self._settled(after, slot, flying, reaction.sent), breaches
        for slot, event in self._events(state):
            record = state[RECORD] if slot >= self.first_bookie or event in STORE_EVENTS else NOBODY
            reaction = self._react(slot, state[slot], event, record)
            after = list(players)
            after[slot] = reaction.state
            if record >= 0:
                after[RECORD] = reaction.record
            if slot >= self.first_bookie:
                after[ACCIDENTS] -= 1
            yield self._settled(after, slot, in_flight, reaction.sent), reaction.breaches

    def _events(self, state: tuple[int, ...]) -> Iterator[tuple[int, Event]]:
        for slot in range(FIRST_CLIENT, self.first_bookie):
            for event in self.choices[slot][state[slot]]:
                yield slot, event
        if state[ACCIDENTS]:
            for slot in range(self.first_bookie, self.first_message):
                yield slot, Event(self.accident)

    def _early_reads(self, state: tuple[int, ...], slot: int, after: int) -> tuple[Broken, ...]:
        """PI-13: a recoverer goes on to reading only when no ack quorum of unfenced bookies is left."""
        change = slot, state[slot], after
        if change in self._harmless:
            return ()
        player, now = self.players[slot][state[slot]], self.players[slot][after]
        if not isinstance(player, RecovererPlayer) or not isinstance(now, RecovererPlayer):
            self._harmless.add(change)
            return ()
        before, core = player.actor.core, now.actor.core
        if before is None or core is None or before.phase is not Phase.FENCING or core.phase is Phase.FENCING:
            self._harmless.add(change)
            return ()
        promised = {name for name, bookie in self.bookies(state) if bookie.promised}
        assert now.actor.known is not None
        if unpromised_ack_quorum(self.distribution, now.actor.known.value.last_ensemble[1], promised):
            return (("PI-13", f"{now.actor.name} began to read while an ack quorum was not fenced"),)
        return ()

    def bookies(self, state: Sequence[int]) -> Iterator[tuple[str, Bookie]]:
        for slot in range(self.first_bookie, self.first_message):
            player = self.players[slot][state[slot]]
            assert isinstance(player, BookiePlayer)
            yield player.actor.name, player.actor

    def broken(self, state: tuple[int, ...]) -> Broken | None:
        """An invariant of `check` that does not hold. Remembered: most steps leave what it depends on alone."""
        key = (*state[: FIRST_CLIENT + 1], *state[self.first_bookie : self.first_message])
        if key not in self._broken:
            found = (breach for breach in broken(self._view(state)) if breach[0] in self.check)
            self._broken[key] = next(found, None)
        return self._broken[key]

    def _view(self, state: tuple[int, ...]) -> View:
        writer = self.players[FIRST_CLIENT][state[FIRST_CLIENT]]
        return View(
            self.records[state[RECORD]].value,
            writer.actor.acked if isinstance(writer, WriterPlayer) else -1,
            dict(self.bookies(state)),
            lambda entry: (payload(entry), (2 << entry) - 1),
            self.start[ACCIDENTS] - state[ACCIDENTS] if self.accident == "loses everything" else 0,
        )

    # --- messages that matter ---

    def _settled(
        self, state: list[int], changed: int, in_flight: Sequence[int], sent: Sequence[int]
    ) -> tuple[int, ...]:
        """The state, with the messages in flight that can still have an effect.

        All but those of the player that has changed, and those just sent, are known to.
        """
        if self._over(state):
            return tuple(state)
        kept, slots_of = self._kept, self._slots_of
        for number in sent:
            if number not in in_flight:
                in_flight = (*in_flight, number)
        flying = []
        for message in in_flight:
            _, client, bookie = slots_of[message]
            if client == changed or bookie == changed or message in sent:
                key = message, state[client] if client >= 0 else NOBODY, state[bookie]
                still = kept.get(key)
                if still is None:
                    still = kept[key] = self._keep(message, client, bookie, state)
                if still == NOBODY:
                    continue
                if still != message:
                    if still not in flying and still not in in_flight:
                        flying.append(still)
                    continue
            flying.append(message)
        flying.sort()
        return (*state, *flying)

    def _over(self, state: list[int]) -> bool:
        """The ledger is closed and its writer at rest: only late turns at the store are worth looking at."""
        key = state[RECORD], state[FIRST_CLIENT]
        over = self._overs.get(key)
        if over is None:
            writer = self.players[FIRST_CLIENT][state[FIRST_CLIENT]]
            closed = self.records[state[RECORD]].value.closed
            at_rest = not isinstance(writer, WriterPlayer) or writer.idle
            over = self._overs[key] = closed and at_rest and not self.lacs_matter
        return over

    def _keep(self, number: int, client_slot: int, bookie_slot: int, state: list[int]) -> int:
        """The message, or what is left of it; NOBODY if nothing."""
        message = self.messages[number]
        player = self.players[bookie_slot][state[bookie_slot]]
        assert isinstance(player, BookiePlayer)
        bookie = player.actor
        if isinstance(message, StaleFence):
            return NOBODY if bookie.fenced else number
        client = self.players[client_slot][state[client_slot]]
        assert not isinstance(client, BookiePlayer)
        if isinstance(message, Added):
            return number if client.wants_added(message.bookie, message.entry, message.code) else NOBODY
        if isinstance(message, Fenced):
            return number if client.wants_fenced(message.bookie) else NOBODY
        if isinstance(message, Add):
            return number if self._add_matters(message, client, player) else NOBODY
        if isinstance(message, Fence):
            return number if client.wants_fenced(message.bookie) else self._stale(message, bookie)
        if isinstance(message, Read):
            return number if client.wants_got(message.bookie, message.entry) else self._stale(message, bookie)
        return number if client.wants_got(message.bookie, message.entry) else NOBODY

    def _stale(self, message: Request, bookie: Bookie) -> int:
        of_entry = isinstance(message, Read)
        if bookie.fenced or (isinstance(message, Read) and not message.fencing):
            return NOBODY
        return self._message_id(StaleFence("", message.bookie, of_entry and self._stale_kinds_differ))

    def _add_matters(self, add: Add, client: Client, player: BookiePlayer) -> bool:
        bookie = player.actor
        accepted = bookie.accepts(add)
        if client.wants_added(add.bookie, add.entry, OK if accepted else NOBODY):
            return True
        held = bookie.entries.get(add.entry)
        if held is None:
            return accepted or self.start_has_accidents
        seen = player.lacs_matter or add.entry == max(bookie.entries)
        return accepted and seen and held[2] != add.lac

    @property
    def start_has_accidents(self) -> bool:
        """A refused add may be taken later, when the bookie has forgotten its fence."""
        return bool(getattr(self, "start", (0, 1))[ACCIDENTS])

    # --- the search ---

    def run(self) -> Result:
        """Search until everything was seen or an invariant of `check` is broken."""
        began = time.process_time()
        gc.disable()  # millions of tuples of numbers: nothing to collect
        try:
            self._search()
        finally:
            gc.enable()
        self.result.seconds = time.process_time() - began
        return self.result

    def _search(self) -> None:
        result = self.result
        parents = array("q", [-1])
        steps = array("H", [0])
        seen = {self.start}
        level = [(0, self.start)]
        while level:
            result.depth += 1
            following = []
            for index, state in level:
                for step, (after, breaches) in enumerate(self.successors(state)):
                    result.transitions += 1
                    if breaches:
                        self._report(breaches[0], parents, steps, index, step)
                        return
                    if after in seen:
                        continue
                    seen.add(after)
                    following.append((len(parents), after))
                    parents.append(index)
                    steps.append(step)
                    result.states = len(seen)
                    breach = self.broken(after)
                    if breach is not None:
                        self._report(breach, parents, steps, index, step)
                        return
                if len(seen) > self.max_states:
                    return
            level = following
        result.exhausted = True

    # --- telling ---

    def _report(self, breach: Broken, parents: array[int], steps: array[int], index: int, step: int) -> None:
        path = [step]
        while index > 0:
            path.append(steps[index])
            index = parents[index]
        self.result.violation = Violation(*breach, self._retell(path[::-1]))

    def _retell(self, path: list[int]) -> list[str]:
        """The steps of a path in words."""
        state = self.start
        told = []
        for step in path:
            told.append(self._name(state, step))
            for position, (after, _) in enumerate(self.successors(state)):
                if position == step:
                    told[-1] += self._effect(state, after)
                    state = after
                    break
        return told

    def _name(self, state: tuple[int, ...], step: int) -> str:
        in_flight = state[self.first_message :]
        if step < len(in_flight):
            return str(self.messages[in_flight[step]])
        slot, event = list(self._events(state))[step - len(in_flight)]
        return f"{self.players[slot][0].actor.name} {event}"

    def _effect(self, before: tuple[int, ...], after: tuple[int, ...]) -> str:
        changes = []
        if before[RECORD] != after[RECORD]:
            changes.append(f"store {self.records[after[RECORD]]}")
        for slot in range(FIRST_CLIENT, self.first_message):
            if before[slot] == after[slot]:
                continue
            was, now = self.players[slot][before[slot]], self.players[slot][after[slot]]
            if isinstance(now, BookiePlayer):
                changes.append(f"{now.actor.name}: {now.actor}")
            elif isinstance(now, WriterPlayer) and isinstance(was, WriterPlayer):
                if now.actor.acked > was.actor.acked:
                    changes.append(f"e{now.actor.acked} acknowledged")
                if now.actor.ended != was.actor.ended:
                    changes.append(f"writer {now.actor.ended}")
        return f"   [{', '.join(changes)}]" if changes else ""
