"""An operator: runs the commands of docs/operations.md, and knows what was written to the cluster.

A command is given as the page prints it, with `$NAME` where the operator says which. One that the workflow's section
does not print is an error, and so is one that is printed there and not run: page and tests cannot part.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from bookkeeper import LedgerWriter
from bookkeeper.autorecovery.fragments import bookies_of
from bookkeeper.bookie.file_names import VERSION_FILE
from bookkeeper.cli.local.cluster import BookieProcess, ClusterError, LocalCluster
from bookkeeper.client.client import BookKeeper
from bookkeeper.metadata.api import Mode
from bookkeeper.types import BookieId
from tests.integration.processes import PASSWORD, payload
from tests.support.commands import run_command
from tests.support.http import Answer, curl
from tests.support.scrub import bad_copies
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "operations.md"
PAUSE_SECONDS = 0.1


@dataclass
class Section:
    """What the page prints for one workflow."""

    printed: frozenset[str]
    ran: set[str] = field(default_factory=set)

    @classmethod
    def of_test(cls, name: str) -> Section:
        """The section for `test_w07_...`: `### W7 ...`, up to the next heading."""
        number = re.match(r"test_w(\d\d)_", name)
        assert number, f"{name} names no workflow"
        section = re.search(rf"^### W{int(number[1])} .*?(?=^##)", PAGE.read_text() + "\n##", re.M | re.S)
        assert section, f"docs/operations.md has no section for W{int(number[1])}"
        return cls(frozenset(re.findall(r"^ *((?:bookkeeper|curl) [^#\n]*[^#\s])", section[0], re.M)))

    def run(self, command: str) -> None:
        assert command in self.printed, f"docs/operations.md does not print: {command}"
        self.ran.add(command)

    def check_all_ran(self) -> None:
        assert self.printed - self.ran == set(), "printed in docs/operations.md, and not run"


@dataclass
class Operator:
    """One cluster, and all that is known of it."""

    cluster: LocalCluster
    bk: BookKeeper
    section: Section
    written: dict[int, int] = field(default_factory=dict)
    """Ledgers, and how many entries of them were acknowledged."""

    # --- commands ---

    async def run(self, command: str, code: int = 0, **names: object) -> str:
        """A command of the page; `names` are put in. Returns what it prints, errors too."""
        self.section.run(command)
        return await self.command(Template(command).substitute(names).removeprefix("bookkeeper "), code)

    async def command(self, words: str, code: int | None = 0) -> str:
        """Any other command, to look with. `code` None: whatever it is."""
        environ = {**os.environ, "BOOKKEEPER_URI": self.cluster.uri, "COLUMNS": "300"}
        ended = await run_command(shlex.split(words), environ, together=True)
        found, text = ended.code, ended.out.decode()
        assert code in (None, found), f"{words}: exit code {found}\n{text}"
        return text

    async def http(self, command: str, bookie: BookieProcess, status: int | None = 200) -> Answer:
        """A `curl` of the page, of a bookie's HTTP API. `status` None: whatever it is."""
        self.section.run(command)
        port = dict(line.split("=", 1) for line in bookie.configuration.read_text().splitlines())["httpServerPort"]
        answer = await curl(Template(command).substitute(HTTP=f"127.0.0.1:{port}"))
        assert status in (None, answer.status), f"{command}: {answer}"
        return answer

    # --- data ---

    async def write(self, count: int = 30, **quorums: int) -> int:
        """A closed ledger; by default of two copies on three bookies."""
        writer = await self.open(count, **quorums)
        await writer.close()
        return writer.id

    async def open(self, count: int = 30, **quorums: int) -> LedgerWriter:
        """The writer of an open ledger with so many acknowledged entries."""
        shape = {"ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2, **quorums}
        writer = await self.bk.create_ledger(
            ensemble_size=shape["ensemble_size"],
            write_quorum=shape["write_quorum"],
            ack_quorum=shape["ack_quorum"],
            password=PASSWORD,
        )
        await asyncio.gather(*[await writer.append_soon(payload(writer.id, number)) for number in range(count)])
        self.written[writer.id] = count
        return writer

    async def naming(self, bookie: BookieId) -> list[int]:
        """The ledgers that name a bookie."""
        records = {ledger_id: await self.bk.get_ledger_metadata(ledger_id) for ledger_id in self.written}
        return [ledger_id for ledger_id, record in records.items() if bookie in bookies_of(record)]

    # --- bookies ---

    async def busiest(self) -> BookieProcess:
        """The bookie that most ledgers name."""
        counts = {bookie.id: len(await self.naming(bookie.id)) for bookie in self.cluster.bookies}
        return max(self.cluster.bookies, key=lambda bookie: counts[bookie.id])

    async def lose(self, bookie: BookieProcess) -> None:
        """`kill -9`, and wait until the bookie is missed."""
        await self.cluster.kill(bookie)

        async def missed() -> bool:
            return bookie.id not in await self.bk.writable_bookies()

        await until(missed, f"{bookie.id} is missed", pause=PAUSE_SECONDS)

    async def restart(self, bookie: BookieProcess, mode: Mode = Mode.WRITABLE, **settings: object) -> None:
        """Start a stopped bookie with other settings."""
        configure(bookie, **settings)
        await self.cluster.restart(bookie, mode)

    async def refuses(self, bookie: BookieProcess, **settings: object) -> str:
        """A stopped bookie does not start with these settings; its last words."""
        configure(bookie, **settings)
        try:
            await self.cluster.restart(bookie)
        except ClusterError as error:
            return str(error)
        raise AssertionError(f"{bookie.id} started")

    # --- what must hold ---

    async def marked(self) -> list[dict[str, object]]:
        """Ledgers that wait for repair."""
        found: list[dict[str, object]] = json.loads(await self.command("shell listunderreplicated --json"))
        return found

    async def forgets(self, bookie: BookieId) -> None:
        """Wait until no ledger names a bookie and none waits for repair."""

        async def done() -> bool:
            return not await self.naming(bookie) and not await self.marked()

        await until(done, f"{bookie} is forgotten", pause=PAUSE_SECONDS)

    async def auditor(self) -> BookieProcess:
        """The bookie whose autorecovery is the auditor; waits until there is one."""

        async def elected() -> list[BookieProcess]:
            said = await self.command("shell whoisauditor", code=None)
            return [bookie for bookie in self.cluster.bookies if bookie.running and said.strip().endswith(bookie.id)]

        return (await until(elected, "an auditor", pause=PAUSE_SECONDS))[0]

    async def is_sound(self, *but: str) -> None:
        """All that was acknowledged is there, every copy of it, and the doctor finds nothing else to do than `but`."""
        assert await bad_copies(self.bk) == []
        for ledger_id, count in self.written.items():
            async with await self.bk.open_ledger(ledger_id, password=PASSWORD) as reader:
                entries = [entry.data async for entry in reader.entries(0, count - 1)]
            assert entries == [payload(ledger_id, number) for number in range(count)]
        found = json.loads(await self.command("doctor --json", code=None))["findings"]
        serious = {each["name"] for each in found if each["severity"] != "note"}
        assert serious == {*but}, found

    async def has_all_copies(self) -> bool:
        """Whether every ledger's entries are on all bookies that its record names."""
        return not await bad_copies(self.bk)


def configure(bookie: BookieProcess, **settings: object) -> None:
    """Change settings in a bookie's file."""
    lines = bookie.configuration.read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0] not in settings]
    changed = [f"{key}={value}" for key, value in settings.items()]
    bookie.configuration.write_text("\n".join([*kept, *changed, ""]))


def cookies_of(bookie: BookieProcess) -> list[Path]:
    """The cookie in each of a bookie's directories."""
    return sorted(bookie.directory.rglob(f"current/{VERSION_FILE}"))
