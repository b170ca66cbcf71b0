"""A handle that is about to be opened."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar


class Handle(Protocol):
    """Something opened that is an async context manager itself."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> Any: ...


H = TypeVar("H", bound=Handle)


class Opening(Coroutine[Any, Any, H], Generic[H]):
    """A coroutine that opens a handle: `await` it, or enter it with `async with`, which closes the handle at the end.

    A coroutine in every way: tasks, `asyncio.gather` and `asyncio.wait_for` take it, Python warns when it is never
    awaited, and awaiting it twice is a `RuntimeError`.
    """

    __slots__ = ("_handle", "_name", "_work")

    def __init__(self, work: Coroutine[Any, Any, H], name: str) -> None:
        """`name` is what it is called in warnings."""
        self._work = work
        self._handle: H | None = None
        self._name = name
        work.__qualname__ = name  # type: ignore[attr-defined] # what Python's own warning says

    def __repr__(self) -> str:
        return f"<Opening {self._name}>"

    @property
    def __name__(self) -> str:
        """What asyncio calls it in the name of a task."""
        return self._name

    def send(self, value: Any) -> Any:
        """Part of being a coroutine."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Part of being a coroutine."""
        return self._work.throw(*error)

    def close(self) -> None:
        """Forget it, unopened."""
        self._work.close()

    def __await__(self) -> Generator[Any, None, H]:
        return self._work.__await__()

    async def __aenter__(self) -> H:
        self._handle = await self._work
        await self._handle.__aenter__()
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._handle is not None
        await self._handle.__aexit__(kind, error, trace)
