"""What a Python programmer meets first: arguments, coroutines, errors, names, deadlines, loops (spec client §14)."""

from __future__ import annotations

import array
import asyncio
import gc
import os
import signal
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

import bookkeeper
import bookkeeper.errors
import bookkeeper.sync
from bookkeeper.client.reader import LedgerReader
from bookkeeper.client.writer import LedgerWriter
from bookkeeper.errors import (
    AddEntryQuorumTimeoutError,
    BKError,
    ClientClosedError,
    IncorrectParameterError,
    LedgerStateError,
    MetadataTimeoutError,
    NoSuchLedgerError,
    NoSuchLedgerOnMetadataError,
    RequestTimeoutError,
    WrongLoopError,
    from_code,
)
from bookkeeper.metadata.memory import MemoryStore, StoreFaults
from bookkeeper.protocol.messages import AddRequest, ReadLacRequest, ReadRequest, Status
from bookkeeper.types import DigestType, WriteFlag
from tests.support.elsewhere import error_elsewhere
from tests.support.fake_bookie import SILENT, FakeCluster

from .support import eventually, make_ledger, payload

SHAPE: dict[str, Any] = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}


class SlowStore(StoreFaults):
    """Answers to some operations wait until `release`; the operations themselves are carried out."""

    def __init__(self, cluster: FakeCluster, *slow: str) -> None:
        self._slow = slow
        self._gate = asyncio.Event()
        self.waiting = 0
        cast(MemoryStore, cluster.runtime.services[cluster.uri]).faults = self

    async def after(self, client: str, operation: str) -> None:
        if operation.startswith(self._slow):
            self.waiting += 1
            await self._gate.wait()

    def release(self) -> None:
        self._gate.set()


# --- arguments ---


@pytest.mark.parametrize("data", [3, True, [1, 2], {1: 2}, None, "text", 1.5, ("a",)], ids=repr)
async def test_what_is_not_bytes_is_no_entry(cluster: FakeCluster, data: Any) -> None:
    client = await cluster.connect()
    async with client.create_ledger(**SHAPE) as writer, client.create_ledger_adv(**SHAPE) as advanced:
        appends: list[Callable[[], Any]] = [
            lambda: writer.append(data),
            lambda: writer.append_soon(data),
            lambda: writer.append_many([data]),
            lambda: writer.append_nowait(data),
            lambda: advanced.write(0, data),
            lambda: advanced.write_nowait(0, data),
        ]
        for append in appends:
            with pytest.raises(TypeError, match=r"an entry must be bytes, bytearray or memoryview, not \w+") as refusal:
                await append()
            assert isinstance(refusal.value, IncorrectParameterError)
            assert ("encode" in str(refusal.value)) == isinstance(data, str)
        assert (writer.last_add_pushed, advanced.last_add_pushed) == (-1, -1)


