from __future__ import annotations

import hashlib
import hmac

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import DigestMismatchError
from bookkeeper.protocol import entry as packaged
from bookkeeper.protocol.digest import CHECKED_TOGETHER, Digest, digest_for, mac_key, master_key
from bookkeeper.types import DigestType

from .vectors import ENTRY, LAC_PACKET

HEADER = bytes.fromhex("0000000000001234 0000000000000005 0000000000000004 0000000000000030")
EMPTY_HEADER = bytes.fromhex("0000000000000000 0000000000000000 ffffffffffffffff 0000000000000000")
LAC_HEADER = bytes.fromhex("0000000000001234 0000000000000005")

HELLO = [
    (DigestType.DUMMY, b"", ""),
    (DigestType.CRC32C, b"", "50732907"),
    (DigestType.CRC32, b"", "0000000011bac51d"),
    (DigestType.MAC, b"", "f75a4096fa98296e2a8c7afd3250f47fe925d777"),
    (DigestType.MAC, b"testPasswd", "8f1a3f659fe969bdd54a33fca7e98e6c1688a034"),
]
EMPTY = [
    (DigestType.CRC32C, b"", "e381191d"),
    (DigestType.CRC32, b"", "000000008e64d897"),
    (DigestType.MAC, b"", "90502add7a46d59ff8c71bbe7fc6a155d8fbf317"),
    (DigestType.MAC, b"testPasswd", "555df4d0865a315de4db338e3aca50fdf22503e1"),
]
LAC = [
    (DigestType.DUMMY, b"", ""),
    (DigestType.CRC32C, b"", "28a7af03"),
    (DigestType.CRC32, b"", "00000000cc577fd1"),
    (DigestType.MAC, b"", "7364d97cb191c23ed3df968935f325f56c2f6fb2"),
    (DigestType.MAC, b"testPasswd", "a6c215aed3fbddbb6bd6eb3e57b5538a7be42190"),
]

DIGESTS = st.sampled_from([digest_for(kind, b"secret") for kind in DigestType])
IDS = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("password", "master", "mac"),
    [
        (b"", "850bf1071c5e3d8c24235676f8816ae0cbe2f14f", "347ead6348e936507920c15d2ae8266ac6ce9b49"),
        (b"testPasswd", "2e2a69d870796fe05c0e77c52a29ce5e4222b758", "1bc765c5e5e8cb34bb1bc45884394f3a2b8f8311"),
        (b"A", "81a4a833deb41007a93908ccab670b054fa481cf", "c87131e8210e8db31140e07eed60510099af3289"),
        (b"secret", "e793cbc379107648537183605cd361d3bb789a39", "190c685bae851574f5ab47c960a00c0466f96603"),
    ],
)
def test_keys_are_derived_as_in_the_spec(password: bytes, master: str, mac: str) -> None:
    assert master_key(password).hex() == master
    assert mac_key(password).hex() == mac


@pytest.mark.parametrize(("kind", "password", "expected"), HELLO)
def test_entry_vectors(kind: DigestType, password: bytes, expected: str) -> None:
    digest = digest_for(kind, password)
    entry = digest.package(0x1234, 5, 4, 48, b"hello")
    assert entry == HEADER + bytes.fromhex(expected) + b"hello"
    assert digest.size == len(expected) // 2
    assert digest.verify(0x1234, 5, entry) == (4, 48, b"hello")


@pytest.mark.parametrize(("kind", "password", "expected"), EMPTY)
def test_empty_entry_vectors(kind: DigestType, password: bytes, expected: str) -> None:
    digest = digest_for(kind, password)
    entry = digest.package(0, 0, -1, 0, b"")
    assert entry == EMPTY_HEADER + bytes.fromhex(expected)
    assert digest.verify(0, None, entry) == (-1, 0, b"")


@pytest.mark.parametrize(("kind", "password", "expected"), LAC)
def test_lac_packet_vectors(kind: DigestType, password: bytes, expected: str) -> None:
    digest = digest_for(kind, password)
    packet = digest.package_lac(0x1234, 5)
    assert packet == LAC_HEADER + bytes.fromhex(expected)
    assert digest.verify_lac(0x1234, packet) == 5


def test_the_client_page_vectors() -> None:
    digest = digest_for(DigestType.CRC32C, b"")
    assert digest.package(100, 0, -1, 5, b"hello")[32:].hex() == "60ce91d768656c6c6f"
    assert digest.package(100, 1, 0, 10, b"world")[32:].hex() == "65f862ab776f726c64"
    assert digest.package_lac(100, 1)[16:].hex() == "5501c5e9"


