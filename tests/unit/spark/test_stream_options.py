"""Options of reads of streams and of `readStream`."""

from __future__ import annotations

import json

import pytest

from bookkeeper.spark.errors import OptionError
from bookkeeper.spark.streaming.admission import Limits
from bookkeeper.spark.streaming.offsets import LEDGERS, STREAMS
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
    ("streaming", "options", "why"),
    [
        (True, {"stream": "a", "streams": "b"}, "named twice"),
        (True, {"streams": " , "}, "names no stream"),
        (True, {"stream": "a", "where": "entry_id < 3"}, "where: it is for ledgers"),
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
    ],
)
def test_what_is_wrong(streaming: bool, options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        parse(streaming, **options)
