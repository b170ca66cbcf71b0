"""What a writer appends with, for as long as it appends: its pipeline, its gate, and what tells the LAC.

Theory of operation

- What a writer must not forget is small: its window and its keeper (`quorum`), which know what was decided. Channels to
  bookies, boxes, waiters and timers are more, and are of use only while something is under way. So they are made for
  an append, and given up after `QUIET_TICKS` without one: a process may have a hundred thousand ledgers open and write
  to a few of them at a time.
- A writer may rest when nobody waits for anything of it, every entry was answered by all of its bookies, no change of
  its ensemble is under way or due, and the bookies were told its LAC. What is given up then knows nothing that will be
  missed: the throttle would have all of its permits, and no time-out or pause is counted.
- One that rests has no channel by which it would hear that its client ends: it is in `ClientContext.resting` instead.
"""

from __future__ import annotations

from ...protocol.digest import Digest
from ...quorum.distribution import Distribution
from ...quorum.ensemble import EnsembleKeeper
from ...types import WriteFlag
from ..context import ClientContext
from .encoding import add_encoder
from .explicit_lac import ExplicitLac
from .gate import AppendGate
from .pipeline import AddOwner, AddPipeline


class Appending:
    """See the module. Of one writer that is not at rest."""

    __slots__ = ("adds", "explicit_lac", "gate")

    def __init__(
        self,
        context: ClientContext,
        ledger_id: int,
        distribution: Distribution,
        keeper: EnsembleKeeper,
        owner: AddOwner,
        digest: Digest,
        master_key: bytes,
        *,
        version: int,
        write_flags: WriteFlag,
    ) -> None:
        """Goes on where the keeper's window stands."""
        config = context.config
        adds = self.adds = AddPipeline(
            context,
            ledger_id,
            distribution,
            keeper,
            owner,
            add_encoder(version, ledger_id, digest, master_key, write_flags=write_flags),
            version=version,
            quorum_timeout=config.addEntryQuorumTimeoutSec,
        )
        blocked = context.departures.blocked
        self.gate = AppendGate(context.runtime, config, keeper.window, adds.outbox.writable, blocked, adds)
        adds.on_progress = self.gate.progress
        self.explicit_lac = ExplicitLac(context, ledger_id, distribution, digest, master_key, adds)
        self.explicit_lac.start()

    @property
    def at_rest(self) -> bool:
        """Nothing is under way, nobody waits, and nothing is left to do."""
        return self.adds.at_rest and not self.gate.waiting and self.explicit_lac.at_rest

    def give_up(self) -> None:
        """The writer rests: let go of the channels. Only when `at_rest`."""
        self.explicit_lac.stop()
        self.adds.let_go()
        self.adds.window.shrink()

    def stop(self, code: int) -> None:
        """Nothing is appended any more; what is pending fails with `code`."""
        self.explicit_lac.stop()
        self.adds.stop(code)
        self.gate.close(self.adds.refusal)
