"""What a bookie is made of, and how the parts are put together. Nothing runs yet, and nothing on disk has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..config import ServerConfiguration
from ..metadata.api import MetadataDriver
from ..runtime import Runtime, TaskScope
from .checkpoint import Checkpointer
from .file_names import current, mark_name
from .ground import Ground
from .journal.journal import Journal
from .journal.journals import Journals
from .journal.last_mark import MarkFiles
from .ledgers import LedgerTable
from .node.compaction_switch import CompactionSwitch
from .node.directories import Directories
from .node.disks import DiskMonitor, DiskVerdict, journal_bytes
from .node.exit_code import ExitCode
from .node.identity import Identity
from .node.mode import BookieState
from .requests.adds import AddPath
from .requests.fencing import Fences
from .requests.reads import ReadPath
from .requests.service import RequestService
from .stats import BookieStats
from .storage.api import LedgerStorage
from .storage.engines import create_storage

Fail = Callable[[ExitCode, BaseException], None]
"""Ends the bookie."""


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of one bookie. `shutdown` closes them."""

    driver: MetadataDriver
    identity: Identity
    stats: BookieStats
    scope: TaskScope
    """The bookie's own tasks."""
    disks: DiskMonitor
    state: BookieState
    storage: LedgerStorage
    journals: Journals
    checkpointer: Checkpointer
    ledgers: LedgerTable
    service: RequestService


def build(
    runtime: Runtime,
    config: ServerConfiguration,
    directories: Directories,
    driver: MetadataDriver,
    identity: Identity,
    fail: Fail,
) -> Parts:
    """Make all parts. `driver` is open. Blocks. Raises `ConfigurationError` for a storage engine that cannot be."""

    def failed(error: BaseException) -> None:
        fail(ExitCode.BOOKIE_EXCEPTION, error)

    storage = create_storage(runtime, config, [current(root) for root in directories.index])
    storage.use_metadata(driver, identity.bookie_id)
    storage.set_failure_listener(failed)
    disks = DiskMonitor(runtime, config, directories)
    state = BookieState(runtime, config, identity.bookie_id, directories.ledger, fail)
    state.on_no_space = disks.no_space
    journals = build_journals(runtime, config, directories, disks, failed)
    checkpointer = Checkpointer(
        runtime,
        config.flushInterval / 1000,
        list(journals),
        storage,
        on_disks_full=lambda: state.no_space("no ledger directory is writable"),
        on_fatal=failed,
    )
    stats = BookieStats()
    ledgers = LedgerTable(runtime, storage, config.ledgerHandleCacheSize)
    ground = Ground(runtime, config, storage, journals, ledgers, state, stats, failed)
    reads = ReadPath(ground, Fences(ground), disks)
    service = RequestService(ground, AddPath(ground), reads, checkpointer.flush)
    scope = TaskScope(runtime, "bookie", lambda _, error: failed(error))
    return Parts(
        driver, identity, stats, scope, disks, state, storage, journals, checkpointer, ledgers, service
    )  # fmt: skip


def build_journals(
    runtime: Runtime,
    config: ServerConfiguration,
    directories: Directories,
    disks: DiskMonitor,
    failed: Callable[[BaseException], None],
) -> Journals:
    """A journal for each journal directory. Each asks for a look at the disks when it has grown."""
    roots = directories.journal
    ledger_paths = [current(root) for root in directories.ledger]
    journals = []
    for index, root in enumerate(roots):
        marks = MarkFiles(runtime.files, ledger_paths, mark_name(index, len(roots)))
        journal = Journal(runtime, config, index, current(root), marks, failed)
        journal.growth.watch(journal_bytes(config) // 2, disks.look_soon)
        journals.append(journal)
    return Journals(journals)


def listen_to_disks(config: ServerConfiguration, parts: Parts) -> None:
    """What follows from each look at the disks from now on: the mode, compaction, room for journals."""

    def make_room_for_journals(verdict: DiskVerdict) -> None:
        if verdict.journal_full:
            parts.checkpointer.request()

    for listener in (
        parts.state.on_disks,
        CompactionSwitch(config, parts.storage).on_disks,
        make_room_for_journals,
    ):
        parts.disks.add_listener(listener)
