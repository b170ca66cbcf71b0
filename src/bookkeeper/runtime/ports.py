"""TCP ports of the loopback interface for servers that are started here to try things out.

A port that the system picks (port 0) is from the range that it also takes for outgoing connections. Between the time
it was picked and the time a server listens on it, or while a server is down for a moment, any connection of any
program can be given that port, and the server then cannot start. Ports below that range are taken by nobody who does
not name them.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
from collections.abc import Container
from pathlib import Path

from ..errors import ConfigurationError

HOST = "127.0.0.1"
FIRST_PORT = 10_000
"""Below it are too many well-known ones."""

PORTS_VARIABLE = "BOOKKEEPER_PORTS"
"""The environment variable with the first and the last port to choose from, such as `20000-20999`. Programs that run
side by side and have ranges of their own never choose the same, nor that of a server that is down for a moment."""

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
OUTGOING_ELSEWHERE = 49_152
"""Where the range begins on systems without such a file (RFC 6335, section 6)."""

_given: set[int] = set()
"""Ports that this process was given: nobody may listen on them yet."""


def free_port(count: int = 1, *, but: Container[int | None] = ()) -> int:
    """The first of `count` ports that follow each other, that nobody listens on, that no outgoing connection is given,
    that this process was not given before, and of which none is in `but`.

    Raises `OSError` if no such ports are found, and `ConfigurationError` if what the environment says is no range.
    """
    first, last = bounds()
    choices = last - first + 2 - count
    begin = secrets.randbelow(max(1, choices))  # programs that choose at the same time rarely choose the same
    for step in range(choices):
        port = first + (begin + step) % choices
        wanted = range(port, port + count)
        if not any(each in but or each in _given for each in wanted) and all(is_free(each) for each in wanted):
            _given.update(wanted)
            return port
    raise OSError(f"no {count} ports that are free and follow each other between {first} and {last}")


def bounds() -> tuple[int, int]:
    """The first and the last port to choose from."""
    said = os.environ.get(PORTS_VARIABLE)
    if said is None:
        return FIRST_PORT, first_outgoing() - 1
    found = re.fullmatch(r"(\d+)-(\d+)", said)
    if found is None or not 0 < int(found[1]) <= int(found[2]) < 65_536:
        raise ConfigurationError(f"{PORTS_VARIABLE}={said} is no range of ports, such as 20000-20999")
    return int(found[1]), int(found[2])


def is_free(port: int) -> bool:
    """Whether a server could listen on that port of the loopback interface now."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        probe.listen(1)
        return True
    return False


def first_outgoing() -> int:
    """The lowest port that the system gives to outgoing connections, or where it would be if that left too few."""
    try:
        first = int(OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return OUTGOING_ELSEWHERE
    return first if first > 2 * FIRST_PORT else OUTGOING_ELSEWHERE
