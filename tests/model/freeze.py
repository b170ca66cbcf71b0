"""A hashable picture of an object, for telling states apart."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

from bookkeeper.quorum.distribution import Distribution
from bookkeeper.quorum.ensemble import EnsemblePolicy
from tests.support.planted import ProtocolRules

ATOMS = (type(None), int, str, bytes, float, Enum)
CONSTANTS = (Distribution, EnsemblePolicy, ProtocolRules)
"""The same for a whole search."""


def freeze(value: object, skip: frozenset[str] = frozenset()) -> Hashable:
    """The content of `value` and of what it refers to; attributes named in `skip` are left out everywhere."""
    if isinstance(value, ATOMS):
        return value
    if isinstance(value, CONSTANTS) or callable(value):
        return None
    if isinstance(value, (tuple, list)):
        return tuple(freeze(item, skip) for item in value)
    if isinstance(value, (set, frozenset)):
        return tuple(sorted(value))
    if isinstance(value, dict):
        return tuple((key, freeze(item, skip)) for key, item in value.items())
    names = getattr(type(value), "__slots__", None) or vars(value)
    return tuple(freeze(getattr(value, name), skip) for name in names if name not in skip)
