"""The client: create, open, delete and list ledgers (spec client §3, §10.1, §12, §14.1).

    async with bookkeeper.connect("zk://zk1:2181/ledgers") as bk:
        async with bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"s") as ledger:
            entry_id = await ledger.append(b"hello")
        async with bk.open_ledger(ledger.id, password=b"s") as reader:
            async for entry in reader:
                print(entry.id, entry.data)

One client serves any number of ledgers. Everything it opens shares its session with the metadata store and its
connections to bookies, and ends with it: writers are not closed by that, their ledgers stay open for recovery
(§12.7).

A ledger is written once, by the writer that created it. After a restart a program creates another ledger; the old one,
if it was left open, is ended by `recover_ledger`. docs/client.md shows how.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Generator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from ..config import ClientConfiguration
from ..errors import (
    BKError,
    BookKeeperError,
    ClientClosedError,
    DigestMismatchError,
    IllegalOpError,
    IncorrectParameterError,
    LedgerExistError,
    LedgerRecoveryError,
    MetadataError,
    MetadataVersionError,
    NotEnoughBookiesError,
    ReadError,
    RequestTimeoutError,
    UnauthorizedError,
    from_code,
)
from ..metadata import configured_service_uri, open_driver
from ..metadata.api import ANY, MetadataDriver, Mode, Versioned
from ..metadata.ledger_metadata import CURRENT_FORMAT_VERSION, LedgerMetadata
from ..protocol.availability import Availability, decode_availability
from ..protocol.digest import Digest, digest_for, master_key
from ..protocol.messages import (
    FREE_SPACE,
    TOTAL_CAPACITY,
    GetBookieInfoRequest,
    GetBookieInfoResponse,
    GetListOfEntriesRequest,
    GetListOfEntriesResponse,
    Request,
    Response,
)
from ..runtime import Runtime, TaskScope
from ..runtime.real import RealRuntime
from ..types import MAX_LEDGER_ID, BookieId, DigestType, LedgerState, Quorums, WriteFlag
from .arguments import (
    LedgerShape,
    check_digest,
    check_integer,
    check_ledger_id,
    check_new_ledger_id,
    check_password,
    check_write_flags,
    custom_metadata_of,
)
from .context import ClientContext
from .opening import Opening
from .placement.free_space import FreeSpace
from .placement.placement import EnsemblePlacement
from .placement.quarantine import Quarantine
from .reader import LedgerReader
from .recovery import recover_ledger
from .stats import ClientStats
from .store import ClientStore, Home
from .wire.pool import ConnectionPool
from .wire.results import OK, default_code, from_metadata_error, operation_of, result_code
from .writer import LedgerAdvWriter, LedgerWriter

log = logging.getLogger(__name__)

RESERVED = "bookkeeper.reserved"
"""Custom metadata of a ledger that was made by `reserve_ledger` and has no writer yet."""

TOKEN_FORMAT = 3
"""The first metadata format that has room for the token of a claim."""


class BookieInfo(NamedTuple):
    """Disk space of a bookie, in bytes, over all its ledger directories."""

    total: int
    """Size of the file systems that they are on."""
    free: int
    """What is left of it."""


T = TypeVar("T")


def connect(
    uri: str | None = None,
    *,
    config: ClientConfiguration | None = None,
    runtime: Runtime | None = None,
    driver: MetadataDriver | None = None,
) -> BookKeeper:
    """A client of the cluster whose metadata store is at `uri`.

    Use it as `async with bookkeeper.connect(...) as bk`, or `bk = await bookkeeper.connect(...)` and `await
    bk.close()` at the end. The call itself does no I/O.

    - `uri`: `zk://host:2181/ledgers`, `sqlite:///path/meta.db` and so on. None: `metadataServiceUri` of `config`.
    - `config`: time-outs, limits, placement. None: the defaults. A bookie's settings are not for clients.
    - `runtime`: clock, network and disk. None: the real ones; tests give a simulated one.
    - `driver`: a metadata driver of your own, not yet opened, instead of one for `uri`.

    Raises `ConfigurationError` for a bad address or a setting that is not supported. Awaiting or entering the client
    raises `MetadataStoreError`, after `metadataTimeoutSec` seconds at the latest; then connect again.
    """
    runtime = runtime if runtime is not None else RealRuntime()
    config = config if config is not None else ClientConfiguration.from_mapping({})
    name = uri if uri is not None else "(given as a driver)"
    config.refuse_promises()
    if config.allocatorPoolingPolicy == "PooledDirect":
        runtime.keep_freed_memory()
    if driver is None:
        name = uri if uri is not None else configured_service_uri(config)
        driver = open_driver(name, runtime, config)
    return BookKeeper(runtime, config, driver, name)


class BookKeeper:
    """A client. See the module; make one with `connect`.

    Every operation raises `ClientClosedError` after `close`, and `MetadataStoreError` when the metadata store fails.
    """

    def __init__(
        self, runtime: Runtime, config: ClientConfiguration, driver: MetadataDriver, store: str = "(unnamed)"
    ) -> None:
        """`store` is what errors call the metadata store."""
        self._runtime = runtime
        self._config = config
        self._store_name = store
        self._home = Home()
        self._driver = ClientStore(driver, self._home, store, config.metadataTimeoutSec)
        self._tasks = TaskScope(runtime, "client")
        stats = ClientStats()
        self._quarantine = Quarantine(runtime, config, driver.flags.health_check_enabled)
        self._bookies = ConnectionPool(runtime, config, self._driver.discovery, on_failure=self._quarantine.failed)
        self._placement = EnsemblePlacement(
            runtime,
            config,
            self._driver.discovery,
            stats=stats,
            quarantined=self._quarantine,
            pending=self._bookies.pending,
        )
        self.context = ClientContext(
            runtime=runtime,
            config=config,
            driver=self._driver,
            bookies=self._bookies,
            placement=self._placement,
            tasks=self._tasks,
            stats=stats,
            departures=self._bookies.departures,
            home=self._home,
        )
        """What everything opened here shares; for parts of this package."""
        self._connected = False
        self._closing: asyncio.Task[None] | None = None

    # --- life ---

    def __await__(self) -> Generator[Any, None, Self]:
        return self._connect().__await__()

    async def __aenter__(self) -> Self:
        return await self._connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _connect(self) -> Self:
        if self._connected:
            raise IllegalOpError("the client is connected already")
        self._connected = True
        self._home.settle()
        try:
            await self._driver.open()
            await self._placement.start(self._tasks)
            if self._config.bookieHealthCheckEnabled:
                self._tasks.spawn(self._quarantine.run(), name="bookie health check")
            if self._config.diskWeightBasedPlacementEnabled:
                self._weigh_bookies()
        except BaseException as error:
            await self.close()
            if isinstance(error, MetadataError):
                raise from_metadata_error(error) from error
            raise
        return self

    def _weigh_bookies(self) -> None:
        async def free(bookie: BookieId) -> int | None:
            space = await self.bookie_space(bookie)
            return None if space is None else space.free

        room = FreeSpace(self._runtime, self._config, self._placement.bookies, free)
        self._placement.draw.free_space = room.known
        self._tasks.spawn(room.run(), name="free space of bookies")

    async def close(self) -> None:
        """End the client: outstanding requests fail with `ClientClosedError`, the session ends. Idempotent.

        Writers are not closed: their ledgers stay open, for recovery. Cancelling it does not stop the end: it goes on
        by itself, and another call waits for it.
        """
        self._home.check()
        self.context.closed = True
        if self._closing is None or self._closing.cancelled():
            self._closing = self._runtime.spawn(self._end(), name="close of the client")
        await asyncio.shield(self._closing)

    async def _end(self) -> None:
        """Every part ends, also when one before it fails to."""
        self._driver.end_calls()
        self.context.end_resting()
        try:
            await self._bookies.close()
        finally:
            try:
                await self._tasks.close()
            finally:
                await self._driver.close()

    def __repr__(self) -> str:
        state = "closed" if self.context.closed else "connected" if self._connected else "not connected"
        return f"<BookKeeper of {self._store_name}: {state}>"

    @property
    def service_uri(self) -> str:
        """Address of its metadata store, as `connect` was told; a remark in brackets if that was given a driver."""
        return self._store_name

    def _check_open(self) -> None:
        self._home.check()
        if self.context.closed:
            raise ClientClosedError
        if not self._connected:
            raise IllegalOpError("the client is not connected: use `async with bookkeeper.connect(...)`, or await it")

    async def _metadata(self, operation: Awaitable[T], ledger_id: int | None = None) -> T:
        """Wait for an operation of the metadata store; its errors become the client's.

        A client that was closed meanwhile gives no handle, whatever the store did.
        """
        try:
            result = await operation
        except MetadataError as error:
            raise self._as_client_error(error, ledger_id) from error
        if self.context.closed:
            raise ClientClosedError(ledger_id=ledger_id)
        return result

    def _as_client_error(self, error: MetadataError, ledger_id: int | None) -> BKError:
        if self.context.closed:
            return ClientClosedError(ledger_id=ledger_id)
        return from_metadata_error(error, ledger_id)

    # --- creating ---

    def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        password: bytes = b"",
        digest: DigestType = DigestType.CRC32C,
        custom_metadata: Mapping[str, bytes] | None = None,
        write_flags: WriteFlag = WriteFlag.NONE,
    ) -> Opening[LedgerWriter]:
        """A new ledger, open for appending.

        - `ensemble_size`: bookies that share the ledger. Above `write_quorum` entries are striped over them. When one
          fails, another takes its place.
        - `write_quorum`: bookies that store each entry; `ensemble_size` at most.
        - `ack_quorum`: bookies that must have an entry on disk before its append is done. The ledger survives the loss
          of `ack_quorum - 1` bookies at any moment. With 1 an acknowledged entry may be on a single disk: the loss of
          that bookie loses it, and recovery of the ledger needs every bookie of the entry's write set to answer.
        - `password`: needed to open the ledger. Kept in clear in the metadata store.
        - `digest`: how each entry is protected, and checked when it is read. CRC32C (4 bytes) and CRC32 (8) find
          damage. MAC (20) also finds forgery by anyone without the password. DUMMY (0) is no protection: damage on a
          disk or on the way is handed to the reader as data.
        - `custom_metadata`: names and values kept in the ledger's record, for programs that list ledgers.
        - `write_flags`: with DEFERRED_SYNC an append is done before its entry is on disk. A power failure may lose it
          until `force` has made it durable. Readers see entries only after `force`.

        Raises `IncorrectParameterError` for sizes that do not descend to 1 or more, `NotEnoughBookiesError` when fewer
        than `ensemble_size` bookies take writes, `LedgerIdOverflowError`. When it is cancelled, a record that was made
        already is removed again, if the store allows (best effort).
        """

        async def create() -> LedgerWriter:
            check_write_flags(write_flags)
            custom = custom_metadata_of(custom_metadata)
            shape = LedgerShape(Quorums(ensemble_size, write_quorum, ack_quorum), password, digest, custom)
            metadata = await self._create(shape, None)
            return LedgerWriter(self.context, metadata, *shape.keys(), write_flags=write_flags)

        return Opening(create(), "BookKeeper.create_ledger")

    def create_ledger_adv(
        self,
        *,
        ledger_id: int | None = None,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        password: bytes = b"",
        digest: DigestType = DigestType.CRC32C,
        custom_metadata: Mapping[str, bytes] | None = None,
        write_flags: WriteFlag = WriteFlag.NONE,
    ) -> Opening[LedgerAdvWriter]:
        """A new ledger whose entry ids the caller chooses, and its own id too if wanted.

        - `ledger_id`: the id, 0 to 2**63 - 1. None: the store gives the next free one.
        - the others: as `create_ledger`.

        Raises as `create_ledger`, and `LedgerExistError` if there is a ledger with `ledger_id`.
        """

        async def create() -> LedgerAdvWriter:
            check_new_ledger_id(ledger_id)
            check_write_flags(write_flags)
            custom = custom_metadata_of(custom_metadata)
            shape = LedgerShape(Quorums(ensemble_size, write_quorum, ack_quorum), password, digest, custom)
            metadata = await self._create(shape, ledger_id)
            return LedgerAdvWriter(self.context, metadata, *shape.keys(), write_flags=write_flags)

        return Opening(create(), "BookKeeper.create_ledger_adv")

    async def reserve_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        password: bytes = b"",
        digest: DigestType = DigestType.CRC32C,
        custom_metadata: Mapping[str, bytes] | None = None,
    ) -> int:
        """Create a ledger without a writer, and return its id; `claim_ledger` makes its one writer, anywhere.

        The arguments are those of `create_ledger`; write flags belong to the claim. Raises as `create_ledger`, and
        `IncorrectParameterError` with `ledgerMetadataVersion` 1 or 2, which have no room for the token of a claim.
        """
        if 0 <= self._config.ledgerMetadataVersion < TOKEN_FORMAT:
            raise IncorrectParameterError(
                f"reserving a ledger needs ledgerMetadataVersion {TOKEN_FORMAT} or newer: older formats have no "
                "token by which the one claim is recognised"
            )
        custom = {**custom_metadata_of(custom_metadata), RESERVED: b"1"}
        shape = LedgerShape(Quorums(ensemble_size, write_quorum, ack_quorum), password, digest, custom)
        return (await self._create(shape, None)).value.ledger_id

    def claim_ledger(
        self, ledger_id: int, *, password: bytes = b"", write_flags: WriteFlag = WriteFlag.NONE
    ) -> Opening[LedgerWriter]:
        """Become the writer of a reserved ledger. Only one caller ever does: each claim carries a random token, so that
        a claimer whose answer was lost cannot take another's record for its own.

        - `ledger_id`: what `reserve_ledger` returned.
        - `password`: the one that it was reserved with.
        - `write_flags`: as in `create_ledger`.

        Raises `NoSuchLedgerOnMetadataError`, `UnauthorizedError`, and `IllegalOpError` if it was claimed already or not
        reserved.
        """

        async def claim() -> LedgerWriter:
            check_password(password)
            check_write_flags(write_flags)
            self._check_open()
            stored = await self.get_versioned_metadata(ledger_id)
            digest, key = self._keys(stored.value, password, None)
            custom = dict(stored.value.custom_metadata)
            if stored.value.state is not LedgerState.OPEN or custom.pop(RESERVED, None) is None:
                raise IllegalOpError("the ledger is not reserved: it has, or had, a writer", ledger_id=ledger_id)
            if stored.value.format_version < TOKEN_FORMAT:
                raise IllegalOpError("the ledger's metadata format has no room for a claim", ledger_id=ledger_id)
            token = self._runtime.random("ledger-claim").randrange(1, MAX_LEDGER_ID)
            claimed = replace(stored.value, custom_metadata=custom, ctoken=token)
            try:
                mine = await self._metadata(self._driver.ledgers.write(ledger_id, claimed, stored.version), ledger_id)
            except MetadataVersionError as error:
                raise IllegalOpError("another client claimed the ledger first", ledger_id=ledger_id) from error
            return LedgerWriter(self.context, mine, digest, key, write_flags=write_flags)

        return Opening(claim(), "BookKeeper.claim_ledger")

    async def _create(self, shape: LedgerShape, ledger_id: int | None) -> Versioned[LedgerMetadata]:
        """Put a new ledger's record into the store."""
        shape.check()
        self._check_open()
        try:
            ensemble = self._choose_ensemble(shape)
        except NotEnoughBookiesError:
            if not await self._metadata(self.context.placement.refresh()):
                raise
            ensemble = self._choose_ensemble(shape)
        config = self._config
        version = config.ledgerMetadataVersion
        while True:
            wanted = ledger_id if ledger_id is not None else await self._metadata(self._driver.ids.allocate())
            metadata = LedgerMetadata(
                wanted,
                len(ensemble),
                shape.quorums.write_quorum,
                shape.quorums.ack_quorum,
                {0: tuple(ensemble)},
                digest_type=shape.digest,
                password=shape.password,
                ctime=self._runtime.wall_ms() if config.storeSystemTimeAsLedgerCreationTime else -1,
                store_ctime=config.storeSystemTimeAsLedgerCreationTime,
                custom_metadata=shape.custom_metadata,
                format_version=version if 1 <= version <= CURRENT_FORMAT_VERSION else CURRENT_FORMAT_VERSION,
            )
            try:
                return await self._register(wanted, metadata)
            except LedgerExistError:
                if ledger_id is not None:
                    raise
                # Another client chose this id before the allocator came to it.

    async def _register(self, ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        """Put the record there. If the caller goes away meanwhile it would have no owner: then it is removed again."""

        async def create() -> Versioned[LedgerMetadata] | MetadataError:
            try:
                return await self._driver.ledgers.create(ledger_id, metadata)
            except MetadataError as error:
                return error

        creating = self._tasks.spawn(create(), name=f"creation of ledger {ledger_id}")
        try:
            outcome = await asyncio.shield(creating)
        except asyncio.CancelledError:
            if self.context.closed:
                if creating.cancelled():  # with all the client's tasks
                    raise ClientClosedError(ledger_id=ledger_id) from None
            else:
                self._tasks.spawn(self._remove_orphan(ledger_id, creating), name=f"removal of ledger {ledger_id}")
            raise
        if isinstance(outcome, MetadataError):
            raise self._as_client_error(outcome, ledger_id) from outcome
        if self.context.closed:
            raise ClientClosedError(ledger_id=ledger_id)
        return outcome

    async def _remove_orphan(
        self, ledger_id: int, creating: asyncio.Task[Versioned[LedgerMetadata] | MetadataError]
    ) -> None:
        """Exactly the record that was made: another client's ledger has another version, or the creation failed."""
        outcome = await creating
        if isinstance(outcome, MetadataError):
            return
        try:
            await self._driver.ledgers.remove(ledger_id, outcome.version)
        except MetadataError as error:
            log.warning("ledger %d was created for a caller who has gone, and stays: %s", ledger_id, error)

    def _choose_ensemble(self, shape: LedgerShape) -> list[BookieId]:
        quorums = shape.quorums
        while True:
            try:
                return self.context.placement.new_ensemble(quorums, shape.custom_metadata)
            except NotEnoughBookiesError:
                if not self._config.opportunisticStriping or quorums.ensemble_size <= quorums.write_quorum:
                    raise
                quorums = quorums._replace(ensemble_size=quorums.ensemble_size - 1)

    # --- opening ---

    def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        digest: DigestType | None = None,
        recover: bool = False,
        keep_update_metadata: bool = False,
    ) -> Opening[LedgerReader]:
        """A ledger, to be read. It changes nothing and disturbs no writer, unless `recover` asks for it.

        A ledger that is not closed is open up to its last add confirmed (LAC), asked of the bookies now: entries that
        are acknowledged but not known to be, usually the last ones, are not seen yet. The reader follows the ledger as
        it grows: see `LedgerReader.tail` and `read_last_add_confirmed`.

        - `password`: the one that the ledger was created with.
        - `digest`: only for stores whose records name none. None: what the record says.
        - `recover`: end a ledger that is not closed first, as `recover_ledger` does. It fences the writer off.
        - `keep_update_metadata`: follow the metadata of a closed ledger, too. Re-replication may move its fragments.

        Raises `NoSuchLedgerOnMetadataError`, `UnauthorizedError` for a wrong password, `DigestMismatchError`,
        `ReadError`, `RequestTimeoutError`; with `recover` also `LedgerRecoveryError` (try again).
        """

        async def open_it() -> LedgerReader:
            check_password(password)
            if digest is not None:
                check_digest(digest)
            metadata = await self.get_versioned_metadata(ledger_id)
            digest_, key = self._keys(metadata.value, password, digest)
            return await self._open(metadata, digest_, key, recover, keep_update_metadata)

        return Opening(open_it(), "BookKeeper.open_ledger")

    def recover_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        digest: DigestType | None = None,
        keep_update_metadata: bool = False,
    ) -> Opening[LedgerReader]:
        """End a ledger for good, and open it to be read: `open_ledger` with `recover`.

        For a ledger whose writer is gone. A writer that is alive after all is fenced off: its next append fails. Then
        every entry that was acknowledged is found, the ledger is closed behind the last one, and is never written
        again. A ledger that is closed already is only opened. The arguments are those of `open_ledger`.

        To find the end, `write_quorum - ack_quorum + 1` bookies of a write set must answer: all of them where the ack
        quorum is 1. When fewer do, it raises `LedgerRecoveryError`; the next call tries again. Raises as `open_ledger`.
        """
        return self.open_ledger(
            ledger_id, password=password, digest=digest, recover=True, keep_update_metadata=keep_update_metadata
        )

    def open_ledger_as_admin(
        self, ledger_id: int, *, recover: bool = False, keep_update_metadata: bool = False
    ) -> Opening[LedgerReader]:
        """`open_ledger` with the password and digest type that the metadata names: for re-replication and tools.

        `recover` and `keep_update_metadata` are those of `open_ledger`. Raises as `open_ledger`, but never
        `UnauthorizedError` for a wrong password.
        """

        async def open_it() -> LedgerReader:
            metadata = await self.get_versioned_metadata(ledger_id)
            password = metadata.value.password or b""
            digest_, key = self._keys(metadata.value, password, metadata.value.digest_type)
            return await self._open(metadata, digest_, key, recover, keep_update_metadata)

        return Opening(open_it(), "BookKeeper.open_ledger_as_admin")

    def _keys(self, metadata: LedgerMetadata, password: bytes, digest: DigestType | None) -> tuple[Digest, bytes]:
        """Digest and master key, if the caller may have them."""
        stored = metadata.digest_type
        if metadata.password is not None:
            if password != metadata.password:
                raise UnauthorizedError("wrong password", ledger_id=metadata.ledger_id)
            if not self._config.enableDigestTypeAutodetection and digest is not None and digest is not stored:
                raise DigestMismatchError(f"the ledger's digest type is {stored}", ledger_id=metadata.ledger_id)
        # The oldest records name no digest type; then BookKeeper's default is as good a guess as any.
        return digest_for(stored or digest or DigestType.CRC32, password), master_key(password)

    async def _open(
        self, metadata: Versioned[LedgerMetadata], digest: Digest, key: bytes, recover: bool, follow: bool
    ) -> LedgerReader:
        if recover and not metadata.value.closed:
            metadata = await self._recover(metadata, digest, key)
        reader = LedgerReader(self.context, metadata, digest, key)
        try:
            if follow or not reader.closed:
                reader.follow_metadata()
            if not reader.closed:
                await reader.read_last_add_confirmed()
            if self.context.closed:
                raise ClientClosedError(ledger_id=reader.id)
        except BaseException as error:  # being cancelled too
            await reader.close()
            if isinstance(error, BKError) and not isinstance(error, RequestTimeoutError | ClientClosedError):
                raise ReadError(f"cannot read the last add confirmed: {error}", ledger_id=reader.id) from error
            raise
        return reader

    async def _recover(
        self, metadata: Versioned[LedgerMetadata], digest: Digest, key: bytes
    ) -> Versioned[LedgerMetadata]:
        ledger_id = metadata.value.ledger_id
        try:
            return await recover_ledger(self.context, metadata, digest, key)
        except (UnauthorizedError, RequestTimeoutError, ClientClosedError):
            raise
        except BookKeeperError as error:
            if self.context.closed:
                raise ClientClosedError(ledger_id=ledger_id) from error
            raise LedgerRecoveryError(f"recovery failed: {error}", ledger_id=ledger_id) from error

    # --- ledgers ---

    async def delete_ledger(self, ledger_id: int) -> None:
        """Remove a ledger's metadata; the bookies reclaim its space later. Deleting what is not there is a success.

        Handles that are open keep working for a while. Raises `IncorrectParameterError` for an id below zero.
        """
        check_integer("the ledger id", ledger_id)
        if ledger_id < 0:
            raise IncorrectParameterError(f"{ledger_id} is no ledger id")
        self._check_open()
        await self._metadata(self._driver.ledgers.remove(ledger_id, ANY), ledger_id)

    async def list_ledgers(self) -> AsyncGenerator[int, None]:
        """The ids of all ledgers, ascending. One created or deleted meanwhile may or may not be among them."""
        self._check_open()
        try:
            async for bucket in self._driver.ledgers.ranges():
                for ledger_id in bucket.ids:
                    yield ledger_id
        except MetadataError as error:
            raise self._as_client_error(error, None) from error

    async def get_ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        """A ledger's record, without opening it. Raises `NoSuchLedgerOnMetadataError`."""
        return (await self.get_versioned_metadata(ledger_id)).value

    async def get_versioned_metadata(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        """A ledger's record and its version in the store. Raises `NoSuchLedgerOnMetadataError`."""
        check_ledger_id(ledger_id)
        self._check_open()
        return await self._metadata(self._driver.ledgers.read(ledger_id), ledger_id)

    async def is_closed(self, ledger_id: int) -> bool:
        """Whether the ledger is sealed. Raises `NoSuchLedgerOnMetadataError`."""
        return (await self.get_ledger_metadata(ledger_id)).closed

    # --- bookies ---

    async def writable_bookies(self) -> set[BookieId]:
        """Bookies that take writes."""
        self._check_open()
        return set((await self._metadata(self._driver.discovery.list(Mode.WRITABLE))).value)

    async def readonly_bookies(self) -> set[BookieId]:
        """Bookies that only serve reads."""
        self._check_open()
        return set((await self._metadata(self._driver.discovery.list(Mode.READ_ONLY))).value)

    async def all_bookies(self) -> set[BookieId]:
        """All bookies that belong to the cluster, running or not."""
        self._check_open()
        return set((await self._metadata(self._driver.discovery.list_all())).value)

    async def bookie_info(self) -> dict[BookieId, BookieInfo]:
        """Disk space of the running bookies; one that does not answer is absent."""
        running = sorted(await self.writable_bookies() | await self.readonly_bookies())
        answers = await asyncio.gather(*map(self.bookie_space, running))
        return {bookie: info for bookie, info in zip(running, answers, strict=True) if info is not None}

    async def bookie_space(self, bookie: BookieId) -> BookieInfo | None:
        """Disk space of one bookie; None if it does not answer."""
        try:
            response = await self._ask(bookie, GetBookieInfoRequest(TOTAL_CAPACITY | FREE_SPACE))
        except ClientClosedError:
            raise
        except BKError:
            return None
        assert isinstance(response, GetBookieInfoResponse)
        return BookieInfo(response.total_disk_capacity or 0, response.free_disk_space or 0)

    async def list_entries_of(self, ledger_id: int, bookie: BookieId) -> Availability:
        """Which entries of a ledger one bookie holds. Raises `NoSuchLedgerError` if it knows nothing of it."""
        self._check_open()
        response = await self._ask(bookie, GetListOfEntriesRequest(ledger_id))
        assert isinstance(response, GetListOfEntriesResponse)
        return decode_availability(response.availability or b"")

    async def _ask(self, bookie: BookieId, request: Request) -> Response:
        """A request whose refusal is an error."""
        response = await self._bookies.request(bookie, request)
        code = result_code(response.status, default_code(operation_of(request)))
        if code != OK:
            raise from_code(code, ledger_id=getattr(request, "ledger_id", None), bookie=bookie)
        return response

    async def metadata_service_available(self) -> bool:
        """Whether the metadata store answers."""
        self._home.check()
        return not self.context.closed and self._connected and await self._driver.is_available()
