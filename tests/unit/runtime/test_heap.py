"""Memory that is freed is kept by the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

import bookkeeper
from bookkeeper.config import ClientConfiguration
from bookkeeper.runtime.heap import keep_freed_memory
from bookkeeper.runtime.real import RealRuntime

FAULTS = """
import resource
from bookkeeper.runtime.heap import keep_freed_memory
print(keep_freed_memory() if {keep} else False)
piece = bytes(1_000_000)
[b"".join([piece, piece]) for _ in range(4)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    [b"".join([piece, piece]) for _ in range(4)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*, keep: bool) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS.format(keep=keep)], capture_output=True, text=True, check=True)
    kept, count = done.stdout.split()
    if keep and kept == "False":
        pytest.skip("the C library is not glibc")
    return int(count)


def test_large_objects_cost_no_page_faults() -> None:
    assert faults(keep=True) < 1000 < faults(keep=False)


def test_it_may_be_said_again() -> None:
    assert keep_freed_memory() == keep_freed_memory()


@pytest.mark.parametrize(("policy", "keeps"), [(None, True), ("PooledDirect", True), ("UnpooledHeap", False)])
def test_a_client_keeps_freed_memory_unless_it_is_told_not_to(policy: str | None, keeps: bool) -> None:
    class Noting(RealRuntime):
        kept = False

        def keep_freed_memory(self) -> None:
            self.kept = True

    runtime = Noting()
    settings = {} if policy is None else {"allocatorPoolingPolicy": policy}
    bookkeeper.connect("memory://heap", config=ClientConfiguration.from_mapping(settings), runtime=runtime)
    assert runtime.kept is keeps
