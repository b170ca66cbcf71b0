"""Cookies in the store: `cookies/<bookie id>`, the cookie's text (spec metadata §8.5)."""

from __future__ import annotations

from ...errors import CookieConflict, CookieExists, CookieNotFound
from ...types import BookieId
from ..api import ANY, Version, Versioned
from .session.client import BadVersion, NodeExists, NoNode, ZooKeeper


class ZooKeeperCookies:
    """Cookies as bytes (`CookieStore`)."""

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._directory = zk.root + "/cookies"

    def _path(self, bookie_id: BookieId) -> str:
        return f"{self._directory}/{bookie_id}"

    async def create(self, bookie_id: BookieId, data: bytes) -> Version:
        path = self._path(bookie_id)
        try:
            await self._zk.create_with_parents(path, data)
        except NodeExists as error:
            if not (error.after_unknown and await self._holds(path, data, 0)):
                raise CookieExists(f"bookie {bookie_id} has a cookie already") from None
        return 0

    async def _holds(self, path: str, data: bytes, version: Version) -> bool:
        """Whether an attempt with unknown outcome was applied after all."""
        try:
            stored, stat = await self._zk.get(path)
        except NoNode:
            return False
        return stored == data and stat.version == version

    async def read(self, bookie_id: BookieId) -> Versioned[bytes]:
        try:
            data, stat = await self._zk.get(self._path(bookie_id))
        except NoNode:
            raise CookieNotFound(f"bookie {bookie_id} has no cookie") from None
        return Versioned(data, stat.version)

    async def write(self, bookie_id: BookieId, data: bytes, expected: Version) -> Version:
        path = self._path(bookie_id)
        try:
            return (await self._zk.set(path, data, expected)).version
        except BadVersion as error:
            if error.after_unknown and await self._holds(path, data, expected + 1):
                return expected + 1
            raise CookieConflict(f"the cookie of bookie {bookie_id} is not at version {expected} any more") from None
        except NoNode:
            raise CookieNotFound(f"bookie {bookie_id} has no cookie") from None

    async def remove(self, bookie_id: BookieId, expected: Version = ANY) -> None:
        try:
            await self._zk.delete(self._path(bookie_id), expected)
        except BadVersion:
            raise CookieConflict(f"the cookie of bookie {bookie_id} is not at version {expected} any more") from None
        except NoNode as error:
            if not error.after_unknown:
                raise CookieNotFound(f"bookie {bookie_id} has no cookie") from None
