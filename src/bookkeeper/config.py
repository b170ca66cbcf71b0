"""Settings, under the names that operators know from `bk_server.conf`.

A file is a Java properties file (`key=value`, `#` comments, `\\` continuation). Environment variables `BK_<key>`
override it. Attributes are named exactly like the keys, so that a setting found in a file, a dashboard or a manual is
found here by searching for it. Keys of the Java system that have no meaning here (thread counts and their queues,
buffer sizes, allocators) are accepted and ignored; an unknown key is reported with the nearest known one.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from .errors import ConfigurationError
from .promises import REFUSED_BY_CLIENTS, as_written, refusal

log = logging.getLogger(__name__)


def _split(value: object) -> object:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _split_regions(value: object) -> object:
    return _split(value.replace(";", ",")) if isinstance(value, str) else value


StringList = Annotated[list[str], BeforeValidator(_split)]
RegionList = Annotated[list[str], BeforeValidator(_split_regions)]
"""Separated by semicolons, in Java; commas do as well."""


def _true_false_or_auto(value: object, parse: ValidatorFunctionWrapHandler) -> object:
    try:
        return parse(value.lower() if isinstance(value, str) else value)
    except ValidationError:
        raise ValueError("should be true, false or auto") from None  # not one complaint for each kind of value


AutoBool = Annotated[bool | Literal["auto"], WrapValidator(_true_false_or_auto)]
"""Yes, no, or as the bookie finds best."""


def parse_properties(text: str) -> dict[str, str]:
    """Read a Java properties file. The first definition of a key counts.

    Raises `ConfigurationError` for a line without a key.
    """
    settings: dict[str, str] = {}
    pending = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        key, separator, value = line.partition("=")
        if not separator:
            key, separator, value = line.partition(":")
        if not separator or not key.strip():
            raise ConfigurationError(f"line {number} is not `key=value`: {raw.strip()!r}")
        settings.setdefault(key.strip(), value.strip())
    return settings


def _nearest(key: str, known: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(key, known, 1, cutoff=0.8)
    return near[0] if near else None


class Settings(BaseModel):
    """Base of the two configurations: builds itself from key-value texts, with errors that say what to do."""

    model_config = ConfigDict(extra="ignore", frozen=True, validate_default=False)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, source: str = "configuration") -> Self:
        """Build from keys and values. Raises `ConfigurationError` naming each bad key."""
        cls._report_unknown(values, source)
        given = {key: value for key, value in values.items() if value != ""}
        try:
            settings = cls(**given)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, issue['loc'])) or 'settings'}: {issue['msg']}"
                + (f" (got {issue['input']!r})" if issue["loc"] else "")
                for issue in error.errors()
            )
            raise ConfigurationError(f"{source}: {problems}") from None
        settings.refuse_promises(source)
        return settings

    def refuse_promises(self, source: str = "configuration") -> None:
        """Raises `ConfigurationError` for a setting whose promise is not kept yet. A bookie does so when it starts."""

    @classmethod
    def from_file(cls, path: str, *, text: str, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Build from the text of a properties file, `BK_*` variables and overrides; the later win."""
        try:
            values: dict[str, Any] = dict(parse_properties(text))
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None
        values.update(cls._from_environment(environ or {}))
        values.update({key: value for key, value in overrides.items() if value is not None})
        return cls.from_mapping(values, source=path)

    @classmethod
    def _from_environment(cls, environ: Mapping[str, str]) -> dict[str, str]:
        """The settings among the `BK_*` variables. Others, such as BK_HOME, have nothing to do with settings."""
        known = {*cls.known_keys(), *IGNORED_KEYS}
        found = {}
        for name, value in environ.items():
            key = name.removeprefix("BK_")
            if key == name:
                continue
            if key in known or key == "journalDirectory":  # the old name of journalDirectories
                found[key] = value
            elif near := _nearest(key, known):
                log.warning("the environment variable %s is no setting; did you mean BK_%s?", name, near)
        return found

    def changed_settings(self) -> dict[str, str]:
        """The settings that are not the defaults, written as in a file. Secrets are not shown."""
        fields = type(self).model_fields
        changed = self.model_dump(exclude_defaults=True)
        return {key: as_written(value) if fields[key].repr else "(hidden)" for key, value in changed.items()}

    @classmethod
    def known_keys(cls) -> Iterable[str]:
        return cls.model_fields.keys()

    @classmethod
    def _report_unknown(cls, values: Mapping[str, Any], source: str) -> None:
        known = set(cls.known_keys())
        for key in values:
            if key not in known and key not in IGNORED_KEYS:
                near = _nearest(key, known)
                hint = f"; did you mean {near}?" if near else ""
                log.warning("%s: unknown setting %s is ignored%s", source, key, hint)


