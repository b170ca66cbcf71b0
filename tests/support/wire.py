"""Frames and messages of the wire protocol, for tests: those recorded from Java, and generated ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from bookkeeper.protocol import messages as m
from bookkeeper.protocol.messages import Flags, Status

DATA = Path(__file__).parent.parent / "data" / "wire"


@dataclass(frozen=True)
class Recorded:
    """One frame between a Java client and a Java bookie."""

    version: int
    is_request: bool
    frame: bytes

    @property
    def body(self) -> bytes:
        return self.frame[4:]


def recorded(version: int) -> list[Recorded]:
    """All frames of a tour through the operations in v2 or v3."""
    lines = (DATA / f"wire-v{version}.jsonl").read_text().splitlines()
    return [
        Recorded(version, line["direction"] == "request", bytes.fromhex(line["frame"]))
        for line in map(json.loads, lines)
    ]


# --- generated messages ----------------------------------------------------------------------------------------

INT64 = st.integers(-(2**63), 2**63 - 1)
LAC = st.integers(-(2**63) + 1, 2**63 - 1)
"""Everything but the one value that reads as absent in a v3 read."""
TXN_IDS = st.integers(0, 2**64 - 1)
KEYS = st.binary(min_size=20, max_size=20)
STATUSES = st.sampled_from(list(Status))
FAILURES = st.sampled_from([status for status in Status if status is not Status.EOK])
PLUGINS = st.text(st.characters(codec="utf-8"), max_size=12)
BYTES = st.binary(max_size=200)
V2_VERSIONS = st.integers(1, 7)


@st.composite
def entries(draw: st.DrawFn, *, stored: bool = False) -> bytes:
    """A packaged entry; with `stored` one that a bookie accepts: ids not negative, 24 bytes or more."""
    ids = st.integers(0, 2**63 - 1) if stored else INT64
    head = draw(ids).to_bytes(8, "big", signed=True) + draw(ids).to_bytes(8, "big", signed=True)
    return head + draw(st.binary(min_size=8 if stored else 0, max_size=200))


def _ids_of(entry: bytes) -> tuple[int, int]:
    return int.from_bytes(entry[:8], "big", signed=True), int.from_bytes(entry[8:16], "big", signed=True)


@st.composite
def v2_add_requests(draw: st.DrawFn) -> m.AddRequest:
    entry = draw(entries())
    flags = draw(st.integers(0, 0xFFFF))
    return m.AddRequest(*_ids_of(entry), entry, draw(KEYS), flags, version=draw(V2_VERSIONS))


@st.composite
def _v2_fencing(draw: st.DrawFn) -> tuple[int, int, bytes | None]:
    """Version, flags, and the key that they call for."""
    version, flags = draw(V2_VERSIONS), draw(st.integers(0, 0xFFFF))
    return version, flags, draw(KEYS) if flags & Flags.DO_FENCING and version >= 2 else None


@st.composite
def v2_read_requests(draw: st.DrawFn) -> m.ReadRequest:
    version, flags, key = draw(_v2_fencing())
    return m.ReadRequest(draw(INT64), draw(INT64), flags, key, version=version)


@st.composite
def v2_batch_read_requests(draw: st.DrawFn) -> m.BatchReadRequest:
    version, flags, key = draw(_v2_fencing())
    count = draw(st.integers(-(2**31), 2**31 - 1))
    return m.BatchReadRequest(draw(INT64), draw(INT64), draw(INT64), count, draw(INT64), flags, key, version=version)


v2_auth_requests = st.builds(m.AuthRequest, PLUGINS, BYTES, version=V2_VERSIONS)
v2_requests = st.one_of(v2_add_requests(), v2_read_requests(), v2_batch_read_requests(), v2_auth_requests)

v2_responses = st.one_of(
    st.builds(m.AddResponse, STATUSES, INT64, INT64, version=V2_VERSIONS),
    st.builds(m.ReadResponse, st.just(Status.EOK), INT64, INT64, BYTES, version=V2_VERSIONS),
    st.builds(m.ReadResponse, FAILURES, INT64, INT64, version=V2_VERSIONS),
    st.builds(m.BatchReadResponse, st.just(Status.EOK), INT64, INT64, INT64, BYTES, version=V2_VERSIONS),
    st.builds(m.BatchReadResponse, FAILURES, INT64, INT64, INT64, version=V2_VERSIONS),
    st.builds(m.AuthResponse, st.just(Status.EOK), PLUGINS, BYTES, version=V2_VERSIONS),
)

_PRIORITIES = st.integers(0, 2**32 - 1)
_V3 = st.just(m.V3)


@st.composite
def v3_add_requests(draw: st.DrawFn, *, stored: bool = False) -> m.AddRequest:
    entry = draw(entries(stored=stored))
    ledger_id, entry_id = _ids_of(entry)
    priority = draw(_PRIORITIES)
    return m.AddRequest(
        ledger_id if stored else draw(INT64),
        entry_id if stored else draw(INT64),
        entry,
        draw(BYTES),
        draw(st.sampled_from([0, int(Flags.RECOVERY_ADD)])) | (Flags.HIGH_PRIORITY if priority else 0),
        draw(st.integers(-(2**31), 2**31 - 1)),
        txn_id=draw(TXN_IDS),
        priority=priority,
        version=m.V3,
    )


@st.composite
def v3_read_requests(draw: st.DrawFn) -> m.ReadRequest:
    priority = draw(_PRIORITIES)
    return m.ReadRequest(
        draw(INT64),
        draw(INT64),
        draw(st.sampled_from([0, int(Flags.DO_FENCING), int(Flags.ENTRY_PIGGYBACK)]))
        | (Flags.HIGH_PRIORITY if priority else 0),
        draw(st.none() | BYTES),
        draw(st.none() | LAC),
        draw(st.none() | LAC),
        txn_id=draw(TXN_IDS),
        priority=priority,
        version=m.V3,
    )


_V3_HEADER = {"txn_id": TXN_IDS, "priority": _PRIORITIES, "version": _V3}
v3_requests = st.one_of(
    v3_add_requests(),
    v3_read_requests(),
    st.builds(m.AuthRequest, PLUGINS, BYTES, **_V3_HEADER),
    st.builds(m.StartTlsRequest, **_V3_HEADER),
    st.builds(m.WriteLacRequest, INT64, INT64, BYTES, BYTES, **_V3_HEADER),
    st.builds(m.ReadLacRequest, INT64, **_V3_HEADER),
    st.builds(m.ForceLedgerRequest, INT64, **_V3_HEADER),
    st.builds(m.GetBookieInfoRequest, INT64, **_V3_HEADER),
    st.builds(m.GetListOfEntriesRequest, INT64, **_V3_HEADER),
    st.builds(m.UnsupportedRequest, st.sampled_from(list(m.Operation)), **_V3_HEADER),
)

_V3_REPLY = {"txn_id": TXN_IDS, "version": _V3}
v3_responses = st.one_of(
    st.builds(m.AddResponse, STATUSES, INT64, INT64, **_V3_REPLY),
    st.builds(m.ReadResponse, STATUSES, INT64, INT64, st.none() | BYTES, st.none() | LAC, st.none() | LAC, **_V3_REPLY),
    st.builds(
        m.AuthResponse,
        STATUSES,
        PLUGINS,
        BYTES,
        txn_id=TXN_IDS,
        priority=_PRIORITIES,
        version=st.integers(1, 3),
    ),
    st.builds(m.StartTlsResponse, STATUSES, **_V3_REPLY),
    st.builds(m.WriteLacResponse, STATUSES, INT64, **_V3_REPLY),
    st.builds(m.ReadLacResponse, STATUSES, INT64, st.none() | BYTES, st.none() | BYTES, **_V3_REPLY),
    st.builds(m.ForceLedgerResponse, STATUSES, INT64, **_V3_REPLY),
    st.builds(m.GetBookieInfoResponse, STATUSES, st.none() | INT64, st.none() | INT64, **_V3_REPLY),
    st.builds(m.GetListOfEntriesResponse, STATUSES, INT64, st.none() | BYTES, **_V3_REPLY),
    st.builds(
        m.HeaderOnlyResponse,
        FAILURES,
        st.sampled_from(list(m.Operation)),
        txn_id=TXN_IDS,
        priority=_PRIORITIES,
        version=st.integers(1, 3),
    ),
)


# --- bytes nobody should send ----------------------------------------------------------------------------------


def damaged_bodies(bodies: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Random bytes and damaged copies of good bodies, `count` of them, the same for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        kind = chance.randrange(6)
        if kind == 0:
            yield chance.randbytes(chance.randrange(80))
            continue
        body = bytearray(chance.choice(bodies))
        if kind == 1:
            yield bytes(body[: chance.randrange(len(body) + 1)])
            continue
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(min(len(body), 96))
            if kind == 2:
                body[at] ^= 1 << chance.randrange(8)
            elif kind == 3:
                body[at] = chance.choice((0x00, 0x01, 0x7F, 0x80, 0xFF))
            elif kind == 4:
                body[at:at] = chance.randbytes(chance.randint(1, 8))
            elif len(body) > at + 1:
                del body[at : at + chance.randint(1, min(8, len(body) - at - 1))]
        yield bytes(body)
