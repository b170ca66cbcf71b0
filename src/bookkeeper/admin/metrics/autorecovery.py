"""What autorecovery tells of itself (spec autorecovery-admin §10.2 to §10.4)."""

from __future__ import annotations

from ...autorecovery.daemon import AutoRecovery
from ...autorecovery.stats import ValueStats
from ...bookie.stats import OpStats
from .exposition import Exposition


def autorecovery_metrics(autorecovery: AutoRecovery, out: Exposition, *, embedded: bool) -> None:
    """`embedded`: in a bookie's process. The auditor's are there while it is elected."""
    prefix = "replication_" if embedded else ""
    stats = autorecovery.repair.stats
    _counted(stats, f"{prefix}replication_worker_", out)
    for name, count in stats.exceptions.items():
        out.counter(f"{prefix}replication_worker_exceptions_{name}", count)
    auditor = autorecovery.auditor
    if auditor is None:
        return
    _counted(auditor.stats, f"{prefix}auditor_", out)
    for report in (auditor.replicas, auditor.placement):
        for name, value in vars_of(report).items():
            if name.startswith("NUM_") and isinstance(value, int):
                out.gauge(f"{prefix}auditor_{name}", value)


def _counted(stats: object, prefix: str, out: Exposition) -> None:
    """All counters of an object, each under its own name."""
    for name, value in vars_of(stats).items():
        if isinstance(value, OpStats):
            out.latency(prefix + name, value)
        elif isinstance(value, ValueStats):
            out.values(prefix + name, value)
        elif isinstance(value, int):
            out.counter(prefix + name, value)


def vars_of(stats: object) -> dict[str, object]:
    """The public attributes."""
    names = getattr(stats, "__slots__", None) or vars(stats)
    return {name: getattr(stats, name) for name in names if not name.startswith("_")}
