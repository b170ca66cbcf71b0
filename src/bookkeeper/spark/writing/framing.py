"""Which streams have keys, and what payloads are made of records then (spec streams §15.8, §17.6).

Theory of operation

The policy of a stream says whether its payloads are values alone, or values with keys, headers and times. A stream that
is new, or has no segments, gets the codec that its first rows need: the task writes them so, and the driver stores it
in the policy before it publishes. Nothing that a row has is left out in silence, but for a time: a stream without keys
has times of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

from ...streams.formats.keyed import Codec, encode_keyed
from ...streams.namespace import Namespace
from ..errors import OptionError
from .shapes import Column, Fields

Given = Fields | Sequence[bytes]
"""Records, or payloads as they are stored."""


class Framing:
    """The codecs of the streams that a task writes to."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._codecs: dict[str, Codec] = {}
        self.made: set[str] = set()
        """New streams whose codec must be stored before they are read."""

    async def records(self, stream: str, given: Given) -> tuple[Sequence[bytes], Sequence[int] | None]:
        """What is appended, and the transaction ids. Raises `OptionError` for rows that the stream cannot have."""
        return (await self.payloads(stream, given), given.txids) if isinstance(given, Fields) else (given, None)

    async def payloads(self, stream: str, fields: Fields) -> Sequence[bytes]:
        """What is appended. Raises as `records`."""
        if not fields.values:
            return ()
        codec = self._codecs.get(stream)
        if codec is None:
            codec = self._codecs[stream] = await self._codec(stream, fields)
        return framed(fields) if codec is Codec.KV1 else plain(stream, fields)

    async def _codec(self, stream: str, fields: Fields) -> Codec:
        codec = await self._namespace.codec(stream)
        if codec is Codec.KV1 or not fields.wants_keys:
            return codec
        if await self._namespace.exists(stream) and (await self._namespace.info(stream)).segments:
            return codec
        self.made.add(stream)
        return Codec.KV1


def framed(fields: Fields) -> list[bytes]:
    """Values with keys, headers and times."""
    none, no_headers = repeat(None), repeat(())
    keys, headers, times = fields.keys or none, fields.headers or no_headers, fields.times or none
    return list(map(encode_keyed, fields.values, keys, headers, times))


def plain(stream: str, fields: Fields) -> Sequence[bytes]:
    """Values alone. Raises `OptionError` if there is more, or less."""
    if any(key is not None for key in fields.keys or ()) or any(fields.headers or ()):
        raise OptionError(
            f"stream {stream} has records without keys, and rows have a key or headers: leave these columns out, write "
            "to another stream, or set its policy to the codec kv1, with Namespace.set_policy"
        )
    if isinstance(fields.values, Column) and not fields.values.array.null_count:
        return fields.values
    values = [value for value in fields.values if value is not None]
    if len(values) < len(fields.values):
        missing = len(fields.values) - len(values)
        raise OptionError(f"{missing} rows have null for {fields.column}: a record has a payload")
    return values


async def make_keyed(namespace: Namespace, stream: str) -> None:
    """Let a stream have keys. Raises `StreamNotFoundError`; `StreamConflictError` if others set its policy, too."""
    if await namespace.codec(stream) is not Codec.KV1:
        await namespace.set_policy(replace(await namespace.policy(stream), codec=Codec.KV1), stream)
