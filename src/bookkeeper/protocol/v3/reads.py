"""Plain reads of v3 in bulk: writing requests and reading them, answering them and reading the answers.

A plain read asks for one entry by its id and for nothing else: no fence, no long poll, no priority.

    request   0a h 08 03 10 01 18 txn   a2 06 n   08 ledger 10 entry
    response  0a h 08 03 10 01 18 txn   10 00   a2 06 n   08 00 10 ledger 18 entry 22 m body [28 lac]

h, n and m are the sizes of what follows them: of the header, of the read and of the packaged entry. As with adds
(`adds`), what is written is this canonical form, and only this form is read by hand, byte for byte; everything else,
errors too, is left to protobuf.

Messages that come together are mostly laid out alike. The first one is read by a pattern and becomes the example; those
laid out as it was are taken apart by one `Struct`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from ..messages import V3, ReadRun
from ..protobuf import BYTES, VARINT, VarintForm, size_behind_its_varint, tag, unvarint, varint, varint_form

READ_HEADER = b"\x08\x03\x10\x01\x18"
"""BKPacketHeader up to its txn id: version 3, operation READ_ENTRY."""

READ_TAG = tag(100, BYTES)
"""`readRequest` in a request, `readResponse` in a response."""

MOST_LAYOUTS = 1024
"""Sizes of answers that a connection knows by heart."""

HEADER_AT = 2
"""Where `READ_HEADER` begins in a body."""

_LEDGER_TAG = tag(1, VARINT)
_ENTRY_TAG = tag(2, VARINT)
_SUCCESS = b"\x10\x00" + READ_TAG
_ANSWER_IDS = b"\x08\x00\x10"
_ANSWER_ENTRY_TAG = tag(3, VARINT)
_BODY_TAG = tag(4, BYTES)
_LAC_TAG = tag(5, VARINT)

_NUMBER = rb"([\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f])"  # the shortest encoding of an int64 that is not negative
_ANY_NUMBER = rb"([\x00-\x7f]|[\x80-\xff]{1,8}[\x01-\x7f]|[\x80-\xff]{9}\x01)"
_match_request = re.compile(
    rb"\x0a(.)%b%b%b(.)\x08%b\x10%b" % (re.escape(READ_HEADER), _NUMBER, re.escape(READ_TAG), _NUMBER, _NUMBER),
    re.DOTALL,
).fullmatch
_match_answer = re.compile(
    rb"\x0a(.)%b%b%b%b%b%b\x18%b\x22%b"
    % (
        *(re.escape(READ_HEADER), _NUMBER, re.escape(_SUCCESS), _NUMBER, re.escape(_ANSWER_IDS)),
        *(_NUMBER, _NUMBER, _NUMBER),
    ),
    re.DOTALL,
).match
_match_lac = re.compile(rb"\x28" + _ANY_NUMBER, re.DOTALL).fullmatch

_pack_length = Struct(">I").pack


def _head(token_size: int) -> bytes:
    """A body up to its txn id."""
    return b"\x0a" + varint(len(READ_HEADER) + token_size) + READ_HEADER


# --- requests --------------------------------------------------------------------------------------------------


def encode_read_requests(ledger_id: int, numbers: Iterable[bytes], tokens: Iterable[bytes]) -> bytes:
    """The frames of plain reads of entries, all in the encoding of the wire: `numbers` are their ids, and `tokens`
    a transaction id for each."""
    ledger = varint(ledger_id)
    token_size = number_size = 0
    start = middle = b""
    pieces: list[bytes] = []
    add = pieces.append
    for token, number in zip(tokens, numbers, strict=True):
        if len(token) != token_size or len(number) != number_size:
            token_size = len(token)
            number_size = len(number)
            head, middle = _request_around(token_size, ledger, number_size)
            start = _pack_length(len(head) + token_size + len(middle) + number_size) + head
        add(b"%b%b%b%b" % (start, token, middle, number))
    return b"".join(pieces)


def _request_around(token_size: int, ledger: bytes, number_size: int) -> tuple[bytes, bytes]:
    """The bytes of a body in front of the txn id, and those between it and the entry id, which ends the body."""
    ids = _LEDGER_TAG + ledger + _ENTRY_TAG
    return _head(token_size), READ_TAG + varint(len(ids) + number_size) + ids


def decode_read_run(bodies: Sequence[bytes], start: int, end: int) -> ReadRun | None:
    """The plain reads of one ledger that stand at `bodies[start:end]`, up to the first body that is something else.

    None if there is none. What it does not take goes through `v3.decode_request`, which knows every form; never raises.
    """
    layout = _request_layout_of(bodies[start])
    if layout is None:
        return None
    entry_ids: list[int] = []
    tokens: list[bytes] = []
    number_of = varint
    number_as = int.from_bytes
    expected, its_number = -1, b""  # the entry after the last one: mostly it is the next
    at = start
    while layout is not None:
        size, unpack, its_head, its_middle, ledger_id, form = layout
        mask, tops, ends = form.mask, form.tops, form.ends  # its `fits`, in place: it is asked for each read
        for body in bodies[at:end]:
            if len(body) != size:
                break
            head, token, middle, number = unpack(body)
            if head != its_head or middle != its_middle:
                break
            if number_as(token, "little") & mask != tops or token[-1] not in ends:
                break
            if number != its_number:
                expected = unvarint(number)
                if number != number_of(expected):
                    break
            entry_ids.append(expected)
            tokens.append(token)
            expected += 1
            its_number = number_of(expected)
        assert start + len(entry_ids) > at  # a body of that layout stands at its beginning
        at = start + len(entry_ids)
        other = _request_layout_of(bodies[at]) if at < min(end, len(bodies)) else None
        layout = other if other is not None and other.ledger_id == ledger_id else None
    return ReadRun(ledger_id, V3, entry_ids, tokens)


class _RequestLayout(NamedTuple):
    """Where everything is in a canonical request: head, txn id, `middle`, entry id."""

    size: int
    unpack: Callable[[bytes], tuple[bytes, bytes, bytes, bytes]]
    head: bytes
    middle: bytes
    ledger_id: int
    token: VarintForm


def _request_layout_of(body: bytes) -> _RequestLayout | None:
    """The layout of a plain read; None for anything else."""
    found = _match_request(body)
    if found is None:
        return None
    header_size, token, size, ledger, number = found.groups()
    layout = _request_layout(len(token), ledger, len(number))
    canonical = header_size == layout.head[1:2] and size == layout.middle[len(READ_TAG) : len(READ_TAG) + 1]
    return layout if canonical else None


@functools.lru_cache(maxsize=1024)
def _request_layout(token_size: int, ledger: bytes, number_size: int) -> _RequestLayout:
    head, middle = _request_around(token_size, ledger, number_size)
    fields = Struct(f"{len(head)}s{token_size}s{len(middle)}s{number_size}s")
    return _RequestLayout(
        fields.size,
        fields.unpack,
        head,
        middle,
        unvarint(ledger),
        varint_form(token_size),
    )


# --- answers ---------------------------------------------------------------------------------------------------


def encode_read_responses(run: ReadRun, entries: Sequence[bytes], lac: int | None) -> bytes:
    """The frames that answer the first reads of a run with their entries, all with the LAC that the bookie knows."""
    ledger = varint(run.ledger_id)
    tail = b"" if lac is None else _LAC_TAG + varint(lac)
    shape = (0, 0, 0)
    start = middle = with_size = b""
    pieces: list[bytes] = []
    for token, entry_id, entry in zip(run.txn_tokens, run.entry_ids, entries, strict=False):
        number = varint(entry_id)
        its_shape = (len(token), len(number), len(entry))
        if its_shape != shape:
            shape = its_shape
            start, middle, with_size = _answer_frame(*shape, ledger, len(tail))
        pieces += (start, token, middle, number, with_size, entry, tail)
    return b"".join(pieces)


def _answer_frame(
    token_size: int, number_size: int, entry_size: int, ledger: bytes, tail_size: int
) -> tuple[bytes, bytes, bytes]:
    """The bytes of a frame in front of the txn id, those in front of the entry id, and those in front of the entry."""
    head, middle, with_size = _answer_around(token_size, ledger, number_size, entry_size, tail_size)
    size = len(head) + token_size + len(middle) + number_size + len(with_size) + entry_size + tail_size
    return _pack_length(size) + head, middle, with_size


@functools.lru_cache(maxsize=1024)
def _answer_around(
    token_size: int, ledger: bytes, number_size: int, entry_size: int, tail_size: int
) -> tuple[bytes, bytes, bytes]:
    """The same of a body."""
    with_size = _BODY_TAG + varint(entry_size)
    ids = _ANSWER_IDS + ledger + _ANSWER_ENTRY_TAG
    size = len(ids) + number_size + len(with_size) + entry_size + tail_size
    return _head(token_size), _SUCCESS + varint(size) + ids, with_size


ReadAnswer = tuple[bytes, bytes, bytes, int | None]
"""A plain read's successful answer: its transaction id as it stands on the wire, its entry id as it stands there (to be
compared with what was asked for), the entry, and the LAC that the bookie knows."""

ReadAnswerRow = tuple[tuple[bytes, ...], tuple[bytes, ...], list[bytes], int | None]
"""Several of these by columns, with the LAC of all of them."""


class ReadAnswers:
    """Reads answers to plain reads, of one connection."""

    __slots__ = ("_lac", "_layouts", "_shape", "_tail")

    def __init__(self) -> None:
        self._shape: _AnswerShape | None = None  # that of the example
        self._layouts: dict[int, _AnswerLayout | None] = {}  # by size of the body, what it was like last
        self._tail = b""  # the example's field with the LAC, ...
        self._lac: int | None = None  # ... and what it says

    def decode(self, body: bytes) -> ReadAnswer | None:
        """The answer; None for whatever `v3.decode_response` must look at. Never raises.

        Token and number are those of a canonical answer if they equal something canonical.
        """
        size = len(body)
        layout = self._layouts.get(size)
        if layout is None and self._shape is not None and size not in self._layouts:
            layout = self._keep(size, self._shape)
        if layout is not None:
            head, token, middle, number, with_size = layout.unpack(body)
            if (
                middle == layout.middle
                and with_size == layout.with_size
                and head == layout.head
                and body[layout.entry_end :] == self._tail
            ):
                return token, number, body[layout.entry_at : layout.entry_end], self._lac
        return self._learn(body)

    def decode_row(self, bodies: Sequence[bytes]) -> ReadAnswerRow | None:
        """Answers of one size and with one LAC, one at least, all at once; None if they are not all that, or are none
        that `decode` would take."""
        size = len(bodies[0])
        layout = self._layouts.get(size)
        if layout is None or set(map(len, bodies)) != {size}:
            return None
        heads, tokens, middles, numbers, with_sizes = zip(*map(layout.unpack, bodies), strict=True)
        count = len(bodies)
        tail = self._tail
        end = layout.entry_end
        if (
            heads.count(layout.head) != count
            or middles.count(layout.middle) != count
            or with_sizes.count(layout.with_size) != count
            or [body[end:] for body in bodies].count(tail) != count
        ):
            return None
        start = layout.entry_at
        return tokens, numbers, [body[start:end] for body in bodies], self._lac

    def _learn(self, body: bytes) -> ReadAnswer | None:
        """Read an answer by the pattern, and make it the example."""
        found = _match_answer(body)
        if found is None:
            return None
        header_size, token, size, ledger, number, entry_size = found.groups()
        entry_at = found.end()
        entry_end = entry_at + unvarint(entry_size)
        tail = body[entry_end:]
        with_lac = _match_lac(tail)
        if entry_end > len(body) or bool(tail) != (with_lac is not None):
            return None
        if header_size != varint(len(READ_HEADER) + len(token)) or unvarint(size) != len(body) - found.end(3):
            return None
        self._shape = (len(token), ledger, len(number), len(tail))
        self._keep(len(body), self._shape)
        self._tail = tail
        self._lac = unvarint(with_lac[1]) if with_lac is not None else None
        return token, number, body[entry_at:entry_end], self._lac

    def _keep(self, size: int, shape: _AnswerShape) -> _AnswerLayout | None:
        """Take bodies of this size to be laid out so from now on."""
        if len(self._layouts) >= MOST_LAYOUTS:
            self._layouts.clear()
        layout = self._layouts[size] = _answer_layout(size, shape)
        return layout


_AnswerShape = tuple[int, bytes, int, int]
"""What decides where things are in a canonical answer: bytes of the txn id, the ledger id, bytes of the entry id and
of the field with the LAC."""


class _AnswerLayout(NamedTuple):
    """Where everything is in an answer of one size: head, txn id, `middle`, entry id, `with_size`, entry, tail."""

    unpack: Callable[[bytes], tuple[bytes, bytes, bytes, bytes, bytes]]
    """All but entry and tail."""
    head: bytes
    middle: bytes
    with_size: bytes
    entry_at: int
    entry_end: int


@functools.lru_cache(maxsize=MOST_LAYOUTS)
def _answer_layout(size: int, shape: _AnswerShape) -> _AnswerLayout | None:
    """The layout of a body of `size` bytes; None if no answer of that shape has that size."""
    token_size, ledger, number_size, tail_size = shape
    inner_size = size_behind_its_varint(size - len(_head(token_size)) - token_size - len(_SUCCESS))
    in_front = len(_ANSWER_IDS) + len(ledger) + len(_ANSWER_ENTRY_TAG) + number_size + len(_BODY_TAG)
    entry_size = size_behind_its_varint(inner_size - in_front - tail_size)
    if entry_size < 0:
        return None
    head, middle, with_size = _answer_around(token_size, ledger, number_size, entry_size, tail_size)
    fields = Struct(f"{len(head)}s{token_size}s{len(middle)}s{number_size}s{len(with_size)}s")
    assert fields.size + entry_size + tail_size == size
    return _AnswerLayout(fields.unpack_from, head, middle, with_size, fields.size, fields.size + entry_size)