MAX_ROCKS_MB = 1 << 20
MAX_ROCKS_BYTES = MAX_ROCKS_MB << 20
"""RocksDB's sizes: a terabyte is more than anybody means, and fits its numbers."""

_JAVA_ONLY = """
    enableLocalTransport disableServerSocketBind serverTcpLinger byteBufAllocatorSizeInitial
    byteBufAllocatorSizeMin byteBufAllocatorSizeMax serverNumIOThreads serverNumAcceptorThreads enableBusyWait
    numAddWorkerThreads maxPendingAddRequestsPerThread
    preserveMdcForTaskExecution journalWriteBufferSizeKB bookieDeathWatchInterval extraServerComponents
    ignoreExtraServerComponentsStartupFailures numLongPollWorkerThreads readWorkerThreadsThrottlingEnabled
    requestTimerTickDurationMs requestTimerNumTicks enableTaskExecutionStats journalAdaptiveGroupWrites
    journalReuseFiles journalChannelProvider numJournalCallbackThreads sortedLedgerStorageEnabled
    entryLogFilePreallocationEnabled flushEntrylogBytes readBufferSizeBytes writeBufferSizeBytes
    numOfMemtableFlushThreads entrylogMapAccessExpiryTimeInSeconds maximumNumberOfActiveEntryLogs
    entryLogPerLedgerCounterLimitsMultFactor skipListArenaChunkSize skipListArenaMaxAllocSize
    fileInfoCacheInitialCapacity
    dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB dbStorage_directIOEntryLoggerTotalReadBufferSizeMB
    dbStorage_directIOEntryLoggerReadBufferSizeMB dbStorage_directIOEntryLoggerMaxFdCacheTimeSeconds
    dbStorage_rocksDB_numLevels dbStorage_rocksDB_format_version
    dbStorage_rocksDB_checksum_type dbStorage_rocksDB_logPath dbStorage_rocksDB_logLevel defaultRocksdbConf
    entryLocationRocksdbConf ledgerMetadataRocksdbConf maxOperationNumbersInSingleRocksdbWriteBatch
    gcEntryLogMetadataCacheEnabled gcEntryLogMetadataCachePath tlsProvider
    registrationManagerClass metastoreImplClass metastoreMaxEntriesPerScan ledgerIdFormatterClass
    entryFormatterClass ledgerManagerFactoryDisableClassCheck enableHealthCheck enableStatistics
    codahaleStatsPrefix codahaleStatsOutputFrequencySeconds codahaleStatsGraphiteEndpoint
    codahaleStatsCSVEndpoint codahaleStatsSlf4jEndpoint codahaleStatsJmxEndpoint limitStatsLogging
    httpServerClass httpServerKeyStorePath httpServerKeyStorePassword httpServerTrustStorePath
    httpServerTrustStorePassword entryLogPerLedgerEnabled fileInfoFormatVersionToWrite fileInfoMaxIdleTime
    openFileLimit pageLimit pageSize skipListSizeLimit
    reppEnableValidation reppDisallowBookiePlacementInRegionFeatureName
    reppDisableDurabilityFeatureName allocatorPoolingConcurrency allocatorOutOfMemoryPolicy
    allocatorLeakDetectionPolicy allocatorExitOnOutOfMemory storageserver.grpc.port dlog.bkcEnsembleSize
    dlog.bkcWriteQuorumSize dlog.bkcAckQuorumSize storage.range.store.dirs storage.serve.readonly.tables
    storage.cluster.controller.schedule.interval.ms
"""

