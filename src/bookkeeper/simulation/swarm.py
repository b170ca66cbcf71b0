"""Draws what a run is made of from its seed: the cluster, the ledgers, the programs, the settings, the kinds of harm.

Each run leaves out about half of what could be in it. Runs that never do some things find other mistakes than runs that
always do everything a little.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ..types import DigestType
from .checkers.crowding import HOSTILE_SETTINGS
from .harm.hardships import CALM, ENDING, HARDSHIP_DAMAGE, HARDSHIPS
from .harm.losses import GONE, HARMLESS, LOSSES, ROT
from .harm.nemesis import DAMAGE, FAULTS
from .world.odds import NetworkOptions, Odds

QUORUMS = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (3, 3, 3), (4, 3, 2), (2, 2, 1), (3, 2, 1), (5, 3, 2), (1, 1, 1), (2, 2, 2))

IMPATIENTS = {"impatients": 3}
"""The programs of a run for the sake of cancellation (see `impatience`)."""

CORRUPT_CHANCE = 0.02
"""Of a piece of data to arrive with a flipped bit, in runs where that happens."""

HARDENING = False
"""Whether runs have the harm of `hardships` by default."""

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """What is not left to the seed. What is None is drawn."""

    seconds: float | None = None
    """Virtual seconds of work and harm."""
    quorums: tuple[int, int, int] | None = None
    """Ensemble size, write quorum, ack quorum."""
    faults: tuple[str, ...] | None = None
    """Kinds of faults."""
    fault_count: int | None = None
    skip: frozenset[int] = frozenset()
    """Faults of the plan to leave out, by number."""
    programs: Mapping[str, int] | None = None
    """How many of each program; those not named: none."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the bookies that win over what is drawn."""
    client_settings: Mapping[str, Any] = field(default_factory=dict)
    flavours: tuple[str, ...] | None = None
    """Kinds of ledgers that writers make (see `programs.users`)."""
    entries: int | None = None
    """About how many entries a ledger gets."""
    pause: float | None = None
    """Average seconds between bursts of appends."""
    total: int | None = None
    """Appends of the whole run."""
    spread: float | None = None
    """Seconds by which latencies differ."""
    corrupt_network: bool = False
    """Bytes change on their way. Then only one promise is left: no reader is given other bytes than were written."""
    hardening: bool = HARDENING
    """Also what is in `hardships`."""
    calm: bool | None = None
    """With `hardening`: only what takes time, and nothing may fail."""
    losing: bool = False
    """Bookies do not wait for their journals, and lose what they acknowledged (see `losses`)."""
    healing: bool = False
    """Autorecovery makes up for bookies that are lost (see `programs.healing`)."""
    scrubbing: bool = False
    """The entry logs of a bookie rot, and it mends them."""


@dataclass(frozen=True)
class Shape:
    """What ledgers of a run look like."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest: DigestType
    entries: int
    """About how many entries a ledger gets."""
    pause: float
    """Average seconds between bursts of appends."""
    total: int
    """Appends of the whole run."""
    seconds: float
    """How long the run's work and harm take."""
    flavours: tuple[str, ...]
    """Kinds of ledgers that writers make."""


@dataclass(frozen=True)
class Configuration:
    """One run, but for its plan of faults."""

    seconds: float
    bookies: int
    shape: Shape
    settings: Mapping[str, Any]
    client_settings: Mapping[str, Any]
    programs: Mapping[str, int]
    kinds: tuple[str, ...]
    fault_count: int
    odds: Odds
    corrupt_network: bool
    bookies_stay: bool = False
    """No bookie ends by itself."""
    hostile: bool = False
    """There are hostile peers, and the limits of bookies are small."""
    calm: bool = False
    """Nothing fails in this run: see `hardships`."""
    losing: bool = False
    """Bookies lose what they acknowledged."""
    healing: bool = False
    """There is autorecovery, and every ledger must be whole in the end."""
    scrubbing: bool = False
    """Bookies scrub, and every copy must be sound in the end."""

    def __str__(self) -> str:
        shape = self.shape
        return (
            f"{self.seconds:g} s, {self.bookies} bookies, {shape.ensemble_size}/{shape.write_quorum}/"
            f"{shape.ack_quorum}, {shape.digest.value}, {dict(self.programs)}, ledgers {', '.join(shape.flavours)}, "
            f"{'calm, ' if self.calm else ''}{self.fault_count} faults of {len(self.kinds)} kinds, "
            f"{dict(self.settings)}"
        )


