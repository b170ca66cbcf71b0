"""Everything for a try-out, started by one command, as `make try-out` does: bookies, a Spark master and workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import bookkeeper.sync
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


def listens(master: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(master.rpartition(":")[2]))) == 0


def jobs_run(uri: str, master: str, directory: Path) -> None:
    with bookkeeper.sync.connect(uri) as bk, bk.create_ledger() as writer:
        writer.append_many([b"%d" % n for n in range(1000)])
    usage = [sys.executable, "-m", "bookkeeper", "spark", "usage", "--json"]
    environment = {**os.environ, "BOOKKEEPER_URI": uri, "MASTER": master}
    done = subprocess.run(usage, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["entries"] == 1000
    # A worker whose executor ends before the job does gets another for a moment, so these are not counted.
    for worker in ("worker1", "worker2"):
        log = (directory / "spark" / f"{worker}.log").read_text()
        assert "Asked to launch executor app-" in log, f"the job has an executor on {worker}"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_jobs_run_on_a_cluster_of_one_command_which_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "bookkeeper", "localbookie", "3", "--dir", str(tmp_path), "--spark", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdout is not None
        try:
            uri, master = (cluster.stdout.readline().strip().partition("=")[2] for _ in range(2))
            assert listens(master)
            if how is signal.SIGTERM:
                jobs_run(uri, master, tmp_path)
        finally:
            cluster.send_signal(how)
        assert cluster.wait(120) == (0 if how is signal.SIGTERM else -how)
    wait_until(lambda: not listens(master), "Spark's master has ended")
    logs = [tmp_path / "spark" / f"{name}.log" for name in ("master", "worker1", "worker2")]
    assert all(log.exists() for log in logs)


def test_what_is_missing_is_said_before_anything_is_started(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bookkeeper", "localbookie", "1", "--dir", str(tmp_path / "x"), "--spark", "1"]
    environment = {**os.environ, "JAVA_HOME": "/nowhere"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Spark needs Java, and JAVA_HOME=/nowhere has no java: install a JDK 17")
    assert not (tmp_path / "x").exists()
