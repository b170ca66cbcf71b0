r"""The text form of a `schema.Message` (spec metadata §2.7).

Written: one field per line, `name: value` LF, two spaces of indentation per level, fields in number order;
`name {` LF, fields, `}` LF for a nested message; enums by identifier; strings and bytes in double quotes, with `\b \t
\n \f \r \" \' \\`, printable ASCII as it is, and every other octet (of UTF-8, for strings) as three octal digits.

Read: everything that protobuf's own parsers accept:

    message  = { name [ ":" ] value [ "," | ";" ] }       ":" may be left out before "{", "<"
    name     = identifier | "[" any "]"                   the latter are extensions; always unknown here
    value    = scalar | "{" message "}" | "<" message ">" | "[" [ value { "," value } ] "]"
    scalar   = literal { literal } | number | identifier  neighbouring literals are one
    literal  = '"' ... '"' | "'" ... "'"                  within one line

with white space and `#` comments anywhere between tokens. Unknown names are skipped, a singular field given twice
keeps the last value. Anything else is `CorruptMetadata`.

Parsing goes through a neutral tree, a list of (name, value), which then is fitted to the message type.
"""

from __future__ import annotations

import re
from typing import Any

from ...errors import CorruptMetadata
from ...protocol.protobuf import MAX_DEPTH
from .schema import Field, Kind, MessageType, Values, fits

# --- writing ---------------------------------------------------------------------------------------

_SHORT_ESCAPES = {
    8: "\\b",
    9: "\\t",
    10: "\\n",
    12: "\\f",
    13: "\\r",
    34: '\\"',
    39: "\\'",
    92: "\\\\",
}
_ESCAPED = [_SHORT_ESCAPES.get(o) or (chr(o) if 0x20 <= o <= 0x7E else f"\\{o:03o}") for o in range(256)]


def print_message(message: MessageType, values: Values, *, indent: str = "") -> str:
    """The text form, ending in LF (or empty)."""
    lines = []
    for field in message.fields:
        if field.name not in values:
            continue
        value = values[field.name]
        for item in value if field.repeated else (value,):
            if field.message is not None:
                inner = print_message(field.message, item, indent=indent + "  ")
                lines.append(f"{indent}{field.name} {{\n{inner}{indent}}}\n")
            else:
                lines.append(f"{indent}{field.name}: {_scalar_text(field, item)}\n")
    return "".join(lines)


def _scalar_text(field: Field, value: Any) -> str:
    if field.kind is Kind.ENUM:
        return next(name for name, number in field.names.items() if number == value)
    if field.kind in (Kind.STRING, Kind.BYTES):
        octets = value.encode() if field.kind is Kind.STRING else value
        return '"' + "".join(map(_ESCAPED.__getitem__, octets)) + '"'
    return str(value)


# --- reading ---------------------------------------------------------------------------------------


class Word(str):
    """An identifier or number, as written."""

    __slots__ = ()


Node = Word | bytes | list[tuple[str, Any]]
"""A parsed value: a word, the octets of a string, or a nested message."""

