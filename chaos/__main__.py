"""Kill at random what a sweep runs on, submit it again, compare: `python -m chaos ROUNDS`."""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from chaos.claims import Damage, damage, table, wait_for_no_orphans
from chaos.site import KINDS, Nodes, Site, until
from oclgrid.platform.environment import prepare

SWEEP = """
sweep: chaos
cells: {dataset: digits, memory: 50, orders: 2, method: [er, sdaf], stream_fraction: 0.1}
"""
MOST_KILLS = 4


def main() -> int:
    """Run the rounds; return whether every one ended as if nothing had happened."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("rounds", type=int, metavar="ROUNDS")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (default: 1)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    prepare()
    killed: Counter[str] = Counter()
    total = Damage()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        sweep = folder / "chaos.yaml"
        sweep.write_text(SWEEP)
        expected = undisturbed(folder, sweep)
        nodes = Nodes(folder)
        try:
            for seed in range(options.seed, options.seed + options.rounds):
                site = Site(folder / str(seed), sweep, nodes)
                found = one_round(site, sweep, expected, (seed, options.kinds, killed))
                total = Damage(*(a + b for a, b in zip(total, found, strict=True)))
        finally:
            nodes.close()
    told = ", ".join(f"{killed[kind]} {kind}s" for kind in KINDS)
    print(f"killed {told}")
    lost, doubled = total.lost, total.doubled
    print(f"{options.rounds} rounds, {killed.total()} kills, {lost} lost, {doubled} doubled")
    return int(total != Damage())


def undisturbed(folder: Path, sweep: Path) -> str:
    """Return the table of a sweep that nothing happens to."""
    command = [sys.executable, "-m", "oclgrid.platform.cli", "run", str(sweep)]
    with (folder / "undisturbed.txt").open("wb") as said:
        subprocess.run(
            [*command, "--store", str(folder / "undisturbed")],
            stdout=subprocess.DEVNULL,
            stderr=said,
            check=True,
        )
    return table(sweep, folder / "undisturbed")


def one_round(
    site: Site, sweep: Path, expected: str, how: tuple[int, list[str], Counter[str]]
) -> Damage:
    """Run the sweep under fire; say how it went and return what is wrong with the results."""
    seed, kinds, killed = how
    rng, started = random.Random(seed), time.monotonic()
    struck: list[str] = []
    try:
        site.submit()
        for _ in range(rng.randint(1, MOST_KILLS)):
            kind = rng.choice(kinds)
            wait_for_moment(site, stages=rng.randint(0, 6), seconds=rng.uniform(0, 3))
            if site.strike(kind, rng):
                struck.append(kind)
            if kind == "driver":
                site.submit()
        finish(site, most=len(struck) + 2)
        wait_for_no_orphans()
        found = damage(site.store)
        if (got := table(sweep, site.store)) != expected:
            found = found._replace(other=(*found.other, f"the table is\n{got}, not\n{expected}"))
    except (TimeoutError, RuntimeError) as error:
        found = Damage(other=(f"{error}",))
    finally:
        site.close()
    killed.update(struck)
    state = "as if nothing had happened" if found == Damage() else f"DAMAGED: {found}"
    print(
        f"seed {seed}: killed {', '.join(struck) or 'nothing'}; {site.submissions} submissions, "
        f"{time.monotonic() - started:.0f} s; {state}",
        flush=True,
    )
    if found != Damage():
        print(f"again with `python -m chaos 1 --seed {seed}`; it said\n{site.said()}", flush=True)
    return found


def wait_for_moment(site: Site, *, stages: int, seconds: float) -> None:
    """Return so many stages and seconds later, or as soon as the command ends."""

    def told() -> int:
        return site.said().count(" of 5, accuracy")

    goal = told() + stages
    until(lambda: told() >= goal or site.exit_code() is not None, f"{stages} more stages")
    time.sleep(seconds)


def finish(site: Site, *, most: int) -> None:
    """Submit again until the command ends well."""
    for _ in range(most):
        until(lambda: site.exit_code() is not None, "the end of the command")
        if site.exit_code() == 0:
            return
        site.submit()
    until(lambda: site.exit_code() is not None, "the end of the command")
    if site.exit_code() != 0:
        raise RuntimeError(f"after {site.submissions} submissions the exit code was not 0")


if __name__ == "__main__":
    sys.exit(main())
