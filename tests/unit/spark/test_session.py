"""The clients that a process of Spark keeps."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from bookkeeper.runtime.real import RealRuntime
from bookkeeper.spark import session


class Silent:
    """A session with nobody."""

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("started_as", "times"), [("pyspark.daemon", 1), ("pyspark.worker", 1), ("pytest.__main__", 0), (None, 0)]
)
def test_what_a_process_of_spark_has_loaded_is_left_out_of_collections(
    monkeypatch: pytest.MonkeyPatch, started_as: str | None, times: int
) -> None:
    """Spark collects all garbage after each task. It is not for us to change what a program that uses Spark collects,
    and done again it would keep for good what a closed client was."""
    frozen: list[RealRuntime] = []
    monkeypatch.setattr(RealRuntime, "freeze_memory", lambda self: frozen.append(self))
    spec = started_as and ModuleSpec(started_as, None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    kept: Any = session._Cache()
    for key in ("a", "b", "a"):
        with kept.lease((key,), Silent):
            assert len(frozen) == times
    kept.close()