IGNORED_KEYS: frozenset[str] = frozenset(_JAVA_ONLY.split())
"""Keys of the Java system without a meaning here."""


class StoreSettings(Settings):
    """What bookies and clients say alike: of the metadata store (spec metadata §11), and of memory."""

    allocatorPoolingPolicy: Literal["PooledDirect", "UnpooledHeap"] = "PooledDirect"
    """Whether the process keeps memory of large objects that it freed, up to 64 MB, for the next ones (glibc), instead
    of giving it back to the system each time: PooledDirect. Once kept it stays so for the whole process."""
    metadataServiceUri: str | None = None
    zkServers: str | None = None
    zkLedgersRootPath: str = "/ledgers"
    zkTimeout: int = Field(10000, gt=0)
    zkEnableSecurity: bool = False
    zkRequestRateLimit: float = 0
    zkRetryBackoffStartMs: int | None = Field(None, gt=0)
    zkRetryBackoffMaxMs: int | None = Field(None, gt=0)
    zkRetryBackoffMaxRetries: int = Field(2**31 - 1, ge=0)
    zkMaxOutstandingRequests: int = Field(64, gt=0, le=200)
    """Requests to ZooKeeper under way at once; further ones wait. Not a Java key."""
    zkJuteMaxBuffer: int = Field(1_048_575, ge=4096)
    """The `jute.maxbuffer` of the ZooKeeper servers: the largest request that they take, in bytes. Not a Java key."""
    zkAuth: str | None = Field(None, repr=False)
    """Who we are to ZooKeeper, `scheme:credentials`, as in `digest:user:password`. Not a Java key."""
    ledgerManagerType: str | None = None
    allowShadedLedgerManagerFactoryClass: bool = False
    shadedLedgerManagerFactoryClassPrefix: str = "dlshade."
    ledgerManagerFactoryClass: str | None = None
    ledgerMetadataVersion: int = -1


