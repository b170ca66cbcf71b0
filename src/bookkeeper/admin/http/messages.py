"""Requests and answers of the HTTP API, as endpoints see them (spec autorecovery-admin §9.1)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


class BadBodyError(ValueError):
    """A body is not what the endpoint takes."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request."""

    method: str
    path: str
    """Decoded, without query; without slashes that are repeated or at its end."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Of the query, and of a form in the body; of those given twice the last one."""
    body: bytes = b""

    def flag(self, name: str) -> bool:
        """Whether a parameter is exactly `true`."""
        return self.parameters.get(name) == "true"

    def json_object(self) -> dict[str, Any]:
        """The body. Raises `BadBodyError`."""
        try:
            found = json.loads(self.body)
        except ValueError:
            raise BadBodyError("Failed to deserialize Object from Json string") from None
        if not isinstance(found, dict):
            raise BadBodyError("Failed to deserialize Object from Json string")
        return found


def request_of(method: str, target: str, content_type: str, body: bytes) -> Request:
    """From what came over the network."""
    path, _, query = target.partition("?")
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    if content_type.partition(";")[0].strip().lower() == FORM:
        # what curl -d sends; JSON that is sent so stays the body
        parameters |= dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    return Request(method, "/" + "/".join(part for part in path.split("/") if part), parameters, body)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    allow: str | None = None
    """Methods, for 405."""


Handler = Callable[[Request], Awaitable[Reply]]


def text(body: str, status: int = 200) -> Reply:
    """Plain text, without a type, as Java sends it."""
    return Reply(status, body.encode())


def as_json(value: object, status: int = 200) -> Reply:
    """JSON for people and programs."""
    return Reply(status, json.dumps(value, indent=2, separators=(",", " : ")).encode(), JSON)


def truth(value: object, default: bool) -> bool:
    """A member that is a boolean or, as the documents of Java's API show it, a string. Raises `BadBodyError`."""
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise BadBodyError(f"{value!r} is neither true nor false")
