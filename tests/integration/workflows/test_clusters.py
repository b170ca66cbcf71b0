"""W1 to W3: a cluster is made, formatted and removed, and grows."""

from __future__ import annotations

import re
import shutil

from .conftest import Operating, both_stores


async def test_w01_a_cluster_is_made(operating: Operating) -> None:
    async with operating() as op:
        instance = await op.run("bookkeeper shell whatisinstanceid")
        assert re.search(r"InstanceId: [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", instance.strip())
        assert "already" in await op.run("bookkeeper shell initnewcluster", code=1)
        assert await op.command("shell whatisinstanceid") == instance
        await op.run("bookkeeper bookies list --wait 3")
        listed = await op.run("bookkeeper shell listbookies -rw")
        assert all(f"BookieID:{bookie.id}," in listed for bookie in op.cluster.bookies)
        assert '"writableBookiesCount": 3' in await op.run("bookkeeper shell clusterinfo")
        tried = await op.run("bookkeeper shell simpletest -ensemble 3 -writeQuorum 3 -ackQuorum 2 -numEntries 100")
        assert "100 entries written to ledger" in tried
        assert await op.command("shell listledgers") == ""
        assert "nothing needs to be done" in await op.run("bookkeeper doctor")


async def test_w02_a_cluster_is_formatted_and_removed(operating: Operating) -> None:
    async with operating(1) as op:
        (bookie,) = op.cluster.bookies
        await op.write(ensemble_size=1, write_quorum=1, ack_quorum=1)
        before = await op.command("shell whatisinstanceid")
        await op.cluster.terminate(bookie)
        await op.run("bookkeeper shell metaformat -n", code=1)
        assert await op.command("shell whatisinstanceid") == before
        await op.run("bookkeeper shell metaformat -n -f")
        assert await op.command("shell listledgers") == ""
        assert "No bookie exists!" in await op.command("shell listbookies -a")
        now = await op.run("bookkeeper shell whatisinstanceid")
        assert now != before
        assert "instance" in await op.refuses(bookie)

        for place in ("journal", "ledgers"):
            shutil.rmtree(bookie.directory / place)
        await op.cluster.restart(bookie)
        op.written.clear()
        await op.write(ensemble_size=1, write_quorum=1, ack_quorum=1)
        await op.is_sound("too-few-bookies")

        instance = now.split()[-1]
        nuke = "bookkeeper shell nukeexistingcluster -i $INSTANCE"
        assert "registered bookies" in await op.run(nuke, code=1, INSTANCE=instance)
        await op.cluster.terminate(bookie)
        assert "nothing was changed" in await op.run(nuke, code=1, INSTANCE="another")
        await op.run(nuke, INSTANCE=instance)
        assert "there is no cluster" in await op.command("shell listbookies -a", code=1)


@both_stores
async def test_w03_a_bookie_is_added(operating: Operating) -> None:
    async with operating() as op:
        for _ in range(3):
            await op.write()
        added = await op.cluster.add()
        assert str(added.id) in await op.run("bookkeeper bookies list --wait 4")
        assert f"BookieID:{added.id}," in await op.run("bookkeeper shell listbookies -rw")
        assert await op.naming(added.id) == []
        new = await op.write(ensemble_size=4)
        assert await op.naming(added.id) == [new]
        await op.is_sound()
