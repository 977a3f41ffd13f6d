"""What a person sees while cells run: a live table in a terminal, plain lines elsewhere."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from oclgrid.platform.yardstick import stage_time
from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.spec import CellSpec

if TYPE_CHECKING:
    from oclgrid.trainables.loop import Progress

PLAIN_SECONDS = 30.0
"""How often a line tells where the running cells are when nothing else happens."""
SHOWN_CELLS = 20
Poll = Callable[[], dict[str, "Progress"]]
"""Tells where each running cell is."""
Pace = tuple[str, str, bool]
"""What stages that take alike long share: dataset, method, whether another cell trained them."""


class Display:
    """Progress of one command, on standard error."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._is_live = self.console.is_terminal
        self._cells: dict[str, CellSpec] = {}
        self._state: dict[str, dict[str, Any]] = {}
        self._progress: dict[str, Progress] = {}
        self._stage_seconds: dict[Pace, list[float]] = {}
        self._first_seen: dict[tuple[str, int], tuple[float, int]] = {}
        self._expected: dict[Pace, float] = {}
        self._elsewhere: dict[tuple[str, str], float] = {}
        self._adopting: set[str] = set()
        self._slots = 1
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print one line."""
        self.console.print(Text(text), soft_wrap=True)

    @contextmanager
    def phase(self, text: str) -> Iterator[None]:
        """Show that something is going on."""
        if self._is_live:
            with self.console.status(text):
                yield
        else:
            self.say(f"{text} ...")
            yield

    @contextmanager
    def watching(
        self,
        cells: dict[str, CellSpec],
        stages: dict[str, int],
        *,
        slots: int,
        poll: Poll,
        adopting: Iterable[str] = (),
    ) -> Iterator[None]:
        """Follow the cells until the block ends; those adopting stages of others train none."""
        self._adopting = set(adopting)
        self._cells, self._slots, self._started = cells, max(1, slots), time.monotonic()
        self._state = {c: {"stage": s} for c, s in stages.items()}
        for spec in cells.values():
            if known := stage_time(spec):
                seconds = known.train * spec.stream_fraction + known.inference
                self._elsewhere.setdefault(self._pace(spec)[:2], seconds)
        stop = threading.Event()
        follow = self._follow_live if self._is_live else self._follow_plain
        thread = threading.Thread(target=follow, args=(stop, poll), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(timeout=15)

    def result(self, result: dict[str, Any]) -> None:
        """Take in the result of a stage."""
        cell_id = result["cell_id"]
        self._state[cell_id] = {**self._state[cell_id], **result, "done": result["cell_done"]}
        self._progress.pop(cell_id, None)
        spec = self._cells[cell_id]
        if seconds := result.get("stage_seconds"):
            if result.get("is_adopted"):
                self._adopting.add(cell_id)
            self._stage_seconds.setdefault(self._pace(spec), []).append(seconds)
        if reason := result.get("retried"):
            self.say(f"{self._title(cell_id)}: tried its stage again after {reason}")
        if not self._is_live:
            self.say(f"{self._count()} {self._title(cell_id)}: {self._told(spec, result)}")

    def retry(self, cell_id: str, why: str) -> None:
        """Tell that a cell failed through no fault of its own and goes on."""
        if not self._is_live:
            self.say(f"{self._title(cell_id)}: {why}, going on from its last stage")

    def _title(self, cell_id: str) -> str:
        return self._cells[cell_id].title

    def _told(self, spec: CellSpec, result: dict[str, Any]) -> str:
        if result.get("is_elsewhere"):
            return str(result["error"])
        if result.get("error"):
            return f"failed: {result['error']}"
        if result.get("analysis_error"):
            return f"{result.get('analysis', 'analyses')} failed: {result['analysis_error']}"
        if result.get("analysis"):
            return f"analysed {result['analysis']}, {result['analysis_seconds']:.0f} s"
        if "stage_seconds" not in result:
            return f"finished, {result['next'] or 'nothing'} is next"
        stages = dataset(spec.dataset).stages
        return (
            f"stage {result['stage']} of {stages}, accuracy {100 * result['E']:.1f} %, "
            f"{result['stage_seconds']:.0f} s"
        )

    def _count(self) -> str:
        states = self._state.values()
        done = sum(bool(s.get("done")) and not s.get("is_elsewhere") for s in states)
        left = self._seconds_left()
        return f"[{done}/{len(self._cells)}{f', {clock(left)} left' if left else ''}]"

    def _seconds_left(self) -> float | None:
        """Return an estimate from what was seen so far; None before there is anything.

        Methods that have not begun are expected to be as much slower than on the machine of
        ``yardstick`` as those seen.
        """
        seen = self._expected | {pace: fmean(s) for pace, s in self._stage_seconds.items()}
        slower = [
            seconds / self._elsewhere[name, method]
            for (name, method, is_adopted), seconds in seen.items()
            if (name, method) in self._elsewhere and not is_adopted
        ]
        total = 0.0
        for cell_id, spec in self._cells.items():
            state, pace = self._state[cell_id], self._pace(spec)
            if state.get("done"):
                continue
            if (seconds := seen.get(pace)) is None:
                if cell_id in self._adopting:
                    continue  # next to nothing beside those that train
                if not slower or pace[:2] not in self._elsewhere:
                    return None
                seconds = fmean(slower) * self._elsewhere[pace[:2]]
            remaining = dataset(spec.dataset).stages - state["stage"]
            if progress := self._progress.get(cell_id):
                remaining -= progress.batch / max(1, progress.batches)
            total += max(0.0, remaining) * seconds
        return total / min(self._slots, len(self._cells))

    def _pace(self, spec: CellSpec) -> Pace:
        return spec.dataset, spec.method.name, spec.cell_id in self._adopting

    def _follow_plain(self, stop: threading.Event, poll: Poll) -> None:
        while not stop.wait(PLAIN_SECONDS):
            self._poll(poll)
            for cell_id, p in self._running():
                self.say(
                    f"{self._count()} {self._title(cell_id)}: in stage {p.stage}, "
                    f"batch {p.batch} of {p.batches}, {p.images_per_second:.0f} images/s"
                    + (f"; {p.waiting}" if p.waiting else "")
                )
            for cell_id, state in self._state.items():
                if state.get("next"):
                    self.say(f"{self._count()} {self._cells[cell_id].title}: {state['next']} ...")

    def _follow_live(self, stop: threading.Event, poll: Poll) -> None:
        with Live(self._picture(), console=self.console, refresh_per_second=2) as live:
            while not stop.wait(0.5):
                self._poll(poll)
                live.update(self._picture())
            self._progress.clear()
            live.update(self._picture())

    def _poll(self, poll: Poll) -> None:
        try:
            latest = poll()
        except Exception:  # Ray is going away or busy; the next look will tell
            return
        for cell_id, p in latest.items():
            if cell_id in self._cells and p.stage > self._state[cell_id]["stage"]:
                self._progress[cell_id] = p
                self._expect(cell_id, p)

    def _expect(self, cell_id: str, p: "Progress") -> None:
        """Work out how long a stage will take from its batches since it was first seen."""
        now = time.monotonic()
        since, batch = self._first_seen.setdefault((cell_id, p.stage), (now, p.batch))
        if p.batch > batch:
            seconds = (now - since) / (p.batch - batch) * p.batches
            self._expected[self._pace(self._cells[cell_id])] = seconds

    def _running(self) -> list[tuple[str, "Progress"]]:
        return [(c, p) for c, p in self._progress.items() if not self._state[c].get("done")]

    def _picture(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("cell", "stage", "accuracy", "images/s", "loss"):
            table.add_column(name, justify="left" if name == "cell" else "right")
        order = sorted(
            self._cells, key=lambda c: (bool(self._state[c].get("done")), c not in self._progress)
        )
        for cell_id in order[:SHOWN_CELLS]:
            table.add_row(*self._line(cell_id))
        hidden = len(order) - SHOWN_CELLS
        more = f"  and {hidden} more cells" if hidden > 0 else ""
        elapsed = clock(time.monotonic() - self._started)
        lines = [Text(f"{self._count()} {elapsed} so far{more}", style="dim")]
        for cell_id, progress in self._running():
            if progress.waiting:
                lines.append(Text(f"{self._title(cell_id)}: {progress.waiting}", style="yellow"))
        return Group(table, *lines[: SHOWN_CELLS // 4])

    def _line(self, cell_id: str) -> tuple[Text, ...]:
        spec, state = self._cells[cell_id], self._state[cell_id]
        stages = dataset(spec.dataset).stages
        accuracy = f"{100 * state['E']:.1f} %" if "E" in state else "-"
        title = Text(self._title(cell_id))
        if state.get("is_elsewhere"):
            return title, Text("elsewhere"), Text(accuracy), Text("-"), Text("-")
        if state.get("error"):
            return title, Text("failed", style="red"), Text(accuracy), Text("-"), Text("-")
        if state.get("done"):
            return title, Text("done", style="green"), Text(accuracy), Text("-"), Text("-")
        p = self._progress.get(cell_id)
        if state.get("next"):
            return title, Text(state["next"]), Text(accuracy), Text("-"), Text("-")
        if p is None:
            return title, Text(f"{state['stage']}/{stages}"), Text(accuracy), Text("-"), Text("-")
        share = 100 * p.batch // max(1, p.batches)
        return (
            title,
            Text(f"{p.stage}/{stages} {share:3d} %"),
            Text(accuracy),
            Text(f"{p.images_per_second:.0f}"),
            Text(f"{p.loss:.3f}"),
        )


def clock(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
