"""A whole cluster: `ray up` over SSH to a head and two workers, on hosts made of namespaces.

The tests stand in the order of a cluster's life; each goes on with what the one before has left.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.hosts import FOLDER, HOME, ROOT, Host, Hosts, hosts

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

ADDRESS = "http://127.0.0.1:8265"
CLUSTER = HOME / "cluster-local.yaml"
LOG = str(Path("/tmp", "ray", "session_latest", "logs"))
CELLS = "cells: {{dataset: digits, memory: {memory}, orders: {orders}, method: {methods}, "
CELLS += "stream_fraction: {fraction}}}\n"
SWEEPS = {
    "faults": CELLS.format(memory=20, orders=2, methods="[er, sdaf]", fraction=0.05),
    "on-two": CELLS.format(memory=30, orders=12, methods="er", fraction=0.5),
    "on-one": CELLS.format(memory=40, orders=12, methods="er", fraction=0.5),
}
WAIT_SECONDS = 600
OPEN = {
    ("own", "22"): "SSH, by key",
    ("own", "5000"): "MLflow, by password",
    ("loopback", "5432"): "PostgreSQL",
    ("loopback", "8265"): "Ray's dashboard, through a tunnel",
    ("any", "6379"): "Ray's directory, by token",
    ("any", "raylet"): "Ray between nodes, by token",
    ("any", "oclgrid"): "Ray to its drivers, by token",
    ("any", "ray::"): "Ray to its workers, by token",
    ("own", "ray::"): "Ray's agents, by token",
    ("loopback", "ray::"): "Ray's agents, by token",
    ("own", "10001"): "Ray's clients, by token",
    ("loopback", "10001"): "Ray's clients, by token",
}
"""Who may listen where: at the address the host is known by, inside it, or at any address."""
BEFORE = r"sshd|postgres|/usr/lib/postgresql|ps -ww|bash -c while true|sleep 86400"
"""What a machine runs without the cluster, and the user's tunnel."""
REFUSALS = {"401", "403", "UNAUTHENTICATED", "500"}
"""The last is what MLflow says to a token, which it has no use for."""
ASK_FOR_CELLS = """
import json, sys
from mlflow import MlflowClient
store, sweep = sys.argv[1:]
client = MlflowClient(store)
ids = [e.experiment_id for e in client.search_experiments()]
runs = client.search_runs(ids, f"tags.kind = 'cell' and tags.sweep = '{sweep}'")
print(json.dumps([{"host": r.data.tags["host"], "status": r.info.status, "params": r.data.params,
                   "began": r.info.start_time, "ended": r.info.end_time} for r in runs]))
"""


