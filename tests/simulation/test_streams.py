"""Streams whose writers and bookies die, in virtual time (spec safety H10)."""

from __future__ import annotations

from itertools import count

import pytest

from bookkeeper.streams.dlsn import DLSN
from bookkeeper.streams.policy import WritePolicy
from bookkeeper.streams.reading.reader import StreamReader
from bookkeeper.streams.writer import StreamWriter, open_writer
from tests.simulation.scenario import Died, Scenario, play
from tests.support.segment_store import MemorySegmentStore, Records

POLICY = WritePolicy(buffer_bytes=200, roll_records=40)


async def append(writer: StreamWriter, owner: int, acknowledged: dict[DLSN, bytes]) -> None:
    """Batches, until the machine dies."""
    for n in count():
        payloads = [b"%d %d %d" % (owner, n, i) for i in range(5)]
        positions = await writer.append_batch(payloads, as_sets=n % 3 == 0)
        acknowledged.update(zip(positions, payloads, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_what_was_acknowledged_is_read_in_order_after_writers_died(seed: int) -> None:
    async def story(s: Scenario) -> None:
        records, acknowledged = Records(), dict[DLSN, bytes]()
        for owner in range(3):
            name = f"w{owner}"
            store = MemorySegmentStore(await s.connect(name), records)
            writer = await s.on(name, open_writer(s.cluster.client_runtime(name), store, POLICY))
            work = s.begin(name, append(writer, owner, acknowledged))
            s.world.loop.call_later(0.02 + s.world.stream("story").random(), s.cluster.machine(name).power_off)
            if owner == 1:
                s.cluster.machine("b2").power_off()
            with pytest.raises(Died):
                await s.wait(work)
            s._writers += store.ledgers
        bk = await s.connect("r")
        store = MemorySegmentStore(bk, records)
        last = await s.on("r", open_writer(s.cluster.client_runtime("r"), store, POLICY))
        await s.on("r", last.append(b"last"))
        await s.on("r", last.close())
        assert acknowledged

        async def read() -> list[tuple[DLSN, bytes]]:
            return [(record.position, record.payload) async for record in StreamReader(store, tail=False)]

        found = await s.on("r", read())
        assert [position for position, _ in found] == sorted({position for position, _ in found})
        assert acknowledged.items() <= dict(found).items()
        by_owner = [list(map(int, payload.split())) for _, payload in found[:-1]]
        assert by_owner == sorted(by_owner)
        assert found[-1][1] == b"last"

    play(story, bookies=4, seed=seed)
