"""The driver's settings, taken from the keys of the configuration (spec metadata §11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ...errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """What a session and its parts need to know. Times in milliseconds."""

    timeout_ms: int = 10000
    """zkTimeout: session timeout asked for; also the time limit of `open` and of one request."""
    backoff_start_ms: int = 10000
    """zkRetryBackoffStartMs"""
    backoff_max_ms: int = 10000
    """zkRetryBackoffMaxMs"""
    retry_limit: int = 2**31 - 1
    """zkRetryBackoffMaxRetries: how often an operation without an answer is tried again."""
    requests_per_second: float = 0
    """zkRequestRateLimit; 0: no limit."""
    tasks_per_second: float = 0
    """zkReplicationTaskRateLimit: under-replicated ledgers handed out by `get`; 0: no limit."""
    max_in_flight: int = 64
    """zkMaxOutstandingRequests: requests under way at once; the others wait. kazoo blocks above about 270."""
    max_packet: int = 1_048_575
    """zkJuteMaxBuffer: the servers' `jute.maxbuffer`, the largest request that they take, in bytes. They drop the
    connection at a larger one, so it is not sent."""
    secure: bool = False
    """zkEnableSecurity: nodes belong to their creator."""
    auth: tuple[tuple[str, str], ...] = ()
    """zkAuth: `scheme:credentials`, e.g. `digest:user:password`; the identity that `secure` needs."""
    address_tracking: bool = True
    """enableBookieAddressTracking: keep known bookie addresses up to date by watches."""
    ledger_manager_type: str | None = None
    """ledgerManagerType: `flat`, `hierarchical` or `longhierarchical`, where the address names no manager."""
    shaded_prefix: str | None = None
    """shadedLedgerManagerFactoryClassPrefix, if allowShadedLedgerManagerFactoryClass: ignored in class names."""
    store_mark_time: bool = True
    """storeSystemTimeAsLedgerUnderreplicatedMarkTime"""

    @classmethod
    def from_mapping(cls, conf: Mapping[str, Any]) -> Self:
        """Read the keys of a configuration; missing and None give the defaults. Raises `ConfigurationError`."""

        def number(key: str, default: float) -> float:
            value = conf.get(key)
            if value in (None, ""):
                return default
            try:
                return float(str(value))
            except ValueError:
                raise ConfigurationError(f"{key} must be a number, not {value!r}") from None

        def flag(key: str, default: bool) -> bool:
            value = conf.get(key)
            return default if value in (None, "") else str(value).strip().lower() == "true"

        timeout = int(number("zkTimeout", 10000))
        if timeout <= 0:
            raise ConfigurationError("zkTimeout must be positive")
        scheme, colon, credentials = str(conf.get("zkAuth") or "").partition(":")
        if scheme and not colon:
            raise ConfigurationError("zkAuth must be `scheme:credentials`, e.g. digest:user:password")
        prefix = str(conf.get("shadedLedgerManagerFactoryClassPrefix") or "dlshade.")
        return cls(
            timeout_ms=timeout,
            backoff_start_ms=int(number("zkRetryBackoffStartMs", timeout)),
            backoff_max_ms=int(number("zkRetryBackoffMaxMs", timeout)),
            retry_limit=int(number("zkRetryBackoffMaxRetries", 2**31 - 1)),
            requests_per_second=number("zkRequestRateLimit", 0),
            tasks_per_second=number("zkReplicationTaskRateLimit", 0),
            max_in_flight=int(number("zkMaxOutstandingRequests", 64)),
            max_packet=int(number("zkJuteMaxBuffer", 1_048_575)),
            secure=flag("zkEnableSecurity", False),
            auth=((scheme, credentials),) if scheme else (),
            address_tracking=flag("enableBookieAddressTracking", True),
            ledger_manager_type=conf.get("ledgerManagerType") or None,
            shaded_prefix=prefix if flag("allowShadedLedgerManagerFactoryClass", False) else None,
            store_mark_time=flag("storeSystemTimeAsLedgerUnderreplicatedMarkTime", True),
        )