class ServerConfiguration(StoreSettings):
    """A bookie's settings (spec bookie-server §6.3, bookie-storage §13)."""

    # identity and network
    bookieId: str | None = None
    bookiePort: int = Field(3181, ge=0, le=65535)
    allowEphemeralPorts: bool = False
    advertisedAddress: str | None = None
    listeningInterface: str | None = None
    useHostNameAsBookieID: bool = False
    useShortHostName: bool = False
    allowLoopback: bool = False
    nettyMaxFrameSizeBytes: int = Field(5242880, ge=1024)
    serverTcpNoDelay: bool = True
    serverSockKeepalive: bool = True
    serverTcpKeepIdle: int = -1
    serverTcpKeepIntvl: int = -1
    serverTcpKeepCnt: int = -1
    serverWriteBufferLowWaterMark: int = Field(393216, gt=0)
    serverWriteBufferHighWaterMark: int = Field(524288, gt=0)
    permittedStartupUsers: StringList | None = None

    # limits
    maxPendingReadRequestsPerThread: int = 10000
    numReadWorkerThreads: int = Field(8, gt=0)
    numHighPriorityWorkerThreads: int = 8
    maxAddsInProgressLimit: int = 0
    maxReadsInProgressLimit: int = 0
    maxBatchReadSize: int = Field(5242880, gt=0)
    waitTimeoutOnResponseBackpressureMs: int = 60000
    """A peer that has taken none of its answers for so long is given up. Java's default is -1, which is never."""
    closeChannelOnResponseTimeout: bool = True
    """How it is given up: its connection is closed; or, as is Java's default, its answers are dropped."""
    requestMemoryMaxSizeMb: int | None = Field(None, gt=0)
    """Memory of requests and answers of all connections together: frames that have begun, requests that wait, answers
    that are not taken. Unset: a quarter of the budget of the caches; never less than 16 of the largest frames. Beyond
    it, connections of the peer that holds most are closed. Not a Java key."""
    peerLoopSharePercent: int = Field(12, gt=0, le=100)
    """Of the event loop's time, that a peer (all that comes from one address) has in any case. One that wants more has
    to wait in the first milliseconds after each request of a peer that wants less. 100: none waits; peers still take
    turns. Not a Java key."""
    maxConnections: int = Field(10000, gt=0)
    """Connections served at once, as far as the process may have open files; beyond it the longest idle one is closed,
    or the new one. Not a Java key."""
    maxConnectionsPerPeer: int = 0
    """Of these, connections from one address; 0: three quarters. Not a Java key."""
    reservedFileDescriptors: int | None = Field(None, ge=0)
    """Open files that are kept from connections, for journals, entry logs and indexes; unset: half of what the process
    may have (`ulimit -Hn`), at most 1024. Not a Java key."""
    firstRequestTimeoutMs: int = Field(60000, gt=0)
    """A connection that has sent nothing for so long since it was opened is closed. Not a Java key."""
    idleConnectionEvictionMs: int = Field(60000, ge=0)
    """A connection with nothing asked for so long may be closed when there is no room for a new one, and only then.
    Not a Java key."""
    maxLongPolls: int = Field(50000, gt=0)
    """Waiting long polls of the bookie. A connection may have a quarter of what is left of them, or 16; more get
    ETOOMANYREQUESTS. Not a Java key."""
    maxLongPollsPerLedger: int = Field(20000, gt=0)
    """The same of one ledger. Not a Java key."""
    maxLongPollsPerConnection: int = Field(10000, gt=0)
    """Waiting long polls of one connection; more get ETOOMANYREQUESTS. Not a Java key."""
    longPollMaxTimeoutMs: int = Field(600000, gt=0)
    """Longest wait of a long poll, whatever the client asks for. Not a Java key."""
    frameCompletionTimeoutMs: int = Field(30000, gt=0)
    """A started frame must be complete within this time, or its connection is closed. Not a Java key."""
    ledgerHandleCacheSize: int = Field(100000, gt=0)
    """Ledgers whose key, fence and LAC are kept at hand; idle ones beyond it are dropped. Not a Java key."""
    shutdownTimeoutMs: int = Field(60000, gt=0)
    """At an orderly stop, the longest wait for everything to be written and closed; then the process ends as it is, and
    the next start replays the journal. Not a Java key."""
    shutdownDrainTimeoutMs: int = Field(2000, ge=0)
    """At an orderly stop, the longest wait for adds in flight before connections are closed. Not a Java key."""

    # directories, disks, state
    journalDirectories: StringList = Field(default_factory=lambda: ["/tmp/bk-txn"])
    ledgerDirectories: StringList = Field(default_factory=lambda: ["/tmp/bk-data"])
    indexDirectories: StringList | None = None
    allowStorageExpansion: bool = False
    allowMultipleDirsUnderSameDiskPartition: bool = True
    diskUsageThreshold: float = Field(0.95, gt=0, lt=1)
    diskUsageWarnThreshold: float = Field(0.90, gt=0, lt=1)
    diskUsageLwmThreshold: float | None = None
    diskCheckInterval: int = Field(10000, gt=0)
    readOnlyModeEnabled: bool = True
    readOnlyModeOnAnyDiskFullEnabled: bool = True
    forceReadOnlyBookie: bool = False
    persistBookieStatusEnabled: bool = False
    localConsistencyCheckOnStartup: bool = False
    """Look at all entries right after the start, beside serving."""
    localScrubInterval: int = 0
    """Seconds between two runs of the scrubber, give or take half of them; 0 or less: none."""
    localScrubRateLimit: float = Field(60, ge=0)
    """Entries that the scrubber looks at in a second; 0: no limit."""
    localRepairQueueSize: int = Field(10_000, ge=0)
    """Damaged entries that wait to be fetched from other bookies, at most; 0: damage is only reported. Not a Java key.
    """
    sanityCheckMetricsEnabled: bool = False
    dataIntegrityChecking: bool = False
    dataIntegrityStampMissingCookies: bool = False
    dataIntegrityRateByBytes: int = Field(-1, ge=-1)
    """How many bytes a second a bookie copies from others at most, to make up for entries that it lost; -1: no limit.
    Not a Java key."""

    # journal
    journalFormatVersionToWrite: int = Field(6, ge=4, le=6)
    journalMaxSizeMB: int = Field(2048, gt=0)
    journalMaxBackups: int = Field(5, ge=0)
    journalPreAllocSizeMB: int = Field(16, gt=0)
    journalRemoveFromPageCache: bool = True
    journalSyncData: bool = True
    journalWriteData: bool = True
    journalMaxGroupWaitMSec: int = 2
    journalBufferedWritesThreshold: int = 524288
    journalBufferedEntriesThreshold: int = 0
    journalFlushWhenQueueEmpty: bool = False
    journalAlignmentSize: int = 512
    journalQueueSize: int = Field(10000, gt=0)
    journalMaxMemorySizeMb: int | None = None
    journalPageCacheFlushIntervalMSec: int = 1000
    skipReplayJournalInvalidRecord: bool = False

    # ledger storage
    ledgerStorageClass: str = "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"
    flushInterval: int = Field(10000, gt=0)
    logSizeLimit: int = Field(1 << 30, ge=0, le=1 << 30)
    minUsableSizeForEntryLogCreation: int | None = None
    minUsableSizeForIndexFileCreation: int = 100 << 20
    minUsableSizeForHighPriorityWrites: int | None = None
    minUsableSizeForJournalWrites: int | None = Field(None, ge=0)
    """Bytes left on a journal's disk, below which the bookie is read-only; unset: four times journalPreAllocSizeMB. Not
    a Java key."""
    directMemoryBudgetMb: int | None = Field(None, gt=0)
    """Memory of which caches get shares by default, where Java takes its maximum direct memory; unset: a quarter of the
    machine's memory, at most 2048. Not a Java key."""
    dbStorage_writeCacheMaxSizeMb: int | None = Field(None, gt=0)
    dbStorage_readAheadCacheMaxSizeMb: int | None = Field(None, gt=0)
    dbStorage_readAheadCacheBatchSize: int = Field(100, ge=0)
    dbStorage_readAheadCacheBatchBytesSize: int = -1
    dbStorage_maxThrottleTimeMs: int = Field(10000, ge=0)
    dbStorage_directIOEntryLogger: AutoBool = "auto"
    """Whether entry logs are written past the page cache (O_DIRECT): true, false, or auto (not a Java value), which is
    while a directory flushes for most of the time, entries are of 4 KB and more on average, and few are read from the
    logs. The format stays the same."""
    dbStorage_reservedSpaceMb: int = Field(64, ge=0)
    """Kept in each index directory for what must be written on a full disk (fences, deletions, a start); at most 1/32
    of the file system. Not a Java key."""
    dbStorage_rocksDB_blockCacheSize: int | None = Field(None, ge=0, le=MAX_ROCKS_BYTES)
    dbStorage_rocksDB_writeBufferSizeMB: int = Field(16, gt=0, le=MAX_ROCKS_MB)
    """Java's default is 64: with up to four of them, that would be as much memory as all caches."""
    dbStorage_rocksDB_sstSizeInMB: int = Field(64, gt=0, le=MAX_ROCKS_MB)
    dbStorage_rocksDB_blockSize: int = Field(65536, gt=0, le=1 << 30)
    dbStorage_rocksDB_bloomFilterBitsPerKey: int = 10
    dbStorage_rocksDB_numFilesInLevel0: int = Field(16, gt=0, le=10_000)
    """From how many files of the size of a write buffer on RocksDB merges them into those that it has. Java's default
    is 4, of buffers four times as large."""
    dbStorage_rocksDB_maxSizeInLevel1MB: int = Field(256, gt=0, le=MAX_ROCKS_MB)
    dbStorage_rocksDB_lz4CompressionEnabled: bool = True

    # garbage collection and compaction
    gcWaitTime: int = Field(600000, gt=0)
    gcMetadataOpRateLimit: float = 1000
    gcEntryLogMetadataCacheMaxLedgers: int = Field(1_000_000, ge=0)
    """Ledgers, added up over all entry logs, of which garbage collection remembers how many bytes a log has: about 90
    bytes of memory each. For logs beyond it reads that again in each pass. Not a Java key."""
    gcOverreplicatedLedgerWaitTime: int = 86400000
    gcOverreplicatedLedgerMaxConcurrentRequests: int = Field(1000, gt=0)
    verifyMetadataOnGC: bool = False
    isForceGCAllowWhenNoSpace: bool = False
    forceAllowCompaction: bool = False
    minorCompactionThreshold: float = 0.2
    minorCompactionInterval: int = 3600
    minorCompactionMaxTimeMillis: int = -1
    majorCompactionThreshold: float = 0.8
    majorCompactionInterval: int = 86400
    majorCompactionMaxTimeMillis: int = -1
    isThrottleByBytes: bool = False
    compactionRate: float = 1000
    compactionRateByEntries: float | None = None
    compactionRateByBytes: float = 1000000
    compactionMaxOutstandingRequests: int = Field(100000, gt=0)
    entryLocationCompactionInterval: int = -1
    useTransactionalCompaction: bool = False
    useTargetEntryLogSizeForGc: bool = False

    # security
    bookieAuthProviderFactoryClass: str | None = None
    authorizedRoles: StringList | None = None
    tlsProviderFactoryClass: str | None = None
    tlsClientAuthentication: bool = False
    tlsKeyStoreType: str = "JKS"
    tlsKeyStore: str | None = None
    tlsKeyStorePasswordPath: str | None = None
    tlsTrustStoreType: str = "JKS"
    tlsTrustStore: str | None = None
    tlsTrustStorePasswordPath: str | None = None
    tlsCertificatePath: str | None = None
    tlsCertFilesRefreshDurationSeconds: int = Field(0, ge=0)
    tlsEnabledCipherSuites: StringList | None = None
    tlsEnabledProtocols: StringList | None = None

    # statistics and HTTP
    statsProviderClass: str | None = None
    prometheusStatsHttpEnable: bool = True
    prometheusStatsHttpAddress: str = "0.0.0.0"
    prometheusStatsHttpPort: int = Field(8000, ge=0, le=65535)
    prometheusStatsLatencyRolloverSeconds: int = Field(60, gt=0)
    exposeDefaultJVMMetrics: bool = True
    httpServerEnabled: bool = False
    httpServerPort: int = Field(8080, ge=0, le=65535)
    httpServerHost: str = "0.0.0.0"
    httpServerTlsEnable: bool = False

    # auto-recovery in the bookie's process
    autoRecoveryDaemonEnabled: bool = False
    auditorPeriodicCheckInterval: int = 604800
    auditorPeriodicBookieCheckInterval: int = 86400
    auditorPeriodicPlacementPolicyCheckInterval: int = 0
    auditorReplicasCheckInterval: int = 0
    auditorLedgerVerificationPercentage: int = Field(0, ge=0, le=100)
    auditorMaxNumberOfConcurrentOpenLedgerOperations: int = Field(500, gt=0)
    auditorAcquireConcurrentOpenLedgerOperationsTimeOutMSec: int = Field(120000, gt=0)
    inFlightReadEntryNumInLedgerChecker: int = -1
    lostBookieRecoveryDelay: int = Field(0, ge=0)
    underreplicatedLedgerRecoveryGracePeriod: int = 0
    repairedPlacementPolicyNotAdheringBookieEnabled: bool = False
    openLedgerRereplicationGracePeriod: int = 30000
    lockReleaseOfFailedLedgerGracePeriod: int = 300000
    rwRereplicateBackoffMs: int = Field(5000, gt=0)
    rwLedgersAtOnce: int = Field(4, gt=0, le=100)
    """Ledgers that a replication worker makes whole at the same time."""
    rereplicationEntryBatchSize: int = Field(10, gt=0)
    replicationRateByBytes: int = -1
    """Bytes that a process copies in a second; not positive: see `replicationTimeShare`."""
    replicationTimeShare: float = Field(0.05, gt=0, le=1)
    """Of the time, in which a process copies where there is no rate; 1: as fast as it goes."""
    zkReplicationTaskRateLimit: float = 0
    storeSystemTimeAsLedgerUnderreplicatedMarkTime: bool = True

    _of_clients: dict[str, Any] = PrivateAttr(default_factory=dict)
    """What was given for clients, as it was given."""

    def client_settings(self) -> ClientConfiguration:
        """Of the clients inside a bookie's process, from the same file. Raises `ConfigurationError`."""
        return ClientConfiguration.from_mapping(self._of_clients, source="the settings of clients")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, source: str = "configuration") -> Self:
        """Build from keys and values. Raises `ConfigurationError` naming each bad key."""
        given = dict(values)
        if given.get("bookieId") == "":
            raise ConfigurationError(f"{source}: bookieId is empty: give the bookie a name, or remove the line")
        alias = given.pop("journalDirectory", None)
        if alias and not given.get("journalDirectories"):
            given["journalDirectories"] = [alias]
        settings = super().from_mapping(given, source=source)
        settings._of_clients.update({key: given[key] for key in ClientConfiguration.model_fields if key in given})
        return settings

    @classmethod
    def known_keys(cls) -> Iterable[str]:
        """Also the client's keys: the clients inside a bookie's process read the same file."""
        return [*cls.model_fields, *ClientConfiguration.model_fields]


