"""The options of a sink: what they are called, and what goes together (spec streams §17.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ...config import ClientConfiguration
from ...errors import ConfigurationError
from ...streams.formats.codec import Compression
from ..errors import OptionError
from ..options import CATALOG, TABLES, client_setting, similar
from ..values import choice, flag, number, seconds, size

NAMES = {
    name.lower(): name
    for name in (
        "uri",
        "stream",
        "sinkId",
        "epoch",
        "sinkIdReset",
        "createStreams",
        "compression",
        "maxLedgersPerTask",
        "mergeTargetBytes",
        "mergeMaxBytes",
        "delivery",
        "commitTimeout",
        "metadataTimeout",
        "checkpointLocation",
        "queryName",
    )
}
OF_EXACTLY_ONCE = ("sinkId", "epoch", "sinkIdReset", "mergeTargetBytes", "mergeMaxBytes")
"""Options without a meaning where tasks append."""

PAYLOADS = ("payload", "value")
TXID = "txid"
TARGETS = ("stream", "topic")
BYTES = ("binary", "string")
TYPES = {
    **dict.fromkeys((*PAYLOADS, "key"), BYTES),
    **dict.fromkeys(TARGETS, ("string",)),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
    TXID: ("bigint",),
}
"""What columns may be."""

OF_KAFKA = ("partition", "offset", "timestampType")
"""Columns of rows as Kafka's source gives them, which say nothing of a record: left out, as Kafka's sink does."""


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """Which small drafts of a batch become one segment. Bytes, as they are stored."""

    target: int = 16 << 20
    """Drafts below it are small, and merged until they are not. 0: nothing is merged."""
    most: int = 64 << 20
    """That one commit copies."""
    compression: Compression = Compression.NONE


class Delivery(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    """All rows of a batch are visible at once, and once."""
    AT_LEAST_ONCE = "at-least-once"
    """Each row is visible as soon as it is stored; those of a task that is repeated are there twice."""


@dataclass(frozen=True)
class SinkOptions:
    """What a write is to do. Times in seconds."""

    uri: str
    """Of the namespace."""
    stream: str | None = None
    """Where rows go that do not name a stream themselves."""
    sink_id: str | None = None
    """Whose epochs are counted. None: those of the query; a batch write is not counted then."""
    epoch: int | None = None
    """Of a batch write."""
    reset: bool = False
    create_streams: bool = True
    compression: Compression = Compression.NONE
    max_ledgers: int = 64
    """Of one task: streams that it writes to."""
    commit_timeout: float = 600.0
    metadata_timeout: float = 30.0
    checkpoint: str | None = None
    client: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    merge: MergePolicy = MergePolicy()
    delivery: Delivery = Delivery.EXACTLY_ONCE

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        """Raises `OptionError` that says what is wrong with which option."""
        given, client = _sort_out(options)
        uri = given.get("uri", "").strip()
        if not uri:
            raise OptionError("the option uri is missing: the namespace, as distributedlog://host:2181/orders")
        delivery = _delivery(given)
        sink_id, epoch = _identity(given, streaming=streaming)
        compression = Compression[choice(given, "compression", ("none", "lz4")).upper()]
        made = cls(
            uri,
            given.get("stream") or None,
            sink_id,
            epoch,
            flag(given, "sinkIdReset", False),
            flag(given, "createStreams", True),
            compression,
            number(given, "maxLedgersPerTask", 64, least=1),
            seconds(given, "commitTimeout", 600.0),
            seconds(given, "metadataTimeout", 30.0),
            given.get("checkpointlocation"),
            tuple(sorted(client.items())),
            _merge(given, compression),
            delivery,
        )
        made.configuration()
        return made

    def configuration(self) -> ClientConfiguration:
        """The client's settings. Raises `OptionError`."""
        try:
            return ClientConfiguration.from_mapping(dict(self.client), source="bk.*")
        except ConfigurationError as error:
            raise OptionError(str(error)) from error


def _delivery(given: Mapping[str, str]) -> Delivery:
    found = Delivery(choice(given, "delivery", tuple(Delivery)))
    wrong = [name for name in OF_EXACTLY_ONCE if name.lower() in given]
    if found is Delivery.AT_LEAST_ONCE and wrong:
        raise OptionError(f"{wrong[0]}: with delivery={found} nothing is counted or merged; leave it out")
    return found


def _identity(given: Mapping[str, str], *, streaming: bool) -> tuple[str | None, int | None]:
    """The sink's name and the epoch."""
    epoch = number(given, "epoch", None, least=0)
    sink_id = given.get("sinkid")
    if streaming and epoch is not None:
        raise OptionError("epoch: a streaming query counts its batches itself; it goes with df.write")
    if not streaming and (epoch is None) != (sink_id is None):
        raise OptionError("sinkId and epoch go together: they make a batch write that is repeated do nothing")
    if sink_id is not None and not sink_id:
        raise OptionError("sinkId is empty")
    return sink_id, epoch


def _merge(given: Mapping[str, str], compression: Compression) -> MergePolicy:
    default = MergePolicy()
    nothing = given.get("mergetargetbytes", "").strip() == "0"
    target = 0 if nothing else size(given, "mergeTargetBytes", default.target)
    return MergePolicy(target, size(given, "mergeMaxBytes", default.most), compression)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of the rows are what."""

    payload: str
    stream: str | None
    """None: all rows go to the stream of the options."""
    key: str | None = None
    headers: str | None = None
    timestamp: str | None = None
    txid: str | None = None


def layout(columns: Sequence[tuple[str, str]], options: SinkOptions) -> Layout:
    """From the names and types of the columns, as `binary`. Raises `OptionError` for what cannot be written."""
    types = dict(columns)
    payloads = [name for name in PAYLOADS if name in types]
    targets = [name for name in TARGETS if name in types]
    others = sorted(set(types) - {*TYPES, *(OF_KAFKA if "value" in types else ())})
    if len(payloads) != 1 or len(targets) > 1 or others:
        what = f"{', '.join(others)} cannot be written" if others else "that is not what there is"
        raise OptionError(
            "a record has a column payload (or value), and perhaps stream (or topic), key, headers, timestamp, txid: "
            f"{what}. Put what you have into the payload, as with to_json(struct(*))"
        )
    for name, wanted in TYPES.items():
        if name in types and types[name] not in wanted:
            raise OptionError(f"the column {name} is {types[name]}: {' or '.join(wanted)} can be written")
    if not targets and options.stream is None:
        raise OptionError("give the option stream, or a column stream, to say where records go")
    optional = {name: name if name in types else None for name in ("key", "headers", "timestamp", TXID)}
    return Layout(payloads[0], targets[0] if targets else None, **optional)


def _sort_out(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    given: dict[str, str] = {}
    client: dict[str, str] = {}
    for key, value in options.items():
        name = key.lower()
        setting = client_setting(key)
        if setting is not None:
            client[setting] = value
        elif name in CATALOG:
            raise OptionError(TABLES)
        elif name in NAMES:
            given[name] = value
        else:
            raise OptionError(f"a write has no option {key}{similar(name, NAMES)}")
    return given, client
