"""A tree of records whose client dies: at a certain change, before it or after it.

A test runs a program again and again, lets it die one change later each time, until it comes through; after each death
somebody else must be able to finish. So every step of the program is interrupted once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

from bookkeeper.metadata.tree import Listing, Member, Node, Operation, RecordTree, Written


class Killed(BaseException):
    """The client is dead. No handler of errors may catch it."""


class Life:
    """What is left to a client: so many changes, of records and of ledgers together."""

    def __init__(self, changes: int, *, applied: bool) -> None:
        self._left = changes
        self._applied = applied
        """Whether the change at which it dies is carried out."""

    async def change(self, work: Callable[[], Awaitable[object]]) -> object:
        if self._left < 0:
            raise Killed
        self._left -= 1
        if self._left >= 0:
            return await work()
        if self._applied:
            await work()
        raise Killed


def lives(most: int = 400) -> Iterator[Life]:
    """One after the other; end when a program survives."""
    for changes in range(most):
        yield Life(changes, applied=False)
        yield Life(changes, applied=True)
    raise AssertionError(f"the program makes more than {most} changes")


class DyingTree(RecordTree):
    """Another tree, as a client sees it that will die."""

    def __init__(self, tree: RecordTree, life: Life) -> None:
        self._tree = tree
        self._life = life
        self.limits = tree.limits

    async def commit(self, operations: Sequence[Operation]) -> Written:
        written = await self._life.change(lambda: self._tree.commit(operations))
        assert isinstance(written, dict)
        return written

    async def enter(self, directory: str, name: Callable[[int], str], data: bytes = b"") -> Member:
        return await self._tree.enter(directory, name, data)

    async def get(self, path: str, *, fresh: bool = False) -> Node | None:
        return await self._tree.get(path, fresh=fresh)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._tree.get_many(paths)

    async def children(self, path: str, *, fresh: bool = False) -> Listing | None:
        return await self._tree.children(path, fresh=fresh)

    def watch(self, path: str) -> AsyncGenerator[Node | None, None]:
        return self._tree.watch(path)

    def watch_children(self, path: str) -> AsyncGenerator[Listing | None, None]:
        return self._tree.watch_children(path)