class ClientConfiguration(StoreSettings):
    """A client's settings (spec client §15)."""

    def refuse_promises(self, source: str = "configuration") -> None:
        reason = refusal(self, REFUSED_BY_CLIENTS)
        if reason is not None:
            raise ConfigurationError(f"{source}: {reason}")

    enableBookieAddressTracking: bool = True
    storeSystemTimeAsLedgerCreationTime: bool = False
    enableDigestTypeAutodetection: bool = True
    protocol: str = Field("auto", pattern="^(auto|v2|v3)$")
    useV2WireProtocol: bool = False
    nettyMaxFrameSizeBytes: int = Field(5242880, ge=1024)
    numChannelsPerBookie: int = Field(1, gt=0)
    clientConnectTimeoutMillis: int = Field(10000, gt=0)
    clientTcpNoDelay: bool = True
    clientSockKeepalive: bool = True
    clientSendBufferSize: int | None = Field(None, ge=0)
    clientReceiveBufferSize: int | None = Field(None, ge=0)
    clientTcpUserTimeoutMillis: int | None = Field(None, ge=0)
    tcpKeepIdle: int | None = None
    tcpKeepIntvl: int | None = None
    tcpKeepCnt: int | None = None
    clientWriteBufferLowWaterMark: int = Field(393216, gt=0)
    clientWriteBufferHighWaterMark: int = Field(524288, gt=0)
    maxOutstandingRequestsPerChannel: int = Field(100000, gt=0)
    """Requests, adds aside, that may wait for an answer on one connection; more fail with TooManyRequests."""
    bookieAddressResolverEnabled: bool = True
    """False: a bookie's id is always taken for its `host:port`."""
    readTimeout: int = 5
    addEntryTimeoutSec: float | None = None
    readEntryTimeoutSec: float | None = None
    addEntryQuorumTimeoutSec: float = -1
    timeoutMonitorIntervalSec: float | None = None
    getBookieInfoTimeoutSecs: float = 5
    metadataTimeoutSec: float = 60
    """Longest wait for one answer of the metadata store; zero or less: for ever. Not a Java key."""
    speculativeReadTimeout: int = 2000
    firstSpeculativeReadTimeout: int | None = None
    maxSpeculativeReadTimeout: int | None = None
    speculativeReadTimeoutBackoffMultiplier: float = 2.0
    firstSpeculativeReadLACTimeout: int = 1500
    maxSpeculativeReadLACTimeout: int = 5000
    speculativeReadLACTimeoutBackoffMultiplier: float = 2.0
    reorderReadSequenceEnabled: bool = True
    stickyReadSEnabled: bool = False
    readEntriesWindow: int = Field(1024, gt=0)
    """Entry reads that one range read keeps outstanding."""
    readEntriesWindowBytes: int = Field(4 << 20, gt=0)
    """The same in bytes, going by the size of the entries read before; one entry at least."""
    tailRetryLimit: int = Field(10, ge=0)
    """Failed waits in a row, until following an open ledger gives up."""
    enableBookieFailureTracking: bool = True
    bookieFailureHistoryExpirationMSec: int = Field(60000, ge=0)
    """How long a bookie that was slow to answer is asked last."""
    bookieHealthCheckEnabled: bool = False
    bookieHealthCheckIntervalSeconds: float = Field(60, gt=0)
    bookieErrorThresholdPerInterval: int = Field(100, gt=0)
    bookieQuarantineTimeSeconds: float = Field(1800, ge=0)
    bookieQuarantineRatio: float = Field(1.0, ge=0, le=1)
    bookieConnectionErrorQuarantineEnabled: bool = False
    batchReadEnabled: bool = True
    recoveryReadBatchSize: int = Field(1, gt=0)
    delayEnsembleChange: bool = False
    maxNumEnsembleChanges: int = 2**31 - 1
    opportunisticStriping: bool = False
    explicitLacInterval: int = Field(300, ge=0)
    """Milliseconds that a writer is quiet, until it tells the bookies its LAC, so that readers of the open ledger see
    its last entry; twice as long after the last append at most. 0: never."""
    throttle: int = Field(0, ge=0)
    maxPendingAddBytes: int = Field(64 << 20, gt=0)
    """Bytes of frames that one writer may have without an answer from every bookie asked; more appends wait."""
    maxPendingAddEntries: int = Field(50000, gt=0)
    """The same in entries."""
    disabledEnsembleChangeResendMillis: int = Field(500, gt=0)
    """Pause before a failed bookie is tried again while `disable_ensemble_change` is on."""
    enforceMinNumFaultDomainsForWrite: bool = False

    # placement
    ensemblePlacementPolicy: str = "org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy"
    """A policy by the name of its Java class, with or without the package, or `module:Class` for one of one's own."""
    reppDnsResolverClass: str = "org.apache.bookkeeper.net.ScriptBasedMapping"
    """The same for who knows where bookies stand."""
    networkTopologyScriptFileName: str | None = None
    networkTopologyScriptNumberArgs: int = Field(100, gt=0)
    networkTopologyScriptTimeoutMillis: int = Field(10000, gt=0)
    """How long one run of the script may take. Not a Java key."""
    networkTopologyStabilizePeriodSeconds: float = Field(0, ge=0)
    ignoreLocalNodeInPlacementPolicy: bool = False
    useHostnameResolveLocalNodePlacementPolicy: bool = False
    allowCopiesOnOneHost: bool = False
    """Whether a ledger may have two bookies of one machine, which are lost together. A bookie's machine is the host in
    its id; one with a `bookieId` of its own, or on a loopback address, counts as a machine. Not a Java key."""
    minNumRacksPerWriteQuorum: int = Field(2, gt=0)
    enforceMinNumRacksPerWriteQuorum: bool = False
    reppRegionsToWrite: RegionList | None = None
    reppMinimumRegionsForDurability: int | None = Field(None, ge=0)
    reppEnableDurabilityEnforcementInReplace: bool = True
    minNumZonesPerWriteQuorum: int = Field(2, gt=0)
    desiredNumZonesPerWriteQuorum: int = Field(3, gt=0)
    enforceStrictZoneawarePlacement: bool = True
    diskWeightBasedPlacementEnabled: bool = False
    bookieMaxMultipleForWeightBasedPlacement: float = Field(3, ge=0)
    getBookieInfoIntervalSeconds: float = Field(86400, gt=0)
    getBookieInfoRetryIntervalSeconds: float = Field(60, gt=0)
    readReorderThresholdPendingRequests: int = Field(0, ge=0)
    ensembleRandomReadReordering: bool = False

    # security
    tlsProviderFactoryClass: str | None = None
    clientAuthProviderFactoryClass: str | None = None