@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 100_000])
def test_small_and_large_payloads_have_the_same_digest_rule(kind: DigestType, size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    digest = digest_for(kind, b"secret")
    entry = digest.package(1, 2, 1, 99, payload)
    data = entry[:32] + payload
    expected = {
        DigestType.DUMMY: b"",
        DigestType.CRC32C: google_crc32c.value(data).to_bytes(4, "big"),
        DigestType.CRC32: entry[32:40],
        DigestType.MAC: hmac.digest(hashlib.sha1(b"macsecret").digest(), data, "sha1"),
    }[kind]
    assert entry[32 : 32 + digest.size] == expected
    assert digest.verify(1, 2, entry) == (1, 99, payload)
    assert digest.verify_run(1, 2, len(entry).to_bytes(4, "big") + entry) == ([(2, 1, 99, payload)], False)


@given(DIGESTS, IDS, IDS, st.integers(-1, 2**63 - 1), IDS, st.binary(max_size=100))
def test_what_was_packaged_verifies(
    digest: Digest, ledger_id: int, entry_id: int, lac: int, length: int, payload: bytes
) -> None:
    entry = digest.package(ledger_id, entry_id, lac, length, payload)
    assert packaged.header(entry) == (ledger_id, entry_id, lac, length)
    assert digest.verify(ledger_id, entry_id, entry) == (lac, length, payload)
    assert digest.verify(ledger_id, None, entry) == (lac, length, payload)
    for other_ledger, other_entry in ((ledger_id ^ 1, entry_id), (ledger_id, entry_id ^ 1), (ledger_id ^ 1, None)):
        with pytest.raises(DigestMismatchError):
            digest.verify(other_ledger, other_entry, entry)


@given(st.sampled_from([kind for kind in DigestType if kind is not DigestType.DUMMY]), st.data())
def test_any_flipped_bit_is_found(kind: DigestType, data: st.DataObject) -> None:
    digest = digest_for(kind, b"secret")
    entry = bytearray(digest.package(7, 3, 2, 100, b"some payload"))
    bit = data.draw(st.integers(0, len(entry) * 8 - 1))
    entry[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DigestMismatchError):
        digest.verify(7, None, bytes(entry))


@pytest.mark.parametrize("kind", DigestType)
def test_anything_too_short_is_refused(kind: DigestType) -> None:
    digest = digest_for(kind, b"secret")
    for size in range(32 + digest.size):
        with pytest.raises(DigestMismatchError):
            digest.verify(0, None, bytes(size))
    for size in range(16 + digest.size):
        with pytest.raises(DigestMismatchError):
            digest.verify_lac(0, bytes(size))


def test_a_lac_packet_of_another_ledger_or_with_a_wrong_digest_is_refused() -> None:
    digest = digest_for(DigestType.CRC32C, b"")
    with pytest.raises(DigestMismatchError):
        digest.verify_lac(0x1235, LAC_PACKET)
    with pytest.raises(DigestMismatchError):
        digest.verify_lac(0x1234, LAC_PACKET[:-1] + b"\0")
    assert digest.verify_lac(0x1234, LAC_PACKET + b"behind") == 5


def _batch(digest: Digest, first: int, payloads: list[bytes]) -> tuple[bytes, list[tuple[int, int, int, bytes]]]:
    entries = [digest.package(9, first + i, first - 1, i, payload) for i, payload in enumerate(payloads)]
    body = b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries)
    return body, [(first + i, first - 1, i, payload) for i, payload in enumerate(payloads)]


@given(DIGESTS, st.integers(0, 10**6), st.lists(st.binary(max_size=50), max_size=10))
def test_a_run_of_good_entries_verifies(digest: Digest, first: int, payloads: list[bytes]) -> None:
    body, expected = _batch(digest, first, payloads)
    assert digest.verify_run(9, first, body) == (expected, False)
    if payloads:
        assert digest.verify_run(8, first, body) == ([], True)
        assert digest.verify_run(9, first + 1, body) == ([], True)


@given(DIGESTS, st.lists(st.binary(max_size=50), min_size=1, max_size=6), st.data())
def test_a_damaged_run_gives_its_good_prefix(digest: Digest, payloads: list[bytes], data: st.DataObject) -> None:
    body, expected = _batch(digest, 5, payloads)
    cut = data.draw(st.integers(0, len(body) - 1))
    verified, damaged = digest.verify_run(9, 5, body[:cut])
    assert verified == expected[: len(verified)]
    ends_between = sum(36 + digest.size + len(payload) for payload in payloads[: len(verified)]) == cut
    assert damaged is not ends_between


