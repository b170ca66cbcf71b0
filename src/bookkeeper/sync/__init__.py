"""The client for code without an event loop: notebooks, scripts, Spark tasks (spec client §14.6).

    import bookkeeper.sync

    with bookkeeper.sync.connect("zk://zk1:2181/ledgers") as bk:
        with bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"s") as ledger:
            ledger.append(b"hello")
        with bk.open_ledger(ledger.id, password=b"s") as reader:
            for entry in reader:
                print(entry.id, entry.data)

The same names, arguments and errors as the asynchronous classes, whose documentation holds here too; coroutines
became calls, asynchronous iterators plain ones, futures those of `concurrent.futures`.

Theory of operation

- One thread with an event loop runs the client. Every call is posted there, so the objects may be used from any
  number of threads, iterators too. A call from the loop's own thread would wait for itself: `WrongLoopError`. A forked
  process has no such thread: there every call is a `WrongLoopError`; connect anew in it.
- Every call takes `timeout` in seconds (None: no limit). When it is over, or at Ctrl-C, the operation is cancelled as
  the asynchronous one would be, and `TimeoutError` raised. What was sent may still take effect: an entry may become
  part of the ledger, a `close` of a ledger or of the client goes on by itself, and calling it again waits for its end.
- After `close` of the client every call raises `ClientClosedError`, and so do calls that wait.
- Going to the loop and back costs more than an append. So appends are gathered (`appends`); iterators run ahead of
  their caller by a bounded number of entries and bytes, and hand them over in runs (`iterator`).

client    what `bookkeeper.client.client` has
ledger    readers and writers
streams   what `bookkeeper.streams` has
blocking  calls from any thread to the loop's, and waiting for them
appends   appends of many threads come to the one writer in order and in bulk
iterator  plain iterators over asynchronous ones
"""

from .client import BookKeeper, connect
from .ledger import LedgerAdvWriter, LedgerReader, LedgerWriter
from .streams import Namespace, StagedSegment, Staging, StreamReader, StreamWriter, Subscriptions, open_namespace

__all__ = [
    "BookKeeper",
    "LedgerAdvWriter",
    "LedgerReader",
    "LedgerWriter",
    "Namespace",
    "StagedSegment",
    "Staging",
    "StreamReader",
    "StreamWriter",
    "Subscriptions",
    "connect",
    "open_namespace",
]
