"""What the records of a namespace and of a stream say of ledgers and their end (spec streams §15.4). Pure.

    {"integrity": {"digest": "crc32"},
     "replication": {"ack_quorum": 2, "ensemble": 3, "write_quorum": 3},
     "retention": {"max_age": 86400, "min_segments": 1, "mode": "auto", "protect_subscriptions": true}, "v": 1}

A stream has the groups of its own record, and the others from its namespace. What is not known here is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ConfigurationError, StreamMetadataError
from ...types import DigestType
from ..ledgers import Replication
from .choice import MIN_KEPT, RetentionMode, RetentionPolicy

RETENTION, REPLICATION, INTEGRITY = "retention", "replication", "integrity"


@dataclass(frozen=True, slots=True)
class StreamPolicy:
    """What holds for the streams of a namespace, or for one. None: nothing is said, and what is above holds."""

    retention: RetentionPolicy | None = None
    """What is deleted of a stream. Said nowhere: nothing ever."""
    replication: Replication | None = None
    """Bookies and copies of new segments; its digest, too. The password is not stored: give it to `open_namespace`."""

    def applied_to(self, default: Replication) -> Replication:
        """How new segments are replicated, with the password of `default`."""
        if self.replication is None:
            return default
        return replace(self.replication, password=default.password)


def encode_policy(policy: StreamPolicy, known: Mapping[str, Any]) -> dict[str, Any]:
    """The record, with what it has besides (`known`)."""
    groups: dict[str, dict[str, Any]] = {}
    if policy.retention is not None:
        groups[RETENTION] = {
            "mode": policy.retention.mode.value,
            "max_age": policy.retention.max_age,
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
    kept = {name: value for name, value in known.items() if name not in (RETENTION, REPLICATION, INTEGRITY)}
    return kept | groups


def decode_policy(settings: Mapping[str, Any], where: str) -> StreamPolicy:
    """From the record. Raises `StreamMetadataError`; `where` is for its text."""
    try:
        return StreamPolicy(_retention(settings.get(RETENTION)), _replication(settings))
    except (ConfigurationError, ValueError, TypeError, AttributeError) as error:
        raise StreamMetadataError(f"the policy of {where} makes no sense: {error}") from None


def _retention(group: Mapping[str, Any] | None) -> RetentionPolicy | None:
    if group is None:
        return None
    max_age = group.get("max_age")
    return RetentionPolicy(
        RetentionMode(group.get("mode", RetentionMode.NONE)),
        None if max_age is None else float(max_age),
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
