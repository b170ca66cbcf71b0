"""Where a query begins, or a batch read ends: what the options say (spec streams §17.4). Pure.

There are four ways to say it; of those given the first counts, as with Spark's Kafka source:

    startingTimestamp             one time for all streams, in milliseconds since 1970
    startingOffsetsByTimestamp    a time for each: {"clicks": 1700000000000}
    startingTxid                  one transaction id for all
    startingOffsets               earliest, latest, or a place for each: {"clicks": "<dlsn>"}

Times and transaction ids mean the first record that has this one or a higher one. All four exist with `ending`, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...streams.dlsn import DLSN
from ...streams.errors import SegmentFormatError
from ...types import MAX_LEDGER_ID
from ..errors import OptionError
from ..values import choice, flag, number
from .offsets import STREAMS

EARLIEST, LATEST = "earliest", "latest"
BY_TIME = (
    "startingtimestamp", "startingoffsetsbytimestamp", "startingtxid", "startingoffsetsbytimestampstrategy",
    "endingtimestamp", "endingoffsetsbytimestamp", "endingtxid",
)  # fmt: skip
"""Options that streams have and raw ledgers have not."""


class AtTxid(NamedTuple):
    """The first record with this transaction id or a higher one."""

    txid: int


Begin = str | tuple[int, int, int] | AtTxid
"""`EARLIEST`, `LATEST`, segment, entry and slot, or a transaction id."""


@dataclass(frozen=True, slots=True)
class Starting:
    """Where a query begins, or a batch read ends."""

    default: Begin
    places: Mapping[str, Begin] = field(default_factory=dict)
    """By stream or ledger; empty: the default for all."""
    must_exist: bool = False
    """A time or transaction id behind the last record is an error; else it is the end."""

    def of(self, log: str) -> Begin:
        """Of one."""
        return self.places.get(log, self.default)


def parse_starting(
    given: Mapping[str, str], side: str, default: str, kind: str, names: Iterable[str] | None
) -> Starting:
    """Where it begins (`side` is starting), or ends (ending).

    - `given`: the options, by their names in lower case.
    - `names`: what is read; None: not known yet, and then places may be given for some only.

    Raises `OptionError`.
    """
    strategy = choice(given, "startingOffsetsByTimestampStrategy", ("error", LATEST))
    must_exist = side == "starting" and strategy == "error"
    by_time = f"{side}OffsetsByTimestamp"
    timestamp = number(given, f"{side}Timestamp", None, least=0)
    txid = number(given, f"{side}Txid", None, least=0)
    if (timestamp is not None or by_time.lower() in given) and not flag(given, "txidAsTimestamp", True):
        raise OptionError(f"{side}Timestamp: with txidAsTimestamp=false transaction ids are no times")
    if timestamp is not None:
        return Starting(AtTxid(timestamp), must_exist=must_exist)
    if by_time.lower() in given:
        times = _each(given, by_time, names, 'JSON such as {"clicks": 1700000000000}', lambda it: AtTxid(_place(it)))
        return Starting(default, times, must_exist)
    if txid is not None:
        return Starting(AtTxid(txid), must_exist=must_exist)
    option = f"{side}Offsets"
    text = given.get(option.lower(), default).strip().lower()
    if text in (EARLIEST, LATEST):
        return Starting(text)
    example = '{"clicks": "<dlsn>"}' if kind == STREAMS else '{"5": 17}'
    wanted = f"earliest, nor latest, nor JSON such as {example}"
    return Starting(default, _each(given, option, names, wanted, lambda value: _begin(value, kind)))


def _each(
    given: Mapping[str, str],
    option: str,
    names: Iterable[str] | None,
    wanted: str,
    place: Callable[[Any], Begin],
) -> dict[str, Begin]:
    """A place for each stream or ledger, from JSON."""
    text = given[option.lower()]
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it is no object")
        places = {str(name): place(value) for name, value in found.items()}
    except (ValueError, TypeError, KeyError, SegmentFormatError) as error:
        refused = "neither" if " nor " in wanted else "no"
        raise OptionError(f"{option}={text!r} is {refused} {wanted}: {error}") from None
    if names is not None and set(places) != set(names):
        raise OptionError(f"{option} names {', '.join(sorted(places))}, but what is read is {', '.join(sorted(names))}")
    return places


def _begin(value: Any, kind: str) -> Begin:
    if value in (-1, -2):
        return LATEST if value == -1 else EARLIEST
    if kind != STREAMS:
        return (0, _place(value), 0)
    if isinstance(value, str):
        position = DLSN.parse(value)
        return (_place(position.segment), _place(position.entry), _place(position.slot))
    if isinstance(value, dict) and set(value) == {"l", "e"}:
        return (_place(value["l"]), _place(value["e"]), 0)
    raise ValueError(f"{value!r} is no place")


def _place(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_LEDGER_ID:
        raise ValueError(f"{value!r} is no place")
    return value
