"""How much of a machine is used: affinity, containers and memory all have a say."""

import math
import os
from pathlib import Path

import pytest

from oclgrid.platform.machine import cpus_for, free_mb, trial_mb, usable_cpus


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_without_a_container_all_allowed_processors_are_used(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu_DOT_max": "100000 100000"}, 1),
        ({"cpu_DOT_max": "50000 100000"}, 1),
        ({"cpu_DOT_max": "max 100000"}, math.inf),
        ({"cpu__cpu.cfs_quota_us": "100000", "cpu__cpu.cfs_period_us": "100000"}, 1),
        ({"cpu__cpu.cfs_quota_us": "-1", "cpu__cpu.cfs_period_us": "100000"}, math.inf),
    ],
)
def test_a_container_limits_processors(
    tmp_path: Path, files: dict[str, str], expected: float
) -> None:
    found = usable_cpus(write(tmp_path, **files))
    assert found == min(expected, len(os.sched_getaffinity(0)))


def test_free_memory_is_the_least_that_machine_and_container_allow(tmp_path: Path) -> None:
    info = tmp_path / "meminfo"
    info.write_text("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
    assert free_mb(tmp_path, info) == 4096
    write(tmp_path, memory_DOT_max=str(3 * 2**30), memory_DOT_current=str(2 * 2**30))
    assert free_mb(tmp_path, info) == 1024
    write(tmp_path, memory_DOT_stat=f"anon 5\ninactive_file {2**29}\n")
    assert free_mb(tmp_path, info) == 1536
    write(tmp_path, memory_DOT_max="max")
    assert free_mb(tmp_path, info) == 4096
    assert free_mb(tmp_path / "none", tmp_path / "none") == math.inf


@pytest.mark.parametrize(
    ("side", "threads", "cpus", "free", "expected"),
    [
        (32, 1, 8, math.inf, 8),
        (32, 1, 8, 64_000, 8),
        (32, 1, 8, 5_000, 3),
        (32, 2, 8, 5_000, 6),
        (32, 1, 8, 100, 1),
        (84, 1, 64, 64_000, 20),
        (32, 4, 2, 100, 2),
    ],
)
def test_trials_fit_the_memory_and_there_is_always_one(
    side: int, threads: int, cpus: int, free: float, expected: int
) -> None:
    assert cpus_for(side, threads=threads, cpus=cpus, free=free) == expected


def test_larger_images_need_more() -> None:
    assert trial_mb(32) == 1000
    assert trial_mb(84) > 3 * trial_mb(16)
