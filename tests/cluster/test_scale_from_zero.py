"""A cluster without workers takes a sweep, grows for it, and shrinks again."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import ray

pytestmark = pytest.mark.slow

SWEEP = """
sweep: small
cells: {dataset: digits, memory: 20, orders: 2, method: er, stream_fraction: 0.05}
resources: {cpus: CPUS}
"""
IP = "127.0.0.30"
HEAD_ID = "f" * 51 + "00000"
HEAD_TYPE = "ray.head.default"
"""As the provider calls it."""
IDLE_MINUTES = 0.1


def cluster_file(address: str) -> dict[str, Any]:
    """Return what the autoscaler is told, with Ray's provider that starts nodes as processes."""
    provider = {
        "type": "external",  # as its own type name, it wants a file that Ray does not ship
        "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
        "gcs_address": address,
        "head_node_id": HEAD_ID,
        "launch_multiple": True,
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }
    size = {"CPU": 1, "object_store_memory": 100_000_000}
    types = {
        HEAD_TYPE: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "worker": {"resources": size, "node_config": {}, "min_workers": 0, "max_workers": 2},
    }
    lists = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray")
    return {
        **{f"{name}_commands": [] for name in (*lists, "worker_start_ray")},
        **{name: {} for name in ("auth", "file_mounts")},
        **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
        "file_mounts_sync_continuously": False,
        "upscaling_speed": 1.0,
        "cluster_name": "zero",
        "max_workers": 2,
        "idle_timeout_minutes": IDLE_MINUTES,
        "provider": provider,
        "head_node_type": HEAD_TYPE,
        "available_node_types": types,
    }


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A head that trains nothing, with an autoscaler that may start two workers."""
    with socket.socket() as probe:
        probe.bind((IP, 0))
        port = probe.getsockname()[1]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(cluster_file(f"{IP}:{port}")))
    monkeypatch.setenv("OCLGRID_CLUSTER_FILE", str(path))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    start = ["ray", "start", "--head", f"--node-ip-address={IP}", f"--port={port}", "--block"]
    start += ["--num-cpus=0", "--object-store-memory=100000000", "--include-dashboard=false"]
    given = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    given |= {"RAY_CLOUD_INSTANCE_ID": HEAD_ID, "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID}
    given |= {"RAY_enable_autoscaler_v2": "1"}
    scripts = Path(sys.executable).parent
    with (tmp_path / "ray.log").open("wb") as log:
        process = subprocess.Popen(
            [scripts / start[0], *start[1:], f"--autoscaling-config={path}"],
            env={**os.environ, **given, "PATH": f"{scripts}:{os.environ['PATH']}"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + 300
    try:
        while "block forever" not in (tmp_path / "ray.log").read_text():
            assert process.poll() is None, (tmp_path / "ray.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"{IP}:{port}"
    finally:
        process.terminate()
        process.wait(60)
        with suppress(ProcessLookupError):  # the provider leaves the log monitors of its nodes
            os.killpg(process.pid, signal.SIGKILL)


def run(sweep: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "oclgrid.platform.cli", "run", str(sweep), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_a_sweep_starts_workers_which_go_away_when_it_is_done(
    address: str, server_uri: str, tmp_path: Path
) -> None:
    sweep = tmp_path / "small.yaml"
    sweep.write_text(SWEEP.replace("CPUS", "2"))
    code, said = run(sweep, "--address", address, "--store", server_uri)
    assert "asks for 2 CPU but no node has more than 1" in said
    assert code == 2

    sweep.write_text(SWEEP.replace("CPUS", "1"))
    code, said = run(sweep, "--address", address, "--store", server_uri)
    assert code == 0, said
    assert "asking the autoscaler for some" in said
    assert "| digits  | 20     | er     |   2 |" in said

    ray.init(address=address, log_to_driver=False)
    try:
        assert sum(node["NodeManagerAddress"] != IP for node in ray.nodes()) == 2
        deadline = time.monotonic() + 120
        while sum(node["Alive"] for node in ray.nodes()) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        ray.shutdown()
