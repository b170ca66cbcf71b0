"""Protocol version 3: protobuf messages, and the data path read and written by hand (spec wire-protocol §3).

messages   any message, to bytes and back
flags      v3's words for flags and priorities
adds       add requests, written
layout     where everything is in them
runs       rows of adds, read: of one ledger or few
mixed      rows of adds of many ledgers, read by columns
acks       acknowledgements of adds, written and read
reads      rows of reads and their answers

Its names are those of `protocol.v2`, so that code for both calls the same functions.
"""

from .acks import Responses, encode_add_response, encode_add_responses, encode_adds_answered
from .adds import AddRequestEncoder, add_request_encoder, txn_id, txn_token
from .messages import decode_request, decode_response, encode_request, encode_response
from .mixed import decode_mixed_adds
from .reads import (
    HEADER_AT,
    READ_HEADER,
    ReadAnswers,
    decode_read_run,
    encode_read_requests,
    encode_read_responses,
)
from .runs import decode_add_runs

__all__ = [
    "HEADER_AT",
    "READ_HEADER",
    "AddRequestEncoder",
    "ReadAnswers",
    "Responses",
    "add_request_encoder",
    "decode_add_runs",
    "decode_mixed_adds",
    "decode_read_run",
    "decode_request",
    "decode_response",
    "encode_add_response",
    "encode_add_responses",
    "encode_adds_answered",
    "encode_read_requests",
    "encode_read_responses",
    "encode_request",
    "encode_response",
    "txn_id",
    "txn_token",
]
