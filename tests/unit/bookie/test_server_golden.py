"""Booting on directories that Java's bookies left behind, killed, and serving everything they held."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bookie.bookie import Bookie
from bookkeeper.config import ServerConfiguration
from bookkeeper.metadata import open_driver
from bookkeeper.metadata.formats.ledger import parse
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.protocol.digest import digest_for, master_key
from bookkeeper.protocol.messages import Status
from bookkeeper.quorum.distribution import Distribution
from bookkeeper.runtime import KeyValueStore
from bookkeeper.runtime.disk.files import RealFiles
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, DigestType
from tests.support import golden
from tests.support.bookie import METADATA_URI, CrashImage, RawClient, fence, read

CONFIGURED = "/data/"
"""Where the directories were when Java's bookies ran; part of their cookies."""


class _MovedFiles(RealFiles):
    """The file system as it was for Java's bookies: `/data` is somewhere else now."""

    def __init__(self, home: Path) -> None:
        def moved(name: str) -> Any:
            call = getattr(RealFiles, name)

            def with_moved_paths(*args: Any) -> Any:
                return call(self, *(real_path(home, arg) for arg in args))

            return with_moved_paths

        for name in ("open", "listdir", "exists", "is_dir", "size", "makedirs", "rename", "unlink", "fsync_dir"):
            setattr(self, name, moved(name))
        self.disk_usage = moved("disk_usage")  # type: ignore[method-assign]


def real_path(home: Path, path: str) -> str:
    return f"{home}/{path.removeprefix(CONFIGURED)}" if path.startswith(CONFIGURED) else path


class MovedRuntime(RealRuntime):
    def __init__(self, home: Path, instance_id: str) -> None:
        super().__init__()
        self._home = home
        self._instance_id = instance_id
        self.files = _MovedFiles(home)

    def open_key_value(self, path: str, options: Mapping[str, Any] | None = None) -> KeyValueStore:
        return super().open_key_value(real_path(self._home, path), options)

    def uuid(self) -> str:
        """What the cluster's initialisation takes as its instance id."""
        return self._instance_id


async def java_cluster(runtime: MovedRuntime, nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """The metadata that the bookies need: instance id and cookies."""
    driver = open_driver(METADATA_URI, runtime)
    await driver.open()
    await driver.admin.init_new_cluster()
    for bookie_id in golden.BOOKIE_IDS.values():
        data = bytes.fromhex(str(nodes[f"/ledgers/cookies/{bookie_id}"]["data"]))
        await driver.cookies.create(BookieId(bookie_id), data)
    await driver.close()


def config(name: str, **settings: Any) -> ServerConfiguration:
    return ServerConfiguration.from_mapping(
        {
            "metadataServiceUri": METADATA_URI,
            "bookieId": golden.BOOKIE_IDS[name],
            "bookiePort": 0,
            "allowEphemeralPorts": True,
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": True,
            "journalDirectories": [f"{CONFIGURED}{name}/journal"],
            "ledgerDirectories": [f"{CONFIGURED}{name}/ledgers"],
            "diskUsageThreshold": 0.999,
            "diskUsageWarnThreshold": 0.998,
            "dbStorage_writeCacheMaxSizeMb": 16,
            "dbStorage_readAheadCacheMaxSizeMb": 16,
            **settings,
        }
    )


def ledger_metadata(nodes: Mapping[str, Mapping[str, Any]], ledger_id: int) -> LedgerMetadata:
    if ledger_id == golden.BIG_ID:
        path = "/ledgers/000/0000/0050/0000/L0000"
    else:
        digits = f"{ledger_id:010d}"
        path = f"/ledgers/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    return parse(bytes.fromhex(str(nodes[path]["data"])), ledger_id)


async def check_ledger(
    client: RawClient, ledger: golden.GoldenLedger, metadata: LedgerMetadata, bookie_id: str
) -> None:
    """Every entry that must be here is, with its bytes; and no other."""
    digest = digest_for(DigestType(ledger.digest), ledger.password.encode())
    distribution = Distribution(ledger.ensemble, ledger.write_quorum, ledger.ack_quorum)
    whole = hashlib.sha256()
    held = 0
    for entry_id in range(ledger.entries):
        index = metadata.ensemble_at(entry_id).index(BookieId(bookie_id))
        answer = await client.v2(read(ledger.ledger, entry_id))
        if index not in distribution.write_set(entry_id):
            assert answer.status == Status.ENOENTRY
            continue
        held += 1
        assert answer.status == Status.EOK
        payload = digest.verify(ledger.ledger, entry_id, answer.entry)[-1]
        assert payload == golden.payload(entry_id, ledger.size)
        whole.update(payload)
    if held == ledger.entries:
        assert whole.hexdigest() == ledger.sha256
    beyond = await client.v2(read(ledger.ledger, ledger.entries))
    assert beyond.status in (Status.ENOENTRY, Status.ENOLEDGER)
    assert held or ledger.entries == 0


@pytest.mark.parametrize("name", golden.BOOKIES)
async def test_a_directory_of_java_is_served_completely(tmp_path: Path, name: str) -> None:
    nodes = golden.metadata()
    home = tmp_path / "data"
    home.mkdir()
    golden.unpack(home)
    instance_id = bytes.fromhex(str(nodes["/ledgers/INSTANCEID"]["data"])).decode()
    runtime = MovedRuntime(home, instance_id)
    await java_cluster(runtime, nodes)
    for start in ("first", "after a kill", "after an orderly stop"):
        bookie = Bookie(runtime, config(name, flushInterval=3_600_000))
        await bookie.start()
        image = None
        try:
            async with RawClient.to(bookie) as client:
                for ledger in golden.ledgers():
                    metadata = ledger_metadata(nodes, ledger.ledger)
                    await check_ledger(client, ledger, metadata, golden.BOOKIE_IDS[name])
                if start == "first":
                    await check_keys_and_fences(client)
                    image = CrashImage(home)
        finally:
            await bookie.stop()
        if image is not None:
            image.restore()


async def check_keys_and_fences(client: RawClient) -> None:
    """Java's keys hold, and ledgers that recovery closed stay fenced."""
    for ledger in golden.ledgers():
        if ledger.entries == 0:
            continue
        wrong = fence(ledger.ledger, key=master_key(b"not the password"))
        assert (await client.v2(wrong)).status == Status.EUA
    (some,) = [ledger for ledger in golden.ledgers() if ledger.ledger == 11]
    answer = await client.v2(fence(11, key=master_key(some.password.encode())))
    assert answer.status == Status.EOK
