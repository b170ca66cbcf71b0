"""Protobuf text form: spec metadata §2.7."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import CorruptMetadata
from bookkeeper.metadata.formats.schema import Field, Kind, MessageType, Values
from bookkeeper.metadata.formats.text import parse_message, parse_tree, print_message

INNER = MessageType("Inner", Field(1, "name", Kind.STRING), Field(2, "value", Kind.BYTES))
OUTER = MessageType(
    "Outer",
    Field(1, "number", Kind.INT64),
    Field(2, "small", Kind.INT32),
    Field(3, "colour", Kind.ENUM, names={"RED": 1, "BLUE": 2}),
    Field(4, "text", Kind.STRING),
    Field(5, "octets", Kind.BYTES),
    Field(6, "item", Kind.MESSAGE, repeated=True, message=INNER),
    Field(7, "word", Kind.STRING, repeated=True),
)


def parse(text: str | bytes) -> Values:
    return parse_message(OUTER, text.encode() if isinstance(text, str) else text)


def test_written_one_field_per_line_in_number_order() -> None:
    values: Values = {
        "word": ["x", "y"],
        "item": [{"name": "n", "value": b"\0"}, {}],
        "colour": 2,
        "number": -5,
    }
    assert print_message(OUTER, values) == (
        'number: -5\ncolour: BLUE\nitem {\n  name: "n"\n  value: "\\000"\n}\nitem {\n}\nword: "x"\nword: "y"\n'
    )


def test_escapes_are_those_of_the_java_writers() -> None:
    printed = print_message(OUTER, {"octets": bytes(range(15)) + b"\"'\\ ~\x7f\xff"})
    assert printed == (
        'octets: "\\000\\001\\002\\003\\004\\005\\006\\007\\b\\t\\n\\013\\f\\r\\016\\"\\\'\\\\ ~\\177\\377"\n'
    )
    assert print_message(OUTER, {"text": "é\U0001f600"}) == 'text: "\\303\\251\\360\\237\\230\\200"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("number:1", {"number": 1}),
        ("  number\n:\t1 # comment\n#another", {"number": 1}),
        ("number: 1, small: 2; colour: RED", {"number": 1, "small": 2, "colour": 1}),
        ("number: 0x1F small: 017", {"number": 31, "small": 15}),
        ("number: -0X1f small: -017", {"number": -31, "small": -15}),
        ("number: 0 small: -0", {"number": 0, "small": 0}),
        ("number: 1 number: 2", {"number": 2}),
        ("number: -9223372036854775808", {"number": -(2**63)}),
        ("colour: 2", {"colour": 2}),
        ("item: { name: 'a' }", {"item": [{"name": "a"}]}),
        ("item < name: 'a' > item: <>", {"item": [{"name": "a"}, {}]}),
        ("item [ { name: 'a' }, <> ]", {"item": [{"name": "a"}, {}]}),
        ("word: ['a', \"b\"]", {"word": ["a", "b"]}),
        ("word: []", {}),
        ("text: 'a' \"b\"\n'c'", {"text": "abc"}),
        (r"octets: '\a\b\f\n\r\t\v\\\'\"\?'", {"octets": b"\a\b\f\n\r\t\v\\'\"?"}),
        (r"octets: '\x4\x41\X4a1\0\101\1011'", {"octets": b"\x04AJ1\0AA1"}),
        (r"text: '\u00e9\U0001F600'", {"text": "é\U0001f600"}),
        ("text: 'é'", {"text": "é"}),
        ("text: \"it's\" octets: '\"'", {"text": "it's", "octets": b'"'}),
        ("unknown: 1 number: 2", {"number": 2}),
        ("unknown: -inf other: 1.5e3f third: 'x' 'y' number: 2", {"number": 2}),
        ("unknown { a: 1 b < c: [1, 2] > d [ {e: 1} ] } number: 2", {"number": 2}),
        ("unknown: [1, 'x', RED] number: 2", {"number": 2}),
        ("unknown: [ RED ] number: 2", {"number": 2}),
        ("[com.example.ext]: 5 [a.b/c.d] { x: 1 } number: 2", {"number": 2}),
        ("", {}),
    ],
)
def test_everything_protobuf_accepts_is_read(text: str, expected: Values) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "number",
        "number 1",
        "number:",
        "number: 'x'",
        "number: RED",
        "number: 08",
        "number: 1.0",
        "number: 0x",
        "number: --1",
        "number: 9223372036854775808",
        "small: 2147483648",
        "number: " + "9" * 5000,
        "text: x",
        "text: 5",
        "text: 'abc",
        'text: "abc\n"',
        r"text: '\q'",
        r"text: '\x'",
        r"text: '\400'",
        r"text: '\ud800'",
        r"text: '\U00110000'",
        r"text: '\377'",
        "text: '\\",
        "colour: GREEN",
        "colour: 3",
        "colour: 'RED'",
        "item: 5",
        "item 5",
        "item {",
        "item { name: 'a' >",
        "item }",
        "}",
        "word: ['a' 'b'",
        "word: ['a' RED",
        "number: { }",
        ": 5",
        "number: 1 \x00",
        "item " * 3,
        "unknown {" * 5000,
        "unknown [",
    ],
)
def test_anything_else_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptMetadata):
        parse(text)


def test_text_that_is_not_utf_8_is_corrupt_in_strings_only() -> None:
    assert parse(b"octets: '\xff'") == {"octets": b"\xff"}
    with pytest.raises(CorruptMetadata):
        parse(b"text: '\xff'")


def test_the_tree_keeps_order_and_spreads_lists() -> None:
    assert parse_tree(b"b: [1, 2] a { c: 'x' } b: Y") == [("b", "1"), ("b", "2"), ("a", [("c", b"x")]), ("b", "Y")]


inner = st.fixed_dictionaries(
    {}, optional={"name": st.text(st.characters(exclude_categories=["Cs"])), "value": st.binary()}
)
outer = st.fixed_dictionaries(
    {},
    optional={
        "number": st.integers(-(2**63), 2**63 - 1),
        "small": st.integers(-(2**31), 2**31 - 1),
        "colour": st.sampled_from([1, 2]),
        "octets": st.binary(),
        "item": st.lists(inner, min_size=1, max_size=3),
    },
)


@given(outer)
def test_any_message_comes_back_equal(values: Values) -> None:
    assert parse(print_message(OUTER, values)) == values


@given(st.text("nu:mber12 {}<>[],;'\"\\#\n.-x"))
def test_any_text_is_at_worst_corrupt(text: str) -> None:
    with contextlib.suppress(CorruptMetadata):
        parse(text)
