"""Options of reads of streams and of `readStream`."""

from __future__ import annotations

import json

import pytest

from bookkeeper.spark.errors import OptionError
from bookkeeper.spark.streaming.admission import Limits
from bookkeeper.spark.streaming.offsets import LEDGERS, STREAMS
from bookkeeper.spark.streaming.starting import AtTxid
from bookkeeper.spark.streaming.stream_options import KAFKA_COLUMNS, LATEST, RECORD_COLUMNS, StreamOptions
from bookkeeper.streams.dlsn import DLSN

WHERE = {"uri": "distributedlog://zk1/x"}


def parse(streaming: bool = True, **options: str) -> StreamOptions:
    return StreamOptions.parse({**WHERE, **options}, streaming=streaming)


def test_streams() -> None:
    found = parse(streams="a, b,a", maxBytesPerTrigger="2m", maxrecordspertrigger="7", failOnDataLoss="false")
    assert (found.kind, found.logs, found.columns) == (STREAMS, ("a", "b"), RECORD_COLUMNS)
    assert found.limits == Limits(None, 2 << 20, 7)
    assert found.starting.of("a") == LATEST
    assert not found.reads.fail_on_data_loss
    assert parse(stream="a, b").logs == ("a, b",), "a name may have a comma"
    assert parse(stream="a", rowMode="kafka").columns == KAFKA_COLUMNS
    assert parse(streaming=False, stream="a").starting.of("a") == "earliest"


def test_ledgers() -> None:
    found = parse(ledgers="5,7", startingOffsets='{"5": 17, "7": -2}')
    assert (found.kind, found.logs) == (LEDGERS, ("5", "7"))
    assert found.starting.of("5") == (0, 17, 0)
    assert found.starting.of("7") == "earliest"


def test_places() -> None:
    text = json.dumps({"a": str(DLSN(3, 4, 5)), "b": {"l": 2, "e": 4}, "c": -1})
    starting = parse(streams="a,b,c", startingOffsets=text).starting
    assert [starting.of(name) for name in "abc"] == [(3, 4, 5), (2, 4, 0), LATEST]


@pytest.mark.parametrize(
    ("options", "begin"),
    [
        ({"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"a": 6}', "startingTxid": "7"}, AtTxid(5)),
        ({"startingOffsetsByTimestamp": '{"a": 6}', "startingTxid": "7", "startingOffsets": "latest"}, AtTxid(6)),
        ({"startingTxid": "7", "startingOffsets": "latest"}, AtTxid(7)),
    ],
)
def test_of_several_starts_the_first_counts(options: dict[str, str], begin: AtTxid) -> None:
    starting = parse(stream="a", **options).starting
    assert starting.of("a") == begin
    assert starting.must_exist
    latest = parse(stream="a", startingOffsetsByTimestampStrategy="latest", **options).starting
    assert not latest.must_exist


def test_a_pattern_fits_whole_names() -> None:
    found = parse(streamPattern="log-[ab]", startingOffsets='{"log-a": -2}')
    assert [name for name in ("log-a", "log-b", "log-ab", "x/log-a") if found.reads_stream(name)] == ["log-a", "log-b"]
    assert (found.starting.of("log-a"), found.starting.of("log-b")) == ("earliest", LATEST)


@pytest.mark.parametrize(
    ("streaming", "options", "why"),
    [
        (True, {"stream": "a", "streamPattern": "b"}, "named twice"),
        (True, {"streamPattern": "("}, "no regular expression"),
        (True, {"stream": "a", "endingTxid": "7"}, "has no end"),
        (True, {"stream": "a", "startingTxid": "-7"}, "is not a number"),
        (True, {"stream": "a", "startingOffsetsByTimestamp": "7"}, "is no JSON such as"),
        (True, {"stream": "a", "startingTimestamp": "7", "txidAsTimestamp": "false"}, "are no times"),
        (True, {"ledgers": "5", "startingTxid": "7"}, "it goes with the option stream"),
        (True, {"stream": "a", "streams": "b"}, "named twice"),
        (True, {"streams": " , "}, "names no stream"),
        (True, {"stream": "a", "where": "entry_id < 3"}, "comparisons of segment, txid, sequence_id and timestamp"),
        (True, {"stream": "a", "endingOffsets": "latest"}, "has no end"),
        (False, {"stream": "a", "maxEntriesPerTrigger": "3"}, "goes with readStream"),
        (True, {"stream": "a", "columns": "payload,length"}, "there is no column 'length'"),
        (True, {"stream": "a", "columns": "payload,payload"}, "named twice"),
        (True, {"stream": "a", "rowMode": "pulsar"}, "is none of native, kafka"),
        (True, {"stream": "a", "startingOffsets": "first"}, "neither earliest, nor latest"),
        (True, {"stream": "a", "startingOffsets": '{"b": -1}'}, "names b, but what is read is a"),
        (True, {"stream": "a", "startingOffsets": '{"a": 7}'}, "is no place"),
        (True, {"stream": "a", "startingOffsets": '{"a": "xyz"}'}, "no position"),
        (True, {"stream": "a", "startingOffsets": "[1]"}, "it is no object"),
        (True, {"ledgers": "5-7"}, "named one by one"),
        (True, {"ledgers": "5", "entriesFrom": "3"}, "see startingOffsets"),
        (True, {"ledgers": "5", "startingOffsets": '{"5": true}'}, "is no place"),
        (True, {"ledgers": "5", "rowMode": "kafka"}, "it goes with the option stream"),
        (True, {"stream": "a", "maxBytesPerTrigger": "0"}, "is not a size"),
        (True, {"streams": ",".join(map(str, range(5001)))}, "too many"),
        (True, {"stream": "a", "includeHeaders": "true"}, "it goes with rowMode=kafka"),
        (True, {"stream": "a", "maxTriggerDelay": "3m"}, "it goes with minEntriesPerTrigger"),
        (True, {"stream": "a", "minEntriesPerTrigger": "3", "maxEntriesPerTrigger": "2"}, "is more than"),
        (True, {"ledgers": "5", "sourceId": "x"}, "ledgers have none"),
        (True, {"stream": "a", "sourceId": "x/y"}, "no name of a subscriber"),
        (False, {"stream": "a", "sourceId": "x"}, "goes with readStream"),
    ],
)
def test_what_is_wrong(streaming: bool, options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        parse(streaming, **options)
