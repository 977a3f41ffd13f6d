"""What Tune does not look after: asked to stop, out of memory, nothing can start."""

import time
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.stopper import NoopStopper

from oclgrid.platform.stopping import Stop

IDLE_SECONDS = 60.0
"""How long nothing may run before someone is told what is asked and what there is."""
STARVED_SECONDS = 3600.0
"""How long nothing may run before the cells are left for another time."""
MEMORY_SIGNS = ("OutOfMemoryError", "MemoryError", "low on memory")
MORE = 2.0
"""How much bigger the share of a trial gets that ran out of memory."""


class Overseer:
    """Looks at every turn of Tune's loop, and at every failure."""

    def __init__(self, stop: Stop, asked: dict[str, float]) -> None:
        self._stop, self._asked = stop, asked
        self._active_at = self._told_at = time.monotonic()

    def look(self, tune_controller: Any) -> None:
        """Start no further trial once a stop is asked for, or when none could start for long."""
        live = list(tune_controller.get_live_trials())
        running = {t: t.temporary_state.ray_actor for t in live if t.status == Trial.RUNNING}
        is_starved = self._is_starved(is_idle=not running and bool(live))
        if not self._stop.is_asked and not is_starved:
            return
        tune_controller.search_alg.set_finished()
        self._stop.tell(len(running))
        for trial in live:
            if trial not in running or self._stop.is_urgent:
                tune_controller.stop_trial(trial)
        if self._stop.is_urgent:
            for actor in running.values():  # Tune would wait some seconds for its stage to end
                ray.kill(actor)

    def _is_starved(self, *, is_idle: bool) -> bool:
        now = time.monotonic()
        if not is_idle:
            self._active_at = self._told_at = now
        elif now - self._told_at > IDLE_SECONDS:
            self._told_at = now
            self._stop.say(
                f"no trial has started for {now - self._active_at:.0f} s: each asks for "
                f"{_told(self._asked)}, the cluster has {_told(ray.cluster_resources())}, "
                f"of which {_told(ray.available_resources())} free"
            )
        return now - self._active_at > STARVED_SECONDS

    def failed(self, trial: Trial) -> None:
        """Let a trial that ran out of memory try once more, with a bigger share if there is one."""
        is_final = trial.status == Trial.RUNNING  # else Tune has stopped it and will try again
        if not is_final and is_out_of_memory(trial) and _owned(trial) == self._asked:
            trial.update_resources(enlarged(self._asked, largest_node()))
            trial.max_failures = trial.run_metadata.num_failures


def last_failure(trial: Trial) -> str:
    """Return what Ray wrote of the last failure of a trial."""
    path = Path(trial.error_file or "")
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    return text.rpartition("Failure # ")[2]


def is_out_of_memory(trial: Trial) -> bool:
    """Return whether a trial last failed for want of memory, by its own word or Ray's."""
    return any(sign in last_failure(trial) for sign in MEMORY_SIGNS)


def why_failed(trial: Trial) -> str:
    """Return why a trial last failed, in a few words."""
    if is_out_of_memory(trial):
        return f"ran out of memory and now has {_told(_owned(trial))}"
    _, has_told, reason = last_failure(trial).rpartition("TransientError: ")
    return reason.splitlines()[0] if has_told else "lost its worker"


def enlarged(asked: dict[str, float], most: dict[str, float]) -> dict[str, float]:
    """Return a bigger share: of the GPU where there is one, else of the machine."""
    kind = "GPU" if "GPU" in asked else "CPU"
    limit = min(1.0, most.get(kind, 0.0)) if kind == "GPU" else most.get(kind, 0.0)
    return {**asked, kind: max(asked[kind], min(MORE * asked[kind], limit))}


def largest_node() -> dict[str, float]:
    """Return the most that a single node has of each resource."""
    most: dict[str, float] = {}
    for node in ray.nodes():
        for kind, amount in node["Resources"].items() if node["Alive"] else ():
            most[kind] = max(most.get(kind, 0.0), amount)
    return most


def _owned(trial: Trial) -> dict[str, float]:
    made: Any = trial.placement_group_factory  # Ray says None, which it is only at first
    return dict(made.required_resources)


def _told(resources: dict[str, float]) -> str:
    kinds = ("CPU", "GPU")
    return " and ".join(f"{resources[k]:g} {k}" for k in kinds if k in resources) or "nothing"


class InOrder(FIFOScheduler):
    """First come, first served, overseen."""

    def __init__(self, overseer: Overseer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Ray's
        self._overseer = overseer

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Let the overseer look at every turn."""
        self._overseer.look(tune_controller)
        return super().choose_trial_to_run(tune_controller)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Let the overseer look at every failure."""
        self._overseer.failed(trial)
        super().on_trial_error(tune_controller, trial)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Leave nothing of this in Tune's snapshots, which are never restored."""
        return FIFOScheduler, ()


class Heed(tune.Stopper):
    """Ends each trial at its next result once a stop is asked for."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether the trial ends now."""
        del trial_id
        self._stop.note(result)
        return self._stop.is_asked

    def stop_all(self) -> bool:
        """Leave it to the overseer."""
        return False

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Leave nothing of this in Tune's snapshots, which are never restored."""
        return NoopStopper, ()
