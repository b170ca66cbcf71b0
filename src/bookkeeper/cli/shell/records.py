"""How the commands that look into a bookie's files print: entries, records of other kinds, keys.

Nothing is created or written by those commands. The bookie may run: of a file that it writes at the moment the end may
then be missing.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Annotated, Any

import typer

from .common import conf_option

_ENTRY_HEAD = struct.Struct(">qqqq")
"""Ledger, entry, last confirmed, length: what every entry of a client begins with."""

ConfOption = Annotated[Path | None, conf_option("The bookie's bk_server.conf: it says where the directories are.")]
MessageOption = Annotated[
    bool, typer.Option("--msg", "-msg", "-m", help="The data of the entries, too: the digest, then what was written.")
]
KeysOption = Annotated[
    bool,
    typer.Option("--show-keys", help="Master keys as they are; else a digest. With a key one can write and fence."),
]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts: an object a line.")]


def key_text(key: bytes, show: bool) -> str:
    """A master key; unless it is to be shown, only enough of a digest to tell keys apart."""
    return key.hex() if show else f"sha256:{hashlib.sha256(key).hexdigest()[:8]}"


def of_data(body: bytes) -> dict[str, Any]:
    """What an entry says of itself; of one too short, only that it is data."""
    if len(body) < _ENTRY_HEAD.size:
        return {"type": "DATA"}
    _, _, confirmed, length = _ENTRY_HEAD.unpack_from(body)
    return {"type": "DATA", "last_confirmed": confirmed, "length": length}


def print_record(about: dict[str, Any], body: bytes, message: bool, as_json: bool) -> None:
    data = body[_ENTRY_HEAD.size :] if about["type"] == "DATA" else b""
    if as_json:
        json_line(about | ({"data": data.hex()} if message and about["type"] == "DATA" else {}))
        return
    print(
        f"--------- Lid={about['ledger']}, Eid={about['entry']}, ByteOffset={about['offset']}, "
        f"EntrySize={about['size']} ---------"
    )
    print(f"Type:           {about['type']}")
    if about["type"] == "DATA":
        print(f"LastConfirmed:  {about.get('last_confirmed', 'none')}")
        if message:
            print(f"Data:           {data.hex()}")
    elif about["kind"] == "master key":
        print(f"MasterKey:      {about['master_key']}")
    else:
        print(about["kind"].capitalize() if about["kind"] != "fence" else "Fenced")
    print()


def headline(as_json: bool, text: str) -> None:
    """A headline for people."""
    if not as_json:
        print(text)


def json_line(value: dict[str, Any]) -> None:
    print(json.dumps(value))
