"""Finding out where bookies stand (spec client §11.3)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bookkeeper.client.placement.locations import Locations
from bookkeeper.client.placement.resolver import ScriptBasedMapping, make_resolver
from bookkeeper.config import ClientConfiguration
from bookkeeper.errors import ConfigurationError
from bookkeeper.runtime import TaskScope
from bookkeeper.runtime.real import RealRuntime

from .support import Clock, Directory, Plan, ids

HERE = "tests.unit.client.placement.support"
PLAN = {"reppDnsResolverClass": f"{HERE}:Plan"}
A, B, C = ids("a", "b", "c")


async def locations_of(directory: Directory, **settings: Any) -> tuple[Locations, Clock]:
    clock = Clock()
    config = ClientConfiguration.from_mapping(settings)
    locations = Locations(clock, config, directory, make_resolver(clock, config), "/default-rack")  # type: ignore[arg-type]
    await locations.start(TaskScope(clock, "test"))
    return locations, clock


async def test_each_bookie_is_asked_for_once() -> None:
    Plan.locations.update({"ip-a": "/x", "ip-b": "/y"})
    locations, _ = await locations_of(Directory("abc"), **PLAN)
    assert locations.of(A) == "/default-rack"
    await locations.locate([B, A])
    assert (locations.of(A), locations.of(B)) == ("/x", "/y")
    version = locations.version
    await locations.locate([A, B])
    assert locations.version == version
    assert Plan.asked == [["ip-here"], ["ip-a", "ip-b"]]


async def test_what_was_not_found_is_looked_for_again() -> None:
    directory = Directory("abc")
    directory.unknown.add("a")
    Plan.locations["ip-a"] = "/x"
    locations, _ = await locations_of(directory, **PLAN)
    await locations.locate([A, C])
    assert (locations.of(A), locations.of(C)) == ("/default-rack", "/default-rack")
    directory.unknown.clear()
    Plan.locations["ip-c"] = "/z"
    await locations.locate([A, C])
    assert (locations.of(A), locations.of(C)) == ("/x", "/z")


async def test_an_address_that_cannot_be_found() -> None:
    locations, _ = await locations_of(Directory(["nowhere"]), **PLAN)
    await locations.locate(ids("nowhere"))
    assert locations.of(ids("nowhere")[0]) == "/default-rack"
    assert Plan.asked == [["ip-here"]]


async def test_a_resolver_may_ask_for_names() -> None:
    Plan.locations.update({"a": "/x", "here": "/local"})
    locations, _ = await locations_of(Directory("a"), reppDnsResolverClass=f"{HERE}:NamePlan")
    await locations.locate([A])
    assert locations.of(A) == "/x"
    assert locations.local == "/local"


async def test_a_resolver_that_gives_too_few_answers(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    config = ClientConfiguration.from_mapping({"ignoreLocalNodeInPlacementPolicy": True})
    resolver = make_resolver(clock, ClientConfiguration.from_mapping({"reppDnsResolverClass": f"{HERE}:TooShort"}))
    locations = Locations(clock, config, Directory("a"), resolver, "/default-rack")  # type: ignore[arg-type]
    await locations.start(TaskScope(clock, "test"))
    await locations.locate([A])
    assert locations.of(A) == "/default-rack"
    assert "0 locations for 1 hosts" in caplog.text


@pytest.mark.parametrize(
    ("settings", "local"),
    [
        ({}, "/by-address"),
        ({"useHostnameResolveLocalNodePlacementPolicy": True}, "/by-name"),
        ({"ignoreLocalNodeInPlacementPolicy": True}, None),
    ],
)
async def test_where_the_client_itself_stands(settings: dict[str, Any], local: str | None) -> None:
    Plan.locations.update({"ip-here": "/by-address", "here": "/by-name"})
    locations, _ = await locations_of(Directory("a"), **PLAN, **settings)
    assert locations.local == local


async def test_without_a_resolver_nothing_is_asked() -> None:
    locations, _ = await locations_of(Directory("a"))
    await locations.locate([A])
    assert locations.of(A) == "/default-rack"
    assert locations.local is None


# --- scripts, really run ---

SCRIPT = """#!/bin/sh
echo "$#" >> "$0.calls"
for address in "$@"; do
    case "$address" in
        10.0.0.1) echo /x ;;
        10.0.0.2) printf "/y " ;;
        bad) exit 3 ;;
        few) ;;
        slow) exec sleep 600 ;;
        *) echo /else ;;
    esac
done
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "where.sh"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path


