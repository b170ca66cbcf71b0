"""The blocking side of the SQLite store: the file's layout, transactions, sessions. Used by one thread only.

| table | holds |
|---|---|
| records(root, topic, key, version, ctime_ms, session, data) | the records of every cluster (`root`) in the file |
| topics(root, topic, revision) | the version of each topic's last change |
| changes(revision, root, topic, key, at_ms) | the last changes, whose row ids are the versions: never used twice |
| sessions(id, boot_id, deadline_ms) | live sessions; deadline on the machine's clock since boot |

`PRAGMA user_version` is the version of this layout.

Theory of operation

- Write-ahead log with `synchronous=FULL`: a commit is durable when it returns. Readers never wait; writers take turns
  (`BEGIN IMMEDIATE`).
- A session ends at its deadline, when the machine boots (another boot id), or at once when its process dies: the
  owner holds a lock on the file `<database>.s<id>`, which the kernel frees. Each poll and transaction removes ended
  sessions and their records first. To look at a lock costs a few system calls, so each process looks at one lock only,
  that of the session next after its own, and at all of them about once a second: many idle clients cost each other
  next to nothing, and a process that is killed is noticed by its neighbour at the next poll.
- A commit waits for the disk, whatever is in it. So transactions of this process that wait for the thread together are
  run one after the other in one transaction of SQLite's, each in a savepoint: one that fails leaves nothing, and the
  others are committed. If the commit fails, it fails for all.
- A commit that fails for lack of the lock did not happen. One that fails in any other way may have.

The lock files are held by open files, so a child made by a bare fork would keep a session of its parent alive; use
spawned processes.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from ..errors import (
    ConfigurationError,
    CorruptMetadata,
    MetadataError,
    NotInitialized,
    RecordTooLarge,
    ServiceUnavailable,
    SessionLost,
)
from .api import Version
from .records.store import END, PERMANENT, SCAN_LIMIT, Change, Changes, Record, Topic, Transaction

T = TypeVar("T")

LAYOUT_VERSION = 1

_SCHEMA = """
CREATE TABLE records (
    root TEXT NOT NULL, topic TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL, session INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (root, topic, key)
) WITHOUT ROWID;
CREATE INDEX records_of_session ON records (session) WHERE session != 0;
CREATE TABLE topics (
    root TEXT NOT NULL, topic TEXT NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (root, topic)
) WITHOUT ROWID;
CREATE TABLE changes (
    revision INTEGER PRIMARY KEY AUTOINCREMENT,
    root TEXT NOT NULL, topic TEXT NOT NULL, key TEXT NOT NULL, at_ms INTEGER NOT NULL
);
CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT, boot_id TEXT NOT NULL, deadline_ms INTEGER NOT NULL);
"""

KEEP_CHANGES = 10_000
"""Changes that are kept at least; one who missed more looks at everything again."""

KEEP_CHANGES_MS = 60_000
"""And for how long at least."""

PRUNE_EVERY = 1_000
"""Changes between two removals of old ones."""

LARGEST_RECORD = 64 * 1024 * 1024
"""Bytes; SQLite refuses a larger value."""

LOOK_AT_ALL_MS = 1_000
LOOK_AT_ALL_MS_EACH = 20
"""Pause between two looks at the locks of all sessions, and what each session adds to it."""

_BUSY, _LOCKED, _CORRUPT, _TOO_BIG, _NOT_A_DATABASE = 5, 6, 11, 18, 26


def _failure(error: sqlite3.Error, path: str, *, committing: bool) -> MetadataError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (_BUSY, _LOCKED):
        return ServiceUnavailable(f"metadata file {path} is in use by other processes for too long: {error}")
    if code in (_CORRUPT, _NOT_A_DATABASE):
        return CorruptMetadata(f"metadata file {path} is damaged: {error}")
    if code == _TOO_BIG:
        return RecordTooLarge(f"metadata file {path}: a record is larger than {LARGEST_RECORD} bytes")
    return ServiceUnavailable(f"metadata file {path}: {error}", maybe_applied=committing)


class Call(Generic[T]):
    """A transaction on its way, and its outcome."""

    __slots__ = ("done", "error", "result", "transaction")

    def __init__(self, transaction: Callable[[Transaction], T]) -> None:
        self.transaction = transaction
        self.done = False
        self.result: T | None = None
        self.error: Exception | None = None

    def outcome(self) -> T:
        """The transaction's result, or its error. Once, when it is done."""
        assert self.done
        if self.error is not None:
            raise self.error
        return cast(T, self.result)


