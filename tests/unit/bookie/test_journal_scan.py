"""Reading journals back: Java's and ours, whole, torn and damaged (spec bookie-storage §4.3, safety §3.4, §3.5)."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.bookie.journal.format import (
    EXPLICIT_LAC,
    FENCE,
    LEDGER_KEY,
    JournalRecord,
    SealHeader,
    encode_header,
    entry_prefix,
    explicit_lac_record,
    fence_record,
    ledger_key_record,
    sealed_padding,
)
from bookkeeper.bookie.journal.scan import JournalScan
from bookkeeper.errors import CorruptStorageError
from tests.support import golden, java_journal
from tests.support.disk import file_of
from tests.support.java_journal import entry

from .test_journal_format import E0, KEY, LAC, vector_file

JOURNAL = 5
MAX_ENTRY = 6 << 20


def scan(
    data: bytes, start: int = 0, *, end: int | None = None, last: bool = True
) -> tuple[list[JournalRecord], JournalScan]:
    reader = JournalScan(file_of(data), JOURNAL, start, max_entry=MAX_ENTRY, end=end, last=last)
    records: list[JournalRecord] = []
    while more := reader.next_records():
        records += more
    return records, reader


def ids(data: bytes, start: int = 0, *, end: int | None = None, last: bool = True) -> list[tuple[int, int]]:
    return [(record.ledger_id, record.entry_id) for record in scan(data, start, end=end, last=last)[0]]


def sealed(
    batches: list[list[bytes]], synced: list[int] | None = None, *, allocate: int = 0, alignment: int = 512
) -> bytes:
    """A file as ours: `synced[i]` is what batch i's seal says; by default that nothing was synced yet."""
    data = encode_header(6, SealHeader(JOURNAL, 0, 0))
    for number, batch in enumerate(batches):
        body = b"".join(entry_prefix(len(payload)) + payload for payload in batch)
        known = synced[number] if synced else 512
        data += body + sealed_padding([body], JOURNAL, len(data), len(batch), known, alignment)
    return data + bytes(allocate)


def lose(data: bytes, *sectors: int) -> bytes:
    image = bytearray(data)
    for sector in sectors:
        image[sector * 512 : sector * 512 + 512] = bytes(512)
    return bytes(image)


# --- whole files ---------------------------------------------------------------------------------


def test_the_vector() -> None:
    records, reader = scan(vector_file())
    assert [tuple(record) for record in records] == [
        (7, LEDGER_KEY, KEY, 512, False),
        (7, 0, E0, 556, False),
        (7, FENCE, b"", 1024, False),
        (7, EXPLICIT_LAC, LAC, 1044, False),
    ]
    assert reader.position == 1536


def test_reading_starts_at_the_mark() -> None:
    records, _ = scan(vector_file(), 1024)
    assert [record.entry_id for record in records] == [FENCE, EXPLICIT_LAC]


@pytest.mark.parametrize("behind", [0, 1, 4])
def test_a_mark_behind_the_zeros_that_stopped_java_is_fine(behind: int) -> None:
    for data in (vector_file() + bytes(2048), sealed([[E0]], allocate=2048)):
        end = scan(data)[1].position
        records, reader = scan(data, end + behind)
        assert records == []
        assert reader.position <= end + behind


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("allocate", [0, 3000])
def test_every_version(version: int, allocate: int) -> None:
    batches = [[entry(1, 0, 100), entry(2, 0, 700)], [entry(1, 1, 40)]]
    data = java_journal.write(batches, version, allocate=allocate)
    records, _ = scan(data)
    assert [record.body for record in records] == [payload for batch in batches for payload in batch]
    assert [record.body for record in records] == java_journal.read(data)[0]


def test_a_record_kind_that_the_version_does_not_have_ends_the_file() -> None:
    fence = fence_record(1)[4:]
    data = java_journal.write([[entry(1, 0, 100)], [fence], [entry(1, 1, 100)]], 3)
    assert ids(data) == [(1, 0)]
    with pytest.raises(CorruptStorageError):
        ids(data, last=False)


