"""A bookie: what it keeps of one ledger, and what it answers. Switches break single rules of it.

Its steps are ACT-3, ACT-4 and ACT-11 of spec safety §1.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.errors import DataUnknownError, LedgerFencedError, NoSuchEntryError

from .messages import OK, Add, Added, Answer, Fence, Fenced, Got, Read, Request


@dataclass(frozen=True)
class BookieRules:
    """Every field is True in a sound bookie; False plants the bug."""

    fence_unknown_ledgers: bool = True
    """A fencing read of a ledger never seen fences it all the same (half of MU-7)."""
    recovery_adds_when_fenced: bool = True
    """A fenced ledger still takes recovery adds (LV-4)."""
    durable_fence: bool = True
    """A fence that was answered survives a crash (MU-8, MU-20, MU-21)."""
    fence_after_loss: bool = True
    """A bookie that may have lost data fences its ledgers before it serves (off: MU-14)."""
    limbo_after_loss: bool = True
    """A bookie that may have lost data does not deny entries (off: MU-15)."""
    fence_closed_after_loss: bool = True
    """The fence after a loss covers closed ledgers too: their writers may still be there."""


SOUND = BookieRules()


class Bookie:
    """Memory of one ledger."""

    def __init__(self, name: str, rules: BookieRules = SOUND) -> None:
        self.name = name
        self.rules = rules
        self.entries: dict[int, tuple[str, int, int]] = {}
        """Entry id -> payload, length, LAC in the entry."""
        self.lac = -1
        """The highest LAC in any entry seen: what a tailing reader is told."""
        self.fenced = False
        self.limbo = False
        self.promised = False
        """It has answered a fencing request, and did not lose its memory of that. For checks."""
        self.breaches: list[tuple[str, str]] = []

    # --- requests ---

    def handle(self, request: Request) -> Answer | None:
        """Process a request to the end; the answer, if there is somebody to hear it."""
        if isinstance(request, Add):
            return self._add(request)
        if isinstance(request, Fence):
            return self._fence(request)
        if isinstance(request, Read):
            return self._read(request)
        self._set_fence(unknown=self.rules.fence_unknown_ledgers or request.of_entry)
        return None

    def accepts(self, request: Add) -> bool:
        if request.recovery:
            return self.rules.recovery_adds_when_fenced or not self.fenced
        return not self.fenced

    def _add(self, request: Add) -> Answer:
        if not self.accepts(request):
            return Added(request.client, self.name, request.entry, LedgerFencedError.code)
        if self.promised and not request.recovery:
            self.breaches.append(("PI-11", f"{self.name} had answered a fencing request and took e{request.entry}"))
        self.entries[request.entry] = (request.payload, request.length, request.lac)
        self.lac = max(self.lac, request.lac)
        return Added(request.client, self.name, request.entry, OK)

    def _set_fence(self, *, unknown: bool) -> None:
        if self.entries or unknown:
            self.fenced = True
        self.promised = True

    def _fence(self, request: Fence) -> Answer:
        self._set_fence(unknown=self.rules.fence_unknown_ledgers)
        if self.limbo:
            return Fenced(request.client, self.name, DataUnknownError.code, -1, 0)
        if not self.entries:
            return Fenced(request.client, self.name, NoSuchEntryError.code, -1, 0)
        _, length, lac = self.entries[max(self.entries)]
        return Fenced(request.client, self.name, OK, lac, length)

    def _read(self, request: Read) -> Answer:
        if request.fencing:
            self._set_fence(unknown=True)
        entry = self.entries.get(request.entry)
        if entry is None:
            code = DataUnknownError.code if self.limbo else NoSuchEntryError.code
            return Got(request.client, self.name, request.entry, code, 0, "")
        payload, length, _ = entry
        return Got(request.client, self.name, request.entry, OK, length, payload)

    # --- accidents ---

    def crash(self) -> None:
        """Restart with what is durable."""
        if not self.rules.durable_fence:
            self.fenced = False

    def lose(self, *, closed: bool) -> None:
        """Restart with nothing left; `closed`: what the store says of the ledger by now."""
        self.entries.clear()
        self.lac = -1
        self.fenced = self.rules.fence_after_loss and (not closed or self.rules.fence_closed_after_loss)
        self.promised = self.promised and self.fenced
        self.limbo = self.rules.limbo_after_loss and not closed

    # --- looking at it ---

    def __str__(self) -> str:
        held = " ".join(f"e{entry}" for entry in sorted(self.entries)) or "nothing"
        return held + (" fenced" if self.fenced else "") + (" limbo" if self.limbo else "")
