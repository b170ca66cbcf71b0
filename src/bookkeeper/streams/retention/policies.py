"""What the records of a namespace and of a stream say of them (spec streams §15.4). Pure.

    {"codec": "kv1", "integrity": {"digest": "crc32"},
     "replication": {"ack_quorum": 2, "ensemble": 3, "write_quorum": 3},
     "retention": {"max_age": 86400, "max_bytes": null, "min_segments": 1, "mode": "auto",
                   "protect_subscriptions": true},
     "segment": {"roll_age": 7200, "roll_bytes": 1073741824, "roll_records": null},
     "write": {"buffer_bytes": 16384, "compression": "none", "linger": 0.001, "visibility": "linger"}, "v": 1}

A stream has the groups of its own record, and the others from its namespace. What is not known here is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ConfigurationError, StreamMetadataError
from ...types import DigestType
from ..formats.codec import Compression
from ..formats.keyed import Codec
from ..ledgers import Replication
from ..policy import Visibility, WritePolicy
from .choice import MIN_KEPT, RetentionMode, RetentionPolicy

RETENTION, REPLICATION, INTEGRITY, SEGMENT, WRITE = "retention", "replication", "integrity", "segment", "write"
ROLLING = {"roll_bytes": int, "roll_age": float, "roll_records": int}
WRITING: dict[str, Callable[[Any], Any]] = {
    "buffer_bytes": int,
    "linger": float,
    "visibility": Visibility,
    "compression": lambda name: Compression[name.upper()],
}
"""How the values of these groups are read; they have the names of `WritePolicy`."""

CODEC = "codec"
GROUPS = (RETENTION, REPLICATION, INTEGRITY, SEGMENT, WRITE, CODEC)


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """What holds for the streams of a namespace, or for one. None: nothing is said, and what is above holds."""

    retention: RetentionPolicy | None = None
    """What is deleted of a stream. Said nowhere: nothing ever."""
    replication: Replication | None = None
    """Bookies and copies of new segments; its digest, too. The password is not stored: give it to `open_namespace`."""
    write: WritePolicy | None = None
    """When entries leave, when readers see them, when a segment is rolled; `pending_bytes` is not stored."""
    codec: Codec | None = None
    """What the payloads are, for those who look into them, as Spark does. Writers and readers do not."""

    def applied_to(self, default: Replication) -> Replication:
        """How new segments are replicated, with the password of `default`."""
        if self.replication is None:
            return default
        return replace(self.replication, password=default.password)


def encode_policy(policy: StreamPolicy, known: Mapping[str, Any]) -> dict[str, Any]:
    """The record, with what it has besides (`known`)."""
    groups: dict[str, Any] = {}
    if policy.retention is not None:
        groups[RETENTION] = {
            "mode": policy.retention.mode.value,
            "max_age": policy.retention.max_age,
            "max_bytes": policy.retention.max_bytes,
            "min_segments": policy.retention.min_segments,
            "protect_subscriptions": policy.retention.protect_subscriptions,
        }
    if policy.replication is not None:
        wanted = policy.replication
        groups[REPLICATION] = {
            "ensemble": wanted.ensemble_size,
            "write_quorum": wanted.write_quorum,
            "ack_quorum": wanted.ack_quorum,
        }
        groups[INTEGRITY] = {"digest": wanted.digest.value.lower()}
    if policy.write is not None:
        groups[SEGMENT] = {name: getattr(policy.write, name) for name in ROLLING}
        groups[WRITE] = {
            "buffer_bytes": policy.write.buffer_bytes,
            "linger": policy.write.linger,
            "visibility": policy.write.visibility.value,
            "compression": policy.write.compression.name.lower(),
        }
    if policy.codec is not None:
        groups[CODEC] = policy.codec.value
    kept = {name: value for name, value in known.items() if name not in GROUPS}
    return kept | groups


def decode_policy(settings: Mapping[str, Any], where: str) -> StreamPolicy:
    """From the record. Raises `StreamMetadataError`; `where` is for its text."""
    try:
        return StreamPolicy(
            _retention(settings.get(RETENTION)), _replication(settings), _write(settings), _codec(settings.get(CODEC))
        )
    except (ConfigurationError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise StreamMetadataError(f"the policy of {where} makes no sense: {error}") from None


def _codec(name: str | None) -> Codec | None:
    return None if name is None else Codec(name)


def _retention(group: Mapping[str, Any] | None) -> RetentionPolicy | None:
    if group is None:
        return None
    max_age, max_bytes = group.get("max_age"), group.get("max_bytes")
    return RetentionPolicy(
        RetentionMode(group.get("mode", RetentionMode.NONE)),
        None if max_age is None else float(max_age),
        None if max_bytes is None else int(max_bytes),
        int(group.get("min_segments", MIN_KEPT)),
        _boolean(group.get("protect_subscriptions", True)),
    )


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"protect_subscriptions is {value!r}, neither true nor false")
    return value


def _replication(settings: Mapping[str, Any]) -> Replication | None:
    if settings.get(REPLICATION) is None and settings.get(INTEGRITY) is None:
        return None
    default = Replication()
    quorums = settings.get(REPLICATION) or {}
    found = Replication(
        int(quorums.get("ensemble", default.ensemble_size)),
        int(quorums.get("write_quorum", default.write_quorum)),
        int(quorums.get("ack_quorum", default.ack_quorum)),
        digest=DigestType((settings.get(INTEGRITY) or {}).get("digest", default.digest.value).upper()),
    )
    if not found.ensemble_size >= found.write_quorum >= found.ack_quorum >= 1:
        raise ValueError(f"{found.ensemble_size}, {found.write_quorum}, {found.ack_quorum} do not descend to 1 or more")
    return found


def _write(settings: Mapping[str, Any]) -> WritePolicy | None:
    if settings.get(SEGMENT) is None and settings.get(WRITE) is None:
        return None
    segment, write = settings.get(SEGMENT) or {}, settings.get(WRITE) or {}
    given: dict[str, Any] = {
        name: None if segment[name] is None else kind(segment[name])
        for name, kind in ROLLING.items()
        if name in segment
    }
    given |= {name: kind(write[name]) for name, kind in WRITING.items() if name in write}
    return WritePolicy(**given)