@pytest.mark.parametrize(
    "payloads",
    [b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc", 3, None],
    ids=lambda payloads: type(payloads).__name__,
)
async def test_one_entry_is_not_many(cluster: FakeCluster, payloads: Any) -> None:
    client = await cluster.connect()
    async with client.create_ledger(**SHAPE) as writer:
        with pytest.raises(TypeError, match="iterable"):
            await writer.append_many(payloads)
        assert writer.last_add_pushed == -1


async def test_every_kind_of_bytes_is_an_entry(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    kinds = [b"ab", bytearray(b"ab"), memoryview(b"ab"), memoryview(b"a.b.")[::2], array.array("B", b"ab"), b""]
    async with client.create_ledger(**SHAPE) as writer:
        for kind in kinds:
            await writer.append(cast(Any, kind))
        await writer.append_many(cast(Any, kinds))
        assert [entry.data async for entry in writer] == ([b"ab"] * 5 + [b""]) * 2


async def test_an_entry_id_is_an_int(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    async with client.create_ledger_adv(**SHAPE) as writer:
        for entry_id in ("0", 0.0, True, None):
            with pytest.raises(TypeError, match="the entry id must be an int"):
                await writer.write(cast(Any, entry_id), b"x")
            with pytest.raises(TypeError, match="the entry id must be an int"):
                writer.write_nowait(cast(Any, entry_id), b"x")
        assert writer.last_add_pushed == -1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"password": "text"}, "the password must be bytes, not str: str is not bytes, encode it"),
        ({"password": None}, "the password must be bytes, not NoneType"),
        ({"digest": "CRC32C"}, "DigestType.CRC32C"),
        ({"digest": 1}, "DigestType.CRC32C"),
        ({"ensemble_size": "3"}, "ensemble_size must be an int, not str"),
        ({"write_quorum": 2.0}, "write_quorum must be an int, not float"),
        ({"ack_quorum": True}, "ack_quorum must be an int, not bool"),
        ({"custom_metadata": {"a": "b"}}, "the value of 'a' in custom_metadata must be bytes, not str: str is not"),
        ({"custom_metadata": {1: b"b"}}, "the key 1 of custom_metadata must be str, not int"),
        ({"custom_metadata": [("a", b"b")]}, "custom_metadata must be a mapping of str to bytes, not list"),
        ({"write_flags": 1}, "write_flags must be a WriteFlag"),
    ],
    ids=str,
)
async def test_a_wrong_argument_is_named_before_anything_is_done(
    cluster: FakeCluster, wrong: dict[str, Any], says: str
) -> None:
    client = await cluster.connect()
    makers: list[Callable[[], Any]] = [
        lambda: client.create_ledger(**{**SHAPE, **wrong}),
        lambda: client.create_ledger_adv(**{**SHAPE, **wrong}),
    ]
    if "write_flags" not in wrong:
        makers.append(lambda: client.reserve_ledger(**{**SHAPE, **wrong}))
    for make in makers:
        with pytest.raises(IncorrectParameterError) as refusal:
            await make()
        assert says in str(refusal.value)
    assert [ledger_id async for ledger_id in client.list_ledgers()] == []


