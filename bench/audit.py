"""What an audit of very many ledgers costs: time, memory of the auditor, requests to the metadata store.

    python -m bench.audit [--ledgers 1000000] [--lost 0.01] [--uri sqlite:///tmp/x/metadata.db]

Records of closed ledgers are made up in the store; some of them name a bookie that is not there, and are marked. The
audit runs twice, the second time with the marks there already, each time in a process of its own, whose memory counts.
Without an address an SQLite file in a temporary directory is used; `zk://...` must be an initialised cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import Any

from bookkeeper.autorecovery.audits import audit_bookies
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.api import MetadataDriver
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, DigestType

HERE = [BookieId(f"10.0.0.{host}:3181") for host in range(1, 6)]
LOST = BookieId("10.0.0.9:3181")
AT_ONCE = 1000


def record(number: int, lost: bool) -> LedgerMetadata:
    """A closed ledger as clients leave it."""
    members = [HERE[(number + place) % len(HERE)] for place in range(3)]
    if lost:
        members[number % 3] = LOST
    metadata = LedgerMetadata(number, 3, 3, 2, {0: tuple(members)}, digest_type=DigestType.CRC32C, password=b"")
    return metadata.close(99, 10_000)


async def fill(uri: str, count: int, lost: float) -> None:
    """Make the ledgers."""
    driver = open_driver(uri, RealRuntime())
    await driver.open(create=True)
    if not await driver.admin.exists():
        await driver.admin.init_new_cluster()
    every = round(1 / lost) if lost else count + 1
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        records = [record(number, number % every == every - 1) for number in numbers]
        await asyncio.gather(*(driver.ledgers.create(each.ledger_id, each) for each in records))
        if start % 100_000 == 0:
            print(f"\r{start:,} of {count:,} ledgers made", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    await driver.close()


async def audit(uri: str) -> dict[str, Any]:
    """One audit, in this process."""
    driver = open_driver(uri, RealRuntime())
    await driver.open()
    before = memory_mb()
    requests = count_requests(driver)
    started = time.perf_counter()
    report = await audit_bookies(driver, HERE)
    seconds = time.perf_counter() - started
    await driver.close()
    return {
        "ledgers": report.ledgers,
        "marked": report.marked,
        "seconds": seconds,
        "memory_mb": memory_mb(),
        "before_mb": before,
        "requests": dict(requests),
    }


def count_requests(driver: MetadataDriver) -> Counter[str]:
    """From now on; by what is asked for."""
    counted: Counter[str] = Counter()
    for store, names in ((driver.ledgers, ("read", "ranges")), (driver.underreplication, ("mark",))):
        for name in names:
            call = getattr(store, name)

            def counting(*arguments: Any, _call: Any = call, _name: str = name, **more: Any) -> Any:
                counted[_name] += 1
                return _call(*arguments, **more)

            setattr(store, name, counting)
    return counted


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def measure(uri: str, count: int, lost: float) -> None:
    asyncio.run(fill(uri, count, lost))
    for turn in ("first audit", "with the marks there"):
        done = subprocess.run([sys.executable, "-m", "bench.audit", "--audit", uri], check=True, capture_output=True)
        said = json.loads(done.stdout)
        said["requests"] = ", ".join(f"{number:,} {name}" for name, number in said["requests"].items())
        rate = said["ledgers"] / said["seconds"]
        print(
            f"{turn}: {said['ledgers']:,} ledgers in {said['seconds']:.1f} s ({rate:,.0f}/s), "
            f"{said['marked']:,} marked, {said['memory_mb']:.0f} MB ({said['before_mb']:.0f} before), "
            f"calls of the store: {said['requests']}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ledgers", type=int, default=100_000)
    parser.add_argument("--lost", type=float, default=0.01, help="part of the ledgers that name a lost bookie")
    parser.add_argument("--uri")
    parser.add_argument("--audit", metavar="URI", help="only audit, and print JSON")
    options = parser.parse_args()
    if options.audit:
        print(json.dumps(asyncio.run(audit(options.audit))))
        return
    with tempfile.TemporaryDirectory() as directory:
        measure(options.uri or f"sqlite://{directory}/metadata.db", options.ledgers, options.lost)


if __name__ == "__main__":
    main()