_TOKEN = re.compile(
    rb"""(?: \s | \#[^\n]* )*
    (?: (?P<word> [A-Za-z0-9_.+\-]+ )
      | (?P<literal> "(?:[^"\\\n]|\\[^\n])*" | '(?:[^'\\\n]|\\[^\n])*' )
      | (?P<extension> \[ [ \t]* [A-Za-z_][A-Za-z0-9_\-./%]* [ \t]* \] (?= [ \t]* [:{<] ) )
      | (?P<mark> [{}<>\[\]:,;] )
      | (?P<end> \Z ) )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ONE_LETTER = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))
_CLOSING = {"{": "}", "<": ">"}


class _Tokens:
    """The tokens of a text, one ahead."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0
        self.kind = ""
        self.text = b""
        self.next()

    def next(self) -> bytes:
        """Step to the next token; returns the one just left."""
        left = self.text
        match = _TOKEN.match(self._data, self._offset)
        if match is None or match.lastgroup is None:
            raise self.error("unreadable text")
        self.kind = match.lastgroup
        self.text = match.group(match.lastgroup)
        self._offset = match.end()
        return left

    def accept(self, *marks: str) -> str | None:
        """Step over the token if it is one of these marks, and return it."""
        if self.kind == "mark" and self.text.decode() in marks:
            return self.next().decode()
        return None

    def error(self, what: str) -> CorruptMetadata:
        return CorruptMetadata(f"text format, near byte {self._offset}: {what}")


def parse_tree(data: bytes) -> list[tuple[str, Node]]:
    """The fields of a text, in order, lists spread out. Raises `CorruptMetadata`."""
    tokens = _Tokens(data)
    fields = _parse_fields(tokens, closing=None, depth=0)
    assert tokens.kind == "end"
    return fields


def _parse_fields(tokens: _Tokens, *, closing: str | None, depth: int) -> list[tuple[str, Node]]:
    if depth > MAX_DEPTH:
        raise tokens.error("messages are nested too deep")
    fields: list[tuple[str, Node]] = []
    while True:
        if closing is not None and tokens.accept(closing):
            return fields
        if closing is None and tokens.kind == "end":
            return fields
        if tokens.kind not in ("word", "extension"):
            raise tokens.error(f"a field name was expected, not {tokens.text[:20]!r}")
        name = tokens.next().decode()
        colon = tokens.accept(":") is not None
        fields += [(name, value) for value in _parse_values(tokens, colon=colon, depth=depth)]
        tokens.accept(",", ";")


def _parse_values(tokens: _Tokens, *, colon: bool, depth: int) -> list[Node]:
    if tokens.kind == "extension":  # `[a]` before a colon or brace of the next field: a list of one identifier
        if not colon:
            raise tokens.error("a value was expected")
        return [Word(tokens.next()[1:-1].strip().decode())]
    if not tokens.accept("["):
        return [_parse_value(tokens, colon=colon, depth=depth)]
    if tokens.accept("]"):
        return []
    values = []
    while True:
        values.append(_parse_value(tokens, colon=colon, depth=depth))
        if tokens.accept("]"):
            return values
        if not tokens.accept(","):
            raise tokens.error("a list goes on with , or ends with ]")


def _parse_value(tokens: _Tokens, *, colon: bool, depth: int) -> Node:
    opening = tokens.accept("{", "<")
    if opening is not None:
        return _parse_fields(tokens, closing=_CLOSING[opening], depth=depth + 1)
    if not colon:
        raise tokens.error("a : was expected")
    if tokens.kind == "word":
        return Word(tokens.next().decode())
    if tokens.kind != "literal":
        raise tokens.error(f"a value was expected, not {tokens.text[:20]!r}")
    octets = b""
    while tokens.kind == "literal":
        octets += _unescape(tokens.next()[1:-1])
    return octets


def _unescape(body: bytes) -> bytes:
    return _ESCAPE.sub(_unescape_one, body) if b"\\" in body else body


def _unescape_one(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, letter = match.groups()
    if octal or hexadecimal:
        value = int(octal, 8) if octal else int(hexadecimal, 16)
        if value < 256:
            return bytes([value])
    elif short or long:
        value = int(short or long, 16)
        if value <= 0x10FFFF and not 0xD800 <= value <= 0xDFFF:
            return chr(value).encode()
    elif letter[0] in _ONE_LETTER:
        return bytes([_ONE_LETTER[letter[0]]])
    raise CorruptMetadata(f"text format: bad escape {match.group().decode('latin-1')!r}")


def parse_message(message: MessageType, data: bytes) -> Values:
    """The message that a text describes. Raises `CorruptMetadata`."""
    return _fit(message, parse_tree(data))


def _fit(message: MessageType, tree: list[tuple[str, Any]]) -> Values:
    values: Values = {}
    for name, node in tree:
        field = message.by_name.get(name)
        if field is not None:
            message.store(values, field, _fit_value(field, node))
    return message.check_complete(values)


def _fit_value(field: Field, node: Node) -> Any:
    if field.message is not None and isinstance(node, list):
        return _fit(field.message, node)
    if field.kind is Kind.BYTES and isinstance(node, bytes):
        return node
    if field.kind is Kind.STRING and isinstance(node, bytes):
        try:
            return node.decode()
        except UnicodeDecodeError:
            raise CorruptMetadata(f"{field.name} is not UTF-8") from None
    if field.kind is Kind.ENUM and isinstance(node, Word):
        return _enum_number(field, node)
    if field.kind in (Kind.INT32, Kind.INT64) and isinstance(node, Word):
        return _integer(field, node)
    raise CorruptMetadata(f"{field.name} is not of type {field.kind.name.lower()}")


def _enum_number(field: Field, word: Word) -> int:
    number = field.names.get(word)
    if number is None and word.isdecimal():
        number = next((n for n in field.names.values() if str(n) == word), None)
    if number is None:
        raise CorruptMetadata(f"{field.name} has no value {word}")
    return number


_INTEGER = re.compile(r"(?P<sign>-?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?P<oct>0[0-7]*)|(?P<dec>[1-9][0-9]*))")


def _integer(field: Field, word: Word) -> int:
    match = _INTEGER.fullmatch(word)
    if match is None or len(word) > 30:
        raise CorruptMetadata(f"{field.name}: {word[:40]} is not an integer")
    if match["hex"]:
        value = int(match["hex"], 16)
    else:
        value = int(match["oct"], 8) if match["oct"] else int(match["dec"])
    value = -value if match["sign"] else value
    if not fits(value, field.kind):
        raise CorruptMetadata(f"{field.name}: {word} is out of range")
    return value
