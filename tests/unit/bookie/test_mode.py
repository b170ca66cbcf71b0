"""The registration of a bookie follows its mode, and ends with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bookkeeper.bookie.node.mode import BookieState
from bookkeeper.config import ServerConfiguration
from bookkeeper.metadata.api import BookieRegistry, BookieServiceInfo, Endpoint, Mode, Unsubscribe
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId

BOOKIE = BookieId("b:1")
INFO = BookieServiceInfo((Endpoint("bookie", "b", 1),))


class Registry(BookieRegistry):
    """What is registered; `meanwhile` happens while it is asked to register."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.modes: list[Mode] = []
        self.asked = 0
        self._meanwhile = meanwhile

    async def register(self, bookie_id: BookieId, mode: Mode, info: BookieServiceInfo) -> None:
        assert (bookie_id, info) == (BOOKIE, INFO)
        self.asked += 1
        self._meanwhile()
        self.modes.append(mode)

    async def unregister(self, bookie_id: BookieId, mode: Mode) -> None:
        assert bookie_id == BOOKIE
        if mode in self.modes:
            self.modes.remove(mode)

    async def is_registered(self, bookie_id: BookieId) -> bool:
        return bookie_id == BOOKIE and bool(self.modes)

    def on_registration_lost(self, callback: Callable[[], None]) -> Unsubscribe:
        return lambda: None


@pytest.fixture
async def state() -> BookieState:
    return BookieState(RealRuntime(), ServerConfiguration(), BOOKIE, [], lambda *_: None)


async def test_a_bookie_registers_in_its_mode(state: BookieState) -> None:
    registry = Registry()
    await state.register(registry, INFO)
    assert (registry.modes, state.registered) == ([Mode.WRITABLE], True)
    await state.unregister()
    assert (registry.modes, state.registered) == ([], False)
    await state.close()


async def test_a_bookie_that_ends_does_not_register(state: BookieState) -> None:
    state.shutting_down = True
    registry = Registry()
    await state.register(registry, INFO)
    assert (registry.asked, registry.modes, state.registered) == (0, [], False)
    await state.close()


async def test_a_bookie_that_ends_while_it_registers_leaves_again(state: BookieState) -> None:
    registry = Registry(meanwhile=lambda: setattr(state, "shutting_down", True))
    await state.register(registry, INFO)
    assert (registry.asked, registry.modes, state.registered) == (1, [], False)
    await state.close()
