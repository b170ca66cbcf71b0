"""Every copy of an entry by itself: each is asked of its own bookie, and looked at. For scrubs, repair, and diagnosis.

Theory of operation

- A copy is *damaged* if its digest or ids are wrong, *missing* if the bookie says it has no such entry, *divergent* if
  it is good by itself but differs in payload or length from what most other copies say. What a bookie could not be
  asked is *unreachable*: that says nothing about the copy.
- A bookie that fails a request for a reason that passes is asked a second and last time.
- A bookie may serve an entry although its index has lost it, because it stands behind another one in an entry log.
  `listed` asks for what the index has.
- Digests of good copies may differ: recovery packages entries anew, with the last confirmed that it knows, and so does
  Java's re-replication, with the end of the ledger, which is not below the entry's id. So payloads and lengths decide
  whether copies differ, and the last confirmed says nothing about a copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ...errors import BKError, DigestMismatchError, ProtocolError, TooManyRequestsError, from_code
from ...metadata.ledger_metadata import LedgerMetadata
from ...protocol.availability import Availability, decode_availability
from ...protocol.digest import Digest
from ...protocol.entry import HEADER_SIZE
from ...protocol.messages import (
    V2,
    BatchReadRequest,
    BatchReadResponse,
    GetListOfEntriesRequest,
    GetListOfEntriesResponse,
    ReadRequest,
    ReadResponse,
)
from ...quorum.distribution import Distribution
from ...types import BookieId
from ..context import ClientContext
from ..wire.calls import Answer, ReadCall, ReadSink
from ..wire.results import (
    BOOKIE_UNAVAILABLE,
    EXPLICIT_NEGATIVES,
    OK,
    READ,
    TIMEOUT,
    TOO_MANY_REQUESTS,
    result_code,
)

BATCH_BYTES = 1 << 20
"""Of one batch read, at most."""

LIST_SECONDS = 600.0
"""A bookie walks its index for a list."""

SINGLE_READS = 512
"""Reads of single entries under way on one bookie."""

RETRY_SECONDS = 0.5
"""Before a bookie that failed a request is asked a second and last time."""

_TRANSIENT = (BOOKIE_UNAVAILABLE, TIMEOUT, TOO_MANY_REQUESTS)


class CopyStatus(StrEnum):
    """What is wrong with a copy."""

    DAMAGED = "digest_mismatch"
    MISSING = "missing"
    DIVERGENT = "divergent"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"
    """The bookie is there and fails to read it; only where somebody asks for the difference (`Reply.unreadable`)."""


class Problem(NamedTuple):
    """A copy that is not as it should be."""

    entry_id: int
    bookie: BookieId
    status: CopyStatus
    detail: str


class Reply(NamedTuple):
    """What a bookie answered to a read: a result code, and the bytes if it is 0. They are not checked."""

    code: int
    body: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether there are bytes."""
        return self.code == OK

    @property
    def status(self) -> CopyStatus:
        """What the refusal says of the copy."""
        return CopyStatus.MISSING if self.code in EXPLICIT_NEGATIVES else CopyStatus.UNREACHABLE

    @property
    def transient(self) -> bool:
        """Whether asking again may help."""
        return self.code in _TRANSIENT

    @property
    def hung_up(self) -> bool:
        """The bookie is gone, or one that hangs up on requests it does not know."""
        return self.code == BOOKIE_UNAVAILABLE

    @property
    def unreadable(self) -> bool:
        """The bookie answered that it fails: its disk, or its files, are not as they should be."""
        return self.code == READ

    @property
    def detail(self) -> str:
        """The code as part of a sentence."""
        text = str(from_code(self.code).args[0])
        return text[:1].lower() + text[1:]


class Copy(NamedTuple):
    """A good copy of an entry."""

    length: int
    """Payload bytes of the ledger up to and with this entry."""
    payload: bytes
    digest: bytes
    """As it is stored; empty for a ledger without digests."""
    last_confirmed: int


class Flaw(NamedTuple):
    """Why a copy is not good."""

    status: CopyStatus
    detail: str


@dataclass(frozen=True)
class Diagnosis:
    """What each replica of an entry said, when it could not be read."""

    lost: bool
    """Every replica was asked, and none has a good copy."""
    reasons: list[tuple[str, str]]
    """Bookie, and what is wrong with its copy."""


