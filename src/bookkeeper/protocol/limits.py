"""How large an entry may be, given the frame limit (spec wire-protocol §1.1).

Bytes around a packaged entry in each form of message, at most, the frame's length field included:

    v2 add            28    length 4, header 4, master key 20
    v2 read response  28    length 4, head 24
    v2 batch read     40    length 4, head 24, request id 8, size 4 (for a batch of one)
    v3 read response  74    length 4, and 70 of protobuf with all fields at their longest, until the year 2109
    v3 add            80    length 4, and 76 of protobuf with all fields at their longest and a txn id below 2**63

A bookie does not check the size of its answers: an entry that could be added in one form may be unreadable in another,
because the reader closes the connection on it. So a client accepts what fits every form that may carry it back.

What a bookie keeps in memory for each ledger, for as long as it has the ledger, is not bounded by the frame but here.
"""

from __future__ import annotations

from .entry import HEADER_SIZE, LAC_HEADER_SIZE
from .messages import V3

V2_ADD_OVERHEAD = 28
V2_READ_OVERHEAD = 28
V2_BATCH_READ_OVERHEAD = 40
V3_READ_OVERHEAD = 74
V3_ADD_OVERHEAD = 80

MAX_MASTER_KEY = 64
"""The largest master key that a new ledger gets. All clients send 20 bytes (§6.2); v3 could say any number."""

LARGEST_DIGEST = 20

MAX_LAC_BODY = LAC_HEADER_SIZE + LARGEST_DIGEST
"""The largest body of a WRITE_LAC (§6.5)."""

assert max(V2_ADD_OVERHEAD, V2_READ_OVERHEAD, V2_BATCH_READ_OVERHEAD) < V3_READ_OVERHEAD < V3_ADD_OVERHEAD


def largest_entry(max_frame_size: int, version: int) -> int:
    """Size of the largest packaged entry that a client of protocol `version` can add and every client can read back."""
    return max_frame_size - (V3_ADD_OVERHEAD if version == V3 else V3_READ_OVERHEAD)


def largest_payload(max_frame_size: int, version: int, digest_size: int) -> int:
    """Size of the largest payload of an append: what `largest_entry` leaves beside header and digest."""
    return largest_entry(max_frame_size, version) - HEADER_SIZE - digest_size
