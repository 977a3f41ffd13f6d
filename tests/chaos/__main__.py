"""Kill at random what a sweep runs on, submit it again, compare: `python -m tests.chaos ROUNDS`."""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from oclgrid.platform.environment import prepare

prepare()  # before MLflow and Ray are imported

from tests.chaos.claims import Damage, damage, table, wait_for_no_orphans  # noqa: E402
from tests.chaos.site import KINDS, Nodes, Site, until  # noqa: E402
from tests.postgresql import PostgreSql  # noqa: E402

SWEEP = """
sweep: chaos
cells: {dataset: digits, memory: 50, orders: 2, method: [er, sdaf], stream_fraction: 0.1}
"""
KILLS = (2, 5)


@dataclass
class Chaos:
    """What all rounds share, and what they have come to."""

    sweep: Path
    nodes: Nodes
    database: PostgreSql
    expected: str
    """Table of a sweep that nothing happened to."""
    killed: Counter[str] = field(default_factory=Counter)
    total: Damage = field(default_factory=Damage)

    def round(self, seed: int, kinds: list[str]) -> None:
        """Run the sweep under fire; note and say how it went."""
        rng, started = random.Random(seed), time.monotonic()
        site = Site(self.sweep.parent / str(seed), self.sweep, self.nodes, self.database)
        struck: list[str] = []
        try:
            under_fire(site, rng, kinds, struck)
            found = damage(site.store)
            if (got := table(self.sweep, site.store)) != self.expected:
                found += Damage(other=(f"the table is\n{got}, not\n{self.expected}",))
        except (TimeoutError, RuntimeError, subprocess.CalledProcessError) as error:
            found = Damage(other=(str(error),))
        finally:
            site.close()
        self.killed.update(kind.split()[0] for kind in struck)
        self.total += found
        state = "as if nothing had happened" if found == Damage() else f"DAMAGED: {found}"
        print(
            f"seed {seed}: killed {', '.join(struck) or 'nothing'}; {site.submissions} "
            f"submissions, {time.monotonic() - started:.0f} s; {state}",
            flush=True,
        )
        if found != Damage():
            print(f"again with `python -m tests.chaos 1 --seed {seed}`; it said\n{site.said()}")


def under_fire(site: Site, rng: random.Random, kinds: list[str], struck: list[str]) -> None:
    """Submit the sweep, strike now and then, submit it again until it ends well."""
    for number in range(rng.randint(*KILLS)):
        kind = rng.choice(kinds)
        if number or kind != "line":  # a line may be one of the first that are reached
            if not number:
                site.submit()
            wait_for_moment(site, stages=rng.randint(0, 3), seconds=rng.uniform(0, 3))
        if what := site.strike(kind, rng):
            struck.append(what)
    for left in reversed(range(len(struck) + 2)):
        until(lambda: site.exit_code() is not None, "the end of the command")
        if site.exit_code() == 0:
            break
        if not left:
            raise RuntimeError(f"after {site.submissions} submissions it still did not end well")
        site.submit()
    wait_for_no_orphans()


def wait_for_moment(site: Site, *, stages: int, seconds: float) -> None:
    """Return so many stages and seconds later, or as soon as the command ends."""

    def told() -> int:
        return site.said().count(" of 5, accuracy")

    goal = told() + stages
    until(lambda: told() >= goal or site.exit_code() is not None, f"{stages} more stages")
    time.sleep(seconds)


@contextmanager
def chaos() -> Iterator[Chaos]:
    """Set up what all rounds share."""
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        folder.chmod(0o711)  # PostgreSQL may run as another user
        os.environ["OCLGRID_OUTBOX"] = str(folder / "outbox")
        sweep = folder / "chaos.yaml"
        sweep.write_text(SWEEP)
        expected = undisturbed(folder, sweep)
        (folder / "postgresql").mkdir()
        with PostgreSql(folder / "postgresql") as database:
            nodes = Nodes(folder)
            try:
                yield Chaos(sweep, nodes, database, expected)
            finally:
                nodes.close()


def undisturbed(folder: Path, sweep: Path) -> str:
    """Return the table of a sweep that nothing happens to."""
    print("a sweep that nothing happens to ...", flush=True)
    command = [sys.executable, "-m", "oclgrid.platform.cli", "run", str(sweep)]
    with (folder / "undisturbed.txt").open("wb") as said:
        subprocess.run(
            [*command, "--store", str(folder / "undisturbed")],
            stdout=subprocess.DEVNULL,
            stderr=said,
            check=True,
        )
    return table(sweep, str(folder / "undisturbed"))


def main() -> int:
    """Run the rounds; return whether every one ended as if nothing had happened."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("rounds", type=int, metavar="ROUNDS")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (default: 1)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    with chaos() as all_rounds:
        for seed in range(options.seed, options.seed + options.rounds):
            all_rounds.round(seed, options.kinds)
    killed, total = all_rounds.killed, all_rounds.total
    print("killed: " + ", ".join(f"{kind} {killed[kind]}" for kind in KINDS))
    kills = f"{options.rounds} rounds, {killed.total()} kills"
    print(f"{kills}, {total.lost} lost, {total.doubled} doubled")
    return int(total != Damage())


if __name__ == "__main__":
    sys.exit(main())
