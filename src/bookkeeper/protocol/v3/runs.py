"""Adds of v3 on a bookie: the rows that a socket read brings, as runs of one ledger each.

What is canonical (`adds`) is read by hand: at once where many stand together, with numbers that have equally many
bytes, else one by one. Everything else is left to protobuf.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from google.protobuf.message import DecodeError

from ...types import MASTER_KEY_LENGTH
from .. import entry as packaged
from ..messages import V3, AddRun, Operation
from ..protobuf import varint, varints
from ..schema import VERSION_THREE
from ..schema import Request as WireRequest
from .flags import ADD_FLAGS, priority_flag
from .layout import KEY, AddLayout, AddShape, add_layout, canonical_layout

ROW_FROM = 8
"""Adds at least that are read by columns."""

_ADD_ENTRY = int(Operation.ADD_ENTRY)


def decode_add_runs(bodies: Sequence[bytes], start: int = 0) -> tuple[list[AddRun], int]:
    """Take the adds that stand at `bodies[start:]`, up to the first body that is something else.

    Returns one run per ledger, key and flags, in the order in which they begin, and the index of the first body not
    taken. That one goes through `decode_request`, which knows every form; never raises.

    A row of adds that are laid out alike is read at once. Where there is none protobuf reads the first add; from then
    on an add that is laid out as that one was, canonical and with numbers of the same sizes, is read by hand; one that
    is not goes through protobuf again, and becomes the new example.
    """
    runs: dict[_RunKey, AddRun] = {}
    start += _take_row(runs, bodies[start:])
    shape: AddShape | None = None
    layouts: dict[int, AddLayout | None] = {}  # by size of the body, for `shape`
    proven: dict[_Kind, AddRun] = {}  # kinds that fit, and the run they belong to
    run: AddRun | None = None
    run_size, run_middle, run_key = 0, b"", b""
    taken = start
    for body in bodies[start:] if start else bodies:
        size = len(body)
        layout = layouts.get(size)
        if layout is None and shape is not None:
            layout = layouts[size] = add_layout(size, shape)
        if layout is not None:
            token, middle, number, key, ledger_id, entry_id, _ = layout.unpack(body)
            if body.startswith(layout.head) and number == varint(entry_id) and layout.token.fits(token):
                if run is None or size != run_size or middle != run_middle or key != run_key:
                    kind = size, middle, key, ledger_id
                    run = proven.get(kind)
                    if run is None and layout.fits(middle, key, ledger_id):
                        run = proven[kind] = _run_of(runs, ledger_id, key[KEY], 0, 0)
                    run_size, run_middle, run_key = size, middle, key
                if run is not None and ledger_id == run.ledger_id:
                    run.entry_ids.append(entry_id)
                    run.entries.append(body[layout.entry_at :])
                    run.txn_tokens.append(token)
                    taken += 1
                    continue
        example = _take_by_protobuf(runs, body)
        if example is None:
            break
        run, example_shape = example
        run_size = 0  # of no kind
        taken += 1
        if example_shape is not None:
            shape = example_shape
            layouts.clear()
            proven.clear()
    return list(runs.values()), taken


def _take_row(runs: dict[_RunKey, AddRun], bodies: Sequence[bytes]) -> int:
    """Put the adds that `bodies` begin with into their runs, by columns; returns how many.

    They are plain and canonical, and their numbers have equally many bytes. None are taken where they are few, or
    where there is another add among them.
    """
    first = canonical_layout(bodies[0]) if len(bodies) >= ROW_FROM else None
    if first is None:
        return 0
    count = _count_alike(bodies, first.head)  # no more is looked at than may be taken
    if count < ROW_FROM:
        return 0
    bodies = bodies[:count]
    sizes = [*map(len, bodies)]
    layouts = {size: layout for size in set(sizes) if (layout := add_layout(size, first.shape)) is not None}
    if len(layouts) < len(set(sizes)):
        return 0
    if len(layouts) == 1:
        rows = [*map(first.unpack, bodies)]
        entries = [body[first.entry_at :] for body in bodies]
    else:
        rows = [layouts[size].unpack(body) for size, body in zip(sizes, bodies, strict=True)]
        entries = [body[layouts[size].entry_at :] for size, body in zip(sizes, bodies, strict=True)]
    tokens, middles, numbers, keys, ledger_ids, entry_ids, _ = zip(*rows, strict=True)
    if not first.token.fits_all(tokens) or [*numbers] != varints(entry_ids):
        return 0
    columns = (sizes, middles, keys, ledger_ids)
    alike = all(column.count(column[0]) == count for column in columns)
    kinds: list[_Kind] = [*zip(*((column[:1] for column in columns) if alike else columns), strict=True)]
    proven: dict[_Kind, AddRun] = {}
    at = 0
    for kind, members in groupby(kinds):
        run = proven.get(kind)
        if run is None:
            size, middle, key, ledger_id = kind
            if not layouts[size].fits(middle, key, ledger_id):
                return at
            run = proven[kind] = _run_of(runs, ledger_id, key[KEY], 0, 0)
        end = count if alike else at + len([*members])
        run.entry_ids += entry_ids[at:end]
        run.entries += entries[at:end]
        run.txn_tokens += tokens[at:end]
        at = end
    return at


def _count_alike(bodies: Sequence[bytes], head: bytes) -> int:
    """How many bodies begin so, before one that does not."""
    for count, body in enumerate(bodies):
        if not body.startswith(head):
            return count
    return len(bodies)


_Kind = tuple[int, bytes, bytes, int]
"""Size of a body; what stands between its numbers, and in front of its entry; ledger id."""

_RunKey = tuple[int, bytes, int, int]
"""Ledger id, master key, flags and write flags."""

Add = tuple[int, int, bytes, int, int, bytes, bytes]
"""Ledger id, entry id, master key, flags, write flags, txn token and entry of an add request."""


def _run_of(runs: dict[_RunKey, AddRun], ledger_id: int, key: bytes, flags: int, write_flags: int) -> AddRun:
    run = runs.get((ledger_id, key, flags, write_flags))
    if run is None:
        run = runs[ledger_id, key, flags, write_flags] = AddRun(ledger_id, key, flags, write_flags, V3)
    return run


def _take_by_protobuf(runs: dict[_RunKey, AddRun], body: bytes) -> tuple[AddRun, AddShape | None] | None:
    """Put an add into its run; None for anything that has no place in one.

    Returns the run, and the shape of the add if further ones like it may be read by hand.
    """
    add = parse_add(body)
    if add is None:
        return None
    ledger_id, entry_id, key, flags, write_flags, token, entry = add
    run = _run_of(runs, ledger_id, key, flags, write_flags)
    run.entry_ids.append(entry_id)
    run.entries.append(entry)
    run.txn_tokens.append(token)
    return run, shape_of(add) if is_plain(add) else None


def is_plain(add: Add) -> bool:
    """It has no flags, and a key of the usual size."""
    _, _, key, flags, write_flags, _, _ = add
    return len(key) == MASTER_KEY_LENGTH and not flags and not write_flags


def shape_of(add: Add) -> AddShape:
    """The shape of a plain add, if it is canonical."""
    ledger_id, entry_id, _, _, _, token, _ = add
    return len(token), len(varint(ledger_id)), len(varint(entry_id))


def parse_add(body: bytes) -> Add | None:
    """Read an add with protobuf; None for anything that has no place in a run."""
    try:
        wire = WireRequest.FromString(body)
    except DecodeError:
        return None
    header = wire.header
    if header.operation != _ADD_ENTRY or header.version != VERSION_THREE:
        return None
    add = wire.addRequest
    ledger_id, entry_id, entry = add.ledgerId, add.entryId, add.body
    if len(entry) < packaged.MIN_STORED_SIZE or ledger_id < 0 or entry_id < 0:
        return None
    if packaged.ids(entry) != (ledger_id, entry_id) or not wire.IsInitialized():
        return None
    flags = ADD_FLAGS[add.flag] | priority_flag(header.priority)
    return ledger_id, entry_id, add.masterKey, flags, add.writeFlags, varint(header.txnId), entry
