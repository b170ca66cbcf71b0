"""A client of the HTTP API, as `curl` is one."""

from __future__ import annotations

import asyncio
import http.client
import json
import shlex
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


async def ask(port: int, path: str, method: str = "GET", body: str | None = None, kind: str = FORM) -> Answer:
    """One request, on a connection of its own."""
    return await asyncio.to_thread(_ask, "127.0.0.1", port, method, path, body, kind)


async def curl(command: str) -> Answer:
    """What `curl [-X METHOD] [-d BODY] URL` would ask for."""
    words = iter(shlex.split(command.removeprefix("curl ")))
    method, body, url = "GET", None, ""
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-d":
            body = next(words)
        else:
            url = word
    parts = urlsplit(url if "://" in url else f"http://{url}")
    assert parts.hostname, command
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return await asyncio.to_thread(_ask, parts.hostname, parts.port or 80, method, path, body, FORM)


def _ask(host: str, port: int, method: str, path: str, body: str | None, kind: str) -> Answer:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": kind} if body is not None else {})
        response = connection.getresponse()
        return Answer(response.status, response.read().decode(), dict(response.getheaders()))
    finally:
        connection.close()
