"""How much of this machine trials may use: its processors, and the memory that is free."""

import os
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
"""Where Linux says what a container may use."""
OWN_MB = 2000
"""What the command, the tracking server and Ray hold."""
BASE_MB, IMAGE_MB = 650, 350
"""What a trial holds beside the maps of its network, and those for images of 32x32
(`make bench NAMES="memory growth"`)."""


def usable_cpus(groups: Path = GROUPS) -> int:
    """Return the processors this process may run on, by its affinity and its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quotas = [int(quota / period) for quota, period in _quotas(groups) if quota > 0 and period]
    return max(1, min([allowed or 1, *quotas]))


def _quotas(groups: Path) -> Iterator[tuple[int, int]]:
    newer = _words(groups / "cpu.max")  # "max 100000" where there is no limit
    if len(newer) == 2 and newer[0].isdigit():
        yield int(newer[0]), int(newer[1])
    older = [_words(groups / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    if all(older):
        yield int(older[0][0]), int(older[1][0])


def free_mb(groups: Path = GROUPS, memory: Path = Path("/proc/meminfo")) -> float:
    """Return the memory that is free here and in our container; infinite where nobody tells."""
    found = [float("inf")]
    found += [amount / 1024 for amount in _amounts(memory, "MemAvailable:")]
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        most, now = _words(groups / limit), _words(groups / used)
        if most and now and most[0].isdigit():
            # What the cache of files holds is given back when it is asked for.
            cached = sum(_amounts((groups / limit).with_name("memory.stat"), "inactive_file"))
            found.append((int(most[0]) - int(now[0]) + cached) / 2**20)
    return min(found)


def _amounts(path: Path, name: str) -> list[int]:
    """Return what a file of names and numbers says of one name, nothing if it does not."""
    lines = [line.split() for line in _text(path).splitlines()]
    return [int(words[1]) for words in lines if words[0] == name]


def trial_mb(side: int) -> float:
    """Return about what a trial holds on images of a side, by the method that needs most."""
    return BASE_MB + IMAGE_MB * (side / 32) ** 2


def cpus_for(side: int, *, threads: int, cpus: int, free: float) -> int:
    """Return how many processors to use, so that trials of so many threads fit the memory."""
    if free == float("inf"):
        return cpus
    trials = int(max(0.0, free - OWN_MB) / trial_mb(side))
    return min(cpus, max(1, trials) * threads)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def _words(path: Path) -> list[str]:
    return _text(path).split()
