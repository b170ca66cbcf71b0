"""The message types of everything BookKeeper stores as protocol buffers (spec metadata §3).

The tables below are the format: number, name, type. Which of them are stored as text and which as binary is decided by
the modules that use them.
"""

from __future__ import annotations

from .schema import Field, Kind, MessageType

STATES = {"OPEN": 1, "IN_RECOVERY": 2, "CLOSED": 3}
DIGEST_TYPES = {"CRC32": 1, "HMAC": 2, "CRC32C": 3, "DUMMY": 4}
"""HMAC is what the API calls MAC."""

SEGMENT = MessageType(
    "Segment",
    Field(1, "ensembleMember", Kind.STRING, repeated=True),
    Field(2, "firstEntryId", Kind.INT64, required=True),
)
CUSTOM_METADATA = MessageType(
    "cMetadataMapEntry",
    Field(1, "key", Kind.STRING),
    Field(2, "value", Kind.BYTES),
)
LEDGER_METADATA = MessageType(
    "LedgerMetadataFormat",
    Field(1, "quorumSize", Kind.INT32, required=True),
    Field(2, "ensembleSize", Kind.INT32, required=True),
    Field(3, "length", Kind.INT64, required=True),
    Field(4, "lastEntryId", Kind.INT64),
    Field(5, "state", Kind.ENUM, required=True, names=STATES),
    Field(6, "segment", Kind.MESSAGE, repeated=True, message=SEGMENT),
    Field(7, "digestType", Kind.ENUM, names=DIGEST_TYPES),
    Field(8, "password", Kind.BYTES),
    Field(9, "ackQuorumSize", Kind.INT32),
    Field(10, "ctime", Kind.INT64),
    Field(11, "customMetadata", Kind.MESSAGE, repeated=True, message=CUSTOM_METADATA),
    Field(12, "cToken", Kind.INT64),
)

REREPLICATION_LAYOUT = MessageType(
    "LedgerRereplicationLayoutFormat",
    Field(1, "type", Kind.STRING, required=True),
    Field(2, "version", Kind.INT32, required=True),
)
UNDERREPLICATED_LEDGER = MessageType(
    "UnderreplicatedLedgerFormat",
    Field(1, "replica", Kind.STRING, repeated=True),
    Field(2, "ctime", Kind.INT64),
)
LOCK_DATA = MessageType("LockDataFormat", Field(1, "bookieId", Kind.STRING))
AUDITOR_VOTE = MessageType("AuditorVoteFormat", Field(1, "bookieId", Kind.STRING))

COOKIE = MessageType(
    "CookieFormat",
    Field(1, "bookieHost", Kind.STRING, required=True),
    Field(2, "journalDir", Kind.STRING, required=True),
    Field(3, "ledgerDirs", Kind.STRING, required=True),
    Field(4, "instanceId", Kind.STRING),
    Field(5, "indexDirs", Kind.STRING),
)

CHECK_ALL_LEDGERS = MessageType("CheckAllLedgersFormat", Field(1, "checkAllLedgersCTime", Kind.INT64))
PLACEMENT_POLICY_CHECK = MessageType("PlacementPolicyCheckFormat", Field(1, "placementPolicyCheckCTime", Kind.INT64))
REPLICAS_CHECK = MessageType("ReplicasCheckFormat", Field(1, "replicasCheckCTime", Kind.INT64))

ENDPOINT = MessageType(
    "Endpoint",
    Field(1, "id", Kind.STRING, required=True),
    Field(2, "port", Kind.INT32, required=True),
    Field(3, "host", Kind.STRING, required=True),
    Field(4, "protocol", Kind.STRING, required=True),
    Field(5, "auth", Kind.STRING, repeated=True),
    Field(6, "extensions", Kind.STRING, repeated=True),
)
PROPERTY = MessageType("PropertiesEntry", Field(1, "key", Kind.STRING), Field(2, "value", Kind.STRING))
BOOKIE_SERVICE_INFO = MessageType(
    "BookieServiceInfoFormat",
    Field(6, "endpoints", Kind.MESSAGE, repeated=True, message=ENDPOINT),
    Field(7, "properties", Kind.MESSAGE, repeated=True, message=PROPERTY),
)
