"""The bugs of `planted` in the shipped client, for as long as a test lasts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bookkeeper.client import recovery, writable
from bookkeeper.client.adds import metadata_changes, pipeline
from bookkeeper.client.adds.encoding import add_encoder
from bookkeeper.metadata.update import update_ledger
from bookkeeper.protocol.messages import Flags, ReadRequest
from bookkeeper.quorum.ensemble import EnsembleKeeper, replace_failed
from bookkeeper.quorum.recovery import LedgerRecovery, ReadFrom, WriteBack
from bookkeeper.quorum.window import PendingWindow
from bookkeeper.types import BookieId, LedgerState

from .planted import ProtocolRules, UnfencedRead, planted


def plant(monkeypatch: pytest.MonkeyPatch, *broken: str) -> None:
    """Switch rules off, by their names in `ProtocolRules`."""
    rules = ProtocolRules(**dict.fromkeys(broken, False))
    monkeypatch.setattr(pipeline, "PendingWindow", planted(PendingWindow, rules))
    monkeypatch.setattr(pipeline, "EnsembleKeeper", planted(EnsembleKeeper, rules))
    monkeypatch.setattr(recovery, "LedgerRecovery", planted(LedgerRecovery, rules))
    for name in broken:
        if name in _IN_THE_CLIENT:
            _IN_THE_CLIENT[name](monkeypatch)


def _close_at_the_last_push(monkeypatch: pytest.MonkeyPatch) -> None:
    seal, close = writable.WritableLedger._seal, writable.WritableLedger._close_metadata

    def sealing(self: Any, code: int) -> None:
        vars(self).setdefault("pushed", self._adds.window.lap)
        seal(self, code)

    async def close_metadata(self: Any, _confirmed: int, length: int) -> Any:
        return await close(self, self.pushed, length)

    monkeypatch.setattr(writable.WritableLedger, "_seal", sealing)
    monkeypatch.setattr(writable.WritableLedger, "_close_metadata", close_metadata)


def _use_proposed_ensembles(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(ensemble: Any, failed: Any, choose: Any, avoid: Any = ()) -> tuple[BookieId, ...]:
        new = replace_failed(ensemble, failed, choose, avoid)
        adds = choose.__self__._adds
        adds.carry_out(adds.keeper.on_proposed(new))
        return new

    monkeypatch.setattr(metadata_changes, "replace_failed", replace)


def _read_without_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    read, send = recovery._Attempt._read, recovery._Attempt._send

    def reading(self: Any, action: ReadFrom) -> None:
        assert isinstance(action, UnfencedRead)
        read(self, action)

    def sending(self: Any, bookie: BookieId, message: ReadRequest, on_answer: Any) -> None:
        if message.entry_id >= 0:
            message = ReadRequest(message.ledger_id, message.entry_id, flags=int(Flags.HIGH_PRIORITY))
        send(self, bookie, message, on_answer)

    monkeypatch.setattr(recovery._Attempt, "_read", reading)
    monkeypatch.setattr(recovery._Attempt, "_send", sending)


def _store_recovered_ensembles(monkeypatch: pytest.MonkeyPatch) -> None:
    init = recovery._Attempt.__init__

    async def store(attempt: Any, first: int, ensemble: tuple[BookieId, ...]) -> None:
        ledgers = attempt._context.driver.ledgers
        await update_ledger(
            ledgers,
            attempt._ledger_id,
            await ledgers.read(attempt._ledger_id),
            lambda record: record.state is LedgerState.IN_RECOVERY and record.ensembles.get(first) != ensemble,
            lambda record: record.with_ensemble(first, ensemble),
        )

    def begin(self: Any, *arguments: Any) -> None:
        init(self, *arguments)
        changed = self.recovery.on_ensemble_changed

        def on_ensemble_changed(first: int, ensemble: Sequence[BookieId]) -> None:
            changed(first, ensemble)
            self._context.tasks.spawn(store(self, first, tuple(ensemble)), name=f"ensemble of ledger {self._ledger_id}")

        self.recovery.on_ensemble_changed = on_ensemble_changed

    monkeypatch.setattr(recovery._Attempt, "__init__", begin)


def _write_back_the_own_lac(monkeypatch: pytest.MonkeyPatch) -> None:
    write_back = recovery._Attempt._write_back

    def writing_back(self: Any, action: WriteBack) -> None:
        if self._adds is None:
            adds = self._adds = self._new_pipeline()
            adds._encode = add_encoder(
                self._context.bookies.add_version(recovery.WriteFlag.NONE),
                self._ledger_id,
                self._digest,
                self._master_key,
                recovery=True,
            )
        write_back(self, action)

    monkeypatch.setattr(recovery._Attempt, "_write_back", writing_back)


_IN_THE_CLIENT: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "close_at_lac": _close_at_the_last_push,
    "store_before_use": _use_proposed_ensembles,
    "fencing_reads": _read_without_fence,
    "recovered_ensembles_in_memory": _store_recovered_ensembles,
    "write_back_fenced_lac": _write_back_the_own_lac,
}
"""Rules that the client breaks, or breaks with the decider."""
