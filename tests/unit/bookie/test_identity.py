"""Who a bookie is, on a machine whose address has no name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.bookie.node.identity import identify
from bookkeeper.errors import ConfigurationError
from bookkeeper.runtime.real import RealRuntime
from tests.support.bookie import bookie_config


class Nameless(RealRuntime):
    """A machine whose address no name service knows."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

        async def host_name(address: str) -> str:
            self.asked += 1
            raise OSError(f"{address} has no name")

        self.network.host_name = host_name  # type: ignore[method-assign]

    def hostname(self) -> str:
        return "127.0.0.1"


async def test_a_machine_without_a_name_starts_under_its_address(tmp_path: Path) -> None:
    """G22."""
    runtime = Nameless()
    found = await identify(runtime, bookie_config(tmp_path, bookieId=None, bookiePort=3181))
    assert found.bookie_id == "127.0.0.1:3181"
    assert runtime.asked == 1


async def test_a_machine_without_a_name_that_is_to_go_by_its_name_is_refused(tmp_path: Path) -> None:
    """G22: the error says what to do."""
    config = bookie_config(tmp_path, bookieId=None, bookiePort=3181, advertisedAddress=None, useHostNameAsBookieID=True)
    with pytest.raises(ConfigurationError, match=r"useHostNameAsBookieID.*set advertisedAddress"):
        await identify(Nameless(), config)
