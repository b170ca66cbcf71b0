"""What follows from what is seen of a cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.autorecovery.daemon import connected
from bookkeeper.cli.shell import COMMANDS
from bookkeeper.config import ServerConfiguration
from bookkeeper.doctor.copies import copies_left
from bookkeeper.doctor.findings import CHECKS, Finding, Severity, examine
from bookkeeper.doctor.look import look, sort_in
from bookkeeper.doctor.picture import EXAMPLES, BookieSeen, Kind, Ledgers, Picture, Worth
from bookkeeper.errors import CorruptMetadata
from bookkeeper.metadata.ledger_metadata import LedgerMetadata
from bookkeeper.quorum.distribution import Distribution, quorum_coverage
from bookkeeper.runtime.real import RealRuntime
from bookkeeper.types import BookieId, LedgerState
from tests.support.fake_bookie import FakeCluster

A, B, C, D = (BookieId(f"b{n}:3181") for n in range(4))
BOOKIES = (A, B, C, D)
DAY_MS = 24 * 3600 * 1000
SOUND = Picture(
    now_ms=100 * DAY_MS,
    writable=frozenset((A, B, C)),
    cookies=frozenset((A, B, C)),
    bookies=dict.fromkeys((A, B, C), BookieSeen(0.001, 100, 60)),
    auditor=A,
)


def ledger(
    ensembles: dict[int, tuple[BookieId, ...]], write: int, ack: int, last: int | None = None, number: int = 7
) -> LedgerMetadata:
    """A ledger that is closed if it has a last entry."""
    size = len(ensembles[min(ensembles)])
    state = LedgerState.OPEN if last is None else LedgerState.CLOSED
    return LedgerMetadata(number, size, write, ack, ensembles, state, -1 if last is None else last)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    size = draw(st.integers(1, 4))
    write = draw(st.integers(1, size))
    ack = draw(st.integers(1, write))
    starts = sorted({0, *draw(st.lists(st.integers(1, 12), max_size=2))})
    ensembles = {start: tuple(draw(st.permutations(BOOKIES))[:size]) for start in starts}
    last = draw(st.none() | st.integers(max(starts[-1] - 1, -1), 15))
    return ledger(ensembles, write, ack, last)


@given(ledgers(), st.sets(st.sampled_from(BOOKIES)))
def test_copies_are_those_of_the_entry_that_has_the_fewest(record: LedgerMetadata, there: set[BookieId]) -> None:
    """Counted entry by entry; an open ledger may have any number of entries in its last ensemble."""
    distribution = Distribution(*record.quorums)
    end = record.last_entry_id + 1 if record.closed else max(record.ensembles) + 10
    counts = [
        sum(record.ensemble_at(entry)[index] in there for index in distribution.write_set(entry))
        for entry in range(end)
    ]
    found = copies_left(record, there)
    assert found.fewest == min(counts, default=record.write_quorum)
    _, ensemble = record.last_ensemble
    missing = [sum(ensemble[index] not in there for index in each) for each in distribution.write_sets]
    # acknowledgements are still possible where an ack quorum has not been fenced
    assert found.recoverable == (record.closed or all(count < record.ack_quorum for count in missing))
    assert quorum_coverage(record.write_quorum, record.ack_quorum) >= 1


def test_ledgers_are_sorted_by_what_there_is_to_say() -> None:
    found = Ledgers()
    everything = frozenset(BOOKIES)
    closed = ledger({0: (A, B, C)}, 3, 2, last=9)
    sort_in(found, 1, closed, everything)
    sort_in(found, 2, closed, frozenset((A, B)))
    sort_in(found, 3, closed, frozenset((A,)))
    sort_in(found, 4, closed, frozenset((D,)))
    sort_in(found, 6, CorruptMetadata("no sense"), everything)
    still_open = replace(ledger({0: (A, B, C)}, 3, 2), ctime=17)
    sort_in(found, 7, still_open, everything)
    sort_in(found, 8, replace(still_open, ctime=5), frozenset((A,)))
    assert (found.count, found.oldest_open_ms, found.widest) == (7, 5, 3)
    kinds = {name: getattr(found, name).examples for name in ("open", "unreadable", "unrecoverable", "corrupt")}
    assert kinds == {"open": [7, 8], "unreadable": [4], "unrecoverable": [8], "corrupt": [6]}
    assert (found.short.examples, found.last_copy.examples) == ([2], [3, 8])


def kind(*ledgers: int) -> Kind:
    found = Kind()
    for each in ledgers:
        found.add(each)
    return found


SLOW = SOUND.bookies | {B: BookieSeen(2.0, 100, 60)}
CASES: dict[str, tuple[Picture, Severity]] = {
    "not-initialised": (Picture(initialised=False), Severity.DANGER),
    "unreadable": (replace(SOUND, ledgers=Ledgers(unreadable=kind(4))), Severity.DANGER),
    "unrecoverable": (replace(SOUND, ledgers=Ledgers(unrecoverable=kind(4))), Severity.DANGER),
    "corrupt-metadata": (replace(SOUND, ledgers=Ledgers(corrupt=kind(4))), Severity.DANGER),
    "silent-bookies": (replace(SOUND, bookies=SOUND.bookies | {B: BookieSeen(None)}), Severity.DANGER),
    "no-bookies": (replace(SOUND, writable=frozenset(), cookies=frozenset()), Severity.DANGER),
    "too-few-bookies": (replace(SOUND, ledgers=Ledgers(widest=4)), Severity.WARNING),
    "last-copy": (replace(SOUND, ledgers=Ledgers(last_copy=kind(4))), Severity.WARNING),
    "under-replicated": (replace(SOUND, ledgers=Ledgers(short=kind(4))), Severity.WARNING),
    "lost-bookies": (replace(SOUND, cookies=frozenset(BOOKIES)), Severity.WARNING),
    "no-cookie": (replace(SOUND, cookies=frozenset((A, B))), Severity.WARNING),
    "slow-bookies": (replace(SOUND, bookies=SLOW), Severity.WARNING),
    "read-only": (
        replace(
            SOUND, read_only=frozenset((D,)), cookies=frozenset(BOOKIES), bookies=SOUND.bookies | {D: BookieSeen(0.1)}
        ),
        Severity.WARNING,
    ),
    "nearly-full": (replace(SOUND, bookies=SOUND.bookies | {B: BookieSeen(0.1, 100, 5)}), Severity.WARNING),
    "repair-disabled": (replace(SOUND, repair_enabled=False), Severity.WARNING),
    "no-auditor": (replace(SOUND, auditor=None), Severity.NOTE),
    "marked": (replace(SOUND, marked=kind(4), oldest_mark_ms=99 * DAY_MS), Severity.WARNING),
    "long-delay": (replace(SOUND, delay=7 * 86400), Severity.NOTE),
    "open-ledgers": (
        replace(SOUND, ledgers=Ledgers(open=kind(1, 2), oldest_open_ms=90 * DAY_MS, widest=3)),
        Severity.NOTE,
    ),
    "health-check-disabled": (replace(SOUND, health_check=False), Severity.NOTE),
}


def test_a_sound_cluster_has_no_findings() -> None:
    assert examine(SOUND) == []


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_found_and_nothing_else(name: str) -> None:
    picture, severity = CASES[name]
    (finding,) = examine(picture)
    assert (finding.name, finding.severity) == (name, severity)
    assert finding.advice or name == "health-check-disabled"


@pytest.mark.parametrize("name", CASES)
def test_what_the_doctor_advises_can_be_typed(name: str) -> None:
    (finding,) = examine(CASES[name][0])
    for verb in re.findall(r"`(?:bookkeeper shell )?([a-z]+_[a-z]+|(?<=shell )\w+)", finding.advice):
        assert verb in COMMANDS


@pytest.mark.parametrize("name", ["slow-bookies", "nearly-full"])
def test_from_where_on_a_bookie_is_worth_a_warning_can_be_said(name: str) -> None:
    assert examine(replace(CASES[name][0], worth=Worth(full=1, slow_seconds=600))) == []


def test_every_check_has_a_case() -> None:
    found = {check for picture, _ in CASES.values() for check in CHECKS if check(picture) is not None}
    assert found == set(CHECKS)


def test_the_worst_comes_first_and_ledgers_are_named() -> None:
    picture = replace(
        SOUND,
        auditor=None,
        cookies=frozenset(BOOKIES),
        ledgers=Ledgers(unreadable=kind(*range(1000))),
        marked=kind(1),
        oldest_mark_ms=100 * DAY_MS,
    )
    findings: list[Finding] = examine(picture)
    assert [finding.name for finding in findings] == ["unreadable", "lost-bookies", "no-auditor", "marked"]
    assert [finding.severity for finding in findings] == sorted((each.severity for each in findings), reverse=True)
    assert "1,000 ledgers (0, 1, 2, 3, 4, ...)" in findings[0].what
    assert str(D) in findings[0].advice
    assert len(picture.ledgers.unreadable.examples) == EXAMPLES
    assert findings[2].severity is Severity.WARNING  # as bookies are lost


async def test_a_cluster_is_seen_as_it_is(tmp_path: Path) -> None:
    cluster = FakeCluster(4, f"sqlite://{tmp_path}/metadata.db")
    await cluster.start()
    async with connected(RealRuntime(), ServerConfiguration.from_mapping({}), cluster.uri) as (driver, client):
        ledgers = []
        for ensemble in (3, 4):
            async with await client.create_ledger(ensemble_size=ensemble, write_quorum=2, ack_quorum=2) as writer:
                await writer.append(b"entry")
                ledgers.append(writer.id)
        written = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await driver.underreplication.mark(ledgers[0], ["b9:3181"])
        await driver.underreplication.disable()
        await driver.flags.set_health_check(False)
        counts: list[int] = []
        picture = await look(RealRuntime(), driver, client, counts.append)
        assert (picture.ledgers.count, picture.ledgers.open.examples, counts[-1]) == (3, [written.id], 3)
        assert picture.marked.examples == [ledgers[0]]
        assert len(picture.writable) == 4
        assert set(picture.bookies) == picture.writable
        assert all(seen.seconds is not None for seen in picture.bookies.values())
        assert not picture.repair_enabled
        assert not picture.health_check
        names = {finding.name for finding in examine(picture)}
        assert {"repair-disabled", "health-check-disabled", "marked", "no-auditor"} <= names
        assert not names & {"unreadable", "last-copy", "under-replicated", "silent-bookies", "not-initialised"}
        await written.close()
    await cluster.close()
