"""The options of a read: what they are called, what they mean, and what goes together.

Option names are compared without regard to case, as everywhere in Spark. `bk.<setting>` passes a setting of
`ClientConfiguration` on. All mistakes are reported together, before anything is asked from the cluster.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..config import ClientConfiguration
from ..errors import ConfigurationError, UnauthorizedError
from ..types import MAX_LEDGER_ID
from .errors import OptionError
from .values import choice, flag, number, seconds, size
from .where import EVERYWHERE, Where

NAMES = {
    name.lower(): name
    for name in (
        "uri",
        "path",
        "ledgers",
        "ledgersFrom",
        "ledgersTo",
        "entriesFrom",
        "entriesTo",
        "where",
        "columns",
        "password",
        "passwords",
        "openLedgers",
        "verify",
        "failOnDataLoss",
        "targetPartitionBytes",
        "minPartitions",
        "maxRecordsPerPartition",
        "maxBatchBytes",
        "maxBatchRows",
        "readConcurrency",
        "maxBytesPerSecond",
        "metadataTimeout",
        "readTimeout",
    )
}
METADATA = "ledgermetadata."
CLIENT = "bk."
STREAMS = (
    "stream", "streams", "streampattern", "rowmode", "includeheaders", "txidastimestamp", "readfrom",
    "waitforstream", "startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp", "startingtxid",
    "startingoffsetsbytimestampstrategy", "endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp", "endingtxid",
)  # fmt: skip
"""Options of reads of streams (`streaming.stream_options`)."""

TRIGGERS = (
    "maxentriespertrigger", "maxbytespertrigger", "maxrecordspertrigger", "minentriespertrigger", "maxtriggerdelay",
    "minpollinterval", "sourceid",
)  # fmt: skip
"""Options of `readStream`."""

NOT_YET = ("includecontrol",)

CATALOG = ("provider", "owner", "location", "comment", "tblproperties")
"""Options that Spark adds when a table is made of a source."""

TABLES = (
    "ledgers cannot be tables of a catalog (CREATE TABLE, saveAsTable): Spark forgets the options of a Python data "
    "source's table. CREATE TEMPORARY VIEW ... USING bookkeeper OPTIONS (...) works"
)

COLUMNS = ("ledger_id", "entry_id", "payload", "length", "last_confirmed", "bookies", "bad_copies", "digest_ok")
DEFAULT_COLUMNS = ("ledger_id", "entry_id", "payload", "length", "last_confirmed")

OPEN_POLICIES = ("lac", "skip", "recover")
LARGEST_BATCH = 64 << 20

_CLIENT_SETTINGS = {name.lower(): name for name in ClientConfiguration.model_fields}


@dataclass(frozen=True)
class Selection:
    """Which ledgers: those that are named, in one of the ranges, and have the custom metadata."""

    everything: bool = False
    ids: tuple[int, ...] = ()
    """Named one by one: each must exist."""
    ranges: tuple[tuple[int, int], ...] = ()
    """Inclusive: what exists in them."""
    custom: tuple[tuple[str, str], ...] = ()
    """Keys (compared without regard to case) and values that a ledger's custom metadata must have."""

    @property
    def empty(self) -> bool:
        return not (self.everything or self.ids or self.ranges or self.custom)

    def names(self, ledger_id: int) -> bool:
        """Whether a ledger is among those that are named, whatever its metadata."""
        named = ledger_id in self.ids or any(first <= ledger_id <= last for first, last in self.ranges)
        return self.everything or named

    def __str__(self) -> str:
        named = [str(one) for one in self.ids] + [
            f"{first}-{last if last < MAX_LEDGER_ID else ''}" for first, last in self.ranges
        ]
        text = ",".join(named) if named else "all"
        wanted = " and ".join(f"{key}={value}" for key, value in self.custom)
        return f"{text} with {wanted}" if wanted else text

    @classmethod
    def parse(cls, text: str) -> Selection:
        """`all`, or a list of ids and ranges: `5,10-20,100-`. Raises `OptionError`."""
        if text.strip().lower() in ("all", "*"):
            return cls(everything=True)
        ids: list[int] = []
        ranges: list[tuple[int, int]] = []
        for part in text.split(","):
            match = re.fullmatch(r"\s*(\d+)\s*(?:(-)\s*(\d*))?\s*", part)
            if match is None:
                raise OptionError(f"ledgers={text!r}: {part.strip()!r} is neither an id, nor a range such as 10-20")
            first = int(match[1])
            if match[2] is None:
                ids.append(first)
                continue
            last = int(match[3]) if match[3] else MAX_LEDGER_ID
            if last < first:
                raise OptionError(f"ledgers={text!r}: the range {part.strip()} is empty")
            ranges.append((first, last))
        return cls(ids=tuple(dict.fromkeys(ids)), ranges=tuple(ranges))