def draw(dice: random.Random, options: Options) -> Configuration:
    """The configuration of a run. All draws are made, whatever the options say: these change only what they name."""
    quorums = dice.choice(QUORUMS)
    quorums = options.quorums or quorums
    spare = dice.randint(1, 2)
    digests = [DigestType.CRC32C, DigestType.CRC32, DigestType.MAC]
    seconds = _given(options.seconds, dice.choice((4.0, 8.0, 12.0)))
    flavours = tuple(kind for kind in ("plain", "advanced", "deferred") if dice.random() < 0.4) or ("plain",)
    shape = Shape(
        *quorums,
        digest=dice.choice(digests if options.corrupt_network else list(DigestType)),
        entries=_given(options.entries, dice.choice((2, 10, 40, 100))),
        pause=_given(options.pause, dice.choice((0.02, 0.1, 0.3))),
        total=_given(options.total, dice.choice((60, 200, 500))),
        seconds=seconds,
        flavours=options.flavours or flavours,
    )
    settings = _draw_settings(dice)
    kinds = tuple(kind for kind in FAULTS if dice.random() < 0.4) or FAULTS
    if shape_forbids_damage(shape):  # damage must be found, and another copy be there
        kinds = tuple(kind for kind in kinds if kind not in DAMAGE) or ("kill bookie",)
    programs = {
        "writers": dice.randint(1, 3),
        "readers": dice.randint(0, 2),
        "followers": dice.randint(0, 2),
        "browsers": dice.randint(0, 1),
        "deleters": int(dice.random() < 0.25),
    }
    fault_count = dice.choice((0, 3, 8, 16))
    configuration = Configuration(
        seconds=seconds,
        bookies=quorums[0] + spare,
        shape=shape,
        settings=settings | dict(options.settings),
        client_settings=dict(options.client_settings),
        programs=programs if options.programs is None else dict.fromkeys(programs, 0) | dict(options.programs),
        kinds=kinds if options.faults is None else options.faults,
        fault_count=_given(options.fault_count, fault_count),
        odds=_draw_odds(dice, options),
        corrupt_network=options.corrupt_network,
    )
    return _changed(dice, options, configuration)


def _changed(dice: random.Random, options: Options, drawn: Configuration) -> Configuration:
    """The same run, if it is one of those with a harm of their own."""
    if options.losing:
        return _losing(dice, options, drawn)
    if options.healing:
        return _healing(dice, options, drawn)
    if options.scrubbing:
        return _scrubbing(dice, options, drawn)
    return _hardened(dice, options, drawn) if options.hardening else drawn


NEVER = 3_600_000
"""Milliseconds, longer than any run."""

LOSING_SETTINGS: Sequence[Mapping[str, Any]] = (
    {"journalWriteData": False},
    {"journalSyncData": False},
    {"journalWriteData": False, "journalSyncData": False},
    {},
)
"""What bookies do not wait for; nothing: only disks are lost."""


def _losing(dice: random.Random, options: Options, drawn: Configuration) -> Configuration:
    """The same run with bookies that lose their data, one after the other, and no other harm to them."""
    shape = drawn.shape
    if shape.ack_quorum == 1:
        shape = replace(shape, ensemble_size=3, write_quorum=3, ack_quorum=2)
    settings = {
        "dataIntegrityChecking": True,
        "dataIntegrityStampMissingCookies": True,
        **dice.choice(LOSING_SETTINGS),
        "flushInterval": dice.choice((300, 5000, NEVER)),
        "journalPageCacheFlushIntervalMSec": dice.choice((10, 1000, NEVER)),
        "dataIntegrityRateByBytes": dice.choice((-1, 5000)),
    }
    seconds = _given(options.seconds, dice.choice((10.0, 20.0, 40.0)))
    kinds = LOSSES + tuple(kind for kind in HARMLESS if dice.random() < 0.4)
    fault_count = dice.choice((3, 8, 20))
    return replace(
        drawn,
        seconds=seconds,
        bookies=max(drawn.bookies, shape.ensemble_size + 1),
        shape=replace(shape, seconds=seconds),
        settings={**drawn.settings, **settings, **options.settings},
        programs={**drawn.programs, "deleters": 0} if options.programs is None else drawn.programs,
        kinds=_given(options.faults, kinds),
        fault_count=_given(options.fault_count, fault_count),
        bookies_stay=True,
        losing=True,
    )