class Cluster:
    """The cluster as its user has it before them."""

    def __init__(self, made: Hosts) -> None:
        self.hosts, self.own = made, made.own
        self.head, self.east, self.west = made.machines.values()
        self.store = f"http://{self.head.address}:5000"
        self.figures: dict[str, float] = {}

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Keep and print how long the block takes."""
        began = time.monotonic()
        yield
        self.note(what, time.monotonic() - began)

    def note(self, what: str, figure: float) -> None:
        self.figures[what] = round(figure, 2)
        (FOLDER / "times.json").write_text(json.dumps(self.figures, indent=1))
        print(f"\n{what}: {figure:.2f}", flush=True)

    def oclgrid(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Run a command on the user's computer; return its exit code and what it said."""
        command = self.own.inside("oclgrid", *arguments, folder=HOME, **environment)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=WAIT_SECONDS, stdin=subprocess.DEVNULL
        )
        return done.returncode, done.stdout + done.stderr

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command on the user's computer, which ends it at the latest."""
        return subprocess.Popen(
            self.own.inside(*command, folder=HOME),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def submit(self, sweep: str, *options: str) -> str:
        code, said = self.oclgrid("submit", f"{sweep}.yaml", *options, "--address", ADDRESS)
        assert code == 0, said
        return said

    def status(self, sweep: str) -> str:
        return self.oclgrid("status", sweep, "--address", ADDRESS)[1]

    def job_log(self, sweep: str, number: int) -> str:
        """Return what a job has said, as its file on the head has it."""
        name = f"job-driver-oclgrid-{sweep}-{number}.log"
        return self.head.run("bash", "-c", f"cat {LOG}/{name} 2>/dev/null || true")

    def nodes(self) -> set[str]:
        """Return the addresses of the nodes that Ray holds for alive."""
        ask = "import ray; ray.init('auto', log_to_driver=False); "
        ask += "print(*(n['NodeManagerAddress'] for n in ray.nodes() if n['Alive']))"
        said = self.head.run("python", "-W", "ignore", "-c", ask, RAY_AUTH_MODE="token")
        return set(re.findall(r"10\.77\.0\.\d+", said.splitlines()[-1]))

    def cells(self, sweep: str) -> list[dict[str, Any]]:
        """Return the runs of a sweep's cells."""
        said = self.own.run("python", "-c", ASK_FOR_CELLS, self.store, sweep)
        found: list[dict[str, Any]] = json.loads(said.splitlines()[-1])
        return found

    def table(self, sweep: str, store: str) -> str:
        given = ["--store", store, "--format", "csv", "--no-seconds"]
        return self.own.run("oclgrid", "table", str(HOME / f"{sweep}.yaml"), *given)


def wait_until(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(1)


def fill_in(made: Hosts) -> None:
    """Write the product's cluster file with other values in its variables, and nothing else."""
    head, *workers = (host.address for host in made.machines.values())
    text = (ROOT / "cluster-local.yaml").read_text(encoding="utf-8")
    top, rest = text.split("\ncluster_name:")
    for pattern, value in {
        r"(?<=&head )\S+": head,
        r"(?<=&workers )\[.*\]": f"[{', '.join(workers)}]",
        r"(?<=&user )\S+": "root",
        r"(?<=worker_cpus=)\$\(nproc\)": "1",
    }.items():
        top, count = re.subn(pattern, value, top)
        assert count == 1, pattern
    home_of(made.own, "cluster-local.yaml").write_text(f"{top}\ncluster_name:{rest}")


def home_of(host: Host, name: str) -> Path:
    """Return a file in the home of a host, as seen from here."""
    return FOLDER / host.name / "home" / name


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head, two workers with one slot each, and a tunnel to the head."""
    with hosts(["head", "east", "west"]) as made:
        cluster = Cluster(made)
        own, head = cluster.own, cluster.head
        head.run(str(Path(__file__).with_name("head.sh")))
        for name, cells in SWEEPS.items():
            home_of(own, f"{name}.yaml").write_text(f"sweep: {name}\n{cells}")
        fill_in(made)
        own.run("oclgrid", "secrets")
        home_of(own, ".mlflow").mkdir()
        home_of(own, ".mlflow/credentials").symlink_to(HOME / ".oclgrid" / "mlflow_credentials")
        with cluster.timed("ray up"):
            own.run("ray", "up", "--yes", str(CLUSTER))
        with cluster.timed("workers join after"):
            wait_until(lambda: len(cluster.nodes()) == 3, "two workers join")
        with cluster.start("ray", "dashboard", str(CLUSTER)) as tunnel:
            try:
                wait_until(lambda: not cluster.oclgrid("status", "--address", ADDRESS)[0], "tunnel")
                yield cluster
            finally:
                tunnel.terminate()


def test_two_workers_share_a_sweep(cluster: Cluster) -> None:
    with cluster.timed("12 cells on two workers, from submit to table"):
        said = cluster.submit("on-two", "--follow")
    assert "| digits  | 30     | er     |  12 |" in said
    cells = cluster.cells("on-two")
    assert {c["status"] for c in cells} == {"FINISHED"}
    assert {c["host"] for c in cells} == {"east", "west"}
    cluster.note("12 cells on two workers", span(cells))


def test_a_sweep_goes_on_after_its_driver_and_every_worker_were_lost(cluster: Cluster) -> None:
    """In the end the table is that of a single machine, byte by byte."""
    cluster.submit("faults")
    wait_until(lambda: "stage 1 of 5" in cluster.job_log("faults", 1), "the first stage")
    driver = [p for p, c in cluster.head.processes().items() if "oclgrid run faults.yaml" in c]
    cluster.head.run("kill", "-9", *map(str, driver))
    wait_until(lambda: "faults: failed" in cluster.status("faults"), "the job is known as failed")

    assert "submitted faults" in cluster.submit("faults")
    assert "is running already" in cluster.submit("faults")
    wait_until(lambda: " of 5, accuracy" in cluster.job_log("faults", 2), "a stage")
    # While nothing can run on the cluster, the same on a single machine.
    single = cluster.start("oclgrid", "run", "faults.yaml", "--store", "single")
    with cluster.timed("until the loss of both workers is known"):
        cluster.hosts.set_cable("east", "down")
        cluster.west.power_off()
        wait_until(lambda: cluster.nodes() == {cluster.head.address}, "both workers are lost")
    with cluster.timed("until a worker is back"):
        cluster.hosts.set_cable("east", "up")
        wait_until(lambda: cluster.east.address in cluster.nodes(), "a worker comes back")
    with cluster.timed("the rest, on one worker"):
        assert "faults: finished" in cluster.submit("faults", "--follow")
    assert "lost its worker" in cluster.job_log("faults", 2)
    assert single.wait(WAIT_SECONDS) == 0
    assert cluster.table("faults", cluster.store) == cluster.table("faults", str(HOME / "single"))


def test_only_what_is_known_listens_and_nobody_answers_strangers(cluster: Cluster) -> None:
    token = home_of(cluster.own, ".oclgrid/ray_token").read_text()
    for host in (cluster.head, cluster.east):
        found = listening(host)
        unknown = [f for f in found if f[:2] not in OPEN]
        assert not unknown, f"{host.name}: {unknown}"
        for place, who in sorted({f[:2] for f in found}):
            print(f"{host.name} {place} {who}: {OPEN[place, who]}")
        doors = [f"{host.address}:{port}" for place, _, port in found if place != "loopback"]
        for shown in ("", "0" * len(token)):
            for door, answers in knock(cluster, shown, doors).items():
                assert REFUSALS & set(answers) or door.endswith(":22"), (door, answers)
                assert not {"OK", "200"} & set(answers), (door, answers)
        assert any("OK" in answers for answers in knock(cluster, token, doors).values())


def knock(cluster: Cluster, token: str, doors: list[str]) -> dict[str, list[str]]:
    script = Path(__file__).with_name("knock.py")
    answers: dict[str, list[str]] = json.loads(
        cluster.own.run("python", str(script), token, *doors).splitlines()[-1]
    )
    return answers


def listening(host: Host) -> list[tuple[str, str, str]]:
    """Return, for each socket that listens: where, who (a port or a program), and its port."""
    found = []
    for line in host.run("ss", "-tulnpH").splitlines():
        address, port = line.split()[4].rsplit(":", 1)
        address = address.strip("[]").removeprefix("::ffff:")
        place = {host.address: "own", "127.0.0.1": "loopback"}.get(address, "any")
        program = line.partition('(("')[2].partition('"')[0]
        who = port if (place, port) in OPEN else "ray::" if program.startswith("ray::") else program
        found.append((place, who, port))
    return found


def test_without_the_token_no_job_is_taken_and_without_the_password_no_run_shown(
    cluster: Cluster,
) -> None:
    home_of(cluster.own, "wrong").write_text("0" * 64)
    for command in (["submit", "faults.yaml"], ["status"], ["logs", "faults"]):
        wrong = {"RAY_AUTH_TOKEN_PATH": str(HOME / "wrong")}
        code, said = cluster.oclgrid(*command, "--address", ADDRESS, **wrong)
        assert code == 2
        assert "no cluster takes jobs" in said
    wrong = {"MLFLOW_TRACKING_USERNAME": "oclgrid", "MLFLOW_TRACKING_PASSWORD": "wrong"}
    code, said = cluster.oclgrid("table", "faults.yaml", "--store", cluster.store, **wrong)
    assert code == 2
    assert "E %" not in said


def test_no_secret_is_in_a_file_a_log_a_command_line_or_the_store(cluster: Cluster) -> None:
    own = home_of(cluster.own, ".oclgrid")
    password = re.search("password = (.*)", (own / "mlflow_credentials").read_text())
    assert password
    secrets = [(own / "ray_token").read_text(), password[1]]
    places = [str(HOME), "/tmp", str(FOLDER / "head"), str(FOLDER / "east"), str(FOLDER / "own")]
    look = ["grep", "-rlF", *(f"-e{s}" for s in secrets), "--exclude-dir=.venv", *places]
    files = ("/.ray/auth_token", "credentials", "/.oclgrid/ray_token")
    for host in (cluster.own, cluster.head, cluster.east):
        seen = "".join(host.processes().values())
        assert not any(secret in seen for secret in secrets)
        found = subprocess.run(host.inside(*look), capture_output=True, text=True).stdout.split()
        assert found
        for path in found:
            assert path.endswith(files), path
            assert host.run("stat", "-Lc%a", path).strip() == "600"
    stored = cluster.head.run("pg_dump", "oclgrid")
    assert "class_sequence" in stored  # a parameter of cells
    assert not any(secret in stored for secret in secrets)


def test_a_sweep_runs_on_the_worker_that_is_left(cluster: Cluster) -> None:
    """How much longer it takes is printed, not judged: other work of this machine has a say."""
    cluster.west.power_off()
    left = {cluster.head.address, cluster.east.address}
    wait_until(lambda: cluster.nodes() == left, "one worker is left")
    with cluster.timed("12 cells on one worker, from submit to table"):
        cluster.submit("on-one", "--follow")
    cells = cluster.cells("on-one")
    assert {c["host"] for c in cells} == {"east"}
    cluster.note("12 cells on one worker", span(cells))
    two = cluster.figures["12 cells on two workers"]
    cluster.note("two workers take, of one worker's time", two / span(cells))


def span(cells: list[dict[str, Any]]) -> float:
    """Return the seconds from the first cell's begin to the last one's end."""
    return float(max(c["ended"] for c in cells) - min(c["began"] for c in cells)) / 1000


def test_down_leaves_nothing(cluster: Cluster) -> None:
    with cluster.timed("oclgrid down"):
        code, said = cluster.oclgrid("down", str(CLUSTER))
    assert f"{cluster.west.address} was not reached" in said
    assert code == 0, said
    for host in (cluster.head, cluster.east):
        left = [c for c in host.processes().values() if not re.match(BEFORE, c)]
        assert not left, host.name