def mapping_of(script: Path, **settings: Any) -> ScriptBasedMapping:
    config = ClientConfiguration.from_mapping({"networkTopologyScriptFileName": str(script), **settings})
    resolver = make_resolver(RealRuntime(), config)
    assert isinstance(resolver, ScriptBasedMapping)
    return resolver


def calls(script: Path) -> list[int]:
    return list(map(int, Path(f"{script}.calls").read_text().split()))


async def test_a_script_is_asked_once_for_each_address(script: Path) -> None:
    resolver = mapping_of(script, networkTopologyScriptNumberArgs=2)
    await resolver.start()
    names = ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.3"]
    for _ in range(2):
        assert await resolver.resolve(names) == ["/x", "/y", "/x", "/else"]
    assert calls(script) == [0, 2, 1]


@pytest.mark.parametrize(
    ("address", "logged"), [("bad", "exit code 3"), ("few", "0 locations for 1"), ("slow", "took longer than 0.2 s")]
)
async def test_a_script_that_fails(script: Path, address: str, logged: str, caplog: pytest.LogCaptureFixture) -> None:
    timeout = 200 if address == "slow" else 60_000
    resolver = mapping_of(script, networkTopologyScriptTimeoutMillis=timeout, networkTopologyScriptNumberArgs=1)
    answers: Sequence[str | None] = await resolver.resolve([address, address])
    assert list(answers) == [None, None]
    assert logged in caplog.text
    assert str(script) in caplog.text


async def test_a_script_that_does_not_run_is_done_without(script: Path, caplog: pytest.LogCaptureFixture) -> None:
    script.chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"where.sh does not run: .*Permission denied"):
        await mapping_of(script).start()
    locations, _ = await locations_of(Directory("a"), networkTopologyScriptFileName=str(script))
    await locations.locate([A])
    assert locations.of(A) == "/default-rack"
    assert "all bookies count as being in /default-rack" in caplog.text


class Broken(Plan):
    """Raises wherever it is called, or what it is told to raise for single hosts."""

    odd: ClassVar[set[str]] = set()
    everywhere: ClassVar[bool] = False

    async def start(self) -> None:
        if self.everywhere:
            raise KeyError("start")

    async def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        if self.everywhere or self.odd.intersection(names):
            raise KeyError("resolve")
        return await super().resolve(names)

    def on_rack_change(self, listener: object) -> None:
        raise KeyError("on_rack_change")


BROKEN = {"reppDnsResolverClass": f"{__name__}:Broken"}


async def test_one_host_that_upsets_the_resolver_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broken, "odd", {"ip-b"})
    Plan.locations.update({"ip-a": "/x", "ip-b": "/y", "ip-c": "/z"})
    locations, _ = await locations_of(Directory("abc"), **BROKEN)
    await locations.locate([A, B, C])
    assert [locations.of(bookie) for bookie in (A, B, C)] == ["/x", "/default-rack", "/z"]
    monkeypatch.setattr(Broken, "odd", set())
    await locations.locate([A, B, C])  # with the next list
    assert locations.of(B) == "/y"


async def test_a_resolver_that_always_raises_leaves_all_at_the_default_location(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Broken, "everywhere", True)
    locations, _ = await locations_of(Directory("abc"), **BROKEN)
    await locations.locate([A, B, C])
    assert {locations.of(bookie) for bookie in (A, B, C)} == {"/default-rack"}
    assert locations.local is None
    with pytest.raises(ConfigurationError, match="does not start"):
        await locations_of(Directory("abc"), **BROKEN, enforceMinNumRacksPerWriteQuorum=True)


@pytest.mark.parametrize("odd", [[3], None, [["/x"]]])
async def test_answers_that_are_no_locations(odd: object, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(_self: object, _names: object) -> object:
        return odd

    monkeypatch.setattr(Broken, "resolve", resolve)
    locations, _ = await locations_of(Directory("a"), **BROKEN)
    await locations.locate([A])
    assert locations.of(A) == "/default-rack"


async def test_a_host_name_that_dns_cannot_have(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: object, host: str) -> str:
        if host == "b":
            raise UnicodeError("label too long")
        return f"ip-{host}"

    monkeypatch.setattr("tests.unit.client.placement.support.Names.resolve", fail)
    Plan.locations.update({"ip-a": "/x", "ip-b": "/y"})
    locations, _ = await locations_of(Directory("ab"), **PLAN)
    await locations.locate([A, B])
    assert [locations.of(bookie) for bookie in (A, B)] == ["/x", "/default-rack"]
