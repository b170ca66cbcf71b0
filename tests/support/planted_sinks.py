"""Planted bugs of Spark's sink: rules of its protocol, each switched off for as long as a test lasts.

A story that finds nothing proves nothing. Production code knows no such switch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bookkeeper.metadata.tree import Delete
from bookkeeper.spark.writing import committing, tasks
from bookkeeper.spark.writing.tasks import TaskWriter, Written
from bookkeeper.streams.namespace import Namespace
from bookkeeper.streams.publishing import publisher, staged
from bookkeeper.streams.publishing.collecting import Collector
from bookkeeper.streams.publishing.drafts import SegmentDraft
from bookkeeper.streams.publishing.marker import Decision, Marker, PublishKey
from bookkeeper.streams.publishing.staging import PART, Run, RunState
from tests.simulation import sink_story


def _commits_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch that is repeated is published again."""
    decide = publisher.decide

    def again(marker: Marker | None, key: PublishKey, *, reset: bool = False) -> Decision:
        decision = decide(marker, key, reset=reset)
        return Decision.PUBLISH if decision is Decision.DONE else decision

    monkeypatch.setattr(publisher, "decide", again)
    monkeypatch.setattr(tasks, "is_published", lambda *_: False)


def _abort_deletes_what_it_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the failure of a commit for one of the publish, and does not look at the run."""
    end_runs = committing.end_runs

    async def deleting(namespace: Namespace, messages: Sequence[Written | None], *others: Any) -> None:
        for drafts in committing.drafts_of(messages).values():
            for draft in drafts:
                await namespace._ledgers.delete(draft.ledger_id)
        await end_runs(namespace, messages, *others)

    monkeypatch.setattr(sink_story, "end_runs", deleting)


def _fingerprint_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number alone says which batch it is."""
    monkeypatch.setattr(sink_story, "fingerprint_of", lambda _: None)


def _skipped_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tasks did not write because it is published is not compared with what is."""
    monkeypatch.setattr(committing, "decide", lambda *_, **__: Decision.DONE)


def _sweeps_the_living(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cleans up does not wait until nothing was heard of a run for long."""

    async def give_up(self: Collector, run: Run, *_: Any) -> bool:
        return await self._sweep(run)

    monkeypatch.setattr(Collector, "_give_up", give_up)


def _deletes_before_it_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was silent for a second loses its ledgers first, then it is given up."""

    async def give_up(self: Collector, run: Run, marker: Any, now_ms: int) -> bool:
        if now_ms - run.time < 1000:
            return False
        tokens = await self._tree.children(run.path, fresh=True)
        for name in () if tokens is None else tokens.names:
            if not name.startswith(PART):
                await self._delete_ledger(int(name))
        return await self._sweep(run)

    monkeypatch.setattr(Collector, "_give_up", give_up)


def _nothing_is_heard_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks do not say that they are alive."""

    async def silent(self: TaskWriter) -> None:
        """Nothing."""

    monkeypatch.setattr(TaskWriter, "_keep_alive", silent)


def _losing_attempts_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """What any attempt of a batch has finished is published, whether its message counts or not."""
    finish, drafts_of = TaskWriter.finish, committing.drafts_of
    told: dict[str, list[tuple[str, SegmentDraft]]] = {}

    async def remembering(self: TaskWriter, partition: int) -> Written:
        written = await finish(self, partition)
        told.setdefault(written.batch.run, []).extend(
            (stream, SegmentDraft.from_json(draft)) for stream, draft in written.drafts
        )
        return written

    def every(messages: Sequence[Written | None]) -> dict[str, list[SegmentDraft]]:
        found = drafts_of(messages)
        runs = {each.batch.run for each in messages if each is not None}
        for stream, draft in (each for run in sorted(runs) for each in told.get(run, ())):
            if draft not in found.setdefault(stream, []):
                found[stream].append(draft)
        return found

    monkeypatch.setattr(TaskWriter, "finish", remembering)
    monkeypatch.setattr(committing, "drafts_of", every)


def _token_after_its_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger is made first, and belongs to a run a moment later."""
    open_segment = staged.Staging.open_segment

    async def late(self: staged.Staging, stream: str, policy: Any = None) -> staged.StagedSegment:
        ledgers = await self._ledgers(stream)
        made = await ledgers.create_as(await ledgers.reserve_id())

        class Made:
            delete = staticmethod(ledgers.delete)

            async def reserve_id(self) -> int:
                return made.id

            async def create_as(self, ledger_id: int) -> Any:
                return made

        async def ready(_: str) -> Any:
            return Made()

        return await open_segment(staged.Staging(self._tree, self._runtime, self.path, ready), stream, policy)

    monkeypatch.setattr(staged.Staging, "open_segment", late)


def _taken_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publish does not look whether its run was given up meanwhile."""
    closing = publisher.Publisher._closing

    def blind(self: publisher.Publisher, order: Any, marker: Any, run: Run | None) -> Any:
        found = closing(self, order, marker, run)
        return [each for each in found if not isinstance(each, Delete) and (run is None or each.path != run.path)]

    async def any_run(tree: Any, path: str) -> Run:
        return Run(path, RunState.OPEN, 0, None, 0)

    monkeypatch.setattr(publisher.Publisher, "_closing", blind)
    monkeypatch.setattr(publisher, "open_run", any_run)


def _merged_and_its_parts_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was merged stays beside it."""
    merge_small = committing.merge_small

    async def both(namespace: Namespace, run: str, drafts: Any, policy: Any) -> Any:
        merged = await merge_small(namespace, run, drafts, policy)
        return {name: [*some, *(draft for draft in drafts[name] if draft not in some)] for name, some in merged.items()}

    monkeypatch.setattr(committing, "merge_small", both)


def _merges_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last partition comes first."""
    merge = staged.Staging.merge

    async def backwards(self: staged.Staging, stream: str, drafts: Sequence[SegmentDraft], policy: Any) -> SegmentDraft:
        return await merge(self, stream, list(reversed(drafts)), policy)

    monkeypatch.setattr(staged.Staging, "merge", backwards)


def _merged_into_nobodys_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is merged belongs to the run only when it is whole."""
    merge = staged.Staging.merge

    class Bare(staged.Staging):
        async def open_segment(self, stream: str, policy: Any = None) -> staged.StagedSegment:
            ledgers = await self._ledgers(stream)
            ledger = await ledgers.create_as(await ledgers.reserve_id())
            return staged.StagedSegment(ledger, policy, lambda: ledgers.delete(ledger.id))

    async def merged(self: staged.Staging, *arguments: Any) -> SegmentDraft:
        draft = await merge(Bare(self._tree, self._runtime, self.path, self._ledgers), *arguments)
        await staged.add_token(self._tree, self.path, draft.ledger_id)
        return draft

    monkeypatch.setattr(staged.Staging, "merge", merged)


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "commits twice": _commits_twice,
    "abort deletes what it is told of": _abort_deletes_what_it_is_told_of,
    "fingerprint ignored": _fingerprint_ignored,
    "skipped is done": _skipped_is_done,
    "sweeps the living": _sweeps_the_living,
    "deletes before it sweeps": _deletes_before_it_sweeps,
    "nothing is heard of a run": _nothing_is_heard_of_a_run,
    "losing attempts are published": _losing_attempts_are_published,
    "token after its ledger": _token_after_its_ledger,
    "taken without asking": _taken_without_asking,
    "merged and its parts are published": _merged_and_its_parts_are_published,
    "merges backwards": _merges_backwards,
    "merged into nobody's ledger": _merged_into_nobodys_ledger,
}
"""What each does says its docstring."""
