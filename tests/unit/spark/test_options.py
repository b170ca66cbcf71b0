"""Options: what goes together, and what is told about what does not."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from bookkeeper.errors import BookKeeperError, UnauthorizedError
from bookkeeper.spark.errors import DataLossError, JobError, OptionError, from_spark
from bookkeeper.spark.options import ReadOptions, Selection
from bookkeeper.types import MAX_LEDGER_ID

URI = "sqlite:///m.db"


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({"uri": URI, "ledgers": "1", **options})


def test_all_options() -> None:
    options = ReadOptions.parse(
        {
            "URI": URI,
            "ledgers": " 5, 10-20 ,5,100-",
            "columns": "payload, entry_id",
            "Password": "p",
            "entriesfrom": "3",
            "entriesTo": "9",
            "openLedgers": "SKIP",
            "verify": "all",
            "failOnDataLoss": "False",
            "targetPartitionBytes": "64 MiB",
            "minPartitions": "4",
            "maxBatchBytes": "1m",
            "maxBatchRows": "100",
            "readConcurrency": "2",
            "maxBytesPerSecond": "10m",
            "metadataTimeout": "500ms",
            "readTimeout": "3s",
            "bk.PROTOCOL": "v3",
            "ledgerMetadata.Team": "a",
        }
    )
    assert options.selection == Selection(ids=(5,), ranges=((10, 20), (100, MAX_LEDGER_ID)), custom=(("Team", "a"),))
    assert str(options.selection) == "5,10-20,100- with Team=a"
    assert options.columns == ("payload", "entry_id")
    assert (options.entries_from, options.entries_to) == (3, 9)
    assert (options.password, options.open_ledgers, options.verify_all) == (b"p", "skip", True)
    assert options.fail_on_data_loss is False
    assert (options.target_partition_bytes, options.min_partitions) == (64 << 20, 4)
    assert (options.max_batch_bytes, options.max_batch_rows, options.read_concurrency) == (1 << 20, 100, 2)
    assert (options.metadata_timeout, options.max_bytes_per_second) == (0.5, 10 << 20)
    config = options.configuration()
    assert (config.protocol, config.readEntryTimeoutSec, config.stickyReadSEnabled) == ("v3", 3.0, True)
    assert "password" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"uri": ""}, "the option uri is missing"),
        ({"legders": "1"}, "there is no option legders; did you mean ledgers?"),
        ({"stream": "x"}, "it goes with the option stream"),
        ({"ledgersFrom": "1"}, "ledgers contradicts ledgersFrom and ledgersTo"),
        ({"path": "2"}, "named twice"),
        ({"ledgers": "5-3"}, "the range 5-3 is empty"),
        ({"ledgers": "a"}, "'a' is neither an id, nor a range"),
        ({"ledgers": "-1"}, "is neither an id"),
        ({"entriesFrom": "5", "entriesTo": "4"}, "nothing would be read"),
        ({"columns": "id"}, "there is no column 'id'"),
        ({"columns": "payload,payload"}, "named twice"),
        ({"columns": " , "}, "names no column"),
        ({"columns": "digest_ok"}, "needs verify=all"),
        ({"verify": "some"}, "is none of one, all"),
        ({"openLedgers": "close"}, "is none of lac, skip, recover"),
        ({"failOnDataLoss": "yes"}, "neither true nor false"),
        ({"minPartitions": "0"}, "is not a number from 1 up"),
        ({"maxBatchBytes": "1 parsec"}, "is not a size"),
        ({"maxBatchBytes": "1g"}, "above 64 MiB"),
        ({"readTimeout": "soon"}, "is not a time"),
        ({"readTimeout": "1", "bk.readEntryTimeoutSec": "2"}, "are the same"),
        ({"bk.readTimeuot": "2"}, "no such setting; did you mean readTimeout?"),
        ({"bk.readTimeout": "x"}, "bk.*: readTimeout"),
    ],
)
def test_mistakes(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(**options)
    assert told in str(caught.value)


def test_ledgers_must_be_named() -> None:
    with pytest.raises(OptionError, match="no ledgers are named"):
        ReadOptions.parse({"uri": URI})
    with pytest.raises(OptionError, match="nothing would be read"):
        ReadOptions.parse({"uri": URI, "ledgersFrom": "3", "ledgersTo": "2"})
    assert ReadOptions.parse({"uri": URI, "ledgersTo": "9"}).selection.ranges == ((0, 9),)
    assert ReadOptions.parse({"uri": URI, "path": "all"}).selection.everything


def test_passwords() -> None:
    options = parse(password="right")
    assert options.password_for(b"right", 1) == b"right"
    assert options.password_for(None, 1) == b"right"
    with pytest.raises(UnauthorizedError, match="ledger 1"):
        options.password_for(b"other", 1)


def test_passwords_of_several_ledgers() -> None:
    options = parse(ledgers="all", passwords='{"5,10-20": "a", "7-": "b"}', password="others")
    found = {ledger_id: options.password_for(None, ledger_id) for ledger_id in (4, 5, 6, 7, 10, 20, 21)}
    assert found == {4: b"others", 5: b"a", 6: b"others", 7: b"b", 10: b"a", 20: b"a", 21: b"b"}
    assert options.password_for(b"a", 15) == b"a"
    with pytest.raises(UnauthorizedError, match="the password is wrong"):
        options.password_for(b"a", 21)
    assert "others" not in repr(options)
    for wrong, told in (
        ("{nonsense", "passwords is no JSON"),
        ('{"5": ["s3cret"]}', "each value must be a text"),
        ('{"five": "s3cret"}', "'five' is neither an id"),
    ):
        with pytest.raises(OptionError, match=told) as caught:
            parse(passwords=wrong)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "error", [OptionError("x"), UnauthorizedError("x", ledger_id=3), DataLossError(1, 2, [("b:1", "damaged")])]
)
def test_errors_survive_pickling(error: BookKeeperError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_the_driver_is_told_one_line() -> None:
    ours = RuntimeError(
        "Job aborted: Lost task 0.0: PythonException: bookkeeper.spark.errors.DataLossError: ledger 1, entry 2: gone\n"
        "\tat org.apache.spark.Something\n"
    )
    assert str(from_spark(ours)) == "ledger 1, entry 2: gone"
    foreign = RuntimeError("An exception was thrown:\nTraceback\n  File x\nValueError: what\n\tat java.lang.Thread")
    assert str(from_spark(foreign)) == "ValueError: what"
    assert str(from_spark(RuntimeError("cannot connect to master\nmore"))) == "cannot connect to master"
    assert isinstance(from_spark(RuntimeError("")), JobError)


def test_a_process_that_only_plans_does_not_load_the_client() -> None:
    """Spark starts several of them for each query, one after the other."""
    code = """
import sys
from bookkeeper.spark.source import BookKeeperDataSource
stream = {"uri": "distributedlog-sqlite:///no/such.db?namespace=/ns", "stream": "s"}
for options in (stream, {"uri": "sqlite:///no/such.db", "ledgers": "all"}):
    source = BookKeeperDataSource(options)
    schema = source.schema()
    source.reader(schema)
    source.streamReader(schema)
print(*(name for name in sys.modules if name.startswith(("bookkeeper.client.client", "bookkeeper.streams.namespace"))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
