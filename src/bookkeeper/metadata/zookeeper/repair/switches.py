"""Cluster-wide switches and values of repair, beside its marks (spec metadata §9.4).

| node below `underreplication` | what |
|---|---|
| `disable` | re-replication is off while it exists |
| `lostBookieRecoveryDelay` | seconds, text; open to all |
| `checkallledgersctime`, `placementpolicycheckctime`, `replicascheckctime` | when the auditor last did that check |
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ....errors import AlreadyDisabled, AlreadyEnabled, MetadataError, NotInitialized
from ...api import CheckKind
from ...formats.underreplication import encode_check_time, encode_delay, parse_check_time, parse_delay
from ..session.client import NodeExists, NoNode, ZooKeeper
from ..session.watching import Pacer, Subscription


class RepairSwitches:
    """The part of `UnderreplicationStore` that is about no ledger in particular."""

    def __init__(self, zk: ZooKeeper, pacer: Pacer) -> None:
        self._zk = zk
        self._pacer = pacer
        base = zk.root + "/underreplication"
        self._base = base
        self._disable = base + "/disable"
        self._delay = base + "/lostBookieRecoveryDelay"
        self._seen_enabled: Subscription | None = None  # workers ask for every ledger: a watch answers

    async def enable(self) -> None:
        try:
            await self._zk.delete(self._disable)
        except NoNode as error:
            if not error.after_unknown:
                raise AlreadyEnabled("re-replication is enabled already") from None

    async def disable(self) -> None:
        try:
            await self._zk.create_with_parents(self._disable)
        except NodeExists as error:
            if not error.after_unknown:
                raise AlreadyDisabled("re-replication is disabled already") from None

    async def is_enabled(self) -> bool:
        return await self._zk.exists(self._disable) is None

    async def wait_enabled(self) -> None:
        seen = self._seen_enabled
        if seen is not None:
            if seen.current:
                return
            self._seen_enabled = None
            seen.close()
        subscription = Subscription(self._zk, self._disable)
        try:
            while await subscription.stat() is not None:
                await subscription.changed()
        except BaseException:
            subscription.close()
            raise
        if self._seen_enabled is not None:  # another caller's
            self._seen_enabled.close()
        self._seen_enabled = subscription

    async def init_lost_bookie_recovery_delay(self, seconds: int) -> bool:
        """Set the delay unless it is set; False if it is."""
        await self._zk.ensure(self._base)
        try:
            await self._zk.create(self._delay, encode_delay(seconds), world=True)
        except NodeExists as error:
            return error.after_unknown
        return True

    async def set_lost_bookie_recovery_delay(self, seconds: int) -> None:
        await self._put(self._delay, encode_delay(seconds), world=True)

    async def _put(self, path: str, data: bytes, *, world: bool = False) -> None:
        """Overwrite or create."""
        while True:
            try:
                await self._zk.set(path, data)
                return
            except NoNode:
                pass
            await self._zk.ensure(self._base)
            try:
                await self._zk.create(path, data, world=world)
                return
            except (NodeExists, NoNode):
                continue  # another client wrote it meanwhile

    async def get_lost_bookie_recovery_delay(self) -> int:
        """Raises `NotInitialized` if it was never set."""
        try:
            data, _ = await self._zk.get(self._delay)
        except NoNode:
            raise NotInitialized(
                "lostBookieRecoveryDelay is not set in the metadata store: no auditor has run yet"
            ) from None
        return parse_delay(data)

    async def watch_lost_bookie_recovery_delay(self) -> AsyncGenerator[int, None]:
        """The delay, if it is set, and each setting of it, of an equal value too."""
        subscription = Subscription(self._zk, self._delay)
        seen = -1
        failures = 0
        try:
            while not self._zk.closed():
                try:
                    found = await subscription.data()
                    seconds = None if found is None else parse_delay(found[0])
                except MetadataError as error:
                    if self._zk.closed():
                        return
                    failures = await self._pacer.after_failure("watch of lostBookieRecoveryDelay", error, failures)
                    continue
                failures = 0
                if found is not None and seconds is not None and found[1].mzxid > seen:
                    seen = found[1].mzxid
                    yield seconds
                await subscription.changed()
        finally:
            subscription.close()

    async def get_check_time(self, kind: CheckKind) -> int:
        try:
            data, _ = await self._zk.get(f"{self._base}/{kind.value}")
        except NoNode:
            return -1
        return parse_check_time(kind, data)

    async def set_check_time(self, kind: CheckKind, ms: int) -> None:
        await self._put(f"{self._base}/{kind.value}", encode_check_time(kind, ms))
