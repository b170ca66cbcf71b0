"""Adds: from runs of entries to journal batches and acknowledgements (spec bookie-server §2.4, §2.5, §3.2).

Theory of operation

What one socket read brought is one `AddBatch`. Its adds come as runs, entries of one ledger with the same key and
flags; each run is judged once. Those that are accepted go on together: room, storage, records and permits are asked for
once, so that a thousand ledgers with an entry each cost little more than one with a thousand. In one turn of the loop,
without an await:

1. read-only? key? fenced? A refused run is answered at once and leaves no trace.
2. room in storage, journal and the limit on adds in progress (which recovery does not wait for). If there is none
   nothing is done: the connection keeps the run, stops reading, and tries again later from step 1. If there is room for
   some runs only they are taken one by one, in their order, up to the first that has none.
3. the entries go into the storage, then their records into the batch for the ledger's journal, the key record first.

Adds of many ledgers, one or few of each, come as `MixedAdds`, and go these steps by columns, when all of them are
plain: the ledger in use, its key known and journaled, no fence, room for all. Else they become runs.

`submit` hands each journal its records with one callback, which acknowledges all of them with one write. As fences
are set in a turn of their own, every add that passed step 1 before a fence is in front of the fence record in the
same journal (I1); as storage comes before journal, a mark never passes an entry that is not in the storage (I2).

Nothing is said about an add whose journal fails: the bookie stops, and what the client does not know it asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from struct import Struct

from ...errors import NoWritableLedgerDirError
from ...protocol import v2, v3
from ...protocol.entry import MIN_STORED_SIZE, ids
from ...protocol.messages import V2, V3, AddRequest, AddResponse, AddRun, Flags, MixedAdds, Status
from ...types import WriteFlag
from ..ground import Ground
from ..journal.format import entry_prefix
from ..journal.journals import key_record_if_due
from ..ledgers import BookieLedger
from ..sharing.permits import Permits
from ..storage.packing import JOIN_BELOW
from .caller import Caller
from .error_status import ADD, status_of

_RECOVERY_ADD = int(Flags.RECOVERY_ADD)
_HIGH_PRIORITY = int(Flags.HIGH_PRIORITY)
_DEFERRED_SYNC = int(WriteFlag.DEFERRED_SYNC)
_LAC_AT = 16
_LAC_END = 24
_lac = Struct(">16xq").unpack_from


class AddPath:
    """What all adds of a bookie share."""

    def __init__(self, ground: Ground) -> None:
        config = ground.config
        self.runtime = ground.runtime
        self.storage = ground.storage
        self.journals = ground.journals
        self.ledgers = ground.ledgers
        self.state = ground.state
        self.stats = ground.stats
        self.on_error = ground.on_error
        self.permits = Permits(config.maxAddsInProgressLimit)
        self.write_data = config.journalWriteData
        self.room_timeout = config.dbStorage_maxThrottleTimeMs / 1000

    def has_room(self, caller: Caller, run: AddRun) -> bool:
        """Whether a run can be taken now."""
        size, count = sum(map(len, run.entries)), len(run.entries)
        return (
            self.storage.has_room(run.ledger_id, size + self.left_for_others(caller), count)
            and self.journals.of(run.ledger_id).room.has(size)
            and (self.permits.free() or bool(run.flags & _RECOVERY_ADD))
        )

    def has_room_for_all(self, caller: Caller, runs: Sequence[AddRun]) -> bool:
        """Whether runs of any ledgers can be taken together now. If not, some of them may still have room."""
        return self.has_room_for_sizes(caller, [len(entry) for run in runs for entry in run.entries])

    def has_room_for_sizes(self, caller: Caller, sizes: Sequence[int]) -> bool:
        """Whether entries of these sizes, of any ledgers, can be taken now."""
        size, count = sum(sizes), len(sizes)
        return (
            self.storage.has_room_everywhere(size + self.left_for_others(caller), count)
            and all(journal.room.has(size) for journal in self.journals)
            and self.permits.free(count)
        )

    def left_for_others(self, caller: Caller) -> int:
        """Bytes of the write cache that a caller's adds must not take."""
        return self.storage.reserve if caller.must_spare else 0

    async def wait_for_room(self, caller: Caller, run: AddRun) -> bool:
        """Wait until the run can be tried again; False if the storage had no room for too long."""
        size = sum(map(len, run.entries)) + self.left_for_others(caller)
        count = len(run.entries)
        journal = self.journals.of(run.ledger_id)
        while True:
            if not (self.permits.free() or run.flags & _RECOVERY_ADD):
                await self.permits.wait()
            elif not journal.room.has(size):
                await journal.room.wait(size)
            elif not self.storage.has_room(run.ledger_id, size, count):
                if not await self.storage.wait_for_room(run.ledger_id, size, count, self.room_timeout):
                    return False
            else:
                return True


