"""Places as Spark stores them between the batches of a query (spec streams §17.4). Pure.

    {"i0": {...}, "s": {"clicks": {"a": 17, "e": 43, "l": 7}}, "v": 1}

`s`: streams, by name, with segment (`l`), entry (`e`), slot (`o`, unless 0), and the ledger before (`a`). Of raw
ledgers `r` stands in place of `s`, and the names are their ids. `i0`: where streams begin that are read for the first
time; so it is in the offset that ends the query's first batch, and where streams were found later that fit a pattern.

Theory of operation

Spark never stores where a query began, and asks again whenever the first batch is repeated: *latest* is somewhere else
by then. But the end of a batch is in its log before the batch is read. So the start travels in that, and who reads the
first batch takes it from there: a repeated first batch reads what it read before. The first batch comes at once, even
if there is nothing to read, so that no start is forgotten.

Spark compares offsets as text. Keys are sorted at all levels, so that equal places are equal texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ...types import MAX_LEDGER_ID
from ..errors import OptionError
from .spans import Place

FORMAT = 1
STREAMS, LEDGERS = "s", "r"
Places = Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Offset:
    """A place in each log of a query."""

    kind: str
    """`STREAMS` or `LEDGERS`."""
    places: Places
    initial: Places | None = None
    """Where those logs begin that the batch before this end was the first to read; None: there are none."""
    first: bool = False
    """Whether this is the start of a query: nothing is stored yet."""

    def to_json(self) -> dict[str, Any]:
        """As Spark is given it."""
        made: dict[str, Any] = {"first": True} if self.first else {}
        if self.initial is not None:
            made["i0"] = _encode(self.initial)
        return {**made, self.kind: _encode(self.places), "v": FORMAT}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Raises `OptionError` for what is no offset of this source."""
        try:
            if found["v"] != FORMAT:
                raise ValueError("its format is not known here")
            kind = STREAMS if STREAMS in found else LEDGERS
            initial = _decode(found["i0"]) if "i0" in found else None
            return cls(kind, _decode(found[kind]), initial, bool(found.get("first", False)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OptionError(f"the checkpoint has an offset that is none of this source ({error}): {found}") from None

    def to(self, places: Places, newcomers: Places | None = None) -> Offset:
        """The end of a batch that begins here. This very offset if it reads nothing, and is not the first one.

        - `newcomers`: where logs begin that are not in this offset.
        """
        if not self.first and _where(places) == _where(self.places):
            return self
        initial = {**(self.places if self.first else {}), **(newcomers or {})}
        return Offset(self.kind, places, initial if self.first or initial else None)

    def start_for(self, end: Offset) -> Offset:
        """Where the batch really begins that ends with `end`."""
        if end.initial is None:
            return self
        if self.first:
            return Offset(self.kind, end.initial, first=True)
        return Offset(self.kind, {**end.initial, **self.places})


def _where(places: Places) -> dict[str, tuple[int, int, int]]:
    return {name: place.where for name, place in places.items()}


def _encode(places: Places) -> dict[str, dict[str, int]]:
    made: dict[str, dict[str, int]] = {}
    for name, place in sorted(places.items()):
        known = {} if place.after is None else {"a": place.after}
        slot = {"o": place.slot} if place.slot else {}
        made[name] = {**known, "e": place.entry, "l": place.number, **slot}
    return made


def _decode(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Place]:
    return {
        str(name): Place(_id(each["l"]), _id(each["e"]), _id(each.get("o", 0)), _id(each["a"]) if "a" in each else None)
        for name, each in found.items()
    }


def _id(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_LEDGER_ID:
        raise ValueError(f"{value!r} is no number of a segment, an entry or a ledger")
    return value
