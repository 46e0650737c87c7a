"""Owners, executors, drivers and the store under SIGKILL: shared storage on a standalone cluster.

A master and three workers have a folder each. The driver of the job of owners and the driver of the
query get a new folder at each start, which the workers do not see. There are four nsqds and an
nsqlookupd. All share only the storage, and the folder of output and checkpoint. ``STORE=minio`` and
``STORE=azurite`` choose a store that tools/fetch.sh has fetched; by default the tests run with a
folder, and with moto behind a proxy that can be killed. In the second test, the owners are plain
processes and there is one JVM, so it takes a fraction of the time.
"""

import contextlib
import functools
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.spark.jobs import FAST_START, Ingest, Job, JobEndedError, Publisher, each_process
from tests.spark.logs import counts
from tests.support.processes import CHECKOUT
from tests.support.servers.object_store import make_bucket, s3_variables
from tests.support.servers.ports import free_port
from tests.support.servers.storages import AZURITE, MINIO, make_container, variables_set
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark_chaos, pytest.mark.real, pytest.mark.timeout(3600)]

COUNT = int(os.environ.get("COUNT", "100000"))
KILLS = int(os.environ.get("KILLS", "20"))
SEED = int(os.environ.get("SEED", "1"))
STORE = os.environ.get("STORE", "")
FRONT = Path(__file__).resolve().parents[1] / "programs" / "store_front.py"
#: Seconds to wait for the next event, and for all messages at the end.
WAIT, END = 300, 900
#: Seconds for which an owner is stopped. The others then miss its heartbeats.
STOPPED = 25.0
#: Drivers that may end by themselves, because the storage fails or Python starts too late.
MOST_FAILURES = 5 + KILLS // 4


