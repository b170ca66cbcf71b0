from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import ProtocolError
from bookkeeper.protocol.auth import AUTH_DISABLED_PLUGIN, SASL_PLUGIN, decode_auth_message, encode_auth_message
from tests.support.wire import PLUGINS


def test_the_vectors_of_the_spec() -> None:
    assert encode_auth_message(SASL_PLUGIN, b"").hex() == "0a047361736c1200"
    assert encode_auth_message(AUTH_DISABLED_PLUGIN, b"").hex() == "0a124175746844697361626c6564506c7567696e1200"


@given(PLUGINS, st.binary())
def test_messages_round_trip(plugin: str, payload: bytes) -> None:
    assert decode_auth_message(encode_auth_message(plugin, payload)) == (plugin, payload)


@pytest.mark.parametrize("text", ["", "0a0161", "1200", "0a02fffe1200", "0a05", "ff"])
def test_broken_messages_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_auth_message(bytes.fromhex(text))
