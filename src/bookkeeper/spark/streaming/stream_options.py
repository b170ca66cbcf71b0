"""The options of reads of streams and of `readStream`: what they are called, what goes together (spec streams §17).

What they have in common with reads of ledgers is parsed by `spark.options`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..errors import OptionError
from ..options import STREAMS as STREAM_OPTIONS
from ..options import TRIGGERS, ReadOptions
from ..values import choice, flag, number, seconds, size
from .admission import IMPATIENT, UNLIMITED, Limits, Patience
from .conditions import EVERY, Conditions
from .offsets import LEDGERS, STREAMS
from .starting import BY_TIME, EARLIEST, LATEST, Starting, parse_starting

MOST_LOGS = 5000
"""Streams or ledgers of one query: their places are stored with each of its batches."""

RECORD_COLUMNS = (
    "stream", "segment", "ledger_id", "entry_id", "slot", "dlsn", "txid", "sequence_id", "timestamp", "payload",
)  # fmt: skip
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
KEY, HEADERS = "key", "headers"
READ_FROM = ("auto", "ledger", "archive")

NAMING = ("stream", "streams", "streampattern")
"""Options that name what is read; one of them makes it a read of streams."""

_OF_LEDGERS = (
    "ledgers", "path", "ledgersfrom", "ledgersto", "entriesfrom", "entriesto", "openledgers", "verify", "passwords",
)  # fmt: skip
"""Options of reads of ledgers that make no sense for streams."""


@dataclass(frozen=True)
class StreamOptions:
    """What a read of streams, or a streaming read, is to do."""

    reads: ReadOptions
    """How ledgers are read. Its address is the namespace's or, for raw ledgers, the cluster's."""
    kind: str
    """`offsets.STREAMS` or `offsets.LEDGERS`."""
    logs: tuple[str, ...]
    """Names of streams, or ids of ledgers."""
    columns: tuple[str, ...]
    every: tuple[str, ...]
    """Those that a schema may name."""
    starting: Starting
    ending: Starting
    pattern: str | None = None
    """All streams whose whole name fits this regular expression, in place of `logs`."""
    limits: Limits = UNLIMITED
    patience: Patience = IMPATIENT
    min_poll: float = 1.0
    """Seconds between two looks at the ends of the logs, at least."""
    txid_as_timestamp: bool = True
    read_from: str = "auto"
    """Which copy of a segment that was offloaded: `ledger`, `archive`, or the ledger as long as it is there."""
    source_id: str | None = None
    """The subscriber of each stream that the query's progress is stored for."""
    where: Conditions = EVERY
    """Which records are given."""
    wait_for_streams: float = 0.0
    """Seconds that streams which are named and not there yet are waited for."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> StreamOptions:
        """Raises `OptionError` that says what is wrong with which option."""
        given = {key.lower(): value for key, value in options.items()}
        of_streams = is_of_streams(options)
        own = {*STREAM_OPTIONS, *TRIGGERS, *(("columns", "where") if of_streams else ())}
        rest = {key: value for key, value in options.items() if key.lower() not in own}
        if not streaming:
            _refuse(given, TRIGGERS, "it goes with readStream, and not with read")
        if streaming:
            endings = [name for name in STREAM_OPTIONS if name.startswith("ending")]
            _refuse(given, endings, "a streaming query has no end: it goes with read")
        if of_streams:
            _refuse(given, _OF_LEDGERS, "it is for ledgers, and this reads streams")
            reads = ReadOptions.parse({**rest, "ledgers": "all"})
            pattern, names = _pattern(given), _names(given)
            columns, every = _columns(given)
        else:
            _refuse(
                given,
                ("rowmode", "includeheaders", "txidastimestamp", "readfrom", "waitforstream", *BY_TIME),
                "it goes with the option stream",
            )
            reads = ReadOptions.parse(rest)
            pattern, names = None, _ledgers(reads)
            columns = every = reads.columns
        check_count(names)
        kind = STREAMS if of_streams else LEDGERS
        known = names if pattern is None else None
        return cls(
            reads,
            kind,
            names,
            columns,
            every,
            parse_starting(given, "starting", LATEST if streaming else EARLIEST, kind, known),
            parse_starting(given, "ending", LATEST, kind, known),
            pattern,
            _limits(given),
            _patience(given),
            seconds(given, "minPollInterval", 1.0),
            flag(given, "txidAsTimestamp", True),
            choice(given, "readFrom", READ_FROM),
            _source_id(given, kind),
            Conditions.parse(given["where"]) if of_streams and "where" in given else EVERY,
            _wait(given),
        )

    def reads_stream(self, name: str) -> bool:
        """Whether a stream is one of those that are read."""
        return name in self.logs if self.pattern is None else re.fullmatch(self.pattern, name) is not None

    def with_columns(self, columns: tuple[str, ...]) -> StreamOptions:
        """The same for other columns."""
        return replace(self, columns=columns)


def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Those of a read of streams. Raises `OptionError`."""
    return _columns({key.lower(): value for key, value in options.items()})[0]


