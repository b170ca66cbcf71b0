"""The largest entries, against the frames that the codecs really write."""

from __future__ import annotations

import pytest

from bookkeeper.protocol import limits, v2, v3
from bookkeeper.protocol.frames import DEFAULT_MAX_FRAME_SIZE
from bookkeeper.protocol.messages import V2, V3, AddRequest, BatchReadResponse, Flags, ReadResponse

KEY = bytes(20)
FAR = 2**63 - 1
YEAR_2100 = 4_102_444_800_000


def _written_as(entry: bytes) -> dict[str, int]:
    recovery = Flags.RECOVERY_ADD | Flags.HIGH_PRIORITY
    add = AddRequest(FAR, FAR, entry, KEY, recovery, write_flags=1, txn_id=FAR, priority=100)
    return {
        "v2 add": len(v2.encode_add_request(KEY, entry)),
        "v2 read": len(v2.encode_response(ReadResponse(0, 1, 2, entry))),
        "v2 batch": len(v2.encode_response(BatchReadResponse(0, 1, 2, 3, len(entry).to_bytes(4, "big") + entry))),
        "v3 read": len(v3.encode_response(ReadResponse(0, FAR, -1, entry, FAR, YEAR_2100, txn_id=2**64 - 1))),
        "v3 add": len(v3.encode_request(add)),
    }


def test_the_numbers_of_the_spec() -> None:
    assert limits.largest_entry(DEFAULT_MAX_FRAME_SIZE, V2) == 5242806
    assert limits.largest_entry(DEFAULT_MAX_FRAME_SIZE, V3) == 5242800
    assert limits.largest_payload(DEFAULT_MAX_FRAME_SIZE, V2, 4) == 5242806 - 36


@pytest.mark.parametrize("limit", [DEFAULT_MAX_FRAME_SIZE, 1_000_000])
def test_what_the_limit_allows_fits_every_form(limit: int) -> None:
    sizes = _written_as(bytes(limits.largest_entry(limit, V3)))
    assert max(sizes.values()) <= limit
    sizes = _written_as(bytes(limits.largest_entry(limit, V2)))
    del sizes["v3 add"]
    assert max(sizes.values()) <= limit


def test_the_overheads_are_those_of_the_frames() -> None:
    entry = bytes(100_000)
    sizes = {form: size - len(entry) for form, size in _written_as(entry).items()}
    assert sizes["v2 add"] == limits.V2_ADD_OVERHEAD
    assert sizes["v2 read"] == limits.V2_READ_OVERHEAD
    assert sizes["v2 batch"] == limits.V2_BATCH_READ_OVERHEAD
    assert sizes["v3 read"] <= limits.V3_READ_OVERHEAD
    assert sizes["v3 add"] <= limits.V3_ADD_OVERHEAD
