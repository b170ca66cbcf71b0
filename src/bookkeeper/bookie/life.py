"""The life of a bookie: its phases, which follows which, and the exit code that each fails with (spec bookie-server
§1.11).

The table `LIFE` is what the code goes by, and what the page shows.

Two rules decide the exit code. The first reason to end counts. An orderly stop that does not succeed is a failure, and
its code takes the place of 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ..errors import ConfigurationError, FatalBookieError
from .node.exit_code import ExitCode


class Phase(Enum):
    """Where a bookie is in its life. The value is its name on the page."""

    NEW = "new"
    STARTING = "starting"
    RECOVERING = "recovering"
    REGISTERING = "registering"
    SERVING = "serving"
    STOPPING = "stopping"
    FAILING = "failing"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Stage:
    """What is known of a phase."""

    meaning: str
    then: tuple[Phase, ...]
    """The phases that may follow."""
    exit_code: ExitCode | None
    """What the process ends with if this phase fails; None where nothing can fail any more."""


LIFE: Mapping[Phase, Stage] = {
    Phase.NEW: Stage("`start` was not called", (Phase.STARTING,), ExitCode.SERVER_EXCEPTION),
    Phase.STARTING: Stage(
        "all that can refuse: settings, directories, metadata store, identity, cookies, port, disks, opening the "
        "storage",
        (Phase.RECOVERING, Phase.FAILING),
        ExitCode.SERVER_EXCEPTION,
    ),
    Phase.RECOVERING: Stage(
        "journals are replayed and flushed, new ones begun, the directories marked DIRTY",
        (Phase.REGISTERING, Phase.FAILING),
        ExitCode.BOOKIE_EXCEPTION,
    ),
    Phase.REGISTERING: Stage(
        "requests are served; the metadata store is told",
        (Phase.SERVING, Phase.STOPPING, Phase.FAILING),
        ExitCode.ZK_REG_FAIL,
    ),
    Phase.SERVING: Stage(
        "registered: clients are sent here", (Phase.STOPPING, Phase.FAILING), ExitCode.BOOKIE_EXCEPTION
    ),
    Phase.STOPPING: Stage(
        "orderly: unregister, finish adds, flush, close everything", (Phase.ENDED,), ExitCode.SERVER_EXCEPTION
    ),
    Phase.FAILING: Stage("drop connections, close everything, flush nothing", (Phase.ENDED,), None),
    Phase.ENDED: Stage("all is closed, or given up", (), None),
}
"""Every phase. A wrong setting is INVALID_CONF in whichever phase it is found."""

SERVES = frozenset({Phase.REGISTERING, Phase.SERVING})
"""Requests are answered: a failure has to end the bookie from inside, and a stop can be orderly."""

ENDS = frozenset({Phase.STOPPING, Phase.FAILING, Phase.ENDED})


class Life:
    """The phase of one bookie, and the first reason to end."""

    def __init__(self) -> None:
        self.phase = Phase.NEW
        self.exit_code: ExitCode | None = None
        """Set when the end begins, or is certain to."""
        self.failure: BaseException | None = None
        """Why it ended by itself."""

    def enter(self, phase: Phase) -> None:
        """Go on to the next phase. Raises `FatalBookieError` if there is a reason to end, and the phase is no part of
        the end."""
        if phase not in ENDS and self.exit_code is not None:
            why = "it was stopped" if self.failure is None else str(self.failure)
            raise FatalBookieError(f"the bookie cannot go on with {phase.value}: {why}") from self.failure
        assert phase in LIFE[self.phase].then, f"{self.phase} -> {phase}"
        self.phase = phase

    def exit_code_of(self, error: BaseException) -> ExitCode:
        """What the bookie ends with because of an error in this phase."""
        if self.exit_code is not None:
            return self.exit_code
        if isinstance(error, ConfigurationError):
            return ExitCode.INVALID_CONF
        code = LIFE[self.phase].exit_code
        assert code is not None, f"nothing has failed, and it is {self.phase}"
        return code

    def ends_with(self, code: ExitCode) -> None:
        """There is a reason to end. The first one counts."""
        if self.exit_code is None:
            self.exit_code = code

    def stop_failed(self) -> None:
        """What was to be done at the end was not done."""
        if self.exit_code is ExitCode.OK:
            self.exit_code = LIFE[Phase.STOPPING].exit_code

    def __str__(self) -> str:
        return self.phase.value if self.exit_code is None else f"{self.phase.value}, exit code {int(self.exit_code)}"


def table() -> str:
    """`LIFE` as the page shows it."""
    rows = ["| Phase | Meaning | Then | Exit code if it fails |", "|---|---|---|---|"]
    for phase, stage in LIFE.items():
        then = ", ".join(following.value for following in stage.then) or "-"
        code = "-" if stage.exit_code is None else f"{int(stage.exit_code)} {stage.exit_code.name}"
        rows.append(f"| {phase.value} | {stage.meaning} | {then} | {code} |")
    return "\n".join(rows)
