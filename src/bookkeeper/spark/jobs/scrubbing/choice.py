"""What a scrub looks at of the ledgers that are selected: all, a sample, or what is new.

Theory of operation

- A sample is drawn by a seed and by names alone: the same seed draws the same ledgers and entries, in whatever task and
  however often. So a scrub that died goes on with the sample that it had drawn, and a scrub with another seed, which is
  the default, looks at others.
- Entries are drawn in runs of `RUN`, because a bookie serves neighbours at the price of one. The ledger is divided into
  as many stretches of the same size as there are runs, with a run at a random place in each: nothing long stays unseen.
- A ledger's record says when it was made, not when it was closed. So `since` a time means: made since then, not closed
  yet, or of an unknown age. `since=last` does not ask for times: it means whatever the last scrubs of the same state
  have not found whole as it is now (`state`).
"""

from __future__ import annotations

import heapq
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from ....metadata.ledger_metadata import LedgerMetadata
from ...errors import OptionError

RUN = 32
"""Entries of a sample that lie together."""

LAST = "last"

_SPANS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True, slots=True)
class Amount:
    """A share of something, or a number."""

    share: float = 1.0
    number: int | None = None

    @classmethod
    def parse(cls, name: str, text: str) -> Amount:
        """`5%`, `0.05` or `500`. Raises `OptionError`."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text.strip())
        if match is not None and not match[2] and "." not in match[1] and int(match[1]) > 0:
            return cls(number=int(match[1]))
        share = float(match[1]) / (100 if match[2] else 1) if match is not None else 0.0
        if not 0 < share <= 1:
            raise OptionError(f"{name}={text!r} is neither a share such as 5% or 0.05, nor a number such as 500")
        return cls(share)

    def of(self, total: int) -> int:
        """How many of so many; at least one, if there are any."""
        return min(total, math.ceil(total * self.share) if self.number is None else self.number)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is looked at. `since` is what was asked for, and `since_ms` what it means."""

    ledgers: Amount | None = None
    entries: Amount | None = None
    """Of each ledger. What bookies do not list is always found."""
    since: str | None = None
    since_ms: int | None = None
    """Milliseconds since 1970; None: no time, or `LAST`."""
    seed: int = 0

    @classmethod
    def parse(
        cls, sample: str | None = None, entries: str | None = None, since: str | None = None, seed: int | None = None
    ) -> Choice:
        """Raises `OptionError`. `seed` None: another one each time."""
        return cls(
            None if sample is None else Amount.parse("sample", sample),
            None if entries is None else Amount.parse("sampleEntries", entries),
            since,
            None if since is None or since == LAST else _milliseconds(since),
            random.SystemRandom().getrandbits(48) if seed is None else seed,
        )

    @property
    def since_last(self) -> bool:
        return self.since == LAST

    def asked(self) -> dict[str, Any]:
        """For JSON: what the user asked for. The seed is not in it, it may be chance."""
        amounts = {"sample": self.ledgers, "sample_entries": self.entries}
        given = {name: amount.number or amount.share for name, amount in amounts.items() if amount is not None}
        return given | ({} if self.since is None else {"since": self.since})

    def is_new(self, metadata: LedgerMetadata) -> bool:
        """Whether a ledger counts as made since the time that is meant."""
        return self.since_ms is None or not metadata.closed or metadata.ctime < 0 or metadata.ctime >= self.since_ms


EVERYTHING = Choice()


def _milliseconds(text: str) -> int:
    """A time: `7d` ago, or as in ISO 8601, in UTC unless it says otherwise. Raises `OptionError`."""
    span = re.fullmatch(r"(\d+)([mhdw])", text.strip())
    now = datetime.now(UTC).timestamp()
    if span is not None:
        return max(0, round(1000 * (now - int(span[1]) * _SPANS[span[2]])))
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise OptionError(
            f"since={text!r} is none of last, an age such as 24h or 7d, or a time such as 2026-05-01T00:00"
        ) from None
    return round(1000 * (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


def sampled_ids(ids: Sequence[int], amount: Amount, seed: int) -> list[int]:
    """So many of the ids, ascending. Each is as likely as any other."""
    key = str(seed).encode()[:64]

    def draw(ledger_id: int) -> bytes:
        return blake2b(ledger_id.to_bytes(8, "big"), key=key, digest_size=8).digest()

    return sorted(heapq.nsmallest(amount.of(len(ids)), ids, draw))


def sampled_runs(first: int, last: int, count: int, dice: random.Random) -> list[tuple[int, int]]:
    """`count` of the entries `first` to `last`, ascending, in runs that do not overlap."""
    total = last - first + 1
    runs = -(-count // RUN)
    found = []
    for number in range(runs):
        start, stop = first + total * number // runs, first + total * (number + 1) // runs
        length = min(stop - start, count * (number + 1) // runs - count * number // runs)
        if length:
            at = dice.randint(start, stop - length)
            found.append((at, at + length - 1))
    return found


def joined(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """What lies in any of these runs, ascending. Those that only touch stay apart: an ensemble may change there."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(runs):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found
