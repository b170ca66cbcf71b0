"""What the wire formats cost: microseconds of CPU for one operation.

    python bench/protocol.py [--size 100] [--count 2000] [--rounds 15] [--ledgers 1] [--json]

Each stage handles `count` entries of `size` payload bytes; the best of all rounds counts, because a busy machine can
only make a round slower. `--ledgers` spreads the adds over so many ledgers, one after the other.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator

from bookkeeper.protocol import v2, v3
from bookkeeper.protocol.digest import digest_for, master_key
from bookkeeper.protocol.frames import FrameSplitter
from bookkeeper.protocol.messages import V2, V3, ReadRun
from bookkeeper.protocol.protobuf import varints
from bookkeeper.types import DigestType

Stage = tuple[str, Callable[[], object]]
FIRST_LEDGER = 4660
FIRST_ENTRY = 50_000
FIRST_TXN = 100_000
KEY = master_key(b"")


def stages(size: int, count: int, ledgers: int) -> Iterator[Stage]:
    """Name and work of each stage, in the order in which an entry meets them."""
    ids = [(FIRST_LEDGER + n % ledgers, FIRST_ENTRY + n // ledgers) for n in range(count)]
    yield from _digest_stages(size, count)
    digest = digest_for(DigestType.CRC32C, b"")
    entries = [digest.package(ledger, entry, entry - 1, size, bytes(size)) for ledger, entry in ids]
    yield from _v2_stages(ids, entries)
    yield from _v3_stages(ids, entries)


def _digest_stages(size: int, count: int) -> Iterator[Stage]:
    payload = bytes(size)
    numbers = range(count)
    for kind in DigestType:
        digest = digest_for(kind, b"")
        entries = [digest.package(FIRST_LEDGER, n, n - 1, n * size, payload) for n in numbers]
        body = b"".join(len(entry).to_bytes(4, "big") + entry for entry in entries)
        package, verify, verify_run = digest.package, digest.verify, digest.verify_run
        yield f"{kind.name}: package", lambda: [package(FIRST_LEDGER, n, n - 1, n * size, payload) for n in numbers]  # noqa: B023
        yield f"{kind.name}: verify", lambda: [verify(FIRST_LEDGER, n, entries[n]) for n in numbers]  # noqa: B023
        yield f"{kind.name}: verify in a run", lambda: verify_run(FIRST_LEDGER, 0, body)  # noqa: B023


def _v2_stages(ids: list[tuple[int, int]], entries: list[bytes]) -> Iterator[Stage]:
    frames = [v2.encode_add_request(KEY, entry) for entry in entries]
    stream = b"".join(frames)
    bodies = FrameSplitter().feed(stream)
    runs, _ = v2.decode_add_runs(bodies)
    acks = b"".join(map(v2.encode_add_responses, runs))
    read_ids = range(FIRST_ENTRY, FIRST_ENTRY + len(ids))
    read_bodies = FrameSplitter().feed(v2.encode_read_requests(FIRST_LEDGER, read_ids))
    read_run = ReadRun(FIRST_LEDGER, V2, list(read_ids))
    yield "v2 client: encode add", lambda: [v2.encode_add_request(KEY, entry) for entry in entries]
    yield "v2 bookie: split into frames", lambda: FrameSplitter().feed(stream)
    yield "v2 bookie: decode adds in runs", lambda: v2.decode_add_runs(bodies)
    yield "v2 bookie: decode adds one by one", lambda: [v2.decode_request(body) for body in bodies]
    yield "v2 bookie: encode acks", lambda: [v2.encode_add_responses(run) for run in runs]
    yield "v2 client: split and decode acks", lambda: [*v2.Responses.unpack(v2.Responses().feed(acks)[0])]
    yield "v2 client: encode reads", lambda: v2.encode_read_requests(FIRST_LEDGER, read_ids)
    yield "v2 bookie: decode reads", lambda: v2.decode_read_run(read_bodies, 0, len(ids))
    yield "v2 bookie: encode answers", lambda: v2.encode_read_responses(read_run, entries)


def _v3_stages(ids: list[tuple[int, int]], entries: list[bytes]) -> Iterator[Stage]:
    encoders = {ledger: v3.AddRequestEncoder(ledger, KEY) for ledger, _ in ids}

    def encode_adds() -> list[bytes]:
        return [
            encoders[ledger].encode(v3.txn_token(txn_id), entry_id, entry)
            for txn_id, ((ledger, entry_id), entry) in enumerate(zip(ids, entries, strict=True), FIRST_TXN)
        ]

    stream = b"".join(encode_adds())
    bodies = FrameSplitter().feed(stream)
    runs, _ = v3.decode_add_runs(bodies)
    acks = b"".join(map(v3.encode_add_responses, runs))
    ack_bodies = FrameSplitter().feed(acks)
    read_ids = range(FIRST_ENTRY, FIRST_ENTRY + len(ids))
    tokens = [v3.txn_token(txn_id) for txn_id in range(FIRST_TXN, FIRST_TXN + len(ids))]
    read_bodies = FrameSplitter().feed(v3.encode_read_requests(FIRST_LEDGER, varints(read_ids), tokens))
    read_run = ReadRun(FIRST_LEDGER, V3, list(read_ids), tokens)
    answers = FrameSplitter().feed(v3.encode_read_responses(read_run, entries, FIRST_ENTRY))
    decode_answer = v3.ReadAnswers().decode
    yield "v3 client: encode add", encode_adds
    yield "v3 bookie: split into frames", lambda: FrameSplitter().feed(stream)
    yield "v3 bookie: decode adds in runs", lambda: v3.decode_add_runs(bodies)
    yield "v3 bookie: decode adds one by one", lambda: [v3.decode_request(body) for body in bodies]
    yield "v3 bookie: encode acks", lambda: [v3.encode_add_responses(run) for run in runs]
    yield "v3 client: split and decode acks", lambda: v3.Responses().feed(acks)
    yield "v3 client: decode acks one by one", lambda: [v3.decode_response(body) for body in ack_bodies]
    yield "v3 client: encode reads", lambda: v3.encode_read_requests(FIRST_LEDGER, varints(read_ids), tokens)
    yield "v3 bookie: decode reads", lambda: v3.decode_read_run(read_bodies, 0, len(ids))
    yield "v3 bookie: decode reads one by one", lambda: [v3.decode_request(body) for body in read_bodies]
    yield "v3 bookie: encode answers", lambda: v3.encode_read_responses(read_run, entries, FIRST_ENTRY)
    yield "v3 client: decode answers", lambda: [decode_answer(body) for body in answers]
    yield "v3 client: decode answers one by one", lambda: [v3.decode_response(body) for body in answers]


def measure(size: int, count: int, rounds: int, ledgers: int) -> dict[str, float]:
    """Microseconds for one entry in each stage."""
    costs = {}
    for name, work in stages(size, count, ledgers):
        best = float("inf")
        for _ in range(rounds):
            gc.collect()
            started = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - started)
        costs[name] = round(best / count * 1e6, 3)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100, help="payload bytes")
    parser.add_argument("--count", type=int, default=2000, help="entries in a round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ledgers", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    costs = measure(arguments.size, arguments.count, arguments.rounds, arguments.ledgers)
    if arguments.json:
        print(json.dumps({"unit": "us", **vars(arguments), "costs": costs}))
        return
    for name, cost in costs.items():
        print(f"{name:36} {cost:8.3f} us")


if __name__ == "__main__":
    main()
