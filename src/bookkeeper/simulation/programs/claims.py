"""Several clients want to be the one writer of a reserved ledger. One may be."""

from __future__ import annotations

import asyncio
import random

from ...client.client import BookKeeper
from ...client.writer import LedgerWriter
from ...errors import BKError, IllegalOpError
from ..history import LedgerHistory, Violation
from .users import PASSWORD, Programs, limit


class Claims:
    """The program, for all machines of a run."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._history = programs.history
        self._reserved: list[LedgerHistory] = []
        """Those that all are to claim, in order."""
        self._writers: dict[int, str] = {}
        """Ledger -> who was told to be its writer."""

    async def live(self, bk: BookKeeper, dice: random.Random) -> None:
        """Reserve a ledger now and then, and claim the last one that any client has reserved."""
        if not self._reserved or dice.random() < 0.2:
            await self._reserve(bk)
        ledger = self._reserved[-1]
        try:
            async with limit("claiming a ledger"):
                writer = await bk.claim_ledger(ledger.ledger_id, password=PASSWORD)
        except IllegalOpError:
            self._programs.sometimes("claim: somebody else was first")
            await self._next(ledger, dice)
            return
        name = bk.context.runtime.hostname()
        first = self._writers.get(ledger.ledger_id)
        if first is not None:
            raise Violation(f"ledger {ledger.ledger_id} was claimed by {first}, and by {name}")
        self._writers[ledger.ledger_id] = name
        self._programs.sometimes("claim: became the writer")
        await self._write(writer, ledger, dice)

    async def _next(self, ledger: LedgerHistory, dice: random.Random) -> None:
        """Wait a little for another one."""
        for _ in range(dice.randint(1, 50)):
            if self._reserved[-1] is not ledger:
                return
            await asyncio.sleep(0.02)

    async def _reserve(self, bk: BookKeeper) -> None:
        shape = self._programs.shape
        async with limit("reserving a ledger"):
            ledger_id = await bk.reserve_ledger(
                ensemble_size=shape.ensemble_size,
                write_quorum=shape.write_quorum,
                ack_quorum=shape.ack_quorum,
                password=PASSWORD,
                digest=shape.digest,
            )
        ledger = self._history.created(ledger_id, shape.write_quorum, shape.ack_quorum, PASSWORD)
        ledger.offered = {}
        self._reserved.append(ledger)

    async def _write(self, writer: LedgerWriter, ledger: LedgerHistory, dice: random.Random) -> None:
        assert ledger.offered is not None
        try:
            for _ in range(dice.randint(0, 5)):
                data = b"%d/%d" % (ledger.ledger_id, ledger.sent)
                ledger.offered[data] = None
                ledger.sent += 1
                async with limit("an append"):
                    entry_id = await writer.append(data)
                self._history.acknowledged(ledger.ledger_id, entry_id)
                if not ledger.is_as_given(entry_id, data):
                    raise Violation(f"ledger {ledger.ledger_id}: two appends got the id {entry_id}")
        finally:
            async with limit("closing a ledger"):
                try:
                    await writer.close()
                except BKError as error:
                    self._programs.sometimes(f"close: {type(error).__name__}")