def check_count(names: Iterable[str]) -> None:
    """Raises `OptionError` for more streams or ledgers than a query can have."""
    count = len(tuple(names))
    if count > MOST_LOGS:
        raise OptionError(f"{count} streams or ledgers in one query are too many: {MOST_LOGS} at most")


def is_of_streams(options: Iterable[str]) -> bool:
    """Whether these options are for streams, and not for ledgers."""
    return any(key.lower() in NAMING for key in options)


def is_of_queries(options: Iterable[str]) -> bool:
    """Whether there are options that only `readStream`, or reads of streams, take."""
    return any(key.lower() in (*STREAM_OPTIONS, *TRIGGERS) for key in options)


def _refuse(given: Mapping[str, str], names: Iterable[str], why: str) -> None:
    for name in names:
        if name in given:
            raise OptionError(f"{name}: {why}")


def _limits(given: Mapping[str, str]) -> Limits:
    return Limits(
        number(given, "maxEntriesPerTrigger", None, least=1),
        size(given, "maxBytesPerTrigger", 0) or None,
        number(given, "maxRecordsPerTrigger", None, least=1),
    )


def _patience(given: Mapping[str, str]) -> Patience:
    least = number(given, "minEntriesPerTrigger", None, least=1)
    if least is None:
        _refuse(given, ("maxtriggerdelay",), "it goes with minEntriesPerTrigger")
    most = number(given, "maxEntriesPerTrigger", None, least=1)
    if least is not None and most is not None and least > most:
        raise OptionError(f"minEntriesPerTrigger={least} is more than maxEntriesPerTrigger={most}")
    return Patience(least or 0, seconds(given, "maxTriggerDelay", 900.0))


def _wait(given: Mapping[str, str]) -> float:
    if "streampattern" in given:
        _refuse(given, ("waitforstream",), "it goes with stream and streams; a pattern finds streams as they come")
    return seconds(given, "waitForStream", 0.0)


def _source_id(given: Mapping[str, str], kind: str) -> str | None:
    name = given.get("sourceid")
    if name is None:
        return None
    if kind != STREAMS:
        raise OptionError("sourceId: it names a subscriber of streams, and ledgers have none")
    if not name or "/" in name:
        raise OptionError(f"sourceId={name!r} is no name of a subscriber")
    return name


def _pattern(given: Mapping[str, str]) -> str | None:
    pattern = given.get("streampattern")
    if pattern is None:
        return None
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(f"streamPattern={pattern!r} is no regular expression: {error}") from None
    return pattern


def _names(given: Mapping[str, str]) -> tuple[str, ...]:
    named = [name for name in NAMING if name in given]
    if len(named) > 1:
        raise OptionError("streams are named twice: give one of the options stream, streams and streamPattern")
    if named == ["streampattern"]:
        return ()
    one = "stream" in given
    names = [given["stream"]] if one else given["streams"].split(",")
    found = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not found:
        raise OptionError("the option stream names no stream" if one else "the option streams names no stream")
    return found


def _ledgers(reads: ReadOptions) -> tuple[str, ...]:
    selection = reads.selection
    if selection.everything or selection.ranges or selection.custom:
        raise OptionError("readStream follows ledgers that are named one by one: ledgers=5 or ledgers=5,7")
    for name, found, default in (
        ("entriesFrom", reads.entries_from, 0),
        ("entriesTo", reads.entries_to, None),
        ("where", reads.where, type(reads.where)()),
        ("openLedgers", reads.open_ledgers, "lac"),
    ):
        if found != default:
            raise OptionError(f"{name}: it goes with read, and not with readStream; see startingOffsets")
    return tuple(str(ledger_id) for ledger_id in selection.ids)


def _columns(given: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that are read, and those that a schema may name."""
    if choice(given, "rowMode", ("native", "kafka")) == "kafka":
        usual: tuple[str, ...]
        every: tuple[str, ...] = (*KAFKA_COLUMNS, HEADERS)
        usual = every if flag(given, "includeHeaders", False) else KAFKA_COLUMNS
    else:
        _refuse(given, ("includeheaders",), "it goes with rowMode=kafka; else columns may name key and headers")
        every, usual = (*RECORD_COLUMNS, KEY, HEADERS), RECORD_COLUMNS
    if "columns" not in given:
        return usual, every
    names = [name.strip() for name in given["columns"].split(",") if name.strip()]
    if not names:
        raise OptionError("columns names no column")
    named = check_record_columns(names, every)
    return named, named


def check_record_columns(names: list[str], every: tuple[str, ...]) -> tuple[str, ...]:
    """Raises `OptionError` for a column that does not exist or is named twice."""
    for name in names:
        if name not in every:
            raise OptionError(f"there is no column {name!r}; the columns are {', '.join(every)}")
        if names.count(name) > 1:
            raise OptionError(f"the column {name} is named twice")
    return tuple(names)
