"""Where the copies of a fragment go, and what the ledger's record becomes. No I/O (spec autorecovery-admin §5.3, §5.4).

Theory of operation

- Every index of the ensemble whose bookie does not have what it must is given another bookie: by the placement policy,
  never one that is bad for this fragment, and never one that is in the ensemble already.
- Where there are not enough others, a bookie that is there and only lacks copies gets them where it is, and of those
  that are gone as many are replaced as can be. Java's worker then does nothing, and a ledger of which two living
  bookies lack an entry is never whole again in a cluster with one to spare.
- The record is changed only after every target has acknowledged every entry that is its own. Before that, readers would
  be sent to copies that are not there, and recovery would count their absence as proof.
- The change goes through only if the fragment is as it was when its copies were planned. If another repair has changed
  its ensemble meanwhile, the same bookie could come to stand in it twice, and a ledger with two copies on one bookie
  has one copy. Then the ledger is looked at again.
- Where nothing is missing, but an ensemble does not adhere to the placement policy, the policy says which bookies it
  should have instead; the indexes that get another one are copied in the same way. Members may change places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from ..client.placement.policy import Adherence
from ..errors import BookKeeperError, NotEnoughBookiesError
from ..metadata.ledger_metadata import LedgerMetadata
from ..types import BookieId, Quorums
from .fragments import Fragment, fragments_of

Choose = Callable[[Sequence[BookieId], int, Sequence[BookieId]], BookieId]
"""Ensemble, index, excluded bookies -> a bookie for that index. Raises `NotEnoughBookiesError`."""


class SupersededError(BookKeeperError):
    """The ledger was changed by another client after its copies were planned: look at it again."""


def targets(fragment: Fragment, bad: Collection[int], choose: Choose) -> dict[int, BookieId]:
    """A new bookie for each of these indexes. Raises `NotEnoughBookiesError`."""
    chosen, refusal = _targets(fragment, sorted(bad), choose, ())
    if refusal is not None:
        raise refusal
    return chosen


def possible_targets(
    fragment: Fragment, bad: Collection[int], choose: Choose, writable: Collection[BookieId]
) -> dict[int, BookieId]:
    """A bookie for as many of these indexes as possible, its own if that is `writable` and no other is left.

    Raises `NotEnoughBookiesError` if there is none at all.
    """
    gone_first = sorted(bad, key=lambda index: (fragment.ensemble[index] in writable, index))
    chosen, refusal = _targets(fragment, gone_first, choose, writable)
    if refusal is not None and not chosen:
        raise refusal
    return chosen


def _targets(
    fragment: Fragment, bad: Sequence[int], choose: Choose, writable: Collection[BookieId]
) -> tuple[dict[int, BookieId], NotEnoughBookiesError | None]:
    """Also why one of the indexes got none."""
    ensemble = list(fragment.ensemble)
    excluded = [fragment.ensemble[index] for index in sorted(bad)]
    chosen: dict[int, BookieId] = {}
    refusal = None
    for index in bad:
        try:
            chosen[index] = ensemble[index] = choose(ensemble, index, excluded)
            excluded.append(chosen[index])
        except NotEnoughBookiesError as error:
            if ensemble[index] in writable:
                chosen[index] = ensemble[index]
            else:
                refusal = error
    return chosen, refusal


def misplaced(metadata: LedgerMetadata, judge: Callable[[Sequence[BookieId], Quorums], Adherence]) -> list[Fragment]:
    """The fragments of a closed ledger that do not adhere to the placement policy, ascending."""
    return [
        fragment
        for fragment in fragments_of(metadata, metadata.last_entry_id)
        if judge(fragment.ensemble, fragment.quorums) is Adherence.FAIL
    ]


def differences(fragment: Fragment, ensemble: Sequence[BookieId]) -> dict[int, BookieId]:
    """The indexes at which this ensemble has other bookies than the fragment, and which."""
    pairs = zip(fragment.ensemble, ensemble, strict=True)
    return {index: new for index, (old, new) in enumerate(pairs) if new != old}


def copies(fragment: Fragment, chosen: Mapping[int, BookieId], first: int, last: int) -> dict[int, list[BookieId]]:
    """Entry -> bookies that need it, ascending, of the fragment's entries from `first` to `last`. What none needs is
    absent."""
    indexes = sorted(chosen)
    needed: dict[int, list[BookieId]] = {}
    for entry in range(max(first, fragment.first), min(last, fragment.last) + 1):
        if bookies := [chosen[index] for index in indexes if fragment.needs(index, entry)]:
            needed[entry] = bookies
    return needed


def is_moved(record: LedgerMetadata, fragment: Fragment, chosen: Mapping[int, BookieId]) -> bool:
    """Whether the record names the new bookies."""
    return record.ensembles.get(fragment.first) == _new_ensemble(fragment, chosen)


def moved(record: LedgerMetadata, fragment: Fragment, chosen: Mapping[int, BookieId]) -> LedgerMetadata:
    """The record with the new bookies. Raises `SupersededError` if the fragment is not what it was."""
    following = record.next_ensemble_change(fragment.first)
    end = following - 1 if following != -1 else max(record.last_entry_id, fragment.first - 1)
    if record.ensembles.get(fragment.first) != fragment.ensemble or end != fragment.last:
        raise SupersededError(
            f"ledger {fragment.ledger_id}: the fragment at entry {fragment.first} was changed while it was copied"
        )
    return record.with_ensemble(fragment.first, _new_ensemble(fragment, chosen))


def _new_ensemble(fragment: Fragment, chosen: Mapping[int, BookieId]) -> tuple[BookieId, ...]:
    return tuple(chosen.get(index, bookie) for index, bookie in enumerate(fragment.ensemble))
