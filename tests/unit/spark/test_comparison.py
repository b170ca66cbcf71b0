"""What users of Kafka's and Pulsar's connectors expect (spec streams §19): each row of the table has its tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SPEC = ROOT / "docs" / "spec" / "streams.md"

NOT_TESTED = {"\N{EN DASH}", "no"}
"""In the column *Need*: there is nothing to test."""

TESTS: dict[str, tuple[str, ...]] = {
    "Choose input": (
        "tests/spark/test_streams.py::test_a_stream_is_read_once",
        "tests/spark/test_streams.py::test_streams_are_found_by_a_pattern_as_they_come",
        "tests/spark/test_streams.py::test_ledgers_are_followed",
        "tests/spark/test_kafka.py::test_batch_jobs",
    ),
    "Start position": (
        "tests/spark/test_streams.py::test_a_stream_is_read_once",
        "tests/unit/spark/test_stream_options.py::test_places",
    ),
    "Start by time": ("tests/spark/test_streams.py::test_reads_begin_and_end_at_times_and_transaction_ids",),
    "End position (batch)": (
        "tests/spark/test_streams.py::test_reads_begin_and_end_at_times_and_transaction_ids",
        "tests/spark/test_streams.py::test_a_stream_is_read_once",
    ),
    "Rate limit": (
        "tests/spark/test_streams.py::test_a_query_reads_each_record_once",
        "tests/spark/test_streams.py::test_ledgers_are_followed",
        "tests/unit/spark/test_streaming_plans.py::test_batches_read_each_entry_once_and_in_order",
    ),
    "Minimum batch": (
        "tests/spark/test_streams.py::test_a_query_waits_for_enough_and_tells_how_far_it_is",
        "tests/unit/spark/test_streaming_plans.py::test_a_batch_waits_until_it_is_worth_its_while",
    ),
    "Split big partitions": (
        "tests/spark/test_read.py::test_work_is_split_by_bytes_and_fragments_and_small_ledgers_are_packed",
        "tests/spark/test_streams.py::test_tasks_have_so_many_records_at_most",
        "tests/unit/spark/test_planning.py::test_no_partition_has_more_records_than_wanted",
    ),
    "Trigger.AvailableNow": (
        "tests/spark/test_streams.py::test_a_query_reads_each_record_once",
        "tests/spark/test_streams.py::test_a_run_that_ends_with_what_is_there_misses_a_stream_that_is_gone",
    ),
    "Initial position durable": (
        "tests/spark/test_streams.py::test_a_start_at_the_end_is_kept_though_nothing_was_read",
        "tests/unit/spark/test_streaming_plans.py::test_a_first_batch_reads_again_what_it_read",
    ),
    "Lag metrics": ("tests/spark/test_streams.py::test_a_query_waits_for_enough_and_tells_how_far_it_is",),
    "New topics/streams at run time": (
        "tests/spark/test_streams.py::test_streams_are_found_by_a_pattern_as_they_come",
        "tests/unit/spark/test_streaming_plans.py::test_what_is_found_later_begins_where_it_was_found",
    ),
    "Data loss": ("tests/spark/test_streams.py::test_what_is_gone_is_an_error_or_left_out",),
    "Headers / keys": (
        "tests/spark/test_kafka.py::test_batch_jobs",
        "tests/spark/test_kafka.py::test_streaming_jobs",
        "tests/unit/streams/test_keyed.py::test_what_was_written_is_read",
    ),
    "Consumer groups": ("tests/spark/test_streams.py::test_a_query_waits_for_enough_and_tells_how_far_it_is",),
    "Client pass-through": ("tests/unit/spark/test_options.py::test_all_options",),
    "Poll timeout, retries": (
        "tests/spark/test_read.py::test_a_bookie_that_is_down",
        "tests/unit/spark/test_options.py::test_all_options",
    ),
    "Wait for absent topic": (
        "tests/spark/test_streams.py::test_a_stream_is_waited_for",
        "tests/unit/spark/test_waiting.py::test_a_query_begins_when_all_its_streams_are_there",
    ),
    "Batch read": (
        "tests/spark/test_streams.py::test_a_stream_is_read_once",
        "tests/spark/test_read.py::test_every_column_of_every_entry",
        "tests/spark/test_read.py::test_conditions_at_load_time_decide_what_is_read",
        "tests/spark/test_streams.py::test_conditions_at_load_time",
    ),
    "Source guarantee": ("tests/spark/test_streams.py::test_a_query_reads_each_record_once",),
    "Sink routing": ("tests/spark/test_kafka.py::test_batch_jobs", "tests/spark/test_kafka.py::test_streaming_jobs"),
    "Sink guarantee": (
        "tests/spark/test_streams.py::test_a_query_writes_each_record_once",
        "tests/unit/spark/test_writing.py::test_a_batch_for_several_streams_is_published_once",
        "tests/spark/test_streams.py::test_appended_rows_are_visible_at_once_and_perhaps_twice",
    ),
    "Idempotent batch write": ("tests/spark/test_streams.py::test_a_batch_write_is_visible_at_once_and_not_repeated",),
    "Checkpoint rolled back": ("tests/spark/test_streams.py::test_a_checkpoint_that_was_put_back_is_refused",),
    "Small segments or files": (
        "tests/spark/test_streams.py::test_small_segments_of_a_batch_are_merged",
        "tests/unit/spark/test_merging.py::test_a_batch_adds_one_segment_to_each_stream",
    ),
    "Metadata tables": (
        "tests/spark/test_tables.py::test_ledgers_fragments_and_bookies",
        "tests/spark/test_tables.py::test_streams_segments_and_sinks",
    ),
    "Long history": (
        "tests/spark/test_jobs.py::test_an_export_is_added_to",
        "tests/spark/test_offload.py::test_a_stream_reads_the_same_before_and_after",
        "tests/spark/test_offload.py::test_a_query_goes_on_from_files_to_ledgers",
    ),
}


@cache
def rows() -> dict[str, list[str]]:
    """The cells of each row of the table, by its first one."""
    section = SPEC.read_text().partition("\n## 19.")[2].partition("\n## 20.")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    header, rule, *body = cells
    assert (header[0], header[-1]) == ("Capability", "Need")
    assert set(rule[0]) == {"-"}
    assert all(len(row) == len(header) for row in body), "a bar inside of a cell"
    return {row[0]: row for row in body}


def is_built(row: list[str]) -> bool:
    return row[-1] not in NOT_TESTED and not re.search(r"\(not yet\)$", row[-2])


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_each_row_that_is_built_has_tests_and_no_other() -> None:
    assert len(rows()) > 25
    assert {name for name, row in rows().items() if is_built(row)} == set(TESTS)


@pytest.mark.parametrize("row", TESTS)
def test_the_tests_of_a_row_are_there(row: str) -> None:
    for test in TESTS[row]:
        file, _, name = test.partition("::")
        assert name in functions_of(file), test