def _healing(dice: random.Random, options: Options, drawn: Configuration) -> Configuration:
    """The same run with autorecovery, and sometimes with a bookie that is lost for good."""
    seconds = _given(options.seconds, dice.choice((10.0, 20.0, 40.0)))
    healers = dice.randint(1, 3)
    lost = dice.random() < 0.6 and not shape_forbids_damage(drawn.shape)
    kinds = (*drawn.kinds, "kill client", "cut off from store", *([GONE] * 3 if lost else []))
    fault_count = dice.choice((3, 8, 20))
    return replace(
        drawn,
        seconds=seconds,
        shape=replace(drawn.shape, seconds=seconds),
        programs={**drawn.programs, "healers": healers} if options.programs is None else drawn.programs,
        kinds=_given(options.faults, kinds),
        fault_count=_given(options.fault_count, fault_count),
        healing=True,
    )


def _scrubbing(dice: random.Random, options: Options, drawn: Configuration) -> Configuration:
    """The same run with entries that rot in one bookie, under the same harm but for other damage."""
    shape = drawn.shape
    if shape_forbids_damage(shape):
        shape = replace(shape, ensemble_size=3, write_quorum=3, ack_quorum=2, digest=DigestType.CRC32C)
    settings = {
        "localScrubInterval": dice.choice((1, 3)),
        "localScrubRateLimit": dice.choice((0, 50, 1000)),
        "localRepairQueueSize": dice.choice((1, 10, 10_000)),
        "localConsistencyCheckOnStartup": dice.random() < 0.5,
    }
    seconds = _given(options.seconds, dice.choice((10.0, 20.0, 40.0)))
    kinds = (*(kind for kind in drawn.kinds if kind not in DAMAGE), ROT, ROT, ROT)
    fault_count = dice.choice((3, 8, 20))
    return replace(
        drawn,
        seconds=seconds,
        bookies=max(drawn.bookies, shape.ensemble_size + 1),
        shape=replace(shape, seconds=seconds),
        settings={**drawn.settings, **settings, **options.settings},
        kinds=_given(options.faults, kinds),
        fault_count=_given(options.fault_count, fault_count),
        scrubbing=True,
    )


def _draw_odds(dice: random.Random, options: Options) -> Odds:
    network = NetworkOptions(
        latency=dice.choice((0.0005, 0.0005, 0.01)),
        spread=_given(options.spread, dice.choice((0.001, 0.01, 0.2))),
        fragment_chance=dice.choice((0.0, 0.0, 0.05, 0.3)),
        corrupt_chance=CORRUPT_CHANCE if options.corrupt_network else 0.0,
    )
    return Odds(network, buggify=dice.choice((0.0, 0.5, 1.0)))


def shape_forbids_damage(shape: Shape) -> bool:
    """Damage must be found, and another copy be there."""
    return shape.ack_quorum == 1 or shape.digest is DigestType.DUMMY


def _hardened(dice: random.Random, options: Options, drawn: Configuration) -> Configuration:
    """The same run, with the harm of `hardships` too; or a calm one."""
    calm = _given(options.calm, dice.random() < 0.25)
    kinds = drawn.kinds + tuple(kind for kind in HARDSHIPS if dice.random() < 0.4)
    fault_count = drawn.fault_count + dice.choice((0, 3, 8))
    if calm:
        kinds = tuple(kind for kind in CALM if dice.random() < 0.7) or CALM
    hostiles = dice.choice((0, 0, 1, 3))
    claimers = dice.choice((0, 0, 2, 3))
    if options.programs is not None:
        claimers = options.programs.get("claimers", 0)
        hostiles = options.programs.get("hostiles", 0)
    settings = {**drawn.settings, **(HOSTILE_SETTINGS if hostiles else {}), **_small_limits(dice), **options.settings}
    kinds = _given(options.faults, kinds)
    if shape_forbids_damage(drawn.shape):
        kinds = tuple(kind for kind in kinds if kind not in HARDSHIP_DAMAGE) or ("kill bookie",)
    hardened = replace(
        drawn,
        settings=settings,
        bookies_stay=not any(kind in ENDING for kind in kinds),
        programs={**drawn.programs, "hostiles": hostiles, "claimers": claimers},
        hostile=hostiles > 0,
        odds=replace(drawn.odds, buggify=0.0) if hostiles else drawn.odds,  # no peer is to be refused for no reason
        kinds=kinds,
        fault_count=_given(options.fault_count, fault_count),
        calm=calm,
    )
    return _calm(options, hardened) if calm else hardened


