"""Points of a search as Ray Tune trials: Optuna suggests, stages decide who goes on."""

import time
from types import SimpleNamespace
from typing import Any, Protocol, cast

import optuna
from optuna.trial import Trial, TrialState
from ray import tune
from ray.tune.schedulers import ASHAScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from oclgrid.platform.launch import Cluster
from oclgrid.platform.oversight import Overseer, why_failed
from oclgrid.platform.stopping import Stop
from oclgrid.platform.study import STATES, Study, sampler, suggest
from oclgrid.platform.trials import TrialRow
from oclgrid.search_spaces.search import SMALLER_IS_BETTER, Search
from oclgrid.search_spaces.space import Point, Value


class Watcher(Protocol):
    """Who files and shows what happens to trials."""

    def begin(self, number: int, point: Point) -> dict[str, Any]:
        """Prepare the cells of a trial; return what its workers need to know of them."""

    def result(self, result: dict[str, Any]) -> None:
        """Take note of the result of a step."""

    def retry(self, number: int, why: str) -> None:
        """Take note that a trial failed through no fault of its own and goes on."""

    def end(self, number: int, state: str) -> None:
        """Take note that a trial is "finished", "pruned", "failed" or "waiting" again."""


class Ledger:
    """What has been spent of the budget, by trial; a trial taken up again is not paid twice."""

    def __init__(
        self,
        search: Search,
        rows: list[TrialRow],
        asked: dict[str, float],
        stop: Stop | None = None,
    ) -> None:
        self._budget, self.asked, self.stop = search.budget, asked, stop or Stop()
        self.seconds = {row.number: row.seconds for row in rows}
        self._now: dict[int, dict[int, float]] = {}
        self._deadline = time.monotonic() + 3600 * (search.budget.hours or float("inf"))

    def note(self, number: int, result: dict[str, Any]) -> None:
        """Take note of the time a step took."""
        if "step" in result:
            now = self._now.setdefault(number, {})
            now[result["step"]] = result["stage_seconds"]
            self.seconds[number] = max(self.seconds.get(number, 0.0), sum(now.values()))

    @property
    def is_spent(self) -> bool:
        """Whether no further stage may begin, which is also so once a stop is asked for."""
        if self.stop.is_asked:
            return True
        hours = sum(self.seconds.values()) / 3600
        limits = ((self._budget.core_hours, "CPU"), (self._budget.gpu_hours, "GPU"))
        return time.monotonic() >= self._deadline or any(
            limit is not None and hours * self.asked.get(kind, 0.0) >= limit
            for limit, kind in limits
        )


class PointSearch(OptunaSearch):
    """Optuna's suggestions as trials, and the trials' ends as Optuna should know them."""

    def __init__(self, study: Study, ledger: Ledger, watcher: Watcher) -> None:
        search = study.search
        self._search, self._queue, self._ledger, self._watcher = search, study, ledger, watcher
        metrics, modes = metric_names(search), metric_modes(search)
        is_single = len(metrics) == 1
        super().__init__(
            space=self._draw,
            metric=metrics[0] if is_single else metrics,
            mode=modes[0] if is_single else modes,
            study_name=search.study,
            storage=study.storage,
        )
        self._held: Trial | None = None
        self._points: dict[str, Point] = {}
        self.failed: dict[int, str] = {}
        """Why, by the number of each trial that failed since we began."""

    @property
    def _study(self) -> optuna.Study:
        made: Any = self._ot_study  # Ray says None, which it is only at first
        return cast(optuna.Study, made)

    def suggest(  # type: ignore[override]  # Ray's own signature leaves out FINISHED
        self, trial_id: str
    ) -> dict[str, Any] | str | None:
        """Return the next point with its cells, FINISHED, or None while its twin is running."""
        if self._held is None:
            if self._ledger.is_spent or not self._queue.queue_next(failed=len(self.failed)):
                return str(Searcher.FINISHED)
            trials = self._study.get_trials(deepcopy=False)
            self._study.sampler = sampler(self._search, len(trials))
            self._held = self._study.ask()
        trial, point = self._held, self._draw(self._held)
        if point in self._points.values():
            return None  # two trials must not work on one cell
        self._held = None
        self._ot_trials[trial_id], self._points[trial_id] = trial, point
        trial.set_user_attr("cells", [spec.cell_id for spec in self._search.cells(point)])
        return {
            "trial": trial.number,
            "is_reference": point == self._search.space.reference,
            "point": point,
            **self._watcher.begin(trial.number, point),
        }

    def _draw(self, trial: Trial) -> dict[str, Value]:
        """Return the trial's point; what it already has stays as it is."""
        point: dict[str, Value] = {}
        for name, range_ in self._search.space.existing(point):
            point[name] = suggest(trial, name, range_)
        return point

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Note a step of a trial that goes on."""
        self._note(self._ot_trials[trial_id], result)

    def _note(self, trial: Trial, result: dict[str, Any]) -> None:
        """Put down a step, unless an attempt before came further."""
        if result["step"] < trial.user_attrs.get("reached", 0):
            return
        values = [result.get(name) for name in metric_names(self._search)]
        known = self._study.get_trials(deepcopy=False)[trial.number].intermediate_values
        if len(values) == 1 and values[0] is not None and result["step"] not in known:
            trial.report(values[0], result["step"])
        numbers = {k.removeprefix("mean_"): v for k, v in result.items() if k.startswith("mean_")}
        trial.set_user_attr("numbers", numbers)
        trial.set_user_attr("reached", result["step"])
        trial.set_user_attr("seconds", self._ledger.seconds.get(trial.number, 0.0))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Close a trial: finished, pruned by the scheduler, failed, or back to the queue."""
        trial, result, values = self._ot_trials[trial_id], result or {}, None
        del self._points[trial_id]
        if "step" in result:
            self._note(trial, result)
        reason = "lost its worker too often" if error else result.get("error", "")
        if reason:
            trial.set_user_attr("error", reason)
        if result.get("point_done") and not reason:
            state = TrialState.COMPLETE
            values = [result[name] for name in metric_names(self._search)]
        elif reason and not reason.startswith("DivergedError"):
            state = TrialState.FAIL
            self.failed[trial.number] = reason
        elif not reason and self._ledger.is_spent:
            self._queue.put_back(trial.number)
            self._watcher.end(trial.number, "waiting")
            return
        else:
            state = TrialState.PRUNED  # to diverge is to be worse than any: samplers should know
        self._study.tell(trial, values, state=state)
        self._watcher.end(trial.number, STATES[state])

    def save(self, checkpoint_path: str) -> None:
        """Write nothing: the study lasts, Tune's snapshots are never restored."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Leave nothing of this in Tune's snapshots."""
        return OptunaSearch, ()


