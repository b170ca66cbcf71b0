"""What AUTH messages carry (spec wire-protocol §7.1, §7.2).

The content is the same in both versions: a plug-in's name and an opaque token, a protobuf `AuthMessage`. In v2 it
stands behind the packet header, in v3 it is a field of request and response.

    field  type    name
    1      string  authPluginName
    2      bytes   payload: may be empty, must be present
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from ..errors import ProtocolError
from .schema import AuthMessage

AUTH_DISABLED_PLUGIN = "AuthDisabledPlugin"
"""A bookie without authentication, and one whose client is authenticated already, answers AUTH with this name and an
empty payload. A client that sees it is authenticated, whatever its own plug-in."""

SASL_PLUGIN = "sasl"

ANONYMOUS = "ANONYMOUS"
"""The principal of a connection to a bookie without authentication."""


def encode_auth_message(plugin: str, payload: bytes) -> bytes:
    return bytes(AuthMessage(authPluginName=plugin, payload=payload).SerializeToString())


def decode_auth_message(data: bytes) -> tuple[str, bytes]:
    """Plug-in name and payload. Raises `ProtocolError`."""
    try:
        message = AuthMessage.FromString(data)
    except DecodeError as error:
        raise ProtocolError(f"broken AuthMessage: {error}") from None
    if not message.IsInitialized():
        raise ProtocolError("AuthMessage lacks its plug-in name or payload")
    return plugin_name(message), message.payload


def plugin_name(message: Any) -> str:
    """The name in a parsed `AuthMessage`. Raises `ProtocolError` if it is not UTF-8: protobuf then hands out bytes."""
    name = message.authPluginName
    if not isinstance(name, str):
        raise ProtocolError("the plug-in name of an AuthMessage is not UTF-8")
    return name