class Cluster:
    """A master and workers on loopback. Each executor has its own folder."""

    def __init__(self, folder: Path, hidden: Path) -> None:
        self.folder = folder
        self._hidden = hidden  # mounted over for the workers, which needs root
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int, cores: int = 1, memory: str = "1g") -> str:
        log = self._start("deploy.master.Master", ["--port", "0"], "master")
        master = self._wait_for(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            work = self.folder / f"worker-{number}"
            work.mkdir()
            log = self._start("deploy.worker.Worker", [
                "--cores", str(cores), "--memory", memory, "--work-dir", str(work), master,
            ], f"worker-{number}")
            self._wait_for(log, "(Successfully registered)")
        return master

    def _start(self, program: str, arguments: list[str], name: str) -> Path:
        log = self.folder / f"{name}.log"
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.{program}",
                   "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        if name != "master" and os.getuid() == 0:
            command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"',
                       str(self._hidden), *command]
        with log.open("wb") as output:
            self._processes.append(subprocess.Popen(
                command, stdout=output, stderr=output, cwd="/",
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "HOME": "/",
                     "SPARK_DAEMON_JAVA_OPTS": FAST_START,
                     "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}))
        return log

    def _wait_for(self, log: Path, pattern: str) -> str:
        wait_until(lambda: re.search(pattern, log.read_text()), WAIT, f"{log.name}: {pattern}")
        found = re.search(pattern, log.read_text())
        assert found is not None
        return found[1]

    def executors(self, words: bytes = b"") -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended
                command = (entry / "cmdline").read_bytes()
                if b"CoarseGrainedExecutorBackend" in command and words in command and (
                        os.readlink(entry / "cwd").startswith(str(self.folder))):
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(60)
        wait_until(lambda: not self.executors(), 60, "the executors ended")


class Store:
    """An object store whose front, or itself, may be killed and started again."""

    def __init__(self, port: int, commands: list[list[str]], killed: int, **env: str) -> None:
        self.port = port
        self._commands = commands
        self._killed = killed
        self._env = {**os.environ, **env}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._processes = [self._launch(command) for command in self._commands]

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, env=self._env)

    def kill(self) -> None:
        self._end(self._processes[self._killed])
        threading.Event().wait(5.0)
        self._processes[self._killed] = self._launch(self._commands[self._killed])

    def set_faults(self, failing: int, delay: float) -> None:
        """Let the front answer 503 to so many requests in 1000, and delay each request."""
        stdin = self._processes[0].stdin
        assert stdin is not None
        stdin.write(b"%d %f\n" % (failing, delay))
        stdin.flush()

    def close(self) -> None:
        for process in self._processes:
            self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(30)
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()


def start_minio(port: int, folder: Path) -> Store:
    back = free_port()
    (folder / "minio").mkdir()
    return Store(port, [_front(port, back), [
        str(MINIO), "server", "--quiet", "--address", f"127.0.0.1:{back}", str(folder / "minio")]],
        1, MINIO_ROOT_USER="key", MINIO_ROOT_PASSWORD="secretsecret", HOME=str(folder))


def start_azurite(port: int, folder: Path) -> Store:
    """Start Azurite. Its front is killed, because a killed Azurite loses its last objects."""
    back = free_port()
    return Store(port, [_front(port, back), [
        str(AZURITE), "--blobPort", str(back), "--inMemoryPersistence", "--skipApiVersionCheck",
        "--disableTelemetry", "--silent"]], 0)


def _front(port: int, back: int) -> list[str]:
    return [sys.executable, str(FRONT), str(port), str(back)]


@pytest.fixture(params=[STORE] if STORE else ["file", "moto"])
def storage(s3_endpoint, leak_guard, request, tmp_path) -> Iterator[tuple[str, Store | None]]:
    if request.param == "file":
        yield f"file://{tmp_path}/storage", None
        return
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    variables, url, create = s3_variables(endpoint), "s3://bucket/nsq", make_bucket
    if request.param == "minio":
        if not os.access(MINIO, os.X_OK):
            pytest.skip("no MinIO: run tools/build_minio.py")
        store = start_minio(port, tmp_path)
        variables["AWS_SECRET_ACCESS_KEY"] = "secretsecret"
    elif request.param == "azurite":
        if not os.access(AZURITE, os.X_OK):
            pytest.skip("no Azurite: run tools/fetch.sh")
        store, url = start_azurite(port, tmp_path), "az://bucket/nsq"
        variables = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": endpoint}
        create = functools.partial(make_container, endpoint)
    else:
        # moto holds everything in memory, so its front is killed instead.
        store = Store(port, [_front(port, int(s3_endpoint.rpartition(":")[2]))], 0)

    def is_there() -> bool:
        try:
            create("bucket")
        except Exception:  # many kinds, while the store does not listen yet
            return False
        return True

    with contextlib.ExitStack() as stack:
        store.start()
        stack.callback(store.close)
        stack.enter_context(variables_set(variables))
        wait_until(is_there, WAIT, "the store answers")
        yield url, store


class Run:
    def __init__(self, folder, cluster, master, storage, store, lookupd, rng) -> None:
        self.folder, self.cluster, self.master = folder, cluster, master
        self.storage, self.store, self.lookupd, self.rng = storage, store, lookupd, rng
        self.numbers = itertools.count(1)
        self.begun = time.monotonic()
        # The port identifies the executors of a driver.
        self.ports = {"owners": free_port(), "query": free_port()}
        self.jobs: dict[str, Job] = {}  # running drivers
        self.ended: list[str] = []  # the logs of drivers that have ended by themselves

    def note(self, event: str, shown: str = "") -> None:
        print(f"{time.monotonic() - self.begun:7.1f} s  {event:<28} {shown}", flush=True)

    def new_folder(self) -> Path:
        path = self.folder / "disks" / f"{next(self.numbers)}"
        path.mkdir()
        return path

    def start(self, kind: str) -> None:
        """Start a driver; start it again if it ends by itself, as a service manager does."""
        while True:
            job = self.jobs[kind] = self.submit_owners() if kind == "owners" else Job(
                self.new_folder(), **self.query_settings())
            try:
                if isinstance(job, Ingest):
                    job.wait_for_log("owners: ")
                else:
                    job.wait_for(state="started")
                return
            except JobEndedError:
                self.keep_log(kind)

    def submit_owners(self) -> Ingest:
        folder = self.new_folder()
        return Ingest(
            f"--master={self.master}", "--tasks=3", "--topic=t", "--channel=c",
            f"--storage={self.storage}", f"--lookupd-http-address={self.lookupd.http_address}",
            "--consumer-opt=lookupd_poll_interval,5s", "--consumer-opt=msg_timeout,5s",
            "--consumer-opt=rollIntervalMs,200", "--consumer-opt=max_in_flight,2000",
            "--conf=spark.cores.max=3", "--conf=spark.executor.cores=1",
            "--conf=spark.executor.memory=512m", f"--conf=spark.local.dir={folder}",
            f"--conf=spark.driver.port={self.ports['owners']}",
            folder=folder)

    def query_settings(self, **more):
        return {
            "master": self.master, "out": str(self.folder / "out"),
            "checkpoint": str(self.folder / "checkpoint"),
            "options": {"topic": "t", "channel": "c", "storage": self.storage,
                        "maxMessagesPerTrigger": "20000"},
            "conf": {"spark.cores.max": "2", "spark.executor.cores": "1",
                     "spark.executor.memory": "512m", "spark.task.maxFailures": "20",
                     "spark.driver.port": str(self.ports["query"])}, **more}

    def keep_log(self, kind: str) -> None:
        job = self.jobs.pop(kind)
        why, log = job.why_ended(), job.log()
        job.close()
        self.note(f"the driver of the {kind} ended", f"{why[:200]}; started again")
        self.ended.append(f"the driver of the {kind}:\n{log}")
        print(log, flush=True)
        assert len(self.ended) <= MOST_FAILURES, "\n".join(self.ended)

    def restart_failed(self) -> None:
        for kind, job in list(self.jobs.items()):
            if job.why_ended():
                self.keep_log(kind)
                self.start(kind)

    def executors(self, kind: str) -> list[int]:
        return self.cluster.executors(b"@127.0.0.1:%d" % self.ports[kind])

    def owner_processes(self) -> list[int]:
        executors = set(self.executors("owners"))
        parents = {pid: int(fields[1]) for pid, fields in each_process()}
        daemons = {pid for pid, parent in parents.items() if parent in executors}
        return [pid for pid, parent in parents.items() if parent in daemons]

    # -- events

    def kill_owner(self) -> str:
        return self._kill(self.owner_processes)

    def kill_executor(self) -> str:
        kind = self.rng.choice(["owners", "query"])
        return f"of the {kind}: {self._kill(lambda: self.executors(kind))}"

    def _kill(self, find) -> str:
        def found():
            self.restart_failed()
            return find()

        pid = self.rng.choice(wait_until(found, WAIT, "there is one to kill"))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return str(pid)

    def kill_driver(self) -> str:
        """Kill all processes of a driver, and start it again with an empty disk."""
        kind = self.rng.choice(["owners", "query"])
        self.jobs.pop(kind).kill()
        self.start(kind)
        return f"of the {kind}; with an empty disk"

    def kill_store(self) -> str:
        if self.store is None:
            return f"a folder has none: an owner, {self.kill_owner()}"
        self.store.kill()
        return "away for 5 s"

    def stop_owner(self) -> str:
        """Stop an owner until its heartbeats are missed, then continue it."""
        pid = self.rng.choice(wait_until(self.owner_processes, WAIT, "there is one to stop"))
        os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(STOPPED)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        return f"{pid} for {STOPPED:g} s"

    def fail_requests(self) -> str:
        return self._faults(300, 0.0)

    def delay_requests(self) -> str:
        return self._faults(0, 0.5)

    def _faults(self, failing: int, delay: float) -> str:
        if self.store is None:
            return "not with a folder"
        self.store.set_faults(failing, delay)
        threading.Event().wait(15.0)
        self.store.set_faults(0, 0.0)
        return "for 15 s"

    def close(self) -> None:
        for job in self.jobs.values():
            job.kill()

    def report(self) -> str:
        logs = [f"the driver of the {kind}:\n{job.log()}" for kind, job in self.jobs.items()]
        return "\n".join([*self.ended, *logs, f"executors log below {self.cluster.folder}"])


@pytest.fixture
def cluster(storage, tmp_path, tmp_path_factory):
    (tmp_path / "disks").mkdir()
    found = Cluster(tmp_path_factory.mktemp("cluster"), tmp_path / "disks")
    try:
        yield found, found.start(workers=3, cores=2, memory="2g")
    finally:
        found.close()


def new_nsqd(real_nsqd, lookupd):
    server = real_nsqd(mem_queue_size=1_000_000, lookupd_tcp_addresses=[lookupd.tcp_address])
    server.post("/topic/create", topic="t")
    server.post("/channel/create", topic="t", channel="c")
    return server


def test_kills_of_everything_lose_and_double_no_row(
    storage, cluster, real_nsqd, real_nsqlookupd, tmp_path
):
    """Kill and stop processes, add and remove nsqds, and let the store fail and delay requests."""
    rng = random.Random(SEED)
    lookupd = real_nsqlookupd()
    servers = [new_nsqd(real_nsqd, lookupd) for _ in range(4)]
    run = Run(tmp_path, *cluster, *storage, lookupd, rng)
    run.note(f"{run.storage}, seed {SEED}")
    kills = [run.kill_owner, run.kill_executor, run.kill_driver, run.kill_store]
    events = [kills[number % len(kills)] for number in range(KILLS)]
    for place, event in ((0.25, run.stop_owner), (0.6, run.fail_requests),
                         (0.8, run.delay_requests)):
        events.insert(int(place * len(events)), event)
    each = COUNT // 5
    rate = max(20, each // (KILLS * 15))  # so that messages arrive during each event
    publishers = []

    def publish(server):
        publishers.append(Publisher(
            server.tcp_address, "t", each, rate, each * len(publishers)))

    try:
        run.start("owners")
        run.start("query")
        for server in servers:
            publish(server)
        for number, event in enumerate(events):
            shown = event()
            run.note(event.__name__.replace("_", " "),
                     f"{shown}; {sum(one.published for one in publishers):,} published")
            if number == len(events) // 2:
                servers.append(new_nsqd(real_nsqd, lookupd))
                publish(servers[-1])
                run.note("a fifth nsqd appears", servers[-1].tcp_address)
            threading.Event().wait(rng.uniform(1.0, 6.0))
        for one in publishers:
            assert one.join() == each

        def is_stored(*nsqds):
            run.restart_failed()
            return all(counts(nsqd) == (0, 0) for nsqd in nsqds)

        wait_until(lambda: is_stored(servers[0]), END, "the first nsqd is read")
        servers[0].stop()
        run.note("the first nsqd is removed", servers[0].tcp_address)
        wait_until(lambda: is_stored(*servers[1:]), END, "all is stored")
        owners = run.jobs.pop("owners")
        assert isinstance(owners, Ingest)
        assert owners.terminate() == 0, owners.log()
        run.note("the owners end in order")
        run.jobs.pop("query").kill()
        done = Job(run.new_folder(), **run.query_settings(now=True)).finish()
    except BaseException:
        print(run.report(), flush=True)
        raise
    finally:
        for one in publishers:
            one.close()
        run.close()
    wanted = each * len(servers)
    run.note("result", f"{wanted:,} published, {wanted - done['distinct']} missing,"
             f" {done['rows'] - done['distinct']} double")
    assert (done["rows"], done["distinct"]) == (wanted, wanted)


def finish(settings: dict[str, Any]) -> dict[str, Any]:
    """Read the remaining messages. On a busy machine, Spark may start its Python too late."""
    failures = 0
    while True:
        try:
            return Job(**settings, now=True).finish()
        except JobEndedError:
            failures += 1
            if failures > MOST_FAILURES:
                raise


def test_kills_of_owners_without_a_cluster_lose_and_double_no_row(
    storage, real_nsqd, real_nsqlookupd, tmp_path
):
    """Of ten kills, seven are of an owner, two of the store, and one of the query."""
    url, store = storage
    rng = random.Random(SEED)
    lookupd = real_nsqlookupd()
    servers = [new_nsqd(real_nsqd, lookupd) for _ in range(2)]
    each = COUNT // len(servers)
    settings = {
        "master": "local[2,4]", "out": str(tmp_path / "out"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "options": {"topic": "t", "channel": "c", "storage": url,
                    "maxMessagesPerTrigger": "20000"}}
    failures: list[str] = []

    def start_owner() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "nsqclient", "spark", "ingest", "--topic=t", "--channel=c",
             f"--storage={url}", f"--lookupd-http-address={lookupd.http_address}",
             "--consumer-opt=lookupd_poll_interval,5s", "--consumer-opt=msg_timeout,5s",
             "--consumer-opt=rollIntervalMs,200", "--consumer-opt=max_in_flight,2000"],
            stderr=subprocess.DEVNULL, cwd=CHECKOUT)

    def kill_owner() -> None:
        killed = owners.pop(0)
        killed.kill()
        killed.wait(30)
        owners.append(start_owner())

    def restart_ended(wanted: str = "") -> None:
        """Restart what has ended, as a service manager does. Nothing starts without the store."""
        nonlocal query
        owners[:] = [one if one.poll() is None else start_owner() for one in owners]
        why = query.why_ended()
        if why:
            failures.append(why)
            assert len(failures) <= MOST_FAILURES, failures
        if why or wanted:
            query.kill()
            query = Job(**settings)

    publishers = [Publisher(server.tcp_address, "t", each, max(20, each // (KILLS * 5)),
                            each * number) for number, server in enumerate(servers)]
    owners = [start_owner() for _ in range(3)]
    query = Job(**settings)
    try:
        query.wait_for(state="started")
        for number in range(KILLS):
            threading.Event().wait(rng.uniform(1.0, 6.0))
            if number % 10 == 9:
                restart_ended("killed")
            elif number % 5 == 2 and store is not None:
                store.kill()
            else:
                kill_owner()
            restart_ended()
            print(f"kill {number + 1}: {sum(one.published for one in publishers)} published",
                  flush=True)
        assert [one.join() for one in publishers] == [each] * len(servers)

        def is_stored() -> bool:
            restart_ended()
            return all(counts(one) == (0, 0) for one in servers)

        wait_until(is_stored, END, "all is stored")
        for owner in owners:
            owner.terminate()
        # An owner that has just started does not handle SIGTERM yet.
        assert {owner.wait(END) for owner in owners} <= {0, -signal.SIGTERM}
        query.kill()
        done = finish(settings)
    finally:
        for one in publishers:
            one.close()
        for owner in owners:
            owner.kill()
            owner.wait(30)
        query.kill()
    print(f"{each * len(servers)} published, {done}; the query ended {len(failures)} times")
    assert (done["rows"], done["distinct"]) == (each * len(servers), each * len(servers))