def test_unknown_kinds_of_records_are_skipped() -> None:
    """R10."""
    unknown = struct.pack(">qq", 1, -0x10000) + b"something"
    records, reader = scan(java_journal.write([[entry(1, 0, 100), unknown, entry(1, 1, 100)]]))
    assert [record.entry_id for record in records] == [0, 1]
    assert reader.skipped == 1


@pytest.fixture(scope="module")
def golden_bookies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("bookie", golden.BOOKIES)
def test_journals_that_java_wrote(bookie: str, golden_bookies: Path) -> None:
    """All of them hold what the metadata promises, and we read neither more nor less than Java would."""
    seen: dict[int, dict[int, bytes]] = {}
    kinds: set[int] = set()
    for path in sorted((golden_bookies / bookie / "journal" / "current").glob("*.txn")):
        data = path.read_bytes()
        records, reader = scan(data)
        java, end = java_journal.read(data)
        assert reader.torn is None
        assert reader.position == end - 4
        for record, payload in zip(records, java, strict=True):
            assert struct.unpack_from(">qq", payload) == (record.ledger_id, record.entry_id)
            if record.entry_id >= 0:
                assert record.body == payload
                seen.setdefault(record.ledger_id, {})[record.entry_id] = record.body
            else:
                kinds.add(record.entry_id)
    assert kinds == {LEDGER_KEY, FENCE}
    for ledger in golden.ledgers():
        if ledger.write_quorum == ledger.ensemble == 3:
            held = seen.get(ledger.ledger, {})
            assert sorted(held) == list(range(ledger.entries))
            assert all(body.endswith(golden.payload(entry_id, ledger.size)) for entry_id, body in held.items())


# --- files of ours, as Java reads them -----------------------------------------------------------


@given(
    batches=st.lists(st.lists(st.integers(32, 1500), min_size=1, max_size=5), min_size=1, max_size=6),
    alignment=st.sampled_from([512, 4096]),
)
def test_java_reads_a_sealed_file_as_we_do(batches: list[list[int]], alignment: int) -> None:
    payloads = [
        [entry(1, number * 10 + i, size) for i, size in enumerate(sizes)] for number, sizes in enumerate(batches)
    ]
    data = sealed(payloads, allocate=1024, alignment=alignment)
    flat = [payload for batch in payloads for payload in batch]
    java, end = java_journal.read(data)
    assert java == flat
    records, reader = scan(data)
    assert [record.body for record in records] == flat
    assert all(record.sealed for record in records)
    assert reader.position == end - 4


# --- torn tails ----------------------------------------------------------------------------------

THREE_BATCHES = [[entry(7, 0, 136)], [entry(7, 1, 936), entry(7, 2, 336)], [entry(7, 3, 136)]]
TWO_IN_ONE = [[entry(7, 4, 504), entry(7, 5, 236)]]
"""The layouts of safety §3.4. Only the first batch of the first one was synced."""


def test_the_layout_of_the_examples() -> None:
    data = java_journal.write(THREE_BATCHES)
    assert [record.offset for record in scan(data)[0]] == [512, 1024, 1964, 2560]
    assert data[512:540].hex() == "000000880000000000000007" + "00" * 8 + "ff" * 8
    assert len(data) == 3072


@pytest.mark.parametrize(
    ("sectors", "expected", "java"),
    [
        ((), [0, 1, 2, 3], [0, 1, 2, 3]),
        ((2,), [0], [0]),
        ((3,), [0], [0, 1]),
        ((4,), [0], [0, 1, 2]),
        ((5,), [0, 1, 2], [0, 1, 2]),
    ],
)
def test_torn_examples(sectors: tuple[int, ...], expected: list[int], java: list[int]) -> None:
    """Java replays entries with zeros in them; we end before the batch. BI-4, JH-8, FX-45, defect A9."""
    unsealed = lose(java_journal.write(THREE_BATCHES, allocate=4096), *sectors)
    assert [struct.unpack_from(">q", body, 8)[0] for body in java_journal.read(unsealed)[0]] == java
    assert ids(unsealed) == [(7, entry_id) for entry_id in expected]
    for synced in ([512, 512, 512], [512, 1024, 1024]):
        image = lose(sealed(THREE_BATCHES, synced, allocate=4096), *sectors)
        records, _ = scan(image)
        assert [record.body for record in records] == [
            payload for batch in THREE_BATCHES for payload in batch if payload[15] in expected
        ]