@dataclass(frozen=True)
class ReadOptions:
    """What a read is to do. Sizes in bytes, times in seconds. The password and client settings are not shown."""

    uri: str
    selection: Selection
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    columns_given: bool = False
    entries_from: int = 0
    entries_to: int | None = None
    """Inclusive; in every ledger."""
    where: Where = EVERYWHERE
    """Conditions on ids, besides all that."""
    password: bytes = field(default=b"", repr=False)
    passwords: tuple[tuple[Selection, bytes], ...] = field(default=(), repr=False)
    """Of some ledgers; the first that names a ledger counts, and `password` is that of all others."""
    open_ledgers: str = "lac"
    verify_all: bool = False
    fail_on_data_loss: bool = True
    target_partition_bytes: int = 128 << 20
    min_partitions: int = 1
    max_partition_records: int | None = None
    max_batch_bytes: int = 4 << 20
    max_batch_rows: int = 65536
    read_concurrency: int = 8
    max_bytes_per_second: int = -1
    """Of payload, that a task reads; where every copy is looked at, from each bookie. -1: no bound."""
    metadata_timeout: float = 30.0
    client: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings of the client."""
    as_admin: bool = False
    """Use the password that the metadata name, as tools do that look after a cluster."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises `OptionError` that says what is wrong with which option."""
        given, custom, client = _sort_out(options)
        values: dict[str, Any] = {"uri": _uri(given), "selection": _selection(given, custom)}
        if "columns" in given:
            values["columns"] = _columns(given["columns"])
            values["columns_given"] = True
        values["entries_from"] = number(given, "entriesFrom", 0, least=0)
        values["entries_to"] = number(given, "entriesTo", None, least=0)
        if values["entries_to"] is not None and values["entries_to"] < values["entries_from"]:
            raise OptionError("entriesTo is less than entriesFrom: nothing would be read")
        if "where" in given:
            values["where"] = Where.parse(given["where"])
        values |= _passwords(given)
        values["open_ledgers"] = choice(given, "openLedgers", OPEN_POLICIES)
        values["verify_all"] = choice(given, "verify", ("one", "all")) == "all"
        values["fail_on_data_loss"] = flag(given, "failOnDataLoss", True)
        values["target_partition_bytes"] = size(given, "targetPartitionBytes", 128 << 20)
        values["min_partitions"] = number(given, "minPartitions", 1, least=1)
        values["max_partition_records"] = number(given, "maxRecordsPerPartition", None, least=1)
        values["max_batch_bytes"] = size(given, "maxBatchBytes", 4 << 20)
        if values["max_batch_bytes"] > LARGEST_BATCH:
            raise OptionError(f"maxBatchBytes is above {LARGEST_BATCH >> 20} MiB, the most that Arrow batches may have")
        values["max_batch_rows"] = number(given, "maxBatchRows", 65536, least=1)
        values["read_concurrency"] = number(given, "readConcurrency", 8, least=1)
        values["max_bytes_per_second"] = size(given, "maxBytesPerSecond", -1)
        values["metadata_timeout"] = seconds(given, "metadataTimeout", 30.0)
        if "readtimeout" in given and "readEntryTimeoutSec" in client:
            raise OptionError("readTimeout and bk.readEntryTimeoutSec are the same: give one of them")
        client.setdefault("readEntryTimeoutSec", str(seconds(given, "readTimeout", 10.0)))
        values["client"] = tuple(sorted(client.items()))
        made = cls(**values)
        if "digest_ok" in made.columns and not made.verify_all:
            raise OptionError("the column digest_ok says whether every copy is good: it needs verify=all")
        made.configuration()
        return made

    def with_columns(self, columns: tuple[str, ...]) -> ReadOptions:
        """The same for other columns."""
        return replace(self, columns=columns, columns_given=True)

    def password_for(self, stored: bytes | None, ledger_id: int) -> bytes:
        """A ledger's password; `stored` is what its metadata say. Raises `UnauthorizedError` for a wrong one."""
        if self.as_admin and stored is not None:
            return stored
        given = next((password for some, password in self.passwords if some.names(ledger_id)), self.password)
        if stored is not None and stored != given:  # the oldest records have none: then the digests tell
            raise UnauthorizedError("the password is wrong", ledger_id=ledger_id)
        return given

    def configuration(self) -> ClientConfiguration:
        """The client's settings: reads of one task stay with one replica, so that bookies read ahead usefully.

        Raises `OptionError`.
        """
        try:
            return ClientConfiguration.from_mapping({"stickyReadSEnabled": "true", **dict(self.client)}, source="bk.*")
        except ConfigurationError as error:
            raise OptionError(str(error)) from error


