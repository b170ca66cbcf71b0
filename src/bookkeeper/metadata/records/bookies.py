"""Registration, discovery and cookies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from ...errors import (
    AlreadyRegistered,
    CookieConflict,
    CookieExists,
    CookieNotFound,
    NoSuchBookie,
    NotInitialized,
    ServiceUnavailable,
)
from ...types import BookieId
from ..api import ANY, BookieServiceInfo, Mode, Unsubscribe, Version, Versioned
from ..formats.service_info import encode_service_info, parse_service_info
from .cluster import INSTANCE_ID
from .store import Changes, Record, Topic, Transaction
from .store_client import StoreClient

_TOPICS = {Mode.WRITABLE: Topic.AVAILABLE, Mode.READ_ONLY: Topic.READ_ONLY}


class Registration:
    """Component `registration` (see `metadata.api.BookieRegistry`)."""

    def __init__(self, link: StoreClient) -> None:
        self._link = link

    async def register(self, bookie_id: BookieId, mode: Mode, info: BookieServiceInfo) -> None:
        """Register, waiting up to a session timeout for an earlier session of the same bookie to end.

        Read-only registration removes the writable one in the same step. Raises `AlreadyRegistered`, `SessionLost`.
        """
        data = encode_service_info(info)
        taken = False

        async def attempt() -> bool | None:
            nonlocal taken
            session = await self._link.session.live()
            taken = not await self._link.change(
                "registration.register", lambda tx: _register(tx, bookie_id, mode, data, session)
            )
            return None if taken else True

        topics = tuple((topic, bookie_id) for topic in _TOPICS.values())
        try:
            async with asyncio.timeout(self._link.session.timeout):
                await self._link.until("registration.register", topics, attempt)
        except TimeoutError:
            if not taken:
                raise ServiceUnavailable(f"bookie {bookie_id} could not be registered in time") from None
            raise AlreadyRegistered(
                f"bookie {bookie_id} is registered by another live process: is one already running?"
            ) from None

    async def unregister(self, bookie_id: BookieId, mode: Mode) -> None:
        """Absent: success."""
        topic = _TOPICS[mode]
        await self._link.change("registration.unregister", lambda tx: tx.delete(topic, bookie_id))

    async def is_registered(self, bookie_id: BookieId) -> bool:
        """In either mode."""

        def look(tx: Transaction) -> bool:
            return any(tx.get(topic, bookie_id) is not None for topic in _TOPICS.values())

        return await self._link.read("registration.is_registered", look)

    def on_registration_lost(self, callback: Callable[[], None]) -> Unsubscribe:
        return self._link.session.on_registration_lost(callback)


def _register(tx: Transaction, bookie_id: BookieId, mode: Mode, data: bytes, session: int) -> bool:
    """False if another session holds the id."""
    held = [tx.get(topic, bookie_id) for topic in _TOPICS.values()]
    if any(record is not None and record.session != session for record in held):
        return False
    topic = _TOPICS[mode]
    if tx.get(topic, bookie_id) is None:
        tx.put(topic, bookie_id, data, session=session)
    if mode is Mode.READ_ONLY:
        tx.delete(Topic.AVAILABLE, bookie_id)
    return True


class Discovery:
    """Component `discovery` (see `metadata.api.BookieDirectory`)."""

    def __init__(self, link: StoreClient) -> None:
        self._link = link
        self._known: dict[str, BookieServiceInfo] = {}
        self._epoch = 0
        """Grows with each change of registrations, so that a reading that a change overtook is not kept."""
        link.hub.listen(self._forget_changed)

    async def list(self, mode: Mode) -> Versioned[frozenset[BookieId]]:
        return _versioned(await self._link.read("discovery.list", lambda tx: _listed(tx, _TOPICS[mode])))

    async def list_all(self) -> Versioned[frozenset[BookieId]]:
        """Every bookie that has a cookie."""
        return _versioned(await self._link.read("discovery.list_all", lambda tx: _listed(tx, Topic.COOKIES)))

    async def info(self, bookie_id: BookieId) -> BookieServiceInfo:
        """What the bookie published, from memory until its registration changes.

        Raises `NoSuchBookie`, `CorruptMetadata`.
        """
        known = self._known.get(bookie_id)
        if known is not None:
            return known
        epoch = self._epoch
        record = await self._link.read("discovery.info", lambda tx: _registered(tx, bookie_id))
        if record is None:
            raise NoSuchBookie(f"bookie {bookie_id} is not registered")
        info = parse_service_info(record.data, bookie_id)
        if epoch == self._epoch:
            self._known[bookie_id] = info
        return info

    async def watch(self, mode: Mode) -> AsyncGenerator[Versioned[frozenset[BookieId]], None]:
        topic = _TOPICS[mode]
        async with aclosing(
            self._link.follow("discovery.watch", topic, None, lambda tx: _list(tx, topic))
        ) as following:
            async for found in following:
                yield _versioned(found)

    def _forget_changed(self, changes: Changes) -> None:
        if changes is None:
            self._known.clear()
            self._epoch += 1
            return
        for topic, key in changes:
            if topic in (Topic.AVAILABLE, Topic.READ_ONLY):
                self._known.pop(key, None)
                self._epoch += 1


def _listed(tx: Transaction, topic: Topic) -> tuple[Version, list[str]]:
    """As `_list`, of a cluster that must be there."""
    if tx.get(Topic.CLUSTER, INSTANCE_ID) is None:
        raise NotInitialized("there is no cluster at this address: `bookkeeper shell initnewcluster` makes one")
    return _list(tx, topic)


def _list(tx: Transaction, topic: Topic) -> tuple[Version, list[str]]:
    return tx.revision(topic), tx.keys(topic)


def _versioned(found: tuple[Version, list[str]]) -> Versioned[frozenset[BookieId]]:
    return Versioned(frozenset(map(BookieId, found[1])), found[0])


def _registered(tx: Transaction, bookie_id: BookieId) -> Record | None:
    return tx.get(Topic.AVAILABLE, bookie_id) or tx.get(Topic.READ_ONLY, bookie_id)


class Cookies:
    """Component `cookies` (see `metadata.api.CookieStore`).

    A change whose outcome is unknown is not tried again: two processes with the same configuration have the same
    cookie, so an equal cookie is no proof that it is ours.
    """

    def __init__(self, link: StoreClient) -> None:
        self._link = link

    async def create(self, bookie_id: BookieId, data: bytes) -> Version:
        """Raises `CookieExists`."""

        def create(tx: Transaction) -> Version:
            if tx.get(Topic.COOKIES, bookie_id) is not None:
                raise CookieExists(f"bookie {bookie_id} has a cookie")
            return tx.put(Topic.COOKIES, bookie_id, data)

        return await self._link.change("cookies.create", create, repeat=False)

    async def read(self, bookie_id: BookieId) -> Versioned[bytes]:
        """Raises `CookieNotFound`."""
        record = await self._link.read("cookies.read", lambda tx: _cookie(tx, bookie_id, ANY))
        return Versioned(record.data, record.version)

    async def write(self, bookie_id: BookieId, data: bytes, expected: Version) -> Version:
        """Raises `CookieNotFound`, `CookieConflict`."""

        def write(tx: Transaction) -> Version:
            _cookie(tx, bookie_id, expected)
            return tx.put(Topic.COOKIES, bookie_id, data)

        return await self._link.change("cookies.write", write, repeat=False)

    async def remove(self, bookie_id: BookieId, expected: Version) -> None:
        """Raises `CookieNotFound`, `CookieConflict`."""

        def remove(tx: Transaction) -> None:
            _cookie(tx, bookie_id, expected)
            tx.delete(Topic.COOKIES, bookie_id)

        await self._link.change("cookies.remove", remove, repeat=False)


def _cookie(tx: Transaction, bookie_id: BookieId, expected: Version) -> Record:
    record = tx.get(Topic.COOKIES, bookie_id)
    if record is None:
        raise CookieNotFound(f"bookie {bookie_id} has no cookie")
    if expected not in (ANY, record.version):
        raise CookieConflict(f"the cookie of bookie {bookie_id} has version {record.version}, not {expected}")
    return record