def test_zeros_after_a_surviving_length_are_not_ledger_0() -> None:
    """BI-4, FX-45, defect A9."""
    unsealed = lose(java_journal.write(TWO_IN_ONE, allocate=4096), 2)
    assert struct.unpack_from(">qq", java_journal.read(unsealed)[0][1]) == (0, 0)
    assert ids(unsealed) == []
    assert ids(lose(sealed(TWO_IN_ONE, allocate=4096), 2)) == []


def test_zeros_that_end_aligned_are_not_ledger_0_either() -> None:
    """Without the rule the zeros would look like a record that ends a batch: version 4 has no padding. FX-45."""
    data = java_journal.write([[entry(7, 0, 100)]], 4) + struct.pack(">i", 200) + bytes(1000)
    assert java_journal.read(data)[0][1] == bytes(200)
    assert ids(data) == [(7, 0)]


@given(st.data())
@settings(max_examples=200)
def test_any_torn_sealed_file_gives_the_longest_prefix_of_whole_batches(data: st.DataObject) -> None:
    """JH-8, BI-4, BI-9, DF-1."""
    sizes = data.draw(st.lists(st.lists(st.integers(32, 1400), min_size=1, max_size=4), min_size=1, max_size=5))
    payloads = [[entry(7, number * 10 + i, size) for i, size in enumerate(batch)] for number, batch in enumerate(sizes)]
    whole = sealed(payloads, allocate=1024)
    borders = [len(sealed(payloads[:count])) for count in range(len(payloads) + 1)]
    synced = data.draw(st.integers(0, len(payloads)))
    image = lose(whole, *data.draw(st.sets(st.integers(borders[synced] // 512, len(whole) // 512))))
    kept = 0
    while kept < len(payloads) and image[borders[kept] : borders[kept + 1]] == whole[borders[kept] : borders[kept + 1]]:
        kept += 1
    records, reader = scan(image)
    # A lost sector may have held nothing but the zeros of a padding: then the batch is whole.
    assert len(records) in {sum(map(len, payloads[:count])) for count in range(kept, len(payloads) + 1)}
    flat = [payload for batch in payloads for payload in batch]
    assert [record.body for record in records] == flat[: len(records)]
    assert reader.position in borders[kept:]


@given(st.data())
@settings(max_examples=200)
def test_a_torn_java_file_gives_only_batches_that_look_whole(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.lists(st.integers(32, 400), min_size=1, max_size=4), min_size=1, max_size=5))
    payloads = [[entry(7, number * 10 + i, size) for i, size in enumerate(batch)] for number, batch in enumerate(sizes)]
    whole = java_journal.write(payloads, allocate=1024)
    borders = [len(java_journal.write(payloads[:count])) for count in range(len(payloads) + 1)]
    synced = data.draw(st.integers(0, len(payloads)))
    image = lose(whole, *data.draw(st.sets(st.integers(borders[synced] // 512, len(whole) // 512))))
    records, _ = scan(image)
    flat = [payload for batch in payloads[:synced] for payload in batch]
    assert [record.body for record in records[: len(flat)]] == flat
    for before, after in pairwise(records):
        assert after.offset > before.offset


def test_a_tail_of_garbage_ends_a_java_file() -> None:
    """SEC-38, FX-45."""
    whole = java_journal.write([[entry(7, 0, 100)]])
    for garbage in (
        struct.pack(">i", -5),
        struct.pack(">i", 15) + bytes(15),
        struct.pack(">i", 1 << 30) + b"x" * 100,
        struct.pack(">iqq", 100, -3, 4) + bytes(84),
        struct.pack(">iqq", 20, 3, 4) + bytes(4),
        struct.pack(">iqqi", 40, 3, LEDGER_KEY, 7) + bytes(20),
        struct.pack(">ii", -0x100, -1),
        struct.pack(">ii", -0x100, 1 << 30),
    ):
        assert ids(whole + garbage) == [(7, 0)]
        assert ids(whole + garbage + bytes(4096)) == [(7, 0)]
        with pytest.raises(CorruptStorageError, match="not the last journal"):
            ids(whole + garbage, last=False)


# --- damage --------------------------------------------------------------------------------------

SYNCED = [512, 1024, 2560]
"""What the seals of `THREE_BATCHES` say when each was written after the one before was synced."""


@pytest.mark.parametrize("sector", [1, 2, 3, 4])
def test_a_hole_before_what_a_later_seal_knows_to_be_synced_is_refused(sector: int) -> None:
    """BI-9."""
    with pytest.raises(CorruptStorageError, match="later seal"):
        ids(lose(sealed(THREE_BATCHES, SYNCED, allocate=4096), sector))


def test_a_file_that_ends_before_the_next_one_says_is_refused() -> None:
    data = sealed(THREE_BATCHES, allocate=4096)
    assert len(ids(data, end=3072, last=False)) == 4
    for sector in (2, 3, 5):
        with pytest.raises(CorruptStorageError, match="next journal"):
            ids(lose(data, sector), end=3072, last=False)


def test_nothing_behind_the_end_that_the_next_file_tells_is_read() -> None:
    data = sealed(THREE_BATCHES, allocate=4096)
    assert ids(data, end=1024, last=False) == [(7, 0)]


@given(st.integers(0, 3072 * 8 - 1))
@settings(max_examples=300)
def test_a_flipped_bit_is_never_served(bit: int) -> None:
    """BI-22 for a file whose end the next one tells: right records, or refusal."""
    image = bytearray(sealed(THREE_BATCHES, SYNCED, allocate=4096))
    image[bit // 8] ^= 1 << bit % 8
    try:
        records, _ = scan(bytes(image), end=3072, last=False)
    except CorruptStorageError:
        return
    assert [record.body for record in records] == [payload for batch in THREE_BATCHES for payload in batch]


def test_batches_of_an_earlier_life_of_the_file_do_not_count() -> None:
    stale = bytearray(sealed(THREE_BATCHES, allocate=512))
    fresh = encode_header(6, SealHeader(9, 0, 0))
    stale[: len(fresh)] = fresh
    reader = JournalScan(file_of(bytes(stale)), 9, 0, max_entry=MAX_ENTRY)
    assert reader.next_records() == []


def test_a_file_under_a_wrong_name_is_refused() -> None:
    with pytest.raises(CorruptStorageError, match="wrong name"):
        JournalScan(file_of(sealed([[E0]])), JOURNAL + 1, 0, max_entry=MAX_ENTRY)


def test_a_mark_beyond_the_file_is_refused() -> None:
    with pytest.raises(CorruptStorageError, match="the mark says"):
        JournalScan(file_of(sealed([[E0]])), JOURNAL, 1 << 20, max_entry=MAX_ENTRY)


# --- large files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("java", [True, False])
def test_batches_larger_than_what_is_read_at_once(java: bool) -> None:
    batches = [[entry(1, number * 100 + i, 2_000_000, 1 + i) for i in range(4)] for number in range(3)]
    data = java_journal.write(batches) if java else sealed(batches)
    records, _ = scan(data)
    assert [record.body for record in records] == [payload for batch in batches for payload in batch]


def test_records_of_every_kind_round_trip_sealed() -> None:
    body = ledger_key_record(7, KEY) + entry_prefix(len(E0)) + E0 + fence_record(7) + explicit_lac_record(7, LAC)
    data = encode_header(6, SealHeader(JOURNAL, 0, 0))
    data += body + sealed_padding([body], JOURNAL, 512, 4, 512, 512)
    assert [record[:3] for record in scan(data)[0]] == [
        (7, LEDGER_KEY, KEY),
        (7, 0, E0),
        (7, FENCE, b""),
        (7, EXPLICIT_LAC, LAC),
    ]
