"""Where bookies stand (spec client §11.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.client.placement.topology import Topology, parse_location, region_of
from bookkeeper.errors import ConfigurationError
from bookkeeper.types import BookieId

from .support import ids, topology_of

A, B, C = ids("a", "b", "c")


def test_leaves_by_rack_and_region() -> None:
    topology = topology_of({"b": "/r1/y", "a": "/r1/x", "c": "/r2/x", "d": "/r10/x"})
    assert topology.leaves() == ids("a", "b", "c", "d")
    assert topology.leaves("/r1") == ids("a", "b")
    assert topology.leaves("/r1/y") == ids("b")
    assert topology.leaves("/nowhere") == []
    assert topology.racks() == ["/r1/y", "/r1/x", "/r2/x", "/r10/x"]
    assert topology.racks("/r1") == ["/r1/y", "/r1/x"]
    assert topology.regions() == ["r1", "r2", "r10"]
    assert region_of("/r1/x") == "r1"


def test_a_bookie_that_moves_or_leaves() -> None:
    topology = topology_of({"a": "/x", "b": "/x"})
    topology.add(A, "/y/")
    assert (topology.rack(A), topology.rack(B)) == ("/y", "/x")
    assert topology.racks() == ["/x", "/y"]
    topology.remove(B)
    topology.remove(B)
    assert topology.racks() == ["/y"]
    assert topology.rack(B) is None
    assert topology.last_rack(B) == "/x"
    assert topology.last_rack(C) is None
    assert list(topology.bookies) == [A]


def test_the_first_bookie_says_how_deep_the_tree_is() -> None:
    topology = topology_of({"a": "/x"})
    with pytest.raises(ConfigurationError, match=r"bookie b is at /r/x.*1 parts"):
        topology.add(B, "/r/x")
    assert topology.leaves() == [A]
    topology.add(A, "/r/x")  # it was the only one
    with pytest.raises(ConfigurationError):
        topology.add(B, "/x")
    topology.remove(A)
    topology.add(B, "/x")
    assert topology.leaves() == [B]


@pytest.mark.parametrize("text", ["", "/", "rack", "//", "/a//b", "a/b", "/a//"])
def test_what_is_no_location(text: str) -> None:
    with pytest.raises(ConfigurationError, match="/rack or /region/rack"):
        parse_location(text)


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(["/x", "/y", "/z", None]))))
def test_it_is_a_dictionary_with_an_index(steps: list[tuple[str, str | None]]) -> None:
    topology, model = Topology(), dict[str, str]()
    for bookie, location in steps:
        if location is None:
            topology.remove(BookieId(bookie))
            model.pop(bookie, None)
        else:
            topology.add(BookieId(bookie), location)
            model[bookie] = location
        assert {bookie: topology.rack(bookie) for bookie in topology.bookies} == model
        assert set(topology.racks()) == set(model.values())
        for rack in topology.racks():
            assert set(topology.leaves(rack)) == {name for name, at in model.items() if at == rack}
