"""Packed entries to columns: the same as taking them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.reads.columns import JOIN_BELOW, PackedRun, take_run
from bookkeeper.protocol.digest import Digest, digest_for
from bookkeeper.types import DigestType

LEDGER = 7
DIGESTS = [digest_for(kind, b"p") for kind in DigestType]


def pack(digest: Digest, payloads: list[bytes], first: int = 0, ledger_id: int = LEDGER) -> bytes:
    packed = b""
    length = 0
    for entry_id, payload in enumerate(payloads, first):
        length += len(payload)
        entry = digest.package(ledger_id, entry_id, entry_id - 2, length, payload)
        packed += len(entry).to_bytes(4, "big") + entry
    return packed


def contents(run: PackedRun) -> list[tuple[int, int, int, bytes]]:
    """What `Digest.verify_run` gives: entry id, LAC, length, payload."""
    payload = bytes(run.payload)
    return [
        (run.first + row, int(run.last_confirmed[row]), int(run.length[row]), payload[start:stop])
        for row, (start, stop) in enumerate(zip(run.offsets[:-1], run.offsets[1:], strict=True))
    ]


sizes = st.one_of(st.integers(0, 40), st.sampled_from([JOIN_BELOW - 1, JOIN_BELOW, JOIN_BELOW + 1]))
payload_lists = st.one_of(
    st.lists(sizes, min_size=1, max_size=20),
    st.tuples(sizes, st.integers(1, 20)).map(lambda each: [each[0]] * each[1]),
).map(lambda all_sizes: [bytes([n & 0xFF]) * size for n, size in enumerate(all_sizes)])


@given(payload_lists, st.sampled_from(DIGESTS), st.integers(0, 2**40))
def test_a_run_is_what_its_entries_are(payloads: list[bytes], digest: Digest, first: int) -> None:
    body = pack(digest, payloads, first)
    run, damaged = take_run(LEDGER, digest, first, body)
    assert damaged is None
    assert run is not None
    assert contents(run) == digest.verify_run(LEDGER, first, body)[0]
    assert run.payload_bytes == sum(map(len, payloads))
    for start in range(run.rows):
        assert contents(run.cut(start, run.rows)) == contents(run)[start:]
        assert contents(run.prefix(start + 1)) == contents(run)[: start + 1]


@given(payload_lists, st.sampled_from(DIGESTS), st.data())
def test_nothing_behind_damage_is_used(payloads: list[bytes], digest: Digest, data: st.DataObject) -> None:
    body = bytearray(pack(digest, payloads))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    run, damaged = take_run(LEDGER, digest, 0, cut)
    expected, broken = digest.verify_run(LEDGER, 0, cut)
    assert ([] if run is None else contents(run)) == expected
    assert damaged == (len(expected) if broken or not cut else None)


@pytest.mark.parametrize("digest", DIGESTS, ids=lambda digest: type(digest).__name__)
@pytest.mark.parametrize("sizes", [[100] * 5, [1, 2, 3, 4, 5]], ids=["even", "uneven"])
def test_another_ledgers_or_another_entry_is_damage(digest: Digest, sizes: list[int]) -> None:
    payloads = [bytes(size) for size in sizes]
    assert take_run(LEDGER + 1, digest, 0, pack(digest, payloads)) == (None, 0)
    assert take_run(LEDGER, digest, 1, pack(digest, payloads)) == (None, 1)
    gap = pack(digest, payloads[:2]) + pack(digest, payloads[3:], 3)
    run, damaged = take_run(LEDGER, digest, 0, gap)
    assert run is not None
    assert (run.rows, damaged) == (2, 2)
    assert run.digests.shape == (2, digest.size)
    assert run.offsets.dtype == np.int32
