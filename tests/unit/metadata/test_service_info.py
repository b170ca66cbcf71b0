"""What bookies publish: spec metadata §7.3."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import ConfigurationError, CorruptMetadata, NoSuchBookie
from bookkeeper.metadata.api import BookieServiceInfo, Endpoint
from bookkeeper.metadata.formats.service_info import encode_service_info, legacy_service_info, parse_service_info
from bookkeeper.types import BookieId, parse_bookie_id

BOOKIE = BookieId("10.0.0.1:3181")

PLAIN = bytes.fromhex("32210a06626f6f6b696510ed181a0831302e302e302e31220a626f6f6b69652d727063")
FULL = bytes.fromhex(
    "322d0a06626f6f6b696510ed181a0f626b312e6578616d706c652e636f6d220a626f6f6b69652d7270633203746c73321e0a0a687474"
    "7073657276657210903f1a07302e302e302e302204687474703a060a016b120176"
)
JAVA = bytes.fromhex(
    "321f0a0a68747470736572766572109993011a07302e302e302e3022046874747032230a06626f6f6b696510c980021a093132372e30"
    "2e302e31220a626f6f6b69652d727063"
)


@pytest.mark.parametrize(
    ("data", "info"),
    [
        (PLAIN, BookieServiceInfo((Endpoint("bookie", "10.0.0.1", 3181),))),
        (
            FULL,
            BookieServiceInfo(
                (
                    Endpoint("bookie", "bk1.example.com", 3181, extensions=("tls",)),
                    Endpoint("httpserver", "0.0.0.0", 8080, "http"),
                ),
                {"k": "v"},
            ),
        ),
        (
            JAVA,
            BookieServiceInfo(
                (Endpoint("httpserver", "0.0.0.0", 18841, "http"), Endpoint("bookie", "127.0.0.1", 32841))
            ),
        ),
    ],
)
def test_vectors_both_ways(data: bytes, info: BookieServiceInfo) -> None:
    assert parse_service_info(data, BOOKIE) == info
    assert encode_service_info(info) == data


def test_the_rpc_endpoint_is_found_wherever_it_stands() -> None:
    endpoint = parse_service_info(JAVA, BOOKIE).bookie_rpc()
    assert endpoint is not None
    assert endpoint.port == 32841


def test_no_data_means_what_the_id_says() -> None:
    expected = BookieServiceInfo((Endpoint("10.0.0.1:3181", "10.0.0.1", 3181, "bookie-rpc"),))
    assert parse_service_info(b"", BOOKIE) == expected
    assert legacy_service_info(BookieId("host:1:ignored")).endpoints[0].port == 1


@pytest.mark.parametrize("text", ["", "../x", "a/b", "a\0b", "a\n", "ü:3181", "a b", "readonly"])
def test_a_bookie_id_has_no_characters_that_mean_something_elsewhere(text: str) -> None:
    """SEC-35."""
    with pytest.raises(ConfigurationError):
        parse_bookie_id(text)
    assert parse_bookie_id("bookie-7.rack_1:3181") == "bookie-7.rack_1:3181"


@pytest.mark.parametrize("name", ["bookie-7", ":3181", "host:", "host:port", "host:99999"])
def test_an_id_without_address_cannot_be_resolved(name: str) -> None:
    with pytest.raises(NoSuchBookie):
        parse_service_info(b"", BookieId(name))


@given(st.binary(min_size=1))
def test_any_bytes_are_at_worst_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptMetadata):
        parse_service_info(data, BOOKIE)
