"""Settings that promise something which is not there yet.

Every known setting is one of four:

- live: some code reads it;
- refused (`REFUSED`, `REFUSED_BY_CLIENTS`): it promises security, or safety of data, that would not be kept. To go on
  as if it were kept would be worse than not to start;
- without effect (`WITHOUT_EFFECT`): it asks for comfort that is not there yet. Said in one warning, if it is set to
  something else than its default;
- always so (`ALWAYS_SO`): what it asks for is what happens anyway.

A test goes through all settings and holds them against these lists; docs/not-there-yet.md says the same to operators.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

NO_TLS = (
    "there is no TLS yet, and everything would be sent in the clear: remove the line and protect the network in "
    "another way, or use Apache BookKeeper's"
)
NO_AUTHENTICATION = (
    "there is no authentication yet, and everybody would be let in: remove the line and protect the network in "
    "another way, or use Apache BookKeeper's"
)

REFUSED: Mapping[str, str] = {
    "tlsProviderFactoryClass": NO_TLS,
    "bookieAuthProviderFactoryClass": NO_AUTHENTICATION,
    "authorizedRoles": NO_AUTHENTICATION,
    "permittedStartupUsers": (
        "the user is not checked yet: remove the line, and let the service manager see to the right user"
    ),
    "httpServerTlsEnable": (
        "the HTTP server has no TLS yet: remove the line, and let httpServerHost be an address that only a proxy with "
        "TLS reaches"
    ),
}
"""What a bookie does not start with, why, and what to do."""

REFUSED_BY_CLIENTS: Mapping[str, str] = {
    "tlsProviderFactoryClass": NO_TLS,
    "clientAuthProviderFactoryClass": NO_AUTHENTICATION,
}
"""The same of clients."""

_WITHOUT_EFFECT = """
    sanityCheckMetricsEnabled
    tlsClientAuthentication tlsKeyStoreType tlsKeyStore tlsKeyStorePasswordPath tlsTrustStoreType tlsTrustStore
    tlsTrustStorePasswordPath tlsCertificatePath tlsCertFilesRefreshDurationSeconds tlsEnabledCipherSuites
    tlsEnabledProtocols
    minUsableSizeForIndexFileCreation gcOverreplicatedLedgerMaxConcurrentRequests compactionMaxOutstandingRequests
    auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec
"""

WITHOUT_EFFECT: frozenset[str] = frozenset(_WITHOUT_EFFECT.split())
"""Settings of a bookie that do nothing yet: details of what is refused above, one metric, and waiting that does not
happen here."""

ALWAYS_SO: frozenset[str] = frozenset({"verifyMetadataOnGC", "useTransactionalCompaction"})
"""Garbage collection always asks the store again before it deletes; compaction always survives a crash."""


def refusal(settings: BaseModel, refused: Mapping[str, str]) -> str | None:
    """Why these settings cannot be accepted, in one line that says what to do; None if they can."""
    for key, reason in refused.items():
        value = getattr(settings, key)
        if _is_asked(value, type(settings).model_fields[key].default):
            return f"{key}={as_written(value)} is not supported: {reason}"
    return None


def without_effect(settings: BaseModel) -> list[str]:
    """The settings that were chosen and do nothing yet."""
    changed = settings.model_dump(include=set(WITHOUT_EFFECT), exclude_defaults=True)
    return [key for key in type(settings).model_fields if key in changed]


def as_written(value: object) -> str:
    """A value as a file has it."""
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_asked(value: object, default: object) -> bool:
    if isinstance(value, bool):
        return value != default
    return value > 0 if isinstance(value, int) else bool(value)
