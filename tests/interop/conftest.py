"""Fixtures: one ZooKeeper, one JVM with Java's client, and clusters of each kind, for the whole run."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.interop.support import peer
from tests.interop.support.clients import Client, JavaClient, OurClient
from tests.interop.support.cluster import JAVA, OURS, Cluster
from tests.interop.support.peer import JavaSession, Tools
from tests.interop.support.report import Report
from tests.support.zookeeper import ServerThread

KINDS = {"java": (JAVA,) * 4, "ours": (OURS,) * 4, "mixed": (JAVA, OURS, JAVA, OURS)}

SECONDS = 300
"""For a test, unless it says otherwise."""

REPORT = pytest.StashKey[Report]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=50, help="interop: steps of the random history")
    parser.addoption("--seed", type=int, action="append", help="interop: a random history to run; may be repeated")
    parser.addoption("--record", action="store_true", help="interop: put what was seen into docs/compatibility.md")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "verifies(area, what): a line of docs/compatibility.md")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.interop)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SECONDS))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "history_seed" in metafunc.fixturenames:
        metafunc.parametrize("history_seed", metafunc.config.getoption("--seed") or [1])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    collected = item.config.stash.get(REPORT, None)
    if collected is not None and (report.when == "call" or report.failed or report.skipped):
        collected.add(item, report.outcome)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    collected = session.config.stash.get(REPORT, None)
    if session.config.getoption("--record", False) and collected is not None:
        collected.record()


@pytest.fixture(scope="session", autouse=True)
def report(request: pytest.FixtureRequest) -> Report:
    """Sets up the Apache BookKeeper that this run is against; what it shows is collected here."""
    peer.set_up()
    collected = request.config.stash[REPORT] = Report(peer.version())
    return collected


@pytest.fixture(scope="session")
def zk(zookeeper_server: ServerThread) -> Iterator[KazooClient]:
    """Raw access to ZooKeeper."""
    client = KazooClient(zookeeper_server.server.address, timeout=60, command_retry={"max_tries": 20})
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSession]:
    """A JVM with Java's client."""
    running = JavaSession(tmp_path_factory.mktemp("session") / "log.txt")
    yield running
    running.close()


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """Java's shell."""
    running = Tools(tmp_path_factory.mktemp("tools") / "log.txt")
    yield running
    running.close()


MakeCluster = Callable[..., Cluster]


@pytest.fixture(scope="session")
def long_lived(
    zk: KazooClient, zookeeper_server: ServerThread, tools: Tools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeCluster]:
    """Clusters that many tests use, by name; made when first asked for."""
    made: dict[str, Cluster] = {}

    def cluster(name: str) -> Cluster:
        if name not in made:
            address, root = zookeeper_server.server.address, zookeeper_server.new_root()
            new = made[name] = Cluster(zk, address, root, tmp_path_factory.mktemp(name))
            if name == "ours":
                new.init_by_us()
            else:
                new.init_by_java(tools)
            new.add(*KINDS[name])
            new.start()
        return made[name]

    yield cluster
    for each in made.values():
        each.stop(signal.SIGKILL)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, long_lived: MakeCluster) -> Cluster:
    """The cluster of the parameter, all its bookies running."""
    found = long_lived(request.param)
    found.revive()
    return found


@pytest.fixture
def new_cluster(zk: KazooClient, zookeeper_server: ServerThread, tmp_path: Path) -> Iterator[MakeCluster]:
    """Makes clusters for one test: `new_cluster("java", "ours", init="java", settings...)`, not started."""
    made: list[Cluster] = []

    def make(*kinds: str, **settings: object) -> Cluster:
        directory = tmp_path / f"cluster{len(made)}"
        made.append(Cluster(zk, zookeeper_server.server.address, zookeeper_server.new_root(), directory, settings))
        made[-1].add(*kinds)
        return made[-1]

    yield make
    for each in made:
        each.stop(signal.SIGKILL)


PATIENCE = {"zkTimeout": 30000, "addEntryTimeoutSec": 30, "readEntryTimeoutSec": 30}
"""A busy machine may leave a process without processor for seconds; most clusters here have no bookie to spare."""


@pytest.fixture
async def connect(session: JavaSession, tmp_path: Path) -> AsyncIterator[Callable[..., object]]:
    """Makes clients: `await connect(cluster, "java-v3", readTimeout=2)`. They end with the test.

    `alone`: a Java client gets a JVM of its own, and so need not wait for what others do.
    """
    made: list[Client] = []
    sessions: list[JavaSession] = []

    async def make(cluster: Cluster, name: str, *, alone: bool = False, **settings: object) -> Client:
        kind, _, protocol = name.partition("-")
        conf = {**PATIENCE, **settings}
        client: Client
        if kind == JAVA:
            if alone:
                sessions.append(JavaSession(tmp_path / f"session{len(sessions)}.txt"))
            client = await JavaClient.connect(sessions[-1] if alone else session, cluster.uri, protocol, **conf)
        else:
            client = await OurClient.connect(cluster.uri, protocol, **conf)
        made.append(client)
        return client

    yield make
    for client in made:
        await client.close()
    for each in sessions:
        each.close()


@pytest.fixture
async def client(request: pytest.FixtureRequest, cluster: Cluster, connect: Callable[..., object]) -> Client:
    """The client of the parameter, on `cluster`."""
    return await connect(cluster, request.param)  # type: ignore[misc, no-any-return]
