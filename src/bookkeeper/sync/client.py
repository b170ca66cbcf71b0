"""The client without an event loop: what `bookkeeper.client.client` has, as plain calls."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from ..client import client as aio
from ..client.client import BookieInfo
from ..config import ClientConfiguration
from ..errors import ClientClosedError
from ..metadata.api import MetadataDriver
from ..metadata.ledger_metadata import LedgerMetadata
from ..protocol.availability import Availability
from ..runtime import Runtime
from ..runtime.loop_thread import LoopThread
from ..types import BookieId, DigestType, WriteFlag
from .blocking import Blocking, ClosedAtExit
from .iterator import BlockingIterator
from .ledger import LedgerAdvWriter, LedgerReader, LedgerWriter


def connect(
    uri: str | None = None,
    *,
    config: ClientConfiguration | None = None,
    runtime: Runtime | None = None,
    driver: MetadataDriver | None = None,
    timeout: float | None = None,
) -> BookKeeper:
    """Connect to a cluster. Close the client in the end, best by `with`.

    The arguments are those of `bookkeeper.connect`; `timeout` is in seconds. Raises what `bookkeeper.connect` and
    awaiting it raise, and `TimeoutError`.
    """
    thread = LoopThread("bookkeeper-sync")

    async def start() -> aio.BookKeeper:
        return await aio.connect(uri, config=config, runtime=runtime, driver=driver)

    try:
        return BookKeeper(Blocking(thread)._call(start(), timeout), thread)
    except BaseException:
        thread.stop()
        raise


class BookKeeper(ClosedAtExit, Blocking):
    """A client. Make one with `connect`.

    Every call takes a `timeout` in seconds (None: no limit) and then raises `TimeoutError`. The rest is as in
    `bookkeeper.BookKeeper`: arguments, results, errors.
    """

    def __init__(self, client: aio.BookKeeper, thread: LoopThread) -> None:
        super().__init__(thread)
        self._client = client

    def __repr__(self) -> str:
        return repr(self._client)

    @property
    def service_uri(self) -> str:
        """Address of its metadata store, as `connect` was told; a remark in brackets if that was given a driver."""
        return self._client.service_uri

    def close(self, *, timeout: float | None = None) -> None:
        """End the client and its thread. Writers are not closed. Idempotent.

        When `timeout` is over the end goes on; another call waits for it.
        """
        self._may_wait()
        if not self._thread.ended:
            with contextlib.suppress(ClientClosedError):  # another thread was faster
                self._call(self._client.close(), timeout)
        self._thread.stop()

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
        timeout: float | None = None,
    ) -> LedgerWriter:
        """A new ledger, open for appending."""
        opening = self._client.create_ledger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=password,
            digest=digest,
            custom_metadata=custom_metadata,
            write_flags=write_flags,
        )
        return LedgerWriter(self._call(opening, timeout), self._thread, self._client.context.config)

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
        timeout: float | None = None,
    ) -> LedgerAdvWriter:
        """A new ledger whose entry ids, and if wanted its own id, are chosen by the caller."""
        opening = self._client.create_ledger_adv(
            ledger_id=ledger_id,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=password,
            digest=digest,
            custom_metadata=custom_metadata,
            write_flags=write_flags,
        )
        return LedgerAdvWriter(self._call(opening, timeout), self._thread, self._client.context.config)

    def reserve_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 2,
        ack_quorum: int = 2,
        password: bytes = b"",
        digest: DigestType = DigestType.CRC32C,
        custom_metadata: Mapping[str, bytes] | None = None,
        timeout: float | None = None,
    ) -> int:
        """Create a ledger without a writer, and return its id; `claim_ledger` makes its one writer."""
        reserving = self._client.reserve_ledger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=password,
            digest=digest,
            custom_metadata=custom_metadata,
        )
        return self._call(reserving, timeout)

    def claim_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        write_flags: WriteFlag = WriteFlag.NONE,
        timeout: float | None = None,
    ) -> LedgerWriter:
        """Become the writer of a reserved ledger."""
        opening = self._client.claim_ledger(ledger_id, password=password, write_flags=write_flags)
        return LedgerWriter(self._call(opening, timeout), self._thread, self._client.context.config)

    def open_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        digest: DigestType | None = None,
        recover: bool = False,
        keep_update_metadata: bool = False,
        timeout: float | None = None,
    ) -> LedgerReader:
        """A ledger, to be read up to its last add confirmed; with `recover` it is ended first."""
        opening = self._client.open_ledger(
            ledger_id,
            password=password,
            digest=digest,
            recover=recover,
            keep_update_metadata=keep_update_metadata,
        )
        return LedgerReader(self._call(opening, timeout), self._thread)

    def recover_ledger(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        digest: DigestType | None = None,
        keep_update_metadata: bool = False,
        timeout: float | None = None,
    ) -> LedgerReader:
        """End a ledger whose writer is gone, for good, and open it to be read."""
        return self.open_ledger(
            ledger_id,
            password=password,
            digest=digest,
            recover=True,
            keep_update_metadata=keep_update_metadata,
            timeout=timeout,
        )

    def delete_ledger(self, ledger_id: int, *, timeout: float | None = None) -> None:
        """Remove a ledger's metadata; its space comes back later."""
        self._call(self._client.delete_ledger(ledger_id), timeout)

    def list_ledgers(self, *, timeout: float | None = None) -> BlockingIterator[int]:
        """The ids of all ledgers, ascending. `timeout` is for each id."""
        return BlockingIterator(self._thread, self._client.list_ledgers, timeout)

    def get_ledger_metadata(self, ledger_id: int, *, timeout: float | None = None) -> LedgerMetadata:
        """A ledger's record, without opening it."""
        return self._call(self._client.get_ledger_metadata(ledger_id), timeout)

    def is_closed(self, ledger_id: int, *, timeout: float | None = None) -> bool:
        """Whether the ledger is sealed."""
        return self._call(self._client.is_closed(ledger_id), timeout)

    def writable_bookies(self, *, timeout: float | None = None) -> set[BookieId]:
        """Bookies that take writes."""
        return self._call(self._client.writable_bookies(), timeout)

    def readonly_bookies(self, *, timeout: float | None = None) -> set[BookieId]:
        """Bookies that only serve reads."""
        return self._call(self._client.readonly_bookies(), timeout)

    def all_bookies(self, *, timeout: float | None = None) -> set[BookieId]:
        """All bookies that belong to the cluster, running or not."""
        return self._call(self._client.all_bookies(), timeout)

    def bookie_space(self, bookie: BookieId, *, timeout: float | None = None) -> BookieInfo | None:
        """Disk space of one bookie; None if it does not answer."""
        return self._call(self._client.bookie_space(bookie), timeout)

    def bookie_info(self, *, timeout: float | None = None) -> dict[BookieId, BookieInfo]:
        """Disk space of the running bookies; one that does not answer is absent."""
        return self._call(self._client.bookie_info(), timeout)

    def list_entries_of(self, ledger_id: int, bookie: BookieId, *, timeout: float | None = None) -> Availability:
        """Which entries of a ledger one bookie holds."""
        return self._call(self._client.list_entries_of(ledger_id, bookie), timeout)

    def metadata_service_available(self, *, timeout: float | None = None) -> bool:
        """Whether the metadata store answers."""
        return self._call(self._client.metadata_service_available(), timeout)
