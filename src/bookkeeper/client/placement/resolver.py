"""Who knows where a bookie stands (spec client §11.3): `reppDnsResolverClass`.

The usual one is a script of the operator's, `networkTopologyScriptFileName`. It is run with up to
`networkTopologyScriptNumberArgs` IP addresses as arguments, and prints a location for each, in their order. Anything
else (another number of words, failure, silence) leaves those bookies at the default location.

An operator's own class is named as `module:Class`: a `DNSToSwitchMapping`, made without arguments.
"""

from __future__ import annotations

import importlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...config import ClientConfiguration
from ...errors import ConfigurationError
from ...runtime import Runtime

log = logging.getLogger(__name__)

T = TypeVar("T")

SCRIPT = "ScriptBasedMapping"


class DNSToSwitchMapping(ABC):
    """Finds locations."""

    use_host_name = False
    """Whether it is asked with host names; else with IP addresses."""

    async def start(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Called once, before anything is asked. Raises `ConfigurationError` if it cannot work."""

    @abstractmethod
    async def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        """The location of each host; None for one that is not known."""

    def on_rack_change(self, listener: Callable[[Sequence[str]], None]) -> None:  # noqa: B027 - most never notice
        """Call `listener` with hosts whose location has changed; with none: any may have."""


class ScriptBasedMapping(DNSToSwitchMapping):
    """Asks a script. What it answered once holds for good."""

    def __init__(self, runtime: Runtime, config: ClientConfiguration) -> None:
        assert config.networkTopologyScriptFileName
        self._runtime = runtime
        self._script = config.networkTopologyScriptFileName
        self._at_once = config.networkTopologyScriptNumberArgs
        self._timeout = config.networkTopologyScriptTimeoutMillis / 1000
        self._known: dict[str, str] = {}

    async def start(self) -> None:
        """Run it once without arguments, to see whether it runs at all."""
        try:
            await self._run([])
        except OSError as error:
            raise ConfigurationError(f"networkTopologyScriptFileName={self._script} does not run: {error}") from None

    async def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
        unknown = [name for name in dict.fromkeys(names) if name not in self._known]
        for first in range(0, len(unknown), self._at_once):
            await self._ask(unknown[first : first + self._at_once])
        return [self._known.get(name) for name in names]

    async def _ask(self, names: Sequence[str]) -> None:
        try:
            words = await self._run(names)
        except OSError as error:
            log.warning("%s for %s: %s", self._script, " ".join(names), error)
            return
        if len(words) != len(names):
            log.warning("%s printed %d locations for %d addresses", self._script, len(words), len(names))
            return
        self._known.update(zip(names, words, strict=True))

    async def _run(self, names: Sequence[str]) -> list[str]:
        output = await self._runtime.run_program([self._script, *names], timeout=self._timeout)
        return output.decode(errors="replace").split()


def make_resolver(runtime: Runtime, config: ClientConfiguration) -> DNSToSwitchMapping | None:
    """The one that the configuration names; None if none is to be asked. Raises `ConfigurationError`."""
    name = config.reppDnsResolverClass
    if ":" in name:
        found = load_class("reppDnsResolverClass", name, DNSToSwitchMapping)  # type: ignore[type-abstract]
        return found()
    if name.rpartition(".")[2] != SCRIPT:
        raise ConfigurationError(f"reppDnsResolverClass={name}: give {SCRIPT}, or module:Class for a class of yours")
    if config.networkTopologyScriptFileName:
        return ScriptBasedMapping(runtime, config)
    return None


def load_class(setting: str, name: str, base: type[T]) -> type[T]:
    """The class `module:Class` that a setting names. Raises `ConfigurationError`."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{setting}={name}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigurationError(f"{setting}={name} is no {base.__name__}")
    return found
