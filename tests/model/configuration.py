"""What is checked: one configuration of a ledger, and the explorer for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bookkeeper.quorum.ensemble import EnsemblePolicy
from tests.support.actors.adds import Spares
from tests.support.actors.bookie import SOUND, Bookie, BookieRules
from tests.support.actors.messages import Add, Added
from tests.support.actors.recoverer import Recoverer
from tests.support.actors.store import Record, new_ledger
from tests.support.actors.writer import Writer
from tests.support.planted import SAFE, ProtocolRules

from .explorer import Explorer
from .invariants import ALL
from .players import BookiePlayer, RecovererPlayer, WriterPlayer, payload


@dataclass(frozen=True)
class Configuration:
    """A ledger small enough to look at everything that can happen to it."""

    quorum: tuple[int, int, int]
    """E, Wq, Aq."""
    bookies: int
    appends: int = 0
    """How many entries the writer may append."""
    recoverers: int = 1
    writer_losses: int = 0
    """How many times the writer may find a bookie unreachable: it replaces it, or closes."""
    recovery_losses: int = 0
    """The same for the write-backs of each recoverer."""
    read_timeouts: int = 0
    """How many recovery reads of each recoverer may go unanswered and be given up."""
    acked: int = 0
    """At the start this many more entries are acknowledged and on all of their bookies; each carries LAC -1."""
    stray: Mapping[str, int] = field(default_factory=dict)
    """At the start these bookies have this many entries, of a writer that is gone without an acknowledgement."""
    accidents: int = 0
    accident: str = "loses everything"
    """What may befall a bookie: 'loses everything', or 'restarts'."""
    delay_changes: bool = False
    """The writer replaces bookies only when it must (`delayEnsembleChange`)."""
    slow_store: bool = False
    """The store's answers to the writer take time too."""
    lacs_matter: bool = False
    """Check PI-17: then the LACs that bookies tell readers are part of the state."""

    def __str__(self) -> str:
        e, wq, aq = self.quorum
        parts = [f"{e}/{wq}/{aq} of {self.bookies}"]
        for number, what in (
            (self.appends, "append"),
            (self.acked, "acked"),
            (sum(self.stray.values()), "stray"),
            (self.recoverers, "recoverer"),
            (self.writer_losses, "loss"),
            (self.recovery_losses, "loss in recovery"),
            (self.read_timeouts, "silent read"),
        ):
            if number:
                parts.append(f"{number} {_plural(what) if number > 1 else what}")
        parts += [f"a bookie {self.accident}"] if self.accidents else []
        parts += ["changes delayed"] if self.delay_changes else []
        parts += ["slow store"] if self.slow_store else []
        return ", ".join(parts)

    def explorer(
        self,
        rules: ProtocolRules = SAFE,
        bookie_rules: BookieRules = SOUND,
        *,
        check: tuple[str, ...] = ALL,
        max_states: int = 50_000_000,
    ) -> Explorer:
        """Everybody in place, ready to `run`."""
        names = [f"b{i + 1}" for i in range(self.bookies)]
        record = new_ledger(*self.quorum, names)
        spares = Spares(names)
        bookies = {name: Bookie(name, bookie_rules) for name in names}
        clients: list[WriterPlayer | RecovererPlayer] = []
        if not self.stray:
            writer = self._writer(record, spares, rules, bookies)
            clients.append(WriterPlayer(writer, appends=self.appends, losses=self.writer_losses, closes=True))
        for i in range(self.recoverers):
            recoverer = Recoverer(f"r{i + 1}", spares, eager=True, rules=rules)
            clients.append(RecovererPlayer(recoverer, losses=self.recovery_losses, timeouts=self.read_timeouts))
        for name, entries in self.stray.items():
            for entry in range(entries):
                bookies[name].entries[entry] = (payload(entry), (2 << entry) - 1, -1)
        return Explorer(
            record,
            clients,
            [BookiePlayer(bookie, lacs_matter=self.lacs_matter) for bookie in bookies.values()],
            accidents=self.accidents,
            accident=self.accident,
            check=check,
            max_states=max_states,
        )

    def _writer(self, record: Record, spares: Spares, rules: ProtocolRules, bookies: Mapping[str, Bookie]) -> Writer:
        policy = EnsemblePolicy(delay_changes=self.delay_changes)
        writer = Writer("w", record, spares, policy=policy, rules=rules, slow_store=self.slow_store)
        for entry in range(self.acked):
            writer.append(payload(entry))
        for message in writer.out:
            assert isinstance(message, Add)
            answer = bookies[message.bookie].handle(message)
            assert isinstance(answer, Added)
            writer.adds.on_added(answer)
        writer.out.clear()
        writer.notes.clear()
        assert writer.acked == self.acked - 1
        return writer


def _plural(what: str) -> str:
    if what.startswith("loss"):
        return what.replace("loss", "losses")
    return what if what in ("acked", "stray") else f"{what}s"
