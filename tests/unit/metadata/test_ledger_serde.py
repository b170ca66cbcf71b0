"""Stored ledger metadata: spec metadata §2, vectors of §2.8, conformance tests 1 to 11."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import CorruptMetadata, SerializationError
from bookkeeper.metadata.formats.ledger import MAGIC, parse, serialize
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.types import BookieId, DigestType, LedgerState, Quorums


def members(*last: int) -> tuple[BookieId, ...]:
    return tuple(BookieId(f"10.0.0.{n}:3181") for n in last)


LEDGER_A = LedgerMetadata(
    ledger_id=1,
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    ensembles={0: members(1, 2, 3)},
    digest_type=DigestType.CRC32C,
    password=b"secret",
    custom_metadata={"application": b"pulsar"},
    ctoken=0x0123456789ABCDEF,
)
LEDGER_C = LedgerMetadata(
    ledger_id=1,
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    ensembles={0: members(1, 2, 3), 17: members(1, 4, 3)},
    state=LedgerState.CLOSED,
    last_entry_id=42,
    length=4096,
    digest_type=DigestType.MAC,
    password=b"\x00p\x22w\xff",
    ctime=1700000000123,
    store_ctime=True,
)
LEDGER_R = replace(LEDGER_A, state=LedgerState.IN_RECOVERY, custom_metadata={}, ctoken=0)

HEADER = "426f6f6b69654d65746164617461466f726d617456657273696f6e09"
A_V3 = bytes.fromhex(
    HEADER
    + "330a 71 0802 1003 1800 20ffffffffffffffffff01 2801"
    + "322f0a0d31302e302e302e313a333138310a0d31302e302e302e323a333138310a0d31302e302e302e333a333138311000"
    + "3803 4206736563726574 4802 5a150a0b6170706c69636174696f6e120670756c736172 60ef9bafcdf8acd19101"
)
A_V2 = (
    b"BookieMetadataFormatVersion\t2\n"
    b"quorumSize: 2\nensembleSize: 3\nlength: 0\nlastEntryId: -1\nstate: OPEN\n"
    b'segment {\n  ensembleMember: "10.0.0.1:3181"\n  ensembleMember: "10.0.0.2:3181"\n'
    b'  ensembleMember: "10.0.0.3:3181"\n  firstEntryId: 0\n}\n'
    b'digestType: CRC32C\npassword: "secret"\nackQuorumSize: 2\n'
    b'customMetadata {\n  key: "application"\n  value: "pulsar"\n}\n'
)
C_V3 = bytes.fromhex(
    HEADER
    + "330a 8101 0802 1003 188020 202a 2803"
    + "322f0a0d31302e302e302e313a333138310a0d31302e302e302e323a333138310a0d31302e302e302e333a333138311000"
    + "322f0a0d31302e302e302e313a333138310a0d31302e302e302e343a333138310a0d31302e302e302e333a333138311011"
    + "3802 420500702277ff 4802 50fbd095ffbc31 6000"
)
C_V2 = (
    b"BookieMetadataFormatVersion\t2\n"
    b"quorumSize: 2\nensembleSize: 3\nlength: 4096\nlastEntryId: 42\nstate: CLOSED\n"
    b'segment {\n  ensembleMember: "10.0.0.1:3181"\n  ensembleMember: "10.0.0.2:3181"\n'
    b'  ensembleMember: "10.0.0.3:3181"\n  firstEntryId: 0\n}\n'
    b'segment {\n  ensembleMember: "10.0.0.1:3181"\n  ensembleMember: "10.0.0.4:3181"\n'
    b'  ensembleMember: "10.0.0.3:3181"\n  firstEntryId: 17\n}\n'
    b'digestType: HMAC\npassword: "\\000p\\"w\\377"\nackQuorumSize: 2\nctime: 1700000000123\n'
)
R_V3 = bytes.fromhex(
    HEADER
    + "330a5208021003180020ffffffffffffffffff012802322f0a0d31302e302e302e313a333138310a0d31302e302e302e323a3331"
    + "38310a0d31302e302e302e333a3331383110003803420673656372657448026000"
)
A_V1 = b"BookieMetadataFormatVersion\t1\n2\n3\n0\n0\t10.0.0.1:3181\t10.0.0.2:3181\t10.0.0.3:3181\n"
R_V1 = A_V1 + b"-102\tCLOSED"
C_V1 = bytes.fromhex(
    HEADER
    + "310a320a330a343039360a300931302e302e302e313a333138310931302e302e302e323a333138310931302e302e302e333a3331"
    + "38310a31370931302e302e302e313a333138310931302e302e302e343a333138310931302e302e302e333a333138310a343209434c"
    + "4f534544"
)

VECTORS = [
    pytest.param(LEDGER_A, 3, A_V3, 144, id="A-v3"),
    pytest.param(LEDGER_A, 2, A_V2, 343, id="A-v2"),
    pytest.param(LEDGER_A, 1, A_V1, 80, id="A-v1"),
    pytest.param(LEDGER_C, 3, C_V3, 161, id="C-v3"),
    pytest.param(LEDGER_C, 2, C_V2, 448, id="C-v2"),
    pytest.param(LEDGER_C, 1, C_V1, 137, id="C-v1"),
    pytest.param(LEDGER_R, 3, R_V3, 30 + 1 + 82, id="R-v3"),
    pytest.param(LEDGER_R, 1, R_V1, 91, id="R-v1"),
]


@pytest.mark.parametrize(("record", "version", "data", "size"), VECTORS)
def test_vectors_both_ways(record: LedgerMetadata, version: int, data: bytes, size: int) -> None:
    assert len(data) == size
    assert serialize(replace(record, format_version=version)) == data
    found = parse(data, 1)
    assert serialize(found) == data
    expected = replace(record, format_version=version)
    if version == 2:
        expected = replace(expected, ctoken=0)
    if version == 1:
        expected = replace(
            expected, digest_type=None, password=None, ctime=-1, store_ctime=False, ctoken=0, custom_metadata={}
        )
    assert found == expected


def test_version_1_reads_the_ack_quorum_as_the_write_quorum_and_no_ctime() -> None:
    data = serialize(replace(LEDGER_A, ack_quorum=1, format_version=1))
    found = parse(data, 1, store_ctime=77)
    assert (found.ack_quorum, found.ctime, found.password, found.custom_metadata) == (2, -1, None, {})


@pytest.mark.parametrize("version", [2, 3])
def test_a_ctime_of_the_store_is_shown_but_not_written_back(version: int) -> None:
    data = serialize(replace(LEDGER_A, format_version=version))
    found = parse(data, 1, store_ctime=77)
    assert (found.ctime, found.store_ctime) == (77, False)
    assert serialize(found) == data
    kept = parse(serialize(replace(LEDGER_C, format_version=version)), 1, store_ctime=77)
    assert (kept.ctime, kept.store_ctime) == (1700000000123, True)


def test_only_version_3_has_the_creation_token() -> None:
    assert b"cToken" not in serialize(replace(LEDGER_A, format_version=2))
    assert serialize(replace(LEDGER_A, ctoken=0)).endswith(b"\x60\x00")


@pytest.mark.parametrize("at", range(len(MAGIC)))
def test_a_wrong_byte_in_the_header_is_corrupt(at: int) -> None:
    data = bytearray(A_V3)
    data[at] ^= 1
    with pytest.raises(CorruptMetadata):
        parse(bytes(data), 1)


@pytest.mark.parametrize(
    "header", [b"", b"3", b"3\r", b"1234567890\n", b"0\n", b"4\n", b"x\n", b"\n", b"3 \n", b"\xb3\n", b"3_0\n"]
)
def test_a_wrong_version_is_corrupt(header: bytes) -> None:
    """SEC-34."""
    with pytest.raises(CorruptMetadata):
        parse(MAGIC + header + A_V3[30:], 1)


@pytest.mark.parametrize("header", [b"+3\n", b"03\n", b"000000003\n"])
def test_versions_that_java_reads_are_read(header: bytes) -> None:
    assert parse(MAGIC + header + A_V3[30:], 1) == LEDGER_A


@pytest.mark.parametrize("size", range(30, 144))
def test_a_cut_record_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptMetadata):
        parse(A_V3[:size], 1)


def test_bytes_behind_the_message_are_ignored() -> None:
    assert parse(A_V3 + b"\xff\xff", 1) == LEDGER_A


def test_a_size_of_more_than_five_bytes_is_corrupt() -> None:
    with pytest.raises(CorruptMetadata):
        parse(A_V3[:30] + b"\xf1\x80\x80\x80\x80\x00" + A_V3[31:], 1)


@pytest.mark.parametrize(
    ("old", "new", "quorum", "digest", "password"),
    [
        (b"ackQuorumSize: 2\n", b"", 2, DigestType.CRC32C, b"secret"),
        (b"digestType: CRC32C\n", b"", 2, DigestType.CRC32, b"secret"),
        (b'password: "secret"\n', b"", 2, None, None),
    ],
)
def test_missing_fields_have_java_defaults(
    old: bytes, new: bytes, quorum: int, digest: DigestType | None, password: bytes | None
) -> None:
    found = parse(A_V2.replace(old, new), 1)
    assert (found.ack_quorum, found.digest_type, found.password) == (quorum, digest, password)


@pytest.mark.parametrize(
    "damage",
    [
        (b"quorumSize: 2\n", b""),
        (b"ensembleSize: 3\n", b""),
        (b"length: 0\n", b""),
        (b"state: OPEN\n", b""),
        (b"  firstEntryId: 0\n", b""),
        (b"state: OPEN", b"state: MELTED"),
        (b"quorumSize: 2", b"quorumSize: 4"),
        (b"ackQuorumSize: 2", b"ackQuorumSize: 3"),
        (b'  ensembleMember: "10.0.0.1:3181"\n', b""),
        (b'"10.0.0.1:3181"', b'"10.0.0.1/3181"'),  # SEC-35
        (b"lastEntryId: -1\nstate: OPEN", b"state: CLOSED"),
        (b"digestType: CRC32C", b"digestType: SHA1"),
    ],
)
def test_a_record_that_breaks_an_invariant_is_corrupt(damage: tuple[bytes, bytes]) -> None:
    """SEC-34."""
    old, new = damage[:2]
    assert old in A_V2
    with pytest.raises(CorruptMetadata):
        parse(A_V2.replace(old, new, 1), 1)


def test_ensembles_must_ascend() -> None:
    """SEC-34."""
    segment = C_V2[C_V2.index(b"segment") : C_V2.index(b"digestType")]
    for wrong in (segment.replace(b"17", b"0"), b"", segment.replace(b": 0", b": 20")):
        with pytest.raises(CorruptMetadata):
            parse(C_V2.replace(segment, wrong), 1)
    with pytest.raises(CorruptMetadata):
        parse(C_V1.replace(b"\n17\t", b"\n0\t"), 1)


@pytest.mark.parametrize("version", [2, 3])
def test_without_digest_only_version_1_can_be_written(version: int) -> None:
    record = replace(LEDGER_A, digest_type=None, password=None, format_version=version)
    with pytest.raises(SerializationError):
        serialize(record)
    assert serialize(replace(record, format_version=1)) == A_V1


def test_an_unknown_version_cannot_be_written() -> None:
    with pytest.raises(SerializationError):
        serialize(replace(LEDGER_A, format_version=4))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_version_1_lines_may_end_in_any_way(end: bytes) -> None:
    body = C_V1[len(MAGIC) + 2 :].replace(b"\n", end)
    assert parse(C_V1[: len(MAGIC) + 2] + body, 1) == parse(C_V1, 1)


@pytest.mark.parametrize(
    "body", [b"", b"2\n3\n", b"2\n3\n0\n", b"2\n3\n0\nx\n", b"2\n3\n0\n0\n", b"2\n3\n0\n\n", b"x\n3\n0\n", b"\xff\n"]
)
def test_version_1_without_its_lines_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptMetadata):
        parse(MAGIC + b"1\n" + body, 1)


def test_a_duplicate_custom_key_keeps_the_last_value() -> None:
    twice = A_V2 + b'customMetadata { key: "application" value: "other" }'
    assert parse(twice, 1).custom_metadata == {"application": b"other"}


text = st.text(st.characters(exclude_categories=["Cs"]))
bookies = st.from_regex(r"[a-z0-9.]{1,20}:[0-9]{1,5}", fullmatch=True).map(BookieId)


@st.composite
def records(draw: st.DrawFn) -> LedgerMetadata:
    size = draw(st.integers(1, 4))
    quorum = draw(st.integers(1, size))
    keys = sorted(draw(st.sets(st.integers(0, 2**63 - 1), min_size=1, max_size=3)))
    state = draw(st.sampled_from(LedgerState))
    closed = state is LedgerState.CLOSED
    ctime = draw(st.none() | st.integers(0, 2**62))
    version = draw(st.sampled_from([2, 3]))
    return LedgerMetadata(
        ledger_id=draw(st.integers(0, 2**63 - 1)),
        ensemble_size=size,
        write_quorum=quorum,
        ack_quorum=draw(st.integers(1, quorum)),
        ensembles={key: tuple(draw(st.lists(bookies, min_size=size, max_size=size))) for key in keys},
        state=state,
        last_entry_id=draw(st.integers(-1, 2**63 - 1)) if closed else -1,
        length=draw(st.integers(0, 2**63 - 1)) if closed else 0,
        digest_type=draw(st.sampled_from(DigestType)),
        password=draw(st.binary(max_size=300)),
        ctime=-1 if ctime is None else ctime,
        store_ctime=ctime is not None,
        ctoken=draw(st.integers(0, 2**63 - 1)) if version == 3 else 0,
        custom_metadata=draw(st.dictionaries(text, st.binary(max_size=20), max_size=3)),
        format_version=version,
    )


@given(records())
def test_any_record_comes_back_equal(record: LedgerMetadata) -> None:
    assert parse(serialize(record), record.ledger_id) == record


@given(st.sampled_from([A_V1, A_V2, A_V3, C_V1, C_V2, C_V3]), st.data())
def test_any_damage_is_at_worst_corrupt(data: bytes, draw: st.DataObject) -> None:
    """SEC-34."""
    at = draw.draw(st.integers(28, len(data)))
    end = draw.draw(st.integers(at, len(data)))
    damaged = data[:at] + draw.draw(st.binary(max_size=8)) + data[end:]
    try:
        record = parse(damaged, 1)
    except CorruptMetadata:
        return
    if record.password is None and record.format_version > 1:  # as in ledgers of 4.1: they can be read, but not written
        with pytest.raises(SerializationError):
            serialize(record)
    else:
        assert parse(serialize(record), 1) == record


def test_a_record_that_lost_its_digest_and_password_is_read_but_not_written() -> None:
    lines = A_V2.splitlines(keepends=True)
    record = parse(b"".join(line for line in lines if not line.startswith((b"digestType", b"password"))), 1)
    assert (record.digest_type, record.password, record.format_version) == (None, None, 2)
    with pytest.raises(SerializationError, match="no digest type and password"):
        serialize(record)


@given(st.sampled_from([b"1\n", b"2\n", b"3\n"]), st.binary(max_size=100))
def test_any_bytes_are_at_worst_corrupt(version: bytes, body: bytes) -> None:
    """SEC-34."""
    with contextlib.suppress(CorruptMetadata):
        parse(MAGIC + version + body, 1)


@pytest.mark.parametrize("octet", range(256))
def test_every_octet_survives_in_a_text_password(octet: int) -> None:
    record = replace(LEDGER_A, password=bytes([octet, 0x31]), format_version=2, ctoken=0)
    assert parse(serialize(record), 1) == record


def test_keys_outside_the_basic_plane_survive_in_text() -> None:
    record = replace(LEDGER_A, custom_metadata={"\U0001f600": b"x"}, format_version=2, ctoken=0)
    assert b'key: "\\360\\237\\230\\200"' in serialize(record)
    assert parse(serialize(record), 1) == record


def test_a_record_has_its_quorums_as_one_value() -> None:
    assert replace(LEDGER_A, ack_quorum=1).quorums == Quorums(ensemble_size=3, write_quorum=2, ack_quorum=1)
    assert str(LEDGER_A.quorums) == "3/2/2"
    with pytest.raises(CorruptMetadata, match="quorums 3/2/3 do not descend"):
        replace(LEDGER_A, ack_quorum=3)