Admitted = tuple[AddRun, BookieLedger]
"""A run that may be added, and its ledger."""


class _Group:
    """Records for one journal and the acknowledgements they earn."""

    __slots__ = ("count", "early", "key_records", "pieces", "runs")

    def __init__(self, early: bool) -> None:
        self.early = early  # acknowledged before the sync
        self.pieces: list[bytes] = []
        self.runs: list[AddRun | MixedAdds] = []
        self.count = 0  # adds
        self.key_records = 0


class AddBatch:
    """The adds of one connection on their way through one turn of the loop."""

    __slots__ = ("_caller", "_groups", "_path", "_started")

    def __init__(self, path: AddPath, caller: Caller, started: float) -> None:
        self._path = path
        self._caller = caller
        self._groups: dict[int, _Group] = {}  # journal index -> what is gathered for it
        self._started = started

    def add(self, run: AddRun) -> bool:
        """Handle a run; False if there is no room for it: nothing has happened then."""
        handle = self._admit(run)
        if handle is None:
            return True
        if not self._path.has_room(self._caller, run):
            return False
        self._take([(run, handle)])
        return True

    def add_all(self, runs: Sequence[AddRun]) -> int:
        """Handle runs up to the first for which there is no room; returns how many.

        Nothing has happened with the others.
        """
        if len(runs) == 1:
            return int(self.add(runs[0]))
        if not self._path.has_room_for_all(self._caller, runs):
            return next((taken for taken, run in enumerate(runs) if not self.add(run)), len(runs))
        admitted = [(run, handle) for run in runs if (handle := self._admit(run)) is not None]
        if admitted:
            self._take(admitted)
        return len(runs)

    def add_mixed(self, adds: MixedAdds) -> bool:
        """Handle adds of many ledgers; False if one of them wants a closer look: nothing has happened then."""
        path = self._path
        if path.state.read_only or path.runtime.buggify("adds go by runs", 0.1):
            return False
        handles = path.ledgers.open_plain(adds.ledger_ids, adds.master_keys)
        if handles is None:
            return False
        sizes = [*map(len, adds.entries)]
        if not path.has_room_for_sizes(self._caller, sizes):
            return False
        try:
            path.storage.add_mixed(adds.ledger_ids, adds.entry_ids, adds.entries)
        except Exception as error:
            self._refuse_all(adds.runs(), error)
            return True
        journals = len(path.journals)
        if journals == 1:
            self._gather_mixed(0, adds, sizes)
        else:
            rest = [ledger_id % journals for ledger_id in adds.ledger_ids]
            for index in sorted(set(rest)):
                part = adds.at([place for place, its in enumerate(rest) if its == index])
                self._gather_mixed(index, part, [*map(len, part.entries)])
        path.ledgers.raise_lacs(handles, adds.lacs)
        return True

    def _admit(self, run: AddRun) -> BookieLedger | None:
        """The ledger that a run may be added to; None if it was refused."""
        path = self._path
        if path.runtime.buggify("add refused", 0.002):
            status = Status.ETOOMANYREQUESTS
        elif path.state.read_only and path.state.refuses_writes(bool(run.flags & _HIGH_PRIORITY)):
            status = Status.EREADONLY
        else:
            try:
                handle = path.ledgers.open(run.ledger_id, run.master_key)
            except Exception as error:
                status = status_of(error, ADD)
            else:
                if not handle.fenced or run.flags & _RECOVERY_ADD:
                    return handle
                status = Status.EFENCED
        self.refuse(run, status)
        return None

    def _take(self, admitted: list[Admitted]) -> None:
        """Store runs that have room, and gather their records."""
        path = self._path
        runs = [run for run, _ in admitted]
        try:
            path.storage.add_runs(runs)
        except Exception as error:
            self._refuse_all(runs, error)
            return
        self._journal(admitted)
        for run, handle in admitted:
            lac = greatest_lac(run.entries)
            if lac > handle.lac:
                path.ledgers.raise_lac(handle, lac)

    def _refuse_all(self, runs: Sequence[AddRun], error: Exception) -> None:
        """The storage could not take them."""
        if isinstance(error, NoWritableLedgerDirError):
            self._path.state.no_space(str(error))
        for run in runs:
            self.refuse(run, status_of(error, ADD))

    def refuse(self, run: AddRun, status: Status) -> None:
        """Answer all adds of a run with this error."""
        path = self._path
        path.stats.ADD_ENTRY.fail(count=len(run.entries))
        if status is Status.ETOOMANYREQUESTS:
            path.stats.ADD_ENTRY_REJECTED += len(run.entries)
        self._caller.send(encode_responses(run, status))

    def submit(self) -> None:
        """Hand everything gathered to the journals."""
        groups, self._groups = self._groups, {}
        for index, group in groups.items():
            self._submit(index, group)

    def _journal(self, admitted: list[Admitted]) -> None:
        """Gather records, those of each ledger in order."""
        journals = len(self._path.journals)
        if len(admitted) == 1:
            run = admitted[0][0]
            self._gather(run.ledger_id % journals, admitted, early=_is_early(run))
            return
        if journals == 1 and not any(run.write_flags for run, _ in admitted):
            self._gather(0, admitted, early=False)
            return
        admitted.sort(key=lambda one: one[0].ledger_id % journals)  # stable
        for (index, early), part in groupby(admitted, lambda one: (one[0].ledger_id % journals, _is_early(one[0]))):
            self._gather(index, [*part], early=early)

    def _gather(self, index: int, admitted: list[Admitted], *, early: bool) -> None:
        """Gather records for one journal, all of which are acknowledged alike."""
        group = self._group(index, early=early)
        for run, handle in admitted:
            group.runs.append(run)
            if not handle.key_journaled:
                keys = key_record_if_due(handle)
                group.pieces += keys
                group.key_records += len(keys)
        entries = admitted[0][0].entries if len(admitted) == 1 else [e for run, _ in admitted for e in run.entries]
        self._put(group, entries, [*map(len, entries)])

    def _gather_mixed(self, index: int, adds: MixedAdds, sizes: list[int]) -> None:
        """Gather records of many ledgers, whose keys are journaled."""
        group = self._group(index, early=False)
        group.runs.append(adds)
        self._put(group, adds.entries, sizes)

    def _group(self, index: int, *, early: bool) -> _Group:
        """What is gathered for one journal, and acknowledged so."""
        group = self._groups.get(index)
        if group is None or group.early != early:
            if group is not None:
                self._submit(index, group)  # records of a ledger must stay in order
            group = self._groups[index] = _Group(early)
        return group

    def _put(self, group: _Group, entries: Sequence[bytes], sizes: list[int]) -> None:
        """Gather the records of entries of these sizes."""
        path = self._path
        path.stats.WRITE_BYTES += sum(sizes)
        path.permits.acquire(len(sizes))
        if path.write_data:
            group.pieces += records(entries, sizes)
        group.count += len(sizes)

    def _submit(self, index: int, group: _Group) -> None:
        path = self._path
        caller = self._caller
        size = sum(map(len, group.pieces))
        caller.adds_wait_for_journal(size, group.count)
        done = partial(_acknowledge, path, caller, group.runs, group.count, size, self._started)
        if path.write_data:
            path.journals.of(index).append(
                group.pieces,
                size,
                group.count + group.key_records,
                done,
                ack_before_sync=group.early,
            )
            return
        if group.pieces:  # key records are journaled in any case; no client waits for them
            path.journals.of(index).append(group.pieces, size, group.key_records, _nothing)
        done()