@given(DIGESTS, st.integers(0, 1000), st.sampled_from([0, 1, 50, 4095, 4096]), st.integers(1, 6), st.data())
def test_an_even_run_is_good_exactly_if_the_same_run_is(
    digest: Digest, first: int, size: int, count: int, data: st.DataObject
) -> None:
    body, expected = _batch(digest, first, [bytes([number]) * size for number in range(count)])
    lengths, payloads = [length for _, _, length, _ in expected], [payload for *_, payload in expected]
    for given_as in (body, memoryview(body)):
        assert digest.verify_even_run(9, first, given_as) == (None if size == 4096 else (lengths, payloads))
    assert digest.verify_even_run(8, first, body) is None
    assert digest.verify_even_run(9, first + 1, body) is None
    odd = bytearray(body)
    odd[data.draw(st.integers(0, len(odd) - 1))] ^= data.draw(st.integers(1, 255))
    changed = bytes(odd[: data.draw(st.one_of(st.just(len(odd)), st.integers(0, len(odd))))])
    verified, damaged = digest.verify_run(9, first, changed)
    even = digest.verify_even_run(9, first, changed)
    if even is not None:
        assert (even, damaged) == (([length for *_, length, _ in verified], [part for *_, part in verified]), False)


def test_a_long_even_run_is_checked_to_its_end() -> None:
    digest = digest_for(DigestType.CRC32C, b"")
    count = 2 * CHECKED_TOGETHER + 7
    body, expected = _batch(digest, 5, [b"%06d" % number for number in range(count)])
    assert digest.verify_even_run(9, 5, body) == (list(range(count)), [payload for *_, payload in expected])
    pitch = len(body) // count
    for bad in (0, CHECKED_TOGETHER - 1, CHECKED_TOGETHER, count - 1):
        assert digest.verify_even_run(9, 5, body[: (bad + 1) * pitch - 1] + b"!" + body[(bad + 1) * pitch :]) is None
    swapped = body[pitch : 2 * pitch] + body[:pitch] + body[2 * pitch :]
    assert digest.verify_even_run(9, 5, swapped) is None


@given(DIGESTS, st.lists(st.sampled_from([0, 1, 50, 4095, 4096, 5000]), min_size=1, max_size=8), st.data())
def test_a_row_is_good_exactly_if_each_of_its_entries_is(digest: Digest, sizes: list[int], data: st.DataObject) -> None:
    first, step = data.draw(st.integers(0, 1000)), data.draw(st.integers(1, 3))
    entry_ids = tuple(range(first, first + step * len(sizes), step))
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    entries = [digest.package(9, i, i - 1, i * 7, payload) for i, payload in zip(entry_ids, payloads, strict=True)]
    assert digest.verify_row(9, entry_ids, entries) == (tuple(i * 7 for i in entry_ids), payloads)
    assert digest.verify_row(8, entry_ids, entries) is None
    assert digest.verify_row(9, (*entry_ids[:-1], entry_ids[-1] + 1), entries) is None
    which = data.draw(st.integers(0, len(entries) - 1))
    odd = bytearray(entries[which])
    odd[data.draw(st.integers(0, len(odd) - 1))] ^= data.draw(st.integers(1, 255))
    odd = odd[: data.draw(st.one_of(st.just(len(odd)), st.integers(0, len(odd))))]
    entries[which] = bytes(odd)
    try:
        one_by_one = [digest.verify(9, i, entry) for i, entry in zip(entry_ids, entries, strict=True)]
    except DigestMismatchError:
        assert digest.verify_row(9, entry_ids, entries) is None
    else:
        lengths, payloads = [length for _, length, _ in one_by_one], [payload for _, _, payload in one_by_one]
        assert digest.verify_row(9, entry_ids, entries) == (tuple(lengths), payloads)


@given(DIGESTS, st.binary(max_size=200))
def test_bytes_that_are_no_run_are_damaged(digest: Digest, body: bytes) -> None:
    verified, damaged = digest.verify_run(9, 5, body)
    assert verified == []
    assert damaged is bool(body)


def test_accessors_read_the_header() -> None:
    assert packaged.ids(ENTRY) == (0x1234, 5)
    assert packaged.ledger_id_of(ENTRY) == 0x1234
    assert packaged.entry_id_of(ENTRY) == 5
    assert packaged.lac_of(ENTRY) == 4
    assert packaged.length_of(ENTRY) == 48