def _sort_out(options: Mapping[str, str]) -> tuple[dict[str, str], list[tuple[str, str]], dict[str, str]]:
    """Options by lower-case name, wanted custom metadata, settings of the client."""
    given: dict[str, str] = {}
    custom: list[tuple[str, str]] = []
    client: dict[str, str] = {}
    for key, value in options.items():
        name = key.lower()
        if name.startswith(METADATA):
            custom.append((key[len(METADATA) :], value))
        elif (setting := client_setting(key)) is not None:
            client[setting] = value
        elif name in STREAMS:
            raise OptionError(f"{key}: ledgers are read here; it goes with the option stream, or with readStream")
        elif name in TRIGGERS:
            raise OptionError(f"{key}: it goes with readStream, and not with read")
        elif name == "table":
            raise OptionError(
                f"{key}: metadata tables are read as they are now: it goes with read, not with readStream"
            )
        elif name in NOT_YET:
            raise OptionError(f"{key}: there is no such thing yet; name ledgers with the option ledgers, or a stream")
        elif name in CATALOG:
            raise OptionError(TABLES)
        elif name in NAMES:
            given[name] = value
        else:
            raise OptionError(f"there is no option {key}{similar(name, NAMES)}")
    return given, custom, client


def client_setting(key: str) -> str | None:
    """The setting of the client that an option passes on; None: it does not. Raises `OptionError`."""
    name = key.lower()
    if not name.startswith(CLIENT):
        return None
    setting = _CLIENT_SETTINGS.get(name[len(CLIENT) :])
    if setting is None:
        raise OptionError(f"{key}: the client has no such setting{similar(name[3:], _CLIENT_SETTINGS)}")
    return setting


KAFKA = {
    "kafka.bootstrap.servers": "uri",
    "subscribe": "streams",
    "subscribepattern": "streamPattern",
    "topic": "stream",
    "maxoffsetspertrigger": "maxRecordsPerTrigger",
    "minoffsetspertrigger": "minEntriesPerTrigger",
}
"""What options of Spark's Kafka source and sink are called here."""


def similar(name: str, names: Mapping[str, str]) -> str:
    """A hint at an option that may be meant."""
    if name in KAFKA:
        return f"; what Kafka's source and sink call so is {KAFKA[name]} here"
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {names[near[0]]}?" if near else ""


def _uri(given: Mapping[str, str]) -> str:
    uri = given.get("uri", "").strip()
    if not uri:
        raise OptionError(
            "the option uri is missing: the metadata service, as zk+hierarchical://host:2181/ledgers"
            " or sqlite:///path/meta.db"
        )
    return uri


def _passwords(given: Mapping[str, str]) -> dict[str, Any]:
    """Which ledgers have which password. Raises `OptionError`, which shows none."""
    password = given.get("password", "").encode()
    text = given.get("passwords", "given").strip()
    if not text.startswith("{"):
        as_admin = choice(given, "passwords", ("given", "metadata")) == "metadata"
        if as_admin and "password" in given:
            raise OptionError(
                "passwords=metadata takes the passwords from the ledgers' metadata: password is not needed"
            )
        return {"password": password, "as_admin": as_admin}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(f"passwords is no JSON: {error}") from None
    if not all(isinstance(each, str) for each in found.values()):
        raise OptionError('passwords: each value must be a text, as in {"5,10-20": "secret", "30-": "other"}')
    return {
        "password": password,
        "passwords": tuple((Selection.parse(ledgers), each.encode()) for ledgers, each in found.items()),
    }


def _selection(given: Mapping[str, str], custom: list[tuple[str, str]]) -> Selection:
    if "path" in given and "ledgers" in given:
        raise OptionError("ledgers are named twice: by the option ledgers, and by the argument of load()")
    named = given.get("ledgers", given.get("path"))
    first = number(given, "ledgersFrom", None, least=0)
    last = number(given, "ledgersTo", None, least=0)
    if named is not None:
        if first is not None or last is not None:
            raise OptionError("ledgers contradicts ledgersFrom and ledgersTo: give either a list or a range")
        selection = Selection.parse(named)
    elif first is not None or last is not None:
        if first is not None and last is not None and last < first:
            raise OptionError("ledgersTo is less than ledgersFrom: nothing would be read")
        selection = Selection(ranges=((first or 0, MAX_LEDGER_ID if last is None else last),))
    else:
        selection = Selection()
    selection = replace(selection, custom=tuple(sorted(custom)))
    if selection.empty:
        raise OptionError(
            "no ledgers are named: give ledgers=5,10-20 (or all), ledgersFrom and ledgersTo, or ledgerMetadata.<key>"
        )
    return selection


def _columns(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise OptionError("columns names no column")
    return check_columns(names)


def check_columns(names: list[str]) -> tuple[str, ...]:
    """Raises `OptionError` for a column that does not exist or is named twice."""
    for name in names:
        if name not in COLUMNS:
            raise OptionError(f"there is no column {name!r}; the columns are {', '.join(COLUMNS)}")
        if names.count(name) > 1:
            raise OptionError(f"the column {name} is named twice")
    return tuple(names)
