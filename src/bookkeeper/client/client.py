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
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

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
    NoSuchLedgerOnMetadataError,
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
    GetBookieInfoRequest,
    GetBookieInfoResponse,
    GetListOfEntriesRequest,
    GetListOfEntriesResponse,
    Request,
    Response,
)
from ..runtime import Runtime, TaskScope
from ..runtime.real import RealRuntime
from ..types import MAX_LEDGER_ID, BookieId, DigestType, LedgerState, WriteFlag
from .bookie_client import BookieClient
from .context import ClientContext
from .placement.free_space import FreeSpace
from .placement.placement import EnsemblePlacement
from .quarantine import Quarantine
from .reader import LedgerReader
from .recovery import recover_ledger
from .results import OK, default_code, from_metadata_error, operation_of, result_code
from .stats import ClientStats
from .writer import LedgerAdvWriter, LedgerWriter

RESERVED = "bookkeeper.reserved"
"""Custom metadata of a ledger that was made by `reserve_ledger` and has no writer yet."""

TOTAL_CAPACITY = 1
FREE_SPACE = 2


class BookieInfo(NamedTuple):
    """Disk space of a bookie, in bytes, over all its ledger directories."""

    total: int
    free: int


class Handle(Protocol):
    """Something opened that is an async context manager itself."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Any: ...


H = TypeVar("H", bound=Handle)
T = TypeVar("T")


class Opening(Generic[H]):
    """A handle about to be opened: `await` it, or enter it with `async with`, which closes the handle at the end."""

    def __init__(self, open_it: Callable[[], Awaitable[H]]) -> None:
        self._open_it = open_it
        self._handle: H | None = None

    def __await__(self) -> Generator[Any, None, H]:
        return self._open_it().__await__()

    async def __aenter__(self) -> H:
        self._handle = await self._open_it()
        await self._handle.__aenter__()
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._handle is not None
        await self._handle.__aexit__(kind, error, trace)


def connect(
    uri: str | None = None,
    *,
    config: ClientConfiguration | None = None,
    runtime: Runtime | None = None,
    driver: MetadataDriver | None = None,
) -> BookKeeper:
    """A client of the cluster whose metadata service is at `uri` (None: `metadataServiceUri` of the configuration).

    Use it as `async with bookkeeper.connect(...) as bk`, or `bk = await bookkeeper.connect(...)` and `await
    bk.close()` at the end. `runtime` is the world it runs in; `driver` a metadata driver to use, not yet opened,
    instead of one for `uri`.

    Raises `ConfigurationError` for a bad address; connecting raises `MetadataStoreError`.
    """
    runtime = runtime if runtime is not None else RealRuntime()
    config = config if config is not None else ClientConfiguration.from_mapping({})
    if driver is None:
        driver = open_driver(uri if uri is not None else configured_service_uri(config), runtime, config)
    return BookKeeper(runtime, config, driver)


class BookKeeper:
    """A client. See the module; make one with `connect`.

    Every operation raises `ClientClosedError` after `close`, and `MetadataStoreError` when the metadata store fails.
    """

    def __init__(self, runtime: Runtime, config: ClientConfiguration, driver: MetadataDriver) -> None:
        self._runtime = runtime
        self._config = config
        self._driver = driver
        self._tasks = TaskScope(runtime, "client")
        stats = ClientStats()
        self._quarantine = Quarantine(runtime, config, driver.flags.health_check_enabled)
        self._bookies = BookieClient(runtime, config, driver.discovery, on_failure=self._quarantine.failed)
        self._placement = EnsemblePlacement(
            runtime,
            config,
            driver.discovery,
            stats=stats,
            quarantined=self._quarantine,
            pending=self._bookies.pending,
        )
        self.context = ClientContext(
            runtime=runtime,
            config=config,
            driver=driver,
            bookies=self._bookies,
            placement=self._placement,
            tasks=self._tasks,
            stats=stats,
        )
        """What everything opened here shares; for parts of this package."""
        self._connected = False

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
            space = await self._space_of(bookie)
            return None if space is None else space.free

        room = FreeSpace(self._runtime, self._config, self._placement.bookies, free)
        self._placement.draw.free_space = room.known
        self._tasks.spawn(room.run(), name="free space of bookies")

    async def close(self) -> None:
        """End the client: outstanding requests fail with `ClientClosedError`, the session ends. Idempotent.

        Writers are not closed: their ledgers stay open, for recovery.
        """
        if self.context.closed:
            return
        self.context.closed = True
        await self._bookies.close()
        await self._tasks.close()
        await self._driver.close()

    def _check_open(self) -> None:
        if self.context.closed:
            raise ClientClosedError
        if not self._connected:
            raise IllegalOpError("the client is not connected: use `async with bookkeeper.connect(...)`, or await it")

    async def _metadata(self, operation: Awaitable[T], ledger_id: int | None = None) -> T:
        """Wait for an operation of the metadata store; its errors become the client's.

        Of a client that was closed meanwhile nobody gets a handle, whatever the store did.
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

        `ensemble_size` bookies share the ledger, `write_quorum` of them store each entry, `ack_quorum` of these must
        have it before an append is done. The password is needed to open the ledger, and is kept in clear in the
        metadata store. `custom_metadata` is kept with it.

        Raises `IncorrectParameterError`, `NotEnoughBookiesError`, `LedgerIdOverflowError`.
        """
        shape = _Shape(ensemble_size, write_quorum, ack_quorum, password, digest, dict(custom_metadata or {}))

        async def create() -> LedgerWriter:
            metadata = await self._create(shape, None)
            return LedgerWriter(self.context, metadata, *shape.keys(), write_flags=write_flags)

        return Opening(create)

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
        """A new ledger whose entry ids, and if wanted its own id, are chosen by the caller.

        Raises as `create_ledger`, and `LedgerExistError` if there is a ledger with `ledger_id`.
        """
        shape = _Shape(ensemble_size, write_quorum, ack_quorum, password, digest, dict(custom_metadata or {}))

        async def create() -> LedgerAdvWriter:
            if ledger_id is not None and not 0 <= ledger_id <= MAX_LEDGER_ID:
                raise IncorrectParameterError(f"{ledger_id} is no ledger id")
            metadata = await self._create(shape, ledger_id)
            return LedgerAdvWriter(self.context, metadata, *shape.keys(), write_flags=write_flags)

        return Opening(create)

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
        """Create a ledger without a writer, and return its id; `claim_ledger` makes its one writer, anywhere."""
        custom = {**(custom_metadata or {}), RESERVED: b"1"}
        shape = _Shape(ensemble_size, write_quorum, ack_quorum, password, digest, custom)
        return (await self._create(shape, None)).value.ledger_id

    def claim_ledger(self, ledger_id: int, *, password: bytes = b"") -> Opening[LedgerWriter]:
        """Become the writer of a reserved ledger. Only one caller ever does.

        Raises `NoSuchLedgerOnMetadataError`, `UnauthorizedError`, and `IllegalOpError` if it was claimed already or not
        reserved.
        """

        async def claim() -> LedgerWriter:
            self._check_open()
            stored = await self.get_versioned_metadata(ledger_id)
            digest, key = self._keys(stored.value, password, None)
            custom = dict(stored.value.custom_metadata)
            if stored.value.state is not LedgerState.OPEN or custom.pop(RESERVED, None) is None:
                raise IllegalOpError("the ledger is not reserved: it has, or had, a writer", ledger_id=ledger_id)
            # The token makes the record ours. Where a request's fate is unknown, the store's driver takes a record
            # equal to what it sent for its own success, and without a token all claimers would send the same.
            token = 1 + self._runtime.random("claim").getrandbits(62)
            claimed = replace(stored.value, custom_metadata=custom, ctoken=token)
            try:
                mine = await self._metadata(self._driver.ledgers.write(ledger_id, claimed, stored.version), ledger_id)
            except MetadataVersionError as error:
                raise IllegalOpError("somebody else claimed the ledger first", ledger_id=ledger_id) from error
            return LedgerWriter(self.context, mine, digest, key)

        return Opening(claim)

    async def _create(self, shape: _Shape, ledger_id: int | None) -> Versioned[LedgerMetadata]:
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
                shape.write_quorum,
                shape.ack_quorum,
                {0: tuple(ensemble)},
                digest_type=shape.digest,
                password=shape.password,
                ctime=self._runtime.wall_ms() if config.storeSystemTimeAsLedgerCreationTime else -1,
                store_ctime=config.storeSystemTimeAsLedgerCreationTime,
                custom_metadata=shape.custom_metadata,
                format_version=version if 1 <= version <= CURRENT_FORMAT_VERSION else CURRENT_FORMAT_VERSION,
            )
            try:
                return await self._metadata(self._driver.ledgers.create(wanted, metadata), wanted)
            except LedgerExistError:
                if ledger_id is not None:
                    raise
                # Somebody chose this id for himself before the allocator came to it.

    def _choose_ensemble(self, shape: _Shape) -> list[BookieId]:
        size = shape.ensemble_size
        while True:
            try:
                return self.context.placement.new_ensemble(
                    size, shape.write_quorum, shape.ack_quorum, shape.custom_metadata
                )
            except NotEnoughBookiesError:
                if not self._config.opportunisticStriping or size <= shape.write_quorum:
                    raise
                size -= 1

    # --- opening ---

    def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        digest: DigestType | None = None,
        recovery: bool = True,
        keep_update_metadata: bool = False,
    ) -> Opening[LedgerReader]:
        """A ledger, to be read.

        With `recovery` a ledger that is not closed is recovered first: its writer, dead or not, is fenced off, and the
        ledger closed behind its last entry. Without, the writer is left alone, and the reader follows the ledger as it
        grows. `keep_update_metadata` follows the metadata of a closed ledger too, whose fragments re-replication may
        move. `digest` is only for stores whose records name none (None: what the record says).

        Raises `NoSuchLedgerOnMetadataError`, `UnauthorizedError` for a wrong password, `DigestMismatchError`,
        `LedgerRecoveryError` (try again), `ReadError`, `RequestTimeoutError`.
        """

        async def open_it() -> LedgerReader:
            metadata = await self.get_versioned_metadata(ledger_id)
            digest_, key = self._keys(metadata.value, password, digest)
            return await self._open(metadata, digest_, key, recovery, keep_update_metadata)

        return Opening(open_it)

    def open_ledger_as_admin(
        self, ledger_id: int, *, recovery: bool = True, keep_update_metadata: bool = False
    ) -> Opening[LedgerReader]:
        """`open_ledger` with the password and digest type that the metadata names: for re-replication and tools."""

        async def open_it() -> LedgerReader:
            metadata = await self.get_versioned_metadata(ledger_id)
            password = metadata.value.password or b""
            digest_, key = self._keys(metadata.value, password, metadata.value.digest_type)
            return await self._open(metadata, digest_, key, recovery, keep_update_metadata)

        return Opening(open_it)

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
        self, metadata: Versioned[LedgerMetadata], digest: Digest, key: bytes, recovery: bool, follow: bool
    ) -> LedgerReader:
        if recovery and not metadata.value.closed:
            metadata = await self._recover(metadata, digest, key)
        reader = LedgerReader(self.context, metadata, digest, key)
        if follow or not recovery:
            reader.follow_metadata()
        if not recovery:
            try:
                await reader.read_last_add_confirmed()
            except BKError as error:
                await reader.close()
                if isinstance(error, RequestTimeoutError | ClientClosedError):
                    raise
                raise ReadError(f"cannot read the last add confirmed: {error}", ledger_id=reader.id) from error
        if self.context.closed:
            await reader.close()
            raise ClientClosedError(ledger_id=reader.id)
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
        """A ledger's record and its version in the store."""
        if ledger_id < 0:
            raise NoSuchLedgerOnMetadataError(ledger_id=ledger_id)
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
        answers = await asyncio.gather(*map(self._space_of, running))
        return {bookie: info for bookie, info in zip(running, answers, strict=True) if info is not None}

    async def _space_of(self, bookie: BookieId) -> BookieInfo | None:
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
        return not self.context.closed and self._connected and await self._driver.is_available()


class _Shape:
    """What a new ledger is to be like."""

    def __init__(
        self,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        password: bytes,
        digest: DigestType,
        custom_metadata: Mapping[str, bytes],
    ) -> None:
        self.ensemble_size = ensemble_size
        self.write_quorum = write_quorum
        self.ack_quorum = ack_quorum
        self.password = password
        self.digest = digest
        self.custom_metadata = custom_metadata

    def check(self) -> None:
        """Raises `IncorrectParameterError`."""
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum > 0:
            raise IncorrectParameterError(
                f"ensemble size {self.ensemble_size}, write quorum {self.write_quorum} and ack quorum "
                f"{self.ack_quorum} must not ascend and be at least 1"
            )
        if not isinstance(self.password, bytes):
            raise IncorrectParameterError(f"the password must be bytes, not {type(self.password).__name__}")

    def keys(self) -> tuple[Digest, bytes]:
        return digest_for(self.digest, self.password), master_key(self.password)
