"""Another id for a bookie, in the metadata of ledgers (spec autorecovery-admin §7.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from ...autorecovery.renames import Renamed, Renaming
from ...bookie.node.identity import identify
from ...errors import ConfigurationError, IllegalOpError
from ...metadata.api import MetadataDriver, Mode
from ...runtime import Runtime
from ...runtime.waiting.rate_limit import RateLimit
from ...types import BookieId, parse_bookie_id
from ..options import JsonOption, grouped
from ..output import EXIT_ERROR, EXIT_USAGE, complain, console, fail, print_json, remark
from ..settings import bookie_settings
from .common import ClusterOptions, agreed, timed_in_cluster


@dataclass(frozen=True)
class PaceOptions:
    """How fast, how far, and what is said meanwhile."""

    per_second: Annotated[
        int, typer.Option("--updatespersec", "-updatespersec", "-s", help="Ledgers that are changed in a second.")
    ] = 5
    reads: Annotated[
        int | None,
        typer.Option(
            "--maxOutstandingReads",
            "-maxOutstandingReads",
            "-r",
            help="Ledgers that are read side by side; five times --updatespersec, if not said.",
        ),
    ] = None
    limit: Annotated[
        int | None, typer.Option("--limit", "-limit", "-l", help="Look at so many ledgers, not at all.")
    ] = None
    verbose: Annotated[
        str,
        typer.Option(
            "--verbose", "-verbose", "-v", metavar="true|false", help="Say now and then how far it is, to stderr."
        ),
    ] = "false"
    every: Annotated[
        int, typer.Option("--printprogress", "-printprogress", "-p", help="How often, in seconds, with --verbose.")
    ] = 10
    dry_run: Annotated[
        bool, typer.Option("--dryrun", "-dryrun", "-dr", help="Change nothing; say how many would be changed.")
    ] = False
    force: Annotated[bool, typer.Option("--force", "-force", "-f", help="Do not ask.")] = False
    as_json: JsonOption = False

    def check(self) -> None:
        """Ends the command if a number makes no sense."""
        numbers = {
            "updatespersec": self.per_second,
            "maxOutstandingReads": self.reads,
            "limit": self.limit,
            "printprogress": self.every,
        }
        for name, value in numbers.items():
            if value is not None and value <= 0:
                fail(f"Invalid {name} {value}, should be > 0", EXIT_USAGE)
        if self.verbose not in ("true", "false"):
            fail(f"Invalid verbose {self.verbose}, should be true or false", EXIT_USAGE)


Ids = tuple[BookieId, BookieId]
"""The old one and the new one."""


@grouped
def updateledgers(
    cluster: ClusterOptions,
    kind: Annotated[
        str, typer.Option("--bookieId", "-bookieId", "-b", metavar="hostname|ip", help="What ids are to be made of.")
    ],
    pace: PaceOptions,
) -> None:
    """Give this machine's bookie its new id in all ledgers, after it went from addresses to host names or back.

    The configuration must say so already: useHostNameAsBookieID. Its entries stay where they are.
    """
    if kind not in ("hostname", "ip"):
        fail("Invalid option value for bookieId: say hostname or ip", EXIT_USAGE)
    by_name = kind == "hostname"
    try:
        config = bookie_settings(cluster.conf, EXIT_USAGE)
    except ConfigurationError as error:
        fail(str(error), EXIT_USAGE)
    if config.useHostNameAsBookieID != by_name:
        wanted = f"useHostNameAsBookieID={str(by_name).lower()}"
        fail(f"Expects configuration {wanted} as the option value passed is '{kind}'", EXIT_USAGE)

    async def ids(runtime: Runtime, _driver: MetadataDriver) -> Ids:
        new = (await identify(runtime, config)).bookie_id
        before = config.model_copy(update={"useHostNameAsBookieID": not by_name})
        return (await identify(runtime, before)).bookie_id, new

    _rename(cluster, ids, pace, f"Are you sure to make the bookie's id one of {kind} in all ledgers?")


@grouped
def update_bookie_in_ledger(
    cluster: ClusterOptions,
    source: Annotated[
        str, typer.Option("--srcBookie", "-srcBookie", "-sb", help="The id that it had. It must not be running.")
    ],
    destination: Annotated[str, typer.Option("--destBookie", "-destBookie", "-db", help="The id that it has now.")],
    pace: PaceOptions,
) -> None:
    """Put another bookie's id in the place of one that was renamed, in all ledgers.

    Its entries stay where they are: this is for a bookie that took its directories along. `recover` is for one that is
    lost.
    """
    try:
        old, new = parse_bookie_id(source), parse_bookie_id(destination)
    except ConfigurationError as error:
        fail(str(error), EXIT_USAGE)

    async def ids(_runtime: Runtime, driver: MetadataDriver) -> Ids:
        for mode in Mode:
            if old in (await driver.discovery.list(mode)).value:
                raise IllegalOpError(f"Source bookie {old} can't be active")
        return old, new

    _rename(cluster, ids, pace, f"Are you sure to put {new} in the place of {old} in all ledgers?")


def _rename(
    cluster: ClusterOptions, find: Callable[[Runtime, MetadataDriver], Awaitable[Ids]], pace: PaceOptions, question: str
) -> None:
    """Find out which id takes the place of which, and see it done. Ends the command if some ledger was left alone."""
    pace.check()
    if not (pace.force or pace.dry_run) and not agreed(question):
        fail("nothing was changed", EXIT_ERROR)

    async def work(runtime: Runtime, driver: MetadataDriver) -> Renamed:
        old, new = await find(runtime, driver)
        if old == new:
            raise IllegalOpError(f"the bookie's id is {old}, before and after")
        reads = pace.reads or 5 * pace.per_second
        rate = RateLimit(runtime, pace.per_second)
        renaming = Renaming(driver, old, new, pace=rate, at_once=reads, dry_run=pace.dry_run)
        return await renaming.run(
            pace.limit, _Progress(runtime, pace.every) if pace.verbose == "true" else lambda _report: None
        )

    report = timed_in_cluster(cluster, work)
    if pace.as_json:
        print_json({"issued": report.issued, "updated": report.updated, "refused": sorted(report.refused)})
    else:
        console.print(_text(report))
    if report.refused:
        names = ", ".join(map(str, sorted(report.refused)))
        complain(f"left alone, as an ensemble has both bookies already: ledgers {names}")
        raise typer.Exit(EXIT_ERROR)


def _text(report: Renamed) -> str:
    return f"Number of ledgers issued={report.issued}, updated={report.updated}"


class _Progress:
    """Says how far it is, every so many seconds."""

    def __init__(self, runtime: Runtime, every: float) -> None:
        self._runtime = runtime
        self._every = every
        self._next = runtime.now() + every

    def __call__(self, report: Renamed) -> None:
        if self._runtime.now() >= self._next:
            self._next = self._runtime.now() + self._every
            remark(_text(report))