class SqliteFile:
    """One connection to the file, for the cluster `root`.

    `clock_ms` is the machine's clock since boot, `wall_ms` the time of day; `boot_id` differs after each boot.
    """

    def __init__(
        self, path: str, root: str, *, boot_id: str, clock_ms: Callable[[], int], wall_ms: Callable[[], int]
    ) -> None:
        self.path = path
        self.root = root
        self.wall_ms = wall_ms
        self._boot_id = boot_id
        self._clock_ms = clock_ms
        self._db: sqlite3.Connection | None = None
        self._data_version = -1
        self._seen: Version = 0
        """The last change of other connections that `poll` has told."""
        self._news: list[Change] | None = []
        """Changes in our cluster since `take_changes`; None: too many to tell."""
        self._locks: dict[int, int] = {}
        """Our sessions and the descriptors of their locked files."""
        self._look_at_all_ms = 0
        """When the locks of all sessions are looked at next."""

    # --- open and close ---

    def open(self, busy_timeout_ms: int, *, create: bool) -> None:
        """Raises `ServiceUnavailable`, `ConfigurationError`, `CorruptMetadata`, `NotInitialized`."""
        directory = os.path.dirname(self.path)
        if not os.path.isdir(directory):
            raise ConfigurationError(f"metadata file {self.path}: there is no directory {directory}")
        if not create and not os.path.exists(self.path):
            raise NotInitialized(
                f"there is no metadata file {self.path}: is the address right? `bookkeeper shell initnewcluster` makes "
                "a new cluster there"
            )
        try:
            db = sqlite3.connect(
                self.path, timeout=busy_timeout_ms / 1000, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise _failure(error, self.path, committing=False) from None
        try:
            self._prepare(db)
        except sqlite3.Error as error:
            db.close()
            raise _failure(error, self.path, committing=False) from None
        except BaseException:
            db.close()
            raise
        self._db = db

    def _prepare(self, db: sqlite3.Connection) -> None:
        mode = db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise ConfigurationError(
                f"metadata file {self.path}: the file system cannot share it between processes (journal mode {mode}); "
                "use a local file system"
            )
        db.execute("PRAGMA synchronous=FULL")
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_RECORD)
        db.execute("BEGIN IMMEDIATE")
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found == 0:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version={LAYOUT_VERSION}")
        elif found != LAYOUT_VERSION:
            raise ConfigurationError(
                f"metadata file {self.path} has layout {found}; this program knows {LAYOUT_VERSION}: was it written by "
                "another version or another program?"
            )
        self._seen = _last_revision(db)
        db.execute("COMMIT")
        self._data_version = -1

    def close(self) -> None:
        """Idempotent. Sessions of ours that were not ended look like those of a dead process."""
        for lock in self._locks.values():
            os.close(lock)
        self._locks.clear()
        if self._db is not None:
            db, self._db = self._db, None
            db.close()

    # --- transactions ---

    def run(self, calls: Sequence[Call[Any]], *, write: bool) -> None:
        """Run transactions together; each has its outcome then."""
        changes: list[Change] = []
        try:
            self._sweep()
            with self._transaction(write=write) as db:
                for call in calls:
                    changes += self._run_one(db, call)
        except Exception as error:
            for call in calls:
                if call.error is None:
                    call.error = copy.copy(error)  # raising it adds to its traceback, so each has its own
            return
        finally:
            for call in calls:
                call.done = True
        self._add_news(changes)

    def _run_one(self, db: sqlite3.Connection, call: Call[Any]) -> list[Change]:
        """One transaction among others; returns what it changed. Raises only what is the end of all of them."""
        tx = _SqliteTransaction(self, db)
        db.execute("SAVEPOINT one")
        try:
            call.result = call.transaction(tx)
        except Exception as error:
            if not db.in_transaction:
                raise  # SQLite has rolled back all
            db.execute("ROLLBACK TO one")
            tx.changes.clear()
            call.error = _failure(error, self.path, committing=False) if isinstance(error, sqlite3.Error) else error
        db.execute("RELEASE one")
        return tx.changes

    def take_changes(self) -> Changes:
        """What changed in our cluster since the last call, as far as we did it or `poll` noticed it."""
        news, self._news = self._news, []
        return news

    def _add_news(self, changes: list[Change]) -> None:
        if self._news is not None:
            self._news += changes

    @contextlib.contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        db = self._db
        if db is None:
            raise ServiceUnavailable("the metadata driver is not open")
        committing = False
        try:
            db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield db
            committing = write
            db.execute("COMMIT")
        except BaseException as error:
            if db.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # the first error counts; closing the file rolls back, too
                    db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise _failure(error, self.path, committing=committing) from None
            raise

    def poll(self) -> None:
        """Look for what other connections changed since the last call."""
        self._sweep()
        with self._transaction(write=False) as db:
            data_version = db.execute("PRAGMA data_version").fetchone()[0]
            if data_version == self._data_version:
                return
            last = _last_revision(db)
            missed = last - self._seen
            rows = db.execute(
                "SELECT root, topic, key FROM changes WHERE revision > ? LIMIT ?", (self._seen, KEEP_CHANGES)
            ).fetchall()
        self._data_version = data_version
        self._seen = last
        if len(rows) < missed:
            self._news = None  # some were pruned
        else:
            self._add_news([(topic, key) for root, topic, key in rows if root == self.root])

    # --- sessions ---

    def start_session(self, timeout_ms: int) -> int:
        """A new session, whose lock we hold before others can see it."""
        lock = -1
        try:
            with self._transaction() as db:
                cursor = db.execute(
                    "INSERT INTO sessions (boot_id, deadline_ms) VALUES (?, ?)",
                    (self._boot_id, self._clock_ms() + timeout_ms),
                )
                session = cursor.lastrowid
                assert session is not None
                lock = os.open(self._lock_path(session), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            if lock >= 0:
                os.close(lock)
            if isinstance(error, OSError):
                raise ServiceUnavailable(f"the session's lock file: {error}") from None
            raise
        self._locks[session] = lock
        return session

    def renew_session(self, session: int, timeout_ms: int) -> bool:
        """False if it has ended."""
        self._sweep()
        with self._transaction() as db:
            cursor = db.execute(
                "UPDATE sessions SET deadline_ms = ? WHERE id = ?", (self._clock_ms() + timeout_ms, session)
            )
        alive = cursor.rowcount == 1
        if not alive:
            self._unlock(session)
        return alive

    def end_session(self, session: int) -> None:
        """End one of ours."""
        with self._transaction() as db:
            changes = self._remove_session(db, session)
        self._add_news(changes)
        self._unlock(session)

    def _sweep(self) -> None:
        """Remove ended sessions and their records."""
        db = self._db
        if db is None:
            raise ServiceUnavailable("the metadata driver is not open")
        try:
            watched = self._watched(db)
            ended = self._ended(db, watched)
        except sqlite3.Error as error:
            raise _failure(error, self.path, committing=False) from None
        if not ended:
            return
        changes: list[Change] = []
        with self._transaction() as db:
            ended = self._ended(db, watched)  # again, now that none can be renewed
            for session in ended:
                changes += self._remove_session(db, session)
        self._add_news(changes)
        for session in ended:
            if session not in self._locks:
                _unlink(self._lock_path(session))

    def _watched(self, db: sqlite3.Connection) -> list[int]:
        """The sessions of others whose locks are to be looked at now."""
        now = self._clock_ms()
        if now < self._look_at_all_ms:
            own = max(self._locks, default=0)
            following = db.execute("SELECT min(id) FROM sessions WHERE id > ?", (own,)).fetchone()[0]
            if following is None:
                following = db.execute("SELECT min(id) FROM sessions").fetchone()[0]
            return [following] if following is not None and following not in self._locks else []
        others = [session for (session,) in db.execute("SELECT id FROM sessions") if session not in self._locks]
        self._look_at_all_ms = now + LOOK_AT_ALL_MS + LOOK_AT_ALL_MS_EACH * len(others)
        return others

    def _ended(self, db: sqlite3.Connection, watched: list[int]) -> list[int]:
        """Sessions that are over: by their deadline, by a boot, or, of those `watched`, as no process locks them."""
        ended = {
            session
            for (session,) in db.execute(
                "SELECT id FROM sessions WHERE boot_id != ? OR deadline_ms < ?", (self._boot_id, self._clock_ms())
            )
        }
        return sorted(ended | {session for session in watched if _is_unlocked(self._lock_path(session))})

    def _remove_session(self, db: sqlite3.Connection, session: int) -> list[Change]:
        """Returns what that changes in our cluster."""
        db.execute("DELETE FROM sessions WHERE id = ?", (session,))
        owned = db.execute(
            "SELECT root, topic, key FROM records WHERE session = ? AND session != 0 ORDER BY root, topic, key",
            (session,),
        ).fetchall()
        for root, topic, key in owned:
            record_change(db, root, topic, key, self.wall_ms())
            db.execute("DELETE FROM records WHERE root = ? AND topic = ? AND key = ?", (root, topic, key))
        return [(topic, key) for root, topic, key in owned if root == self.root]

    def _lock_path(self, session: int) -> str:
        return f"{self.path}.s{session}"

    def _unlock(self, session: int) -> None:
        lock = self._locks.pop(session, None)
        if lock is not None:
            _unlink(self._lock_path(session))
            os.close(lock)


def _is_unlocked(path: str) -> bool:
    """Whether the process that held the lock is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # not ours to look at: its deadline decides
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look must not see each other
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _last_revision(db: sqlite3.Connection) -> Version:
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    return int(row[0]) if row is not None else 0


def record_change(db: sqlite3.Connection, root: str, topic: str, key: str, wall_ms: int) -> Version:
    """Take the next version for a change of a record."""
    cursor = db.execute(
        "INSERT INTO changes (root, topic, key, at_ms) VALUES (?, ?, ?, ?)", (root, topic, key, wall_ms)
    )
    revision = cursor.lastrowid
    assert revision is not None
    db.execute(
        "INSERT INTO topics (root, topic, revision) VALUES (?, ?, ?) "
        "ON CONFLICT (root, topic) DO UPDATE SET revision = excluded.revision",
        (root, topic, revision),
    )
    if revision % PRUNE_EVERY == 0:
        db.execute(
            "DELETE FROM changes WHERE revision <= ? AND at_ms < ?",
            (revision - KEEP_CHANGES, wall_ms - KEEP_CHANGES_MS),
        )
    return revision


class _SqliteTransaction(Transaction):
    def __init__(self, file: SqliteFile, db: sqlite3.Connection) -> None:
        self._db = db
        self._root = file.root
        self._wall_ms = file.wall_ms
        self.changes: list[Change] = []

    def get(self, topic: Topic, key: str) -> Record | None:
        row = self._db.execute(
            "SELECT key, data, version, ctime_ms, session FROM records WHERE root = ? AND topic = ? AND key = ?",
            (self._root, topic, key),
        ).fetchone()
        return None if row is None else _record(row)

    def put(self, topic: Topic, key: str, data: bytes, *, session: int = PERMANENT) -> Version:
        if session != PERMANENT and not self._is_live(session):
            raise SessionLost("the session with the metadata store has ended")
        version = self._changed(topic, key)
        self._db.execute(
            "INSERT INTO records (root, topic, key, version, ctime_ms, session, data) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (root, topic, key) DO UPDATE "
            "SET version = excluded.version, session = excluded.session, data = excluded.data",
            (self._root, topic, key, version, self._wall_ms(), session, data),
        )
        return version

    def delete(self, topic: Topic, key: str) -> None:
        cursor = self._db.execute(
            "DELETE FROM records WHERE root = ? AND topic = ? AND key = ?", (self._root, topic, key)
        )
        if cursor.rowcount:
            self._changed(topic, key)

    def scan(self, topic: Topic, *, after: str = "", limit: int = SCAN_LIMIT) -> list[Record]:
        rows = self._db.execute(
            "SELECT key, data, version, ctime_ms, session FROM records "
            "WHERE root = ? AND topic = ? AND key > ? ORDER BY key LIMIT ?",
            (self._root, topic, after, limit),
        )
        return list(map(_record, rows))

    def keys(self, topic: Topic, *, after: str = "", before: str = END, limit: int | None = None) -> list[str]:
        rows = self._db.execute(
            "SELECT key FROM records WHERE root = ? AND topic = ? AND key > ? AND key < ? ORDER BY key LIMIT ?",
            (self._root, topic, after, before, -1 if limit is None else limit),
        )
        return [key for (key,) in rows]

    def clear(self, topic: Topic) -> None:
        for key in self.keys(topic):
            self.delete(topic, key)

    def revision(self, topic: Topic) -> Version:
        row = self._db.execute(
            "SELECT revision FROM topics WHERE root = ? AND topic = ?", (self._root, topic)
        ).fetchone()
        return int(row[0]) if row is not None else 0

    def _is_live(self, session: int) -> bool:
        return self._db.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is not None

    def _changed(self, topic: Topic, key: str) -> Version:
        self.changes.append((topic, key))
        return record_change(self._db, self._root, topic, key, self._wall_ms())


def _record(row: tuple[Any, ...]) -> Record:
    return Record(*row)
