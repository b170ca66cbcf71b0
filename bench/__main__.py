"""All stages of the data path, one benchmark after the other: `python -m bench`.

Each prints the microseconds of processor time an entry costs in that stage. Figures of different machines do not
compare; run both versions on one machine, in turn.
"""

from __future__ import annotations

import subprocess
import sys

STAGES = {
    "protocol": "bytes to messages and back; digests",
    "window": "the writer: window alone, and with frames and digests",
    "client": "the client's connections and reads",
    "many_ledgers": "the client's appends to many ledgers at once",
    "bookie_add": "a bookie's way from socket bytes to acknowledgement",
    "journal": "group commit",
    "storage": "write cache, flush, reads",
    "metadata": "ledgers created, opened and closed in the metadata store",
    "streams": "records of streams, into entries and back",
}


def main() -> int:
    failed = 0
    for name, what in STAGES.items():
        print(f"\n=== {name}: {what}", flush=True)
        failed |= subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