class StageHalving(ASHAScheduler):
    """Successive halving on steps that spares the reference point and remembers past trials."""

    def __init__(self, search: Search, ledger: Ledger, past: list[TrialRow]) -> None:
        pruning, never = search.pruning, search.steps + 1
        super().__init__(
            time_attr="step",
            metric=metric_names(search)[0],
            mode=metric_modes(search)[0],
            max_t=never + 1,
            grace_period=min(never, pruning.after) if pruning else never,
            reduction_factor=pruning.factor if pruning else 2,
        )
        self._ledger, self._overseer = ledger, Overseer(ledger.stop, ledger.asked)
        self._passed = {row.number: row.reached for row in past}
        for row in past:
            if row.state in ("finished", "pruned"):
                self._recall(row)

    def _recall(self, row: TrialRow) -> None:
        """Enter a trial of an earlier call at the rungs it reached."""
        nobody: Any = None
        stand_in: Any = SimpleNamespace(trial_id=f"past {row.number}")
        self.on_trial_add(nobody, stand_in)
        for step, value in row.steps.items():
            super().on_trial_result(nobody, stand_in, {"step": step, self._metric: value})

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Return whether the trial goes on; a step that it passed before, it passes again."""
        number = trial.config["trial"]
        self._ledger.note(number, result)
        decision = super().on_trial_result(tune_controller, trial, result)
        if self._ledger.is_spent:
            return str(TrialScheduler.STOP)
        is_past = result.get("step", 0) <= self._passed.get(number, 0)
        is_spared = is_past or trial.config["is_reference"]
        return str(TrialScheduler.CONTINUE if is_spared else decision)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Let the overseer look at every turn."""
        self._overseer.look(tune_controller)
        return super().choose_trial_to_run(tune_controller)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Let the overseer look at every failure."""
        self._overseer.failed(trial)
        super().on_trial_error(tune_controller, trial)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Enter the last step, too."""
        self._ledger.note(trial.config["trial"], result)
        super().on_trial_complete(tune_controller, trial, result)

    def save(self, checkpoint_path: str) -> None:
        """Write nothing: Tune's snapshots are never restored."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Leave nothing of this in Tune's snapshots."""
        return ASHAScheduler, ()


def search_points(
    cluster: Cluster,
    study: Study,
    watcher: Watcher,
    *,
    trainable: type[tune.Trainable],
    given: dict[str, Any],
    asked: dict[str, float],
) -> dict[int, str]:
    """Run trials until the budget is spent; return why each that failed did, by number.

    Args:
        cluster: Where the trials run, as many at once as fit.
        study: Where they are suggested and kept.
        watcher: Told of every trial's begin, results and end.
        trainable: What a trial runs, ``PointTrainable`` but for tests.
        given: Keyword arguments of its setup.
        asked: What one trial owns.
    """
    past = study.rows()
    ledger = Ledger(study.search, past, asked, cluster.stop)
    chooser = PointSearch(study, ledger, watcher)
    cluster.fit(
        trainable,
        given,
        asked=asked,
        callback=_Tell(watcher),
        name_key="trial",
        search_alg=chooser,
        scheduler=StageHalving(study.search, ledger, past),
        max_concurrent_trials=max(1, cluster.slots(asked)),
        num_samples=-1,
    )
    return chooser.failed


class _Tell(tune.Callback):
    """Passes results on."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Leave nothing of this in Tune's snapshots, which are never restored."""
        return tune.Callback, ()

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        del iteration, trials, trial, info
        self._watcher.result(result)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        del iteration, trials, info
        self._watcher.retry(trial.config["trial"], why_failed(trial))


def metric_names(search: Search) -> list[str]:
    """Return what the objectives are called in results."""
    return [f"mean_{objective}" for objective in search.objectives]


def metric_modes(search: Search) -> list[str]:
    """Return which way each objective gets better, as Ray says it."""
    return ["min" if o in SMALLER_IS_BETTER else "max" for o in search.objectives]