class Replicas:
    """The copies of one ledger's entries. Nothing is changed, fenced or repaired."""

    def __init__(self, context: ClientContext, metadata: LedgerMetadata, digest: Digest) -> None:
        self._context = context
        self.metadata = metadata
        self._ledger_id = metadata.ledger_id
        self._digest = digest
        self.distribution = Distribution(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)

    @property
    def in_batches(self) -> bool:
        """Whether `batch` may be used: it is configured, and the protocol has it."""
        return self._context.config.batchReadEnabled and self._context.bookies.read_version == V2

    def bookies(self, entry_id: int) -> list[BookieId]:
        """Those that must have the entry."""
        ensemble = self.metadata.ensemble_at(entry_id)
        return list(dict.fromkeys(ensemble[index] for index in self.distribution.write_set(entry_id)))

    # --- what bookies give ---

    async def one(self, bookie: BookieId, entry_id: int) -> Reply:
        """A bookie's copy of an entry, asked for once."""
        try:
            response = await self._context.bookies.request(bookie, ReadRequest(self._ledger_id, entry_id))
        except BKError as error:
            return Reply(error.code)
        assert isinstance(response, ReadResponse)
        return Reply(result_code(response.status, READ), response.entry or b"")

    async def batch(self, bookie: BookieId, first: int, count: int) -> Reply:
        """A bookie's copies of at most `count` entries from `first` on, packed."""
        request = BatchReadRequest(self._ledger_id, first, 0, count, BATCH_BYTES)
        for last_time in (False, True):
            try:
                response = await self._context.bookies.request(bookie, request)
            except BKError as error:
                reply = Reply(error.code)
                if last_time or not reply.transient:
                    break
                await asyncio.sleep(RETRY_SECONDS)
            else:
                assert isinstance(response, BatchReadResponse)
                return Reply(result_code(response.status, READ), bytes(response.body))
        return reply

    async def each(self, bookie: BookieId, entry_ids: Sequence[int]) -> AsyncIterator[tuple[int, Reply]]:
        """A bookie's copies of these entries, with a request for each.

        Once the bookie cannot be asked for any of `SINGLE_READS` entries, it is not asked for the rest.
        """
        for start in range(0, len(entry_ids), SINGLE_READS):
            wanted = entry_ids[start : start + SINGLE_READS]
            replies = await self._together(bookie, wanted)
            again = [entry_id for entry_id, reply in replies.items() if reply.transient]
            if again:
                await asyncio.sleep(RETRY_SECONDS)
                replies |= await self._together(bookie, again)
            for entry_id in wanted:
                yield entry_id, replies[entry_id]
            if all(reply.transient for reply in replies.values()):
                for entry_id in entry_ids[start + SINGLE_READS :]:
                    yield entry_id, replies[wanted[0]]
                return

    async def _together(self, bookie: BookieId, entry_ids: Sequence[int]) -> dict[int, Reply]:
        bookies = self._context.bookies
        collector = _Collector(len(entry_ids))
        try:
            bookies.read_entries(self._ledger_id, entry_ids, ReadCall(bookie, 0, collector, bookies.read_deadline()))
        except TooManyRequestsError as error:
            return dict.fromkeys(entry_ids, Reply(error.code))
        await collector.done
        return collector.replies

    async def listed(self, bookie: BookieId) -> Availability | None:
        """What a bookie's index has of the ledger; None if it cannot be asked."""
        request = GetListOfEntriesRequest(self._ledger_id)
        try:
            response = await self._context.bookies.request(bookie, request, timeout=LIST_SECONDS)
            assert isinstance(response, GetListOfEntriesResponse)
            code = result_code(response.status, READ)
            if code != OK:
                return Availability([]) if code in EXPLICIT_NEGATIVES else None
            return decode_availability(response.availability or b"")
        except (BKError, ProtocolError):
            return None

    # --- what it is worth ---

    def examine(self, entry_id: int, reply: Reply) -> Copy | Flaw:
        """Whether what a bookie gave is a good copy of the entry: one that readers would take, by digest and ids."""
        if not reply.ok:
            return Flaw(reply.status, reply.detail)
        entry = reply.body
        try:
            lac, length, payload = self._digest.verify(self._ledger_id, entry_id, entry)
        except DigestMismatchError as error:
            return Flaw(CopyStatus.DAMAGED, str(error.args[0]))
        return Copy(length, payload, entry[HEADER_SIZE : HEADER_SIZE + self._digest.size], lac)

    async def compare(self, entry_id: int, bookies: Sequence[BookieId]) -> list[Problem]:
        """Read these bookies' copies: which are not good, or differ from what most of them say?"""
        problems: list[Problem] = []
        contents: dict[tuple[int, bytes], list[BookieId]] = {}
        for bookie in bookies:
            reply = await self.one(bookie, entry_id)
            found = self.examine(entry_id, reply)
            if isinstance(found, Copy):
                contents.setdefault((found.length, found.payload), []).append(bookie)
            else:  # it was read before: so that it is not there now says nothing about it
                status = found.status if reply.ok else CopyStatus.UNREACHABLE
                problems.append(Problem(entry_id, bookie, status, found.detail))
        most = max(contents.values(), key=len, default=[])
        for group in contents.values():
            if group is not most:
                detail = f"differs from the copy of {most[0]}"
                problems += [Problem(entry_id, bookie, CopyStatus.DIVERGENT, detail) for bookie in group]
        return problems

    async def diagnose(self, entry_id: int) -> Diagnosis:
        """Ask every replica of an entry for it: why can it not be read?"""
        bookies = self.bookies(entry_id)
        replies = await asyncio.gather(*(self.one(bookie, entry_id) for bookie in bookies))
        reasons: list[tuple[str, str]] = []
        lost = True
        for bookie, reply in zip(bookies, replies, strict=True):
            found = self.examine(entry_id, reply)
            if isinstance(found, Copy):
                lost = False
                reasons.append((bookie, "good now"))
            elif found.status is CopyStatus.DAMAGED:
                reasons.append((bookie, f"damaged, {found.detail.removeprefix('the ')}"))
            else:
                lost = lost and found.status is CopyStatus.MISSING
                reasons.append((bookie, found.detail))
        return Diagnosis(lost, reasons)


class _Collector(ReadSink):
    """Gathers the answers of reads from one bookie."""

    def __init__(self, count: int) -> None:
        self.replies: dict[int, Reply] = {}
        self._count = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_answers(self, _call: ReadCall, answers: list[Answer]) -> None:
        for entry_id, code, entry, _ in answers:
            self.replies[entry_id] = Reply(code, entry or b"")
        if len(self.replies) == self._count and not self.done.done():
            self.done.set_result(None)