def _is_early(run: AddRun) -> bool:
    """Acknowledged before the sync."""
    return bool(run.write_flags & _DEFERRED_SYNC) and not run.flags & _RECOVERY_ADD


def _acknowledge(
    path: AddPath, caller: Caller, runs: list[AddRun | MixedAdds], count: int, size: int, started: float
) -> None:
    """Runs in one loop with the acknowledgements of others: what goes wrong here must not stop those."""
    try:
        path.permits.release(count)
        caller.journal_has_adds(size, count)
        path.stats.ADD_ENTRY.ok(path.runtime.now() - started, count)
        caller.send(encode_all_responses(runs))
    except Exception as error:
        path.on_error(error)


def _nothing() -> None:
    """No client waits."""


def records(entries: Sequence[bytes], sizes: Sequence[int]) -> list[bytes]:
    """The journal records of packaged entries, as pieces to be written one after the other."""
    size = sizes[0]
    if len(sizes) == 1 and size <= JOIN_BELOW:
        return [entry_prefix(size) + entries[0]]
    if sizes.count(size) == len(sizes):
        prefix = entry_prefix(size)
        if size <= JOIN_BELOW:
            return [prefix + prefix.join(entries)]
        return [piece for entry in entries for piece in (prefix, entry)]
    pieces = [piece for entry, size in zip(entries, sizes, strict=True) for piece in (entry_prefix(size), entry)]
    return pieces if sum(sizes) > JOIN_BELOW * len(sizes) else [b"".join(pieces)]


