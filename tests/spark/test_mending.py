"""A scrub tells what is wrong, and with --repair nothing is wrong afterwards."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

import bookkeeper.spark
import bookkeeper.sync
from bookkeeper.protocol.digest import Digest, digest_for
from bookkeeper.protocol.entry import HEADER, header
from bookkeeper.spark.jobs.mending import WHOLE
from bookkeeper.types import DigestType

from .support import FULL, LiveCluster, lose, rewrite, truncate

ENTRIES = 1500
FAULTS = 100
TORN = 60
"""Entries cut off the end of an entry log, besides."""

Change = Callable[[Digest, bytes], bytes]


def payloads(tag: int) -> list[bytes]:
    return [b"<mend %d %d>" % (tag, n) + bytes([n & 0xFF]) * (n % 57) for n in range(ENTRIES)]


def flipped(at: int) -> Change:
    def change(_digest: Digest, entry: bytes) -> bytes:
        return entry[:at] + bytes([entry[at] ^ 0x10]) + entry[at + 1 :]

    return change


def packaged(**other: int) -> Change:
    """The entry with a right digest of something wrong."""

    def change(digest: Digest, entry: bytes) -> bytes:
        ledger_id, entry_id, lac, length = header(entry)
        length += other.get("length", 0)
        payload = bytearray(entry[HEADER.size + digest.size :])
        payload[-1] ^= other.get("payload", 0)
        return digest.package(ledger_id, entry_id, lac, length, bytes(payload))

    return change


KINDS: dict[str, tuple[Change | None, str]] = {
    "no entry": (None, "missing"),
    "a bit of the payload": (flipped(-2), "digest_mismatch"),
    "a bit of the digest": (flipped(HEADER.size), "digest_mismatch"),
    "a bit of the length": (flipped(31), "digest_mismatch"),
    "a bit of the last confirmed": (flipped(23), "digest_mismatch"),
    "another payload": (packaged(payload=1), "divergent"),
    "another length": (packaged(length=1), "divergent"),
}

Fault = tuple[int, int, str, str]
"""Ledger, entry, bookie, status."""


def found_in(report: bookkeeper.spark.ScrubReport) -> set[Fault]:
    return {
        (row.ledger_id, entry_id, row.bookie, row.status)
        for row in report.rows.where("bookie is not null and status <> 'ok'").collect()
        for entry_id in range(row.first_entry, row.last_entry + 1)
    }


@pytest.mark.parametrize("seed", [1, 2] if FULL else [1])
def test_100_faults_of_all_kinds_are_found_and_mended(spark: SparkSession, cluster: LiveCluster, seed: int) -> None:
    dice = random.Random(seed)
    types = (DigestType.CRC32C, DigestType.MAC, DigestType.CRC32)
    shapes = [(3, 3), (3, 3), (4, 3)]
    ledgers: dict[int, tuple[int, Digest]] = {}
    for n, (kind, (ensemble, quorum)) in enumerate(zip(types, shapes, strict=True)):
        shape = {"ensemble_size": ensemble, "write_quorum": quorum, "digest": kind, "password": b"own"}
        ledgers[cluster.write(payloads(10 * seed + n), **shape)] = (10 * seed + n, digest_for(kind, b"own"))
    gone = cluster.write(payloads(10 * seed + 9)[:40])
    only = f"{min(ledgers)}-{gone}"
    assert bookkeeper.spark.scrub(spark, cluster.uri, only).clean

    planted: set[Fault] = set()
    with cluster.stopped():
        bookie = dice.choice(cluster.bookies)
        torn = [place for place in truncate(bookie, TORN) if place[0] in {*ledgers, gone}]
        assert torn
        entries = [(ledger_id, entry_id) for ledger_id in ledgers for entry_id in range(ENTRIES)]
        where = [place for place in entries if place not in torn]  # with two bad copies it is open which one is right
        for number, (ledger_id, entry_id) in enumerate(dice.sample(where, FAULTS - 1)):
            tag, digest = ledgers[ledger_id]
            change, status = list(KINDS.values())[number % len(KINDS)]
            metadata = cluster.metadata(ledger_id)
            ensemble = metadata.last_ensemble[1]
            name = ensemble[(entry_id + dice.randrange(metadata.write_quorum)) % len(ensemble)]
            planted.add((ledger_id, entry_id, name, status))
            if change is None:
                lose(cluster.bookie(name), ledger_id, [entry_id])
                continue
            wrong = {payloads(tag)[entry_id]: lambda entry, change=change, digest=digest: change(digest, entry)}
            rewrite(cluster.bookie(name), wrong, HEADER.size + digest.size)
        name = dice.choice(cluster.metadata(gone).last_ensemble[1])
        lose(cluster.bookie(name), gone, list(range(40)))
        planted |= {(gone, entry_id, name, "missing") for entry_id in range(40)}
        planted |= {(*place, bookie.id, "unreadable") for place in torn if (place[0], name) != (gone, bookie.id)}

    report = bookkeeper.spark.scrub(spark, cluster.uri, only, targetPartitionBytes="100k")
    assert found_in(report) == planted
    assert Counter(fault[3] for fault in planted) == {
        status: count for status, count in report.statuses.items() if status != "underreplicated"
    }
    before = {ledger_id: cluster.metadata(ledger_id) for ledger_id in ledgers}
    mended = bookkeeper.spark.mend(spark, cluster.uri, report)
    assert mended.done, mended.problems
    assert mended.statuses.keys() <= WHOLE
    assert mended.copies == len(planted)
    assert {ledger_id: cluster.metadata(ledger_id) for ledger_id in ledgers} == before  # it was mended where it lies
    again = bookkeeper.spark.scrub(spark, cluster.uri, only)
    assert again.clean, again.problems


def test_what_cannot_be_mended_is_said(spark: SparkSession, cluster: LiveCluster) -> None:
    ledger_id = cluster.write(payloads(77)[:200])
    ensemble = cluster.metadata(ledger_id).last_ensemble[1]
    with cluster.stopped():
        for name in ensemble:
            lose(cluster.bookie(name), ledger_id, [50])
        lose(cluster.bookie(ensemble[0]), ledger_id, [49, 51, 52])
    cluster.kill(cluster.bookie(ensemble[1]))
    try:
        report = bookkeeper.spark.scrub(spark, cluster.uri, ledger_id)
        mended = bookkeeper.spark.mend(spark, cluster.uri, report)
    finally:
        cluster.restart(cluster.bookie(ensemble[1]))
    assert mended.statuses == {"lost": 2, "marked": 1}
    assert mended.copies == 3  # 49, 51 and 52: a lost entry does not keep others from being mended
    assert cluster.with_store(lambda driver: driver.underreplication.info(ledger_id)).replicas == (ensemble[1],)
    assert bookkeeper.spark.scrub(spark, cluster.uri, ledger_id).statuses == {"missing": 3, "gap": 1}
