"""A ledger, its players, and the commands that move them. Nothing happens that no command says.

ledger 3/3/2 b1 b2 b3 b4 [options]   a new ledger on the first E bookies, and its writer w; the others are spares
    without=RULE,...                 plants bugs: names of ProtocolRules or BookieRules
    delay  deferred  max-changes=N   delayEnsembleChange, DEFERRED_SYNC, maxNumEnsembleChanges
    racks=x,x,y,...                  an ack quorum must span two racks
append P...        write ID P        appends; an advanced writer chooses the id
start r1 [batch=N] [eager]           a recoverer opens the ledger (eager: asks all replicas at once)
close w            kill NAME         a client seals the ledger; a client is no more
store NAME                           the update loop a client is in makes one attempt at the store
deliver FROM TO [eN]                 messages in flight arrive: requests (FROM is a client) or answers; * is any
exchange CLIENT BOOKIES [eN]         requests arrive and their answers too, one by one; BOOKIES: b1,b2 or *
lose FROM TO [eN]                    messages are lost
fail w b1 [CODE]                     the connection to a bookie is lost, or overdue, with all that is unanswered
refuse CLIENT b1 eN|fence CODE       a bookie answers with an error instead of doing what is asked
silence r1 b1 eN|fence [CODE]        a recoverer gives up waiting for an answer; the request may still arrive
speculate r1 eN                      a read takes long: one more replica is asked
clock T [quorum=S]                   it is T; the quorum timeout of the writer is looked for
changes off|on     retry w           the feature disable_ensemble_change; the pause before a retry is over
synced                               `force` succeeded for all that was acknowledged
bookie b1 restarts|loses-everything|down|up   an accident; down: it refuses connections
somebody closes L N|recovers|rewrites FIRST b1 b2...   another client changes the metadata
run [NAME...]                        everything (of these clients) arrives and happens, oldest first
die-at-every-step [b3]               r1 dies (and b3 goes down) after each of its steps, r2 recovers: what it reports
show  in-flight  check               the state; the messages; the invariants of spec safety §1.4
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from itertools import groupby

from bookkeeper.errors import BookieUnavailableError
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.quorum.ensemble import EnsemblePolicy
from bookkeeper.types import BookieId
from tests.model.invariants import View, broken
from tests.support.actors.adds import Spares
from tests.support.actors.bookie import Bookie, BookieRules
from tests.support.actors.messages import (
    CODES,
    NAMES,
    OK,
    REQUESTS,
    Add,
    Added,
    Answer,
    Fence,
    Fenced,
    Got,
    Message,
    Read,
    Request,
)
from tests.support.actors.recoverer import Recoverer
from tests.support.actors.store import Record, Store, new_ledger
from tests.support.actors.writer import Writer
from tests.support.planted import ProtocolRules

from . import tables

Client = Writer | Recoverer


class World:
    """What a scenario file is about."""

    def __init__(self) -> None:
        self.printed: list[str] = []
        self.quiet = False
        """Only print what a user or the store would notice."""
        self.history: list[str] = []
        """Commands since the ledger was made."""

    def execute(self, line: str) -> list[str]:
        """Carry out one command; what it prints."""
        name, *arguments = shlex.split(line)
        if name in tables.COMMANDS:
            return tables.COMMANDS[name](*arguments)
        self.printed = []
        if name == "ledger":
            self.history = []
        getattr(self, "do_" + name.replace("-", "_"))(*arguments)
        for client in self.clients.values():
            client.check()
        self._collect()
        self.history.append(line)
        return self.printed

    def say(self, line: str, *, always: bool = False) -> None:
        if always or not self.quiet:
            self.printed.append(line)

    # --- beginning ---

    def do_ledger(self, quorum: str, *arguments: str) -> None:
        options: dict[str, str] = {}
        for argument in arguments:
            key, _, value = argument.partition("=")
            if not argument.startswith("b"):
                options[key] = value
        names = [a for a in arguments if a.startswith("b")]
        off = [rule for rule in options.get("without", "").split(",") if rule]
        self.rules = ProtocolRules(**{f.name: f.name not in off for f in fields(ProtocolRules)})
        bookie_rules = BookieRules(**{f.name: f.name not in off for f in fields(BookieRules)})
        known = {f.name for f in (*fields(ProtocolRules), *fields(BookieRules))}
        assert known.issuperset(off), f"no such rule: {off}"
        self.policy = EnsemblePolicy(
            delay_changes="delay" in options,
            deferred_sync="deferred" in options,
            max_changes=int(options.get("max-changes", 2**31 - 1)),
        )
        ensemble, write_quorum, ack_quorum = (int(part) for part in quorum.split("/"))
        self.spares = Spares([*names[ensemble - 1 :: -1], *names[: ensemble - 1 : -1]])  # those never used come first
        self.bookies = {name: Bookie(name, bookie_rules) for name in names}
        self.store = Store(new_ledger(ensemble, write_quorum, ack_quorum, names))
        self.writer = Writer("w", self.store.record, self.spares, policy=self.policy, rules=self.rules)
        self.clients: dict[str, Client] = {"w": self.writer}
        self.flying: list[Message] = []
        self.breaches: list[str] = []
        self.waiting: dict[str, object] = {}  # client -> the update it was last seen in
        self.lost = 0
        self.down: dict[str, None] = {}
        if "racks" in options:
            self._need_two_racks(dict(zip(names, options["racks"].split(","), strict=True)))
        self.say(f"store: {self.store.record}")

    def _need_two_racks(self, rack: dict[str, str]) -> None:
        keeper = self.writer.adds.keeper

        def spans(acked: int) -> bool:
            return len({rack[bookie] for index, bookie in enumerate(keeper.ensemble) if acked >> index & 1}) > 1

        self.writer.adds.window.accept = spans

    def do_start(self, name: str, *options: str) -> None:
        batch = next((int(o.split("=")[1]) for o in options if o.startswith("batch=")), 1)
        recoverer = Recoverer(
            name, self.spares, batch_size=batch, eager="eager" in options, policy=self.policy, rules=self.rules
        )
        self.clients[name] = recoverer
        self._at_store(name, lambda: recoverer.start(self.store))

    # --- the application ---

    def do_append(self, *payloads: str) -> None:
        for payload in payloads:
            self.writer.append(payload)
            self._collect()

    def do_write(self, entry: str, payload: str) -> None:
        self.writer.append(payload, int(entry))

    def do_close(self, name: str) -> None:
        assert name == "w"
        self.writer.close()

    def do_synced(self) -> None:
        self.writer.adds.window.synced(self.writer.adds.window.head)
        self.say(f"w: LAC {self.writer.adds.window.lac}")

    def do_kill(self, name: str) -> None:
        del self.clients[name]
        self.flying = [m for m in self.flying if isinstance(m, REQUESTS) or m.client != name]

    # --- the store ---

    def do_store(self, name: str) -> None:
        client = self.clients[name]
        assert client.update is not None, f"{name} waits for nothing"
        self._at_store(name, lambda: client.store_turn(self.store))

    def _at_store(self, name: str, turn: Callable[[], None]) -> None:
        client = self.clients[name]
        before, update = self.store.record, client.update
        turn()
        if self.store.record is not before:
            self.say(f"store: {self.store.record}", always=True)
        elif update is not None and client.update is update:
            self.say(f"conflict: {name} reads {self.store.record}")
        else:
            self.say("nothing to change")

    def do_somebody(self, what: str, *arguments: str) -> None:
        def changed(value: LedgerMetadata) -> LedgerMetadata:
            if what == "closes":
                return value.close(int(arguments[0]), int(arguments[1]))
            if what == "recovers":
                return value.in_recovery()
            assert what == "rewrites"
            return value.with_ensemble(int(arguments[0]), [BookieId(name) for name in arguments[1:]])

        version, value = self.store.record
        self.store.record = Record(version + 1, changed(value))
        self.say(f"store: {self.store.record}")

    # --- messages ---

    def _in_flight(self, sender: str, receiver: str, entry: str | None = None) -> Iterator[Message]:
        for message in list(self.flying):
            ends = (message.client, message.bookie)
            origin, target = ends if isinstance(message, REQUESTS) else ends[::-1]
            if sender in (origin, "*") and receiver in (target, "*") and entry in (None, _subject(message)):
                yield message

    def do_deliver(self, sender: str, receiver: str, entry: str | None = None) -> None:
        messages = list(self._in_flight(sender, receiver, entry))
        assert messages, "there is no such message"
        for message in messages:
            if not isinstance(message, REQUESTS):
                self.say(f"{message.client} hears from {message.bookie}: {_outcome(message)}")
            self._arrive(message)

    def do_exchange(self, client: str, bookies: str, entry: str | None = None) -> None:
        chosen = list(self.bookies) if bookies == "*" else bookies.split(",")
        assert any(list(self._in_flight(client, bookie, entry)) for bookie in chosen), "there is no such message"
        for bookie in chosen:
            for request in list(self._in_flight(client, bookie, entry)):
                assert isinstance(request, REQUESTS)
                self.flying.remove(request)
                answer = self._at_bookie(request)
                self.say(f"{bookie} answers {client}: {_outcome(answer)}")
                if answer in self.flying:
                    self._arrive(answer)

    def do_lose(self, sender: str, receiver: str, entry: str | None = None) -> None:
        messages = list(self._in_flight(sender, receiver, entry))
        assert messages, "there is no such message"
        for message in messages:
            self.flying.remove(message)

    def _arrive(self, message: Message) -> None:
        """Deliver one message."""
        self.flying.remove(message)
        if isinstance(message, REQUESTS):
            self.say(f"{message.bookie} gets {_question(message)}: {_outcome(self._at_bookie(message))}")
            return
        client = self.clients[message.client]
        if isinstance(message, Added):
            if isinstance(client, Writer):
                client.adds.on_added(message)
            else:
                client.on_added(message)
        else:
            assert isinstance(client, Recoverer)
            if isinstance(message, Fenced):
                client.on_fenced(message)
            else:
                client.on_got(message)
        self._collect()

    def _at_bookie(self, request: Request) -> Answer:
        if request.bookie in self.down:
            answer = _refusal(request, BookieUnavailableError.code)
        else:
            handled = self.bookies[request.bookie].handle(request)
            assert handled is not None
            answer = handled
        if request.client in self.clients:
            self.flying.append(answer)
        return answer

    # --- trouble ---

    def do_fail(self, name: str, bookie: str, code: str = "unavailable") -> None:
        client = self.clients[name]
        assert client.adds is not None
        client.adds.on_lost(BookieId(bookie), _code(code))

    def do_refuse(self, client: str, bookie: str, subject: str, code: str) -> None:
        for request in self._in_flight(client, bookie, subject):
            self.flying.remove(request)
            assert isinstance(request, REQUESTS)
            answer = _refusal(request, _code(code))
            self.say(f"{bookie} answers {client}: {_outcome(answer)}")
            self.flying.append(answer)
            self._arrive(answer)

    def do_silence(self, name: str, bookie: str, subject: str, code: str = "timeout") -> None:
        client = self.clients[name]
        assert isinstance(client, Recoverer)
        client.on_silence(-1 if subject == "fence" else int(subject[1:]), bookie, _code(code))

    def do_speculate(self, name: str, entry: str) -> None:
        client = self.clients[name]
        assert isinstance(client, Recoverer)
        client.speculate(int(entry[1:]))

    def do_clock(self, now: str, *timeouts: str) -> None:
        given = dict(timeout.split("=") for timeout in timeouts)
        self.writer.adds.sweep(float(now), float(given.get("quorum", 0)))

    def do_changes(self, which: str) -> None:
        self.writer.adds.keeper.changes_disabled = which == "off"

    def do_retry(self, name: str) -> None:
        client = self.clients[name]
        assert client.adds is not None
        client.adds.retry()

    def do_bookie(self, name: str, accident: str) -> None:
        if accident == "restarts":
            self.bookies[name].crash()
        elif accident == "down":
            self.down[name] = None
            return
        elif accident == "up":
            del self.down[name]
            return
        else:
            assert accident == "loses-everything"
            self.lost += 1
            self.bookies[name].lose(closed=self.store.record.value.closed)
        self.say(f"{name}: {self.bookies[name]}")

    # --- letting things happen ---

    def do_run(self, *names: str) -> None:
        self.quiet = True
        while self._step(names):
            self._collect()
        self.quiet = False

    def _step(self, names: Sequence[str]) -> bool:
        """The oldest message arrives; when there is none, somebody has a turn at the store."""
        for message in self.flying:
            if not names or message.client in names:
                self._arrive(message)
                return True
        for name, client in self.clients.items():
            if client.update is not None and (not names or name in names):
                self.do_store(name)
                return True
        return False

    def do_die_at_every_step(self, bookie: str = "") -> None:
        outcomes: list[str] = []
        while True:
            world = World()
            for command in self.history:
                world.execute(command)
            world.quiet = True
            if not all(world._step(["r1"]) for _ in outcomes):
                break
            world.quiet = False
            world.do_kill("r1")
            if bookie:
                world.do_bookie(bookie, "down")
            told = world.execute("start r2") + world.execute("run r2")
            reports = [line for line in told if line.startswith("r2: ")]
            outcomes.append("; ".join(reports + world.execute("check")))
        steps = 0
        for outcome, group in groupby(outcomes):
            first, steps = steps, steps + len(list(group))
            many = f"{first} to {steps - 1}" if steps - first > 1 else first
            self.say(f"r1 dies after {many} steps: {outcome}")

    # --- looking ---

    def _collect(self) -> None:
        """Tell what the players did."""
        for name, client in self.clients.items():
            for note in client.notes:
                self.say(f"{name}: {note}", always=True)
            client.notes.clear()
            for (kind, entry), group in groupby(client.out, _sort):
                self.say(_sending(kind, entry, list(group)))
            self.flying += client.out
            client.out.clear()
            if client.update is not self.waiting.get(name):
                self.waiting[name] = client.update
                if client.update is not None and client.update.name != "begin":
                    self.say(f"{name} turns to the store: {client.update.name}")
            self._broken(client.breaches)
        for bookie in self.bookies.values():
            self._broken(bookie.breaches)
        self._broken(self.store.breaches)

    def _broken(self, breaches: list[tuple[str, str]]) -> None:
        for name, what in breaches:
            self.breaches.append(f"{name} broken: {what}")
            self.say(self.breaches[-1], always=True)
        breaches.clear()

    def do_show(self) -> None:
        self.say(f"store  {self.store.record}")
        for name, client in self.clients.items():
            self.say(f"{name:6} {_writer(client) if isinstance(client, Writer) else _recoverer(client)}")
        for name, bookie in self.bookies.items():
            if bookie.entries or bookie.fenced or bookie.limbo:
                self.say(f"{name:6} {bookie}" + (f", LAC {bookie.lac}" if bookie.lac >= 0 else ""))

    def do_in_flight(self) -> None:
        for message in self.flying:
            self.say(str(message))

    def do_check(self) -> None:
        def content(entry: int) -> tuple[str, int] | None:
            payload = self.writer.payloads.get(entry)
            return None if payload is None else (payload, self.writer.lengths[entry])

        view = View(self.store.record.value, self.writer.acked, self.bookies, content, self.lost)
        found = self.breaches + [f"{name} broken: {what}" for name, what in broken(view)]
        for line in found or ["all invariants hold"]:
            self.say(line)


def _code(name: str) -> int:
    return {known.replace(" ", "-"): code for known, code in CODES.items()}[name]


def _refusal(request: Request, code: int) -> Answer:
    if isinstance(request, Add):
        return Added(request.client, request.bookie, request.entry, code)
    if isinstance(request, Read):
        return Got(request.client, request.bookie, request.entry, code, 0, "")
    return Fenced(request.client, request.bookie, code, -1, 0)


def _subject(message: Message) -> str:
    return "fence" if isinstance(message, (Fence, Fenced)) else f"e{getattr(message, 'entry', '')}"


def _question(request: Request) -> str:
    if isinstance(request, Add):
        return f"{'write-back' if request.recovery else 'add'} of {request.client}"
    return f"{'read' if isinstance(request, Read) else 'fence'} of {request.client}"


def _outcome(answer: Answer) -> str:
    said = NAMES[answer.code]
    if isinstance(answer, Fenced):
        return f"fence: LAC {answer.lac}" if answer.code == OK else f"fence: {said}"
    if answer.code == OK:
        said = "stored" if isinstance(answer, Added) else "found"
    return f"e{answer.entry} {said}"


def _sort(message: Message) -> tuple[str, str]:
    kind = type(message).__name__
    if isinstance(message, Add):
        kind = "writes back" if message.recovery else "sends"
        return kind, f"e{message.entry} (LAC {message.lac}) to"
    if isinstance(message, Read):
        return "reads", f"e{message.entry}{'' if message.fencing else ' (not fencing)'} from"
    return "fences", ""


def _sending(kind: str, entry: str, messages: Sequence[Message]) -> str:
    words = [messages[0].client, kind, entry, *(message.bookie for message in messages)]
    return " ".join(word for word in words if word)


def _writer(writer: Writer) -> str:
    window, keeper = writer.adds.window, writer.adds.keeper
    if writer.ended is not None:
        return f"{writer.ended}, acknowledged to {writer.acked}, length {window.length}"
    parts = [f"LAC {window.lac}", f"pushed {window.lap}", f"ensemble {' '.join(keeper.ensemble)}"]
    for entry in window.pending:
        ackers = " ".join(keeper.ensemble[index] for index in window.acked(entry))
        parts.append(f"e{entry} acked by {ackers or 'nobody'}")
    parts += ["changing"] if keeper.changing else []
    parts += [f"to be replaced: {' '.join(keeper.delayed.values())}"] if keeper.delayed else []
    parts += [f"late failures {keeper.late_failures}"] if keeper.late_failures else []
    return ", ".join(parts)


def _recoverer(recoverer: Recoverer) -> str:
    core = recoverer.core
    if core is None:
        return recoverer.ended or "not begun"
    parts = [core.phase.value]
    parts += [f"from e{core.start + 1}"] if core.phase.value != "fencing" else []
    parts += [f"{first}:[{' '.join(ensemble)}] in memory" for first, ensemble in core.recovered.items()]
    return ", ".join(parts)