def greatest_lac(entries: Sequence[bytes]) -> int:
    """The greatest LAC field of packaged entries."""
    if len(entries) == 1:
        return int(_lac(entries[0])[0])
    # As unsigned bytes numbers from 0 on order right, and a negative one is greater than all of them.
    greatest = max([entry[_LAC_AT:_LAC_END] for entry in entries])
    if greatest[0] & 0x80:
        return max([int(_lac(entry)[0]) for entry in entries])
    return int.from_bytes(greatest, "big")


def encode_all_responses(runs: Sequence[AddRun | MixedAdds]) -> bytes:
    """The frames that say that all adds of these runs are stored."""
    versions = {runs[0].version} if len(runs) == 1 else {run.version for run in runs}
    if versions == {V2}:
        return v2.encode_adds_stored(runs)
    if versions == {V3}:
        return v3.encode_adds_answered(runs)
    return b"".join([encode_responses(run, Status.EOK) for adds in runs for run in _as_runs(adds)])


def _as_runs(adds: AddRun | MixedAdds) -> Sequence[AddRun]:
    return adds.runs() if isinstance(adds, MixedAdds) else (adds,)


def encode_responses(run: AddRun, status: Status) -> bytes:
    """The frames that answer all adds of a run alike."""
    if run.version == V3:
        return v3.encode_add_responses(run, status)
    if run.version == V2:
        return v2.encode_add_responses(run, status)
    return b"".join(
        [
            v2.encode_response(AddResponse(status, run.ledger_id, entry_id, version=run.version))
            for entry_id in run.entry_ids
        ]
    )


def as_run(request: AddRequest, protocol: int) -> AddRun | None:
    """A single add as a run; None if it must be refused with EBADREQ (spec wire-protocol §4.1, §13.3).

    Refused are negative ids, which replay would take for its own markers, entries too short for ids and LAC, and ids
    that differ from those in the entry.
    """
    ledger_id, entry_id, entry = request.ledger_id, request.entry_id, request.entry
    if ledger_id < 0 or entry_id < 0 or len(entry) < MIN_STORED_SIZE or ids(entry) != (ledger_id, entry_id):
        return None
    version = V3 if protocol == V3 else request.version
    return AddRun(
        ledger_id,
        request.master_key,
        request.flags,
        request.write_flags,
        version,
        [entry_id],
        [entry],
        [v3.txn_token(request.txn_id)],
    )