async def test_opening_says_the_same_of_wrong_arguments_as_creating(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    ledger = await make_ledger(cluster, 3)
    openings: list[Callable[..., Any]] = [client.open_ledger, client.recover_ledger, client.claim_ledger]
    for opening in openings:
        for password in ("s", None):
            with pytest.raises(TypeError, match="the password must be bytes"):
                await opening(ledger.id, password=password)
        with pytest.raises(TypeError, match="the ledger id must be an int, not str"):
            await opening(str(ledger.id), password=b"s")
    with pytest.raises(IncorrectParameterError, match="the digest must be one of"):
        await client.open_ledger(ledger.id, password=b"s", digest=cast(Any, "CRC32C"))
    with pytest.raises(TypeError, match="the ledger id must be an int"):
        await client.delete_ledger(cast(Any, "1"))
    with pytest.raises(TypeError, match="the ledger id must be an int"):
        await client.create_ledger_adv(**SHAPE, ledger_id=cast(Any, "1"))


async def test_a_claimed_ledger_may_defer_syncs(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    ledger_id = await client.reserve_ledger(**SHAPE, password=b"s")
    async with client.claim_ledger(ledger_id, password=b"s", write_flags=WriteFlag.DEFERRED_SYNC) as writer:
        await writer.append(b"x")
        assert writer.last_add_confirmed == -1
        await writer.force()
        assert writer.last_add_confirmed == 0


# --- many entries ---


async def test_many_entries_may_come_asynchronously(cluster: FakeCluster) -> None:
    async def source() -> AsyncIterator[bytes]:
        for i in range(300):
            if i % 7 == 0:
                await asyncio.sleep(0)
            yield payload(i)

    client = await cluster.connect(maxPendingAddEntries=20)
    async with client.create_ledger(**SHAPE) as first:
        assert await first.append_many(source()) == list(range(300))
        async with client.create_ledger(**SHAPE) as second:
            assert await second.append_many(entry.data async for entry in first) == list(range(300))
            assert (await second.read_entry(299)).data == payload(299)


async def test_what_was_safe_when_many_entries_failed_is_told(cluster: FakeCluster) -> None:
    """FX-25, RI-11."""
    client = await cluster.connect(maxPendingAddEntries=10)
    writer = await client.create_ledger(**SHAPE)
    await writer.append_many([payload(i) for i in range(5)])

    def refuse(request: object) -> Any:
        return Status.EFENCED if isinstance(request, AddRequest) and request.entry_id >= 25 else None

    for bookie in cluster.bookies:
        bookie.on_request = refuse
    with pytest.raises(LedgerStateError) as failure:
        await writer.append_many(payload(i) for i in range(5, 100))
    assert failure.value.acknowledged == list(range(5, 25))
    for bookie in cluster.bookies:
        bookie.on_request = None
    await writer.close()


async def test_entries_before_one_that_is_none_are_on_their_way(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    async with client.create_ledger(**SHAPE) as writer:
        with pytest.raises(TypeError):
            await writer.append_many(cast(Any, [b"a", b"b", 3, b"d"]))
        assert await writer.flush() == 1


# --- coroutines ---


async def test_what_opens_a_ledger_is_a_coroutine(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.create_ledger(**SHAPE))
    first = task.result()
    second, third = await asyncio.gather(client.create_ledger(**SHAPE), client.create_ledger_adv(**SHAPE))
    fourth = await asyncio.wait_for(client.create_ledger(**SHAPE), 30)
    opening = client.create_ledger(**SHAPE)
    assert asyncio.iscoroutine(opening)
    assert repr(opening) == "<Opening BookKeeper.create_ledger>"
    fifth = await opening
    with pytest.raises(RuntimeError, match="already awaited"):
        await opening
    with pytest.raises(RuntimeError, match="already awaited"):
        async with opening:
            pass
    ids = [ledger_id async for ledger_id in client.list_ledgers()]
    assert ids == sorted(writer.id for writer in (first, second, third, fourth, fifth))
    await asyncio.gather(*(writer.close() for writer in (first, second, third, fourth, fifth)))


async def test_a_forgotten_await_is_warned_of(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    for opening, name in [
        (lambda: client.create_ledger(**SHAPE), "create_ledger"),
        (lambda: client.create_ledger_adv(**SHAPE), "create_ledger_adv"),
        (lambda: client.open_ledger(0), "open_ledger"),
        (lambda: client.recover_ledger(0), "open_ledger"),
        (lambda: client.open_ledger_as_admin(0), "open_ledger_as_admin"),
        (lambda: client.claim_ledger(0), "claim_ledger"),
    ]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            opening()
            gc.collect()
        assert f"coroutine 'BookKeeper.{name}' was never awaited" in [str(warning.message) for warning in seen]
    opening_that_is_closed = client.create_ledger(**SHAPE)
    opening_that_is_closed.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del opening_that_is_closed
        gc.collect()
    assert [ledger_id async for ledger_id in client.list_ledgers()] == []


# --- errors and names ---


def test_every_error_is_a_name_of_the_package() -> None:
    def tree(cls: type[BaseException]) -> list[type[BaseException]]:
        return [cls, *(sub for child in cls.__subclasses__() for sub in tree(child))]

    ours = [cls for cls in tree(BKError) if cls.__module__ == "bookkeeper.errors"]
    assert len(ours) > 40
    for cls in (*ours, bookkeeper.errors.ConfigurationError, bookkeeper.errors.ProtocolError):
        assert getattr(bookkeeper, cls.__name__) is cls
        assert cls.__name__ in bookkeeper.__all__
    for name in bookkeeper.__all__:
        assert getattr(bookkeeper, name) is not None
    assert bookkeeper.__version__.count(".") == 2
    with pytest.raises(AttributeError):
        _ = cast(Any, bookkeeper).NoSuchName


def test_errors_that_mean_that_time_is_up_are_timeouts() -> None:
    for cls in (RequestTimeoutError, AddEntryQuorumTimeoutError, MetadataTimeoutError):
        error = cls("late", ledger_id=5)
        assert isinstance(error, TimeoutError)
        assert isinstance(error, BKError)
        assert str(error) == "late (ledger 5)"
    assert isinstance(from_code(-23), TimeoutError)


def test_one_error_means_that_there_is_no_such_ledger() -> None:
    assert issubclass(NoSuchLedgerOnMetadataError, NoSuchLedgerError)
    assert type(from_code(-7)) is NoSuchLedgerError
    assert type(from_code(-25)) is NoSuchLedgerOnMetadataError


async def test_handles_say_what_they_are(cluster: FakeCluster) -> None:
    unconnected = bookkeeper.connect("memory://fake", runtime=cluster.runtime)
    assert repr(unconnected) == "<BookKeeper of memory://fake: not connected>"
    async with unconnected as client:
        assert repr(client) == "<BookKeeper of memory://fake: connected>"
        writer = await client.create_ledger(**SHAPE)
        assert [await writer.append(data) for data in (b"a", b"b")] == [0, 1]
        reader = await client.open_ledger(writer.id)
        assert repr(reader) == f"<LedgerReader of ledger {writer.id}: open, last add confirmed 0>"
        assert repr(writer) == f"<LedgerWriter of ledger {writer.id}: open, last add confirmed 1, last add pushed 1>"
        await writer.close()
        assert repr(writer).startswith(f"<LedgerWriter of ledger {writer.id}: closed, last add confirmed 1")
        await reader.close()
    assert repr(client) == "<BookKeeper of memory://fake: closed>"


# --- cancelling ---


async def test_an_open_that_is_given_up_leaves_no_watch(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    ledger = await make_ledger(cluster, 3, closed=False)
    for bookie in cluster.bookies:
        bookie.on_request = lambda request: SILENT if isinstance(request, ReadRequest | ReadLacRequest) else None
    before = set(client.context.tasks._tasks)
    opening = asyncio.ensure_future(ledger.open(client))
    await eventually(lambda: any(bookie.requests for bookie in cluster.bookies))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert set(client.context.tasks._tasks) == before


async def test_a_create_that_is_given_up_leaves_no_record(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    kept = await client.create_ledger(**SHAPE)
    for create in (client.create_ledger(**SHAPE), client.create_ledger_adv(**SHAPE, ledger_id=77)):
        store = SlowStore(cluster, "ledgers.create")
        creating = asyncio.ensure_future(create)
        await eventually(lambda store=store: store.waiting)  # type: ignore[misc]
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        store.release()
        await eventually(lambda: len(client.context.tasks._tasks) == 2)
        assert [ledger_id async for ledger_id in client.list_ledgers()] == [kept.id]
    await kept.close()


async def test_a_create_that_is_given_up_leaves_somebody_elses_ledger_alone(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    theirs = await client.create_ledger_adv(**SHAPE, ledger_id=77)
    store = SlowStore(cluster, "ledgers.create")
    creating = asyncio.ensure_future(client.create_ledger_adv(**SHAPE, ledger_id=77))
    await asyncio.sleep(0)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    store.release()
    await eventually(lambda: len(client.context.tasks._tasks) == 2)
    assert [ledger_id async for ledger_id in client.list_ledgers()] == [77]
    await theirs.close()


async def test_a_close_that_is_given_up_ends_all_the_same(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    store = SlowStore(cluster)
    driver = client._driver._driver
    ended = asyncio.Event()
    end = driver.close

    async def slow_end() -> None:
        store.waiting += 1
        await store._gate.wait()
        await end()
        ended.set()

    cast(Any, driver).close = slow_end
    closing = asyncio.ensure_future(client.close())
    await eventually(lambda: store.waiting)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    again = asyncio.ensure_future(client.close())
    await asyncio.sleep(0)
    assert not again.done()  # it waits for the end, and does not say that all is done
    store.release()
    await again
    assert ended.is_set()
    assert store.waiting == 1


async def test_every_part_of_a_client_ends_when_one_fails_to(cluster: FakeCluster) -> None:
    client = await bookkeeper.connect("memory://fake", runtime=cluster.runtime)
    end, end_tasks = client._driver._driver.close, client._tasks.close
    ended: list[str] = []

    async def broken_end() -> None:
        raise OSError("broken")

    async def seen_end() -> None:
        ended.append("driver")
        await end()

    cast(Any, client._tasks).close = broken_end
    cast(Any, client._driver._driver).close = seen_end
    with pytest.raises(OSError, match="broken"):
        await client.close()
    assert ended == ["driver"]
    await end_tasks()


# --- deadlines ---


async def test_no_call_waits_for_ever_for_a_store_that_is_away(cluster: FakeCluster) -> None:
    client = await cluster.connect(metadataTimeoutSec=60)
    ledger = await make_ledger(cluster, 3)
    reader = await ledger.open(client)
    writer = await client.create_ledger(**SHAPE)
    store = SlowStore(cluster, "ledgers.", "bookies.", "ids.")
    client._driver._calls._seconds = 0.05
    calls: list[Callable[[], Any]] = [
        lambda: client.create_ledger(**SHAPE),
        lambda: client.open_ledger(ledger.id, password=b"s"),
        lambda: client.recover_ledger(ledger.id, password=b"s"),
        lambda: client.delete_ledger(12345),
        lambda: client.get_ledger_metadata(ledger.id),
        lambda: client.claim_ledger(ledger.id),
        lambda: anext(client.list_ledgers()),
        lambda: reader.refresh_metadata(),
        lambda: writer.close(),
    ]
    for call in calls:
        with pytest.raises(MetadataTimeoutError) as late:
            await call()
        assert isinstance(late.value, TimeoutError)
        assert "metadataTimeoutSec" in str(late.value)
        assert client._store_name in str(late.value)
    store.release()


async def test_closing_ends_what_waits_for_the_store(cluster: FakeCluster) -> None:
    client = await cluster.connect(metadataTimeoutSec=0)
    ledger = await make_ledger(cluster, 3)
    reader = await ledger.open(client)
    store = SlowStore(cluster, "ledgers.", "ids.")
    calls: list[Callable[[], Any]] = [
        lambda: client.create_ledger(**SHAPE),
        lambda: client.create_ledger_adv(**SHAPE, ledger_id=77),
        lambda: client.open_ledger(ledger.id, password=b"s"),
        lambda: client.delete_ledger(ledger.id),
        lambda: client.get_ledger_metadata(ledger.id),
        lambda: anext(client.list_ledgers()),
        lambda: reader.refresh_metadata(),
    ]
    waiting = [asyncio.ensure_future(call()) for call in calls]
    await eventually(lambda: store.waiting == len(calls))
    await client.close()  # the store never answers
    for operation in waiting:
        with pytest.raises(ClientClosedError):
            await operation


async def test_connecting_does_not_wait_for_ever_either(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    config = bookkeeper.ClientConfiguration.from_mapping({"metadataTimeoutSec": 0.05})
    client = bookkeeper.connect("memory://fake", config=config, runtime=cluster.runtime)
    never = asyncio.Event()
    monkeypatch.setattr(client._driver._driver, "open", never.wait)
    with pytest.raises(MetadataTimeoutError, match=r"memory://fake did not answer within 0\.05 s, connecting"):
        await client
    assert client.context.closed


# --- loops, threads, processes ---


async def test_a_client_used_from_another_loop_says_so(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    ledger = await make_ledger(cluster, 3)
    reader: LedgerReader = await ledger.open(client)
    writer: LedgerWriter = await client.create_ledger(**SHAPE)
    advanced = await client.create_ledger_adv(**SHAPE)
    await writer.append(b"here")
    calls: list[Callable[[], Any]] = [
        lambda: client.create_ledger(**SHAPE),
        lambda: client.create_ledger_adv(**SHAPE),
        lambda: client.reserve_ledger(**SHAPE),
        lambda: client.claim_ledger(1),
        lambda: client.open_ledger(ledger.id, password=b"s"),
        lambda: client.delete_ledger(ledger.id),
        lambda: anext(client.list_ledgers()),
        lambda: client.get_ledger_metadata(ledger.id),
        lambda: client.writable_bookies(),
        lambda: client.bookie_info(),
        lambda: client.metadata_service_available(),
        lambda: client.close(),
        lambda: reader.read(0, 1),
        lambda: reader.batch_read(0, max_count=1),
        lambda: reader.read_last_add_confirmed(),
        lambda: reader.refresh_metadata(),
        lambda: anext(reader.entries()),
        lambda: writer.append(b"there"),
        lambda: writer.append_soon(b"there"),
        lambda: writer.append_nowait(b"there"),
        lambda: writer.append_many([b"there"]),
        lambda: writer.flush(),
        lambda: writer.force(),
        lambda: writer.close(),
        lambda: advanced.write(0, b"there"),
        lambda: advanced.write_nowait(0, b"there"),
    ]

    async def elsewhere() -> list[BaseException | None]:
        outcomes: list[BaseException | None] = []
        for call in calls:
            try:
                await asyncio.wait_for(call(), 10)
            except BaseException as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        return outcomes

    outcomes = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    assert [type(outcome) for outcome in outcomes] == [WrongLoopError] * len(calls)
    assert all(isinstance(outcome, RuntimeError) for outcome in outcomes)
    assert await writer.append(b"here") == 1  # nothing was touched
    await writer.close()
    await advanced.close()


def test_a_client_used_after_its_loop_has_ended_says_so() -> None:
    async def connect() -> tuple[bookkeeper.BookKeeper, LedgerWriter, FakeCluster]:
        cluster = FakeCluster(3)
        await cluster.start()
        client = await cluster.connect()
        return client, await client.create_ledger(**SHAPE), cluster

    async def use() -> None:
        with pytest.raises(WrongLoopError):
            await writer.append(b"x")
        with pytest.raises(WrongLoopError):
            await client.get_ledger_metadata(writer.id)

    loop = asyncio.new_event_loop()
    client, writer, cluster = loop.run_until_complete(connect())
    asyncio.run(use())
    loop.run_until_complete(writer.close())
    loop.run_until_complete(client.close())
    loop.run_until_complete(cluster.close())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


async def test_in_the_midst_of_a_turn_that_sends_another_thread_is_refused_as_well(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    writer, other = await client.create_ledger(**SHAPE), await client.create_ledger(**SHAPE)
    sent = writer.append_nowait(b"leaves at the end of this turn")
    for each in (other, writer):
        assert isinstance(error_elsewhere(lambda each=each: each.append_nowait(b"x")), WrongLoopError)  # type: ignore[misc]
    other.append_nowait(b"y")
    assert await sent == 0
    assert await other.append(b"z") == 1
    await writer.close()
    await other.close()


def test_a_turn_that_its_loop_did_not_end_is_no_turn_of_another_loop() -> None:
    async def connect() -> tuple[bookkeeper.BookKeeper, LedgerWriter, FakeCluster]:
        cluster = FakeCluster(3)
        await cluster.start()
        client = await cluster.connect()
        writer = await client.create_ledger(**SHAPE)
        writer.append_nowait(b"x")
        return client, writer, cluster

    async def use() -> None:
        assert client.context.departures.due, "or this tests nothing"
        with pytest.raises(WrongLoopError):
            await other.append(b"x")

    loop = asyncio.new_event_loop()
    client, writer, cluster = loop.run_until_complete(connect())
    other = loop.run_until_complete(client.create_ledger(**SHAPE))
    loop.call_soon(writer.append_nowait, b"y")
    loop.call_soon(loop.stop)
    loop.run_forever()
    asyncio.run(use())
    loop.run_until_complete(writer.close(drain=True))
    assert writer.last_add_confirmed == 1
    loop.run_until_complete(client.close())
    loop.run_until_complete(cluster.close())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.mark.parametrize("in_turn", [False, True])
async def test_a_forked_process_is_told_to_connect_anew(cluster: FakeCluster, in_turn: bool) -> None:
    client = await cluster.connect()
    writer, other = await client.create_ledger(**SHAPE), await client.create_ledger(**SHAPE)
    if in_turn:
        other.append_nowait(b"leaves at the end of this turn")
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(20)  # whatever waits, ends
        try:
            writer.append_nowait(b"from the child")
            os.write(writing, b"appended")
        except WrongLoopError:
            os.write(writing, b"refused")
        finally:
            os._exit(0)
    os.close(writing)
    said = await asyncio.to_thread(os.read, reading, 100)
    os.close(reading)
    await asyncio.to_thread(os.waitpid, child, 0)
    assert said == b"refused"
    await writer.close()
    await other.close(drain=True)


async def test_a_closed_client_says_that_it_is_closed(cluster: FakeCluster) -> None:
    client = await cluster.connect()
    await client.close()
    with pytest.raises(ClientClosedError):
        await client.create_ledger(**SHAPE, digest=DigestType.CRC32C)
