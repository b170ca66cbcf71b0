"""The little of protocol buffers (proto2) that stored metadata uses, as data.

A message is a plain dict from field name to value, in which a repeated field is a list and a nested message a dict; its
type is a `MessageType` with its `Field`s. A field that is absent from the dict is unset. `wire` gives the binary form,
`text` the text form; the message types themselves are in `messages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ...errors import CorruptMetadata

Values = dict[str, Any]
"""A message: field name -> int (also enums), str, bytes, dict; or a list of those for a repeated field."""


class Kind(Enum):
    """The type of a field."""

    INT32 = 32
    INT64 = 64
    STRING = "string"
    BYTES = "bytes"
    ENUM = "enum"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message type."""

    number: int
    name: str
    kind: Kind
    repeated: bool = False
    required: bool = False
    names: Mapping[str, int] = field(default_factory=dict)
    """ENUM only: its identifiers and their numbers."""
    message: MessageType | None = None
    """MESSAGE only: its type."""


class MessageType:
    """A message type. Fields are kept in number order, which is the order of writing."""

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.fields = tuple(sorted(fields, key=lambda field: field.number))
        self.by_number = {field.number: field for field in fields}
        self.by_name = {field.name: field for field in fields}
        self._required = tuple(field.name for field in self.fields if field.required)
        assert len(self.by_number) == len(self.by_name) == len(fields)

    def store(self, values: Values, field: Field, value: Any) -> None:
        """Put a decoded value into a message under construction; the last one of a singular field counts."""
        if field.repeated:
            values.setdefault(field.name, []).append(value)
        else:
            values[field.name] = value

    def check_complete(self, values: Values) -> Values:
        """Raises `CorruptMetadata` if a required field is unset."""
        for required in self._required:
            if required not in values:
                raise CorruptMetadata(f"{self.name}.{required} is missing")
        return values


def fits(value: int, kind: Kind) -> bool:
    """Whether an integer is within the range of INT32 or INT64."""
    bound = 1 << (31 if kind is Kind.INT32 else 63)
    return -bound <= value < bound
