"""The metadata driver over a record store: one session, and the components that share it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from ...errors import MetadataError
from ...runtime import Runtime
from ..api import LedgerLayout, SessionEvent, Unsubscribe
from ..tree import TransactionLimits
from .bookies import Cookies, Discovery, Registration
from .cluster import Admin, ClusterFlags, Layouts
from .ledgers import LedgerIds, Ledgers
from .store import RecordStore, Transaction
from .store_client import StoreClient
from .tree import Tree
from .underreplication import Election, Underreplication

DEFAULT_SESSION_TIMEOUT_MS = 10_000

UNLIMITED = TransactionLimits()


class RecordDriver:
    """See `metadata.api.MetadataDriver`.

    `factory` names the store in the cluster's layout; `retry_ms` bounds how long one call looks for an answer (default:
    the session timeout); `owner` is what locks say about their holder (default: the host name); `limits` is what one
    transaction of the tree may hold.
    """

    def __init__(
        self,
        store: RecordStore,
        runtime: Runtime,
        *,
        factory: str,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        retry_ms: int | None = None,
        owner: str | None = None,
        store_mark_time: bool = True,
        limits: TransactionLimits = UNLIMITED,
    ) -> None:
        link = StoreClient(
            store,
            runtime,
            session_timeout=session_timeout_ms / 1000,
            retry_seconds=(session_timeout_ms if retry_ms is None else retry_ms) / 1000,
        )
        store.on_changes = link.hub.publish
        layout = LedgerLayout(factory, 1)
        self._link = link
        self._opened = False
        self.layout = Layouts(link, layout)
        self.ledgers = Ledgers(link)
        self.ids = LedgerIds(link)
        self.registration = Registration(link)
        self.discovery = Discovery(link)
        self.cookies = Cookies(link)
        self.underreplication = Underreplication(
            link, owner=runtime.hostname() if owner is None else owner, store_mark_time=store_mark_time
        )
        self.auditor = Election(link)
        self.flags = ClusterFlags(link)
        self.admin = Admin(link, layout)
        self.tree = Tree(link, limits)

    async def open(self, *, create: bool = False) -> None:
        """Connect and start the session. Raises `ServiceUnavailable`, `LayoutMismatch`, `ConfigurationError`, and
        `NotInitialized` if there is no store and `create` is not set.
        """
        try:
            await self._link.retry("open", partial(self._link.store.open, create=create))
            await self._link.retry("open", self._link.session.open)
            self._opened = True
            await self.layout.check()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session: its records vanish, waiting calls fail, watches end. Idempotent."""
        self._opened = False
        async with AsyncExitStack() as parts:  # each is closed, whatever becomes of the others
            parts.push_async_callback(self._link.store.close)
            parts.push_async_callback(self._link.session.close)
            parts.push_async_callback(self._link.close)
            parts.push_async_callback(self.auditor.close)
            self._link.hub.close()

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe:
        return self._link.session.add_listener(callback)

    async def is_available(self) -> bool:
        """Whether the store answers now."""
        if not self._opened:
            return False
        try:
            await self._link.store.run("driver.is_available", _nothing, write=False)
        except MetadataError:
            return False
        return True


def _nothing(tx: Transaction) -> None:
    """A transaction that only shows that the store answers."""
