"""The byte vectors of spec wire-protocol §10, written with K for the master key and E for the entry."""

from __future__ import annotations

K = "2e2a69d870796fe05c0e77c52a29ce5e4222b758"
E = "0000000000001234 0000000000000005 0000000000000004 0000000000000030 50732907 68656c6c6f"
E6 = "0000000000001234 0000000000000006 0000000000000005 0000000000000032 748d7d3e 6869"
L = "0000000000001234 0000000000000005 28a7af03"


def bytes_of(text: str) -> bytes:
    return bytes.fromhex(text.replace("K", K).replace("E6", E6).replace("E", E).replace("L", L))


KEY = bytes_of("K")
ENTRY = bytes_of("E")
ENTRY_6 = bytes_of("E6")
LAC_PACKET = bytes_of("L")
LEDGER = 0x1234
