"""What becomes of a transaction that was tried, perhaps applied, and meets a conflict when it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bookkeeper.errors import RecordChanged, ServiceUnavailable
from bookkeeper.metadata.records.store import Transaction
from bookkeeper.metadata.tree import Create, Write
from tests.support.metadata_stores import FACTORIES, _record_store

T = TypeVar("T")


@pytest.mark.parametrize("name", ["memory", "sqlite"])
async def test_what_an_attempt_did_before_its_conflict_is_not_taken_for_its_own_doing(
    tmp_path: Path, name: str
) -> None:
    """The first attempt is lost on its way; before the second one, another client writes what it would have written."""
    stores = FACTORIES[name](tmp_path)
    driver, other = await stores.open(), await stores.open()
    version = await other.tree.create("/max", b"0")
    store: Any = _record_store(driver)

    async def lost(operation: str, transaction: Callable[[Transaction], T], *, write: bool = True) -> T:
        if operation != "tree.commit":
            return await type(store).run(store, operation, transaction, write=write)  # type: ignore[no-any-return]
        del vars(store)["run"]
        await other.tree.write("/max", b"1", version)
        raise ServiceUnavailable("the request is lost", maybe_applied=True)

    vars(store)["run"] = lost
    with pytest.raises(RecordChanged):
        await driver.tree.commit([Create("/begun", b"mine"), Write("/max", b"1", version)])
    assert await driver.tree.get("/begun", fresh=True) is None
    for each in (driver, other):
        await each.close()
