"""One node that is watched: what kazoo and the server know of it, however many subscribers there are."""

from __future__ import annotations

from collections.abc import Callable

from .removewatches import WatchKind

Changed = Callable[[], None]
"""Called on the loop, once, when a watched node may have changed."""


class WatchPoint:
    """What kazoo calls when a node changed, on behalf of any number of subscribers. In its table until it fires."""

    __slots__ = ("_post", "_table", "key", "subscribers")

    def __init__(
        self,
        key: tuple[WatchKind, str],
        table: dict[tuple[WatchKind, str], WatchPoint],
        post: Callable[..., None],
    ) -> None:
        self.key = key
        self.subscribers: dict[Changed, None] = {}
        self._table = table
        self._post = post

    def on_event(self, _event: object) -> None:
        """Called by kazoo's thread."""
        self._post(self.fire)

    def fire(self) -> None:
        if self._table.get(self.key) is self:
            del self._table[self.key]
        subscribers, self.subscribers = self.subscribers, {}
        for changed in subscribers:
            changed()
