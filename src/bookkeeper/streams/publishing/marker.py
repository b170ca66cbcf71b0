"""What a sink has published last, and what that means for the next epoch (spec streams §15.7). Pure.

    <namespace>/.sinks/<sink, percent-encoded>
        {"epoch": 7, "fingerprint": "...", "next": 0, "parts": 0, "query": "...", "run": "...", "staged": "...",
         "state": "done", "streams": {"a": [3, 5]}, "time": 0, "v": 1}

The record is written by the transaction that publishes, and by nothing else. So it says of an epoch that it is
published exactly if it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from ...errors import IncorrectParameterError, StreamMetadataError
from ..errors import EpochConflictError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class PublishKey:
    """What is published once only. Raises `IncorrectParameterError`."""

    sink: str
    """Who publishes: a name of the application's choice, one for each sequence of epochs."""
    epoch: int
    """Counts what it publishes, from 0 or anywhere, upwards."""
    fingerprint: str | None = None
    """Of what the epoch was made from. None: not known, and then the epoch alone counts."""
    query: str | None = None
    """Whose epochs these are. None: not known."""

    def __post_init__(self) -> None:
        if not self.sink or self.epoch < 0:
            raise IncorrectParameterError(f"sink {self.sink!r}, epoch {self.epoch}: give a name, and 0 or more")


class State(StrEnum):
    DONE = "done"
    PUBLISHING = "publishing"
    """Decided, but not all segments have their place: who finds it so goes on."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The record."""

    epoch: int
    run: str
    """Whose record this is: another one for each attempt to publish; it has the parts of an intent."""
    staged: str | None = None
    """The run that the ledgers were staged in."""
    fingerprint: str | None = None
    query: str | None = None
    state: State = State.DONE
    streams: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """First and last segment of each stream, as far as they are there."""
    parts: int = 0
    """Of the intent; they are with the run."""
    next: int = 0
    """The first part that is still to be published."""
    time: int = 0
    """Milliseconds since 1970; the transaction id of what has none."""


class Decision(StrEnum):
    PUBLISH = "publish"
    FINISH_FIRST = "finish first"
    DONE = "done"
    """It is published already."""


def decide(marker: Marker | None, key: PublishKey, *, reset: bool = False) -> Decision:
    """What is to be done for an epoch. Raises `EpochConflictError`: publishing it would lose or repeat something.

    - `reset`: another query takes the sink over, and its epochs begin anew.
    """
    if marker is None:
        return Decision.PUBLISH
    if marker.state is State.PUBLISHING:
        return Decision.FINISH_FIRST
    if _differ(marker.query, key.query):
        if reset:
            return Decision.PUBLISH
        raise EpochConflictError(
            f"sink {key.sink} belongs to query {marker.query}, this is {key.query}: reset it, or take another name"
        )
    if marker.epoch < key.epoch:
        return Decision.PUBLISH
    if marker.epoch > key.epoch:
        raise EpochConflictError(f"sink {key.sink} has published epoch {marker.epoch}: {key.epoch} comes too late")
    if _differ(marker.fingerprint, key.fingerprint):
        raise EpochConflictError(f"sink {key.sink} has published epoch {key.epoch} with other data")
    return Decision.DONE


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def encode_marker(marker: Marker) -> bytes:
    """The record."""
    values = {each.name: getattr(marker, each.name) for each in fields(marker)}
    return json.dumps({"v": FORMAT, **values}, sort_keys=True, separators=(",", ":")).encode()


def decode_marker(data: bytes, path: str) -> Marker:
    """From the record. Raises `StreamMetadataError`."""
    try:
        found = json.loads(data)
        if found.pop("v") != FORMAT:
            raise ValueError("its format is not known here")
        streams = {str(name): (int(first), int(last)) for name, (first, last) in found.pop("streams").items()}
        marker = Marker(**{**found, "state": State(found["state"]), "streams": streams})
        if not all(isinstance(value, int) for value in (marker.epoch, marker.parts, marker.next, marker.time)):
            raise ValueError("a number is none")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StreamMetadataError(f"{path} does not say what the sink has published: {error}") from None
    return marker