def _small_limits(dice: random.Random) -> dict[str, Any]:
    """Limits of a bookie that make some wait for others, and refuse none."""
    return {
        "maxAddsInProgressLimit": dice.choice((0, 0, 1, 20)),
        "maxReadsInProgressLimit": dice.choice((0, 0, 1, 20)),
        "diskCheckInterval": dice.choice((500, 10_000)),
    }


def _calm(options: Options, drawn: Configuration) -> Configuration:
    """Long bursts, longer than the time-out of adds on narrow links, and no program that ends a writer."""
    programs = {**drawn.programs, "readers": 0, "deleters": 0} if options.programs is None else drawn.programs
    shape = replace(drawn.shape, entries=_given(options.entries, 200), total=_given(options.total, 1000))
    settings = {"addEntryTimeoutSec": 3, "readEntryTimeoutSec": 5, "clientConnectTimeoutMillis": 5000}
    return replace(
        drawn,
        programs=programs,
        shape=shape,
        client_settings={**settings, **drawn.client_settings},
        odds=replace(drawn.odds, buggify=0.0),
    )


def _given(value: T | None, drawn: T) -> T:
    return drawn if value is None else value


def _draw_settings(dice: random.Random) -> dict[str, Any]:
    """Settings of the bookies that must not change what is promised."""
    settings: dict[str, Any] = {
        "flushInterval": dice.choice((300, 1000, 5000)),
        "journalMaxGroupWaitMSec": dice.choice((0, 2, 20)),
        "journalMaxBackups": dice.choice((0, 1, 5)),
        "dbStorage_readAheadCacheBatchSize": dice.choice((0, 10, 100)),
        "logSizeLimit": dice.choice((8 << 10, 64 << 10, 1 << 20)),
        "ledgerHandleCacheSize": dice.choice((1, 100_000)),
        "maxBatchReadSize": dice.choice((500, 5 << 20)),
    }
    wait, minor, major = dice.choice(((700, 1, 2), (3000, 3, 4), (600_000, 3600, 86400)))
    settings |= {"gcWaitTime": wait, "minorCompactionInterval": minor, "majorCompactionInterval": major}
    if dice.random() < 0.2:
        settings |= {"journalDirectories": "/journal1,/journal2", "ledgerDirectories": "/ledgers1,/ledgers2"}
    return settings


def client_settings(dice: random.Random) -> dict[str, Any]:
    """Settings of one client that must not change what is promised."""
    return {
        "protocol": dice.choice(("auto", "v2", "v3")),
        "addEntryTimeoutSec": dice.choice((1, 2, 5)),
        "readEntryTimeoutSec": dice.choice((1, 2, 5)),
        "clientConnectTimeoutMillis": dice.choice((500, 3000)),
        "delayEnsembleChange": dice.random() < 0.2,
        "recoveryReadBatchSize": dice.choice((1, 3, 16)),
        "speculativeReadTimeout": dice.choice((50, 500, 2000)),
        "explicitLacInterval": dice.choice((0, 100, 300)),
        "numChannelsPerBookie": dice.choice((1, 1, 2)),
        "batchReadEnabled": dice.random() < 0.7,
        "stickyReadSEnabled": dice.random() < 0.3,
        "readEntriesWindow": dice.choice((2, 1024)),
        "maxPendingAddEntries": dice.choice((3, 50_000)),
        "maxNumEnsembleChanges": dice.choice((2, 2**31 - 1, 2**31 - 1)),
    }
