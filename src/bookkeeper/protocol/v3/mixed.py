"""Adds of many ledgers, one or few of each, read by columns: what `runs` does for few, without an object for each.

The same rules hold: what is laid out as the last example is read by hand, everything else by protobuf, and becomes the
new example. Adds that are not plain, and what is no add, end the row.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..entry import lac_of
from ..frames import are_mixed, begin_alike
from ..messages import V3, MixedAdds
from ..protobuf import varint
from .adds import ADD_HEADER
from .layout import KEY, AddLayout, add_layout, canonical_layout
from .runs import is_plain, parse_add, shape_of

_HEAD_AT = slice(2, 7)

Column = tuple[int, bytes, int, int, bytes, bytes]
"""Ledger id, master key, entry id, LAC, entry and txn token of an add."""


def decode_mixed_adds(bodies: Sequence[bytes]) -> MixedAdds | None:
    """Take the plain adds that `bodies` begin with, if they are of many ledgers, hardly two of one.

    None if they are not, or are few: then `decode_add_runs` takes them. Never raises.
    """
    first = canonical_layout(bodies[0]) if begin_alike(bodies, _HEAD_AT, ADD_HEADER) else None
    if first is None or not are_mixed(bodies, slice(first.entry_at, first.entry_at + 8)):
        return None
    shape = first.shape
    layouts: dict[int, AddLayout | None] = {}  # by size of the body, for `shape`
    adds: list[Column] = []
    for body in bodies:
        size = len(body)
        layout = layouts.get(size)
        if layout is None:
            layout = layouts[size] = add_layout(size, shape)
        add = _read(layout, body) if layout is not None else None
        if add is None:
            example = parse_add(body)
            if example is None or not is_plain(example):
                break
            ledger_id, entry_id, key, _, _, token, entry = example
            add = ledger_id, key, entry_id, lac_of(entry), entry, token
            shape = shape_of(example)
            layouts.clear()
        adds.append(add)
    if not adds:
        return None
    ledger_ids, keys, entry_ids, lacs, entries, tokens = zip(*adds, strict=True)
    return MixedAdds(V3, ledger_ids, keys, entry_ids, lacs, entries, tokens)


def _read(layout: AddLayout, body: bytes) -> Column | None:
    """The add, if it is laid out so."""
    token, middle, number, key, ledger_id, entry_id, lac = layout.unpack(body)
    if (
        layout.fits(middle, key, ledger_id)
        and number == varint(entry_id)
        and body.startswith(layout.head)
        and layout.token.fits(token)
    ):
        return ledger_id, key[KEY], entry_id, lac, body[layout.entry_at :], token
    return None
