"""A study that lasts: its queue, its trials as plain rows, and what matters in it (Optuna)."""

import hashlib
import logging
import os
import warnings
from pathlib import Path
from typing import Any, cast

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from oclgrid.platform.location import Location
from oclgrid.platform.trials import TrialRow, best_of
from oclgrid.search_spaces.search import SMALLER_IS_BETTER, Search
from oclgrid.search_spaces.space import Choice, Int, Range, Value
from oclgrid.trainables.schema import SpecError

STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}
COUNTED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)


def study_address(location: Location, given: str | None) -> str:
    """Return where the study is kept: by option, environment, or beside an embedded store."""
    if address := given or os.environ.get("OCLGRID_STUDY"):
        return address
    if location.folder is None:
        raise SpecError(
            "a search in a store with a server of its own needs --study-storage: the URL of a "
            "database (postgresql+psycopg://...) or a journal file"
        )
    return f"sqlite:///{location.folder.resolve() / 'optuna.db'}"


def open_storage(address: str) -> BaseStorage:
    """Return the storage at a database's URL or in a journal file."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if "://" in address:
                return RDBStorage(address)
            return JournalStorage(JournalFileBackend(str(Path(address))))
    except Exception as error:  # drivers of databases raise nearly anything
        reason = " ".join(str(error).split())[:150]
        raise SpecError(
            f"cannot open the study in {address}; check --study-storage: {reason}"
        ) from error


class Study:
    """The study of one search."""

    def __init__(self, search: Search, storage: BaseStorage) -> None:
        self.search, self.storage = search, storage
        self._study = optuna.create_study(
            study_name=search.study,
            storage=storage,
            directions=directions(search),
            load_if_exists=True,
        )

    def prepare(self) -> None:
        """Leave no trial RUNNING; see that the reference point is the first and no point is lost.

        The caller makes sure that nobody else is working on the study.
        """
        self.put_back()
        trials = self._study.get_trials(deepcopy=False)
        if not trials:
            self._study.enqueue_trial(dict(self.search.space.reference))
            self._study.set_user_attr("space", self.search.space.plain)
            self._study.set_user_attr("cell", self.search.around.resolved)
            self._study.set_user_attr("orders", list(self.search.orders))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                self._study.set_metric_names(list(self.search.objectives))
        kept = [_asked(t) for t in trials if t.state is not TrialState.FAIL]
        for trial in trials:
            if trial.state is TrialState.FAIL and _asked(trial) not in kept:
                self._study.enqueue_trial(_asked(trial))
                kept.append(_asked(trial))

    def put_back(self, *numbers: int) -> int:
        """Return RUNNING trials (all, or these) to the queue, as they are; return how many.

        A trial keeps its number, its parameters and its steps, so taking it up again adds nothing.
        """
        study_id = self.storage.get_study_id_from_name(self.search.study)
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        chosen = [t.number for t in running if not numbers or t.number in numbers]
        for number in chosen:
            trial_id = self.storage.get_trial_id_from_study_id_trial_number(study_id, number)
            self.storage.set_trial_state_values(trial_id, TrialState.WAITING)
        return len(chosen)

    def queue_next(self, *, failed: int = 0) -> bool:
        """Return whether another trial may begin; of a grid, the next point is put into the queue.

        Args:
            failed: Trials that count although they failed, lest one that always fails is
                replaced for ever.
        """
        trials = self._study.get_trials(deepcopy=False)
        limit = self.search.budget.trials
        if limit is not None and sum(t.state in COUNTED for t in trials) + failed >= limit:
            return False
        if self.search.sampler != "grid" or any(t.state is TrialState.WAITING for t in trials):
            return True
        taken = [_asked(t) for t in trials]
        grid = self.search.space.grid(self.search.grid_points)
        point = next((p for p in grid if p not in taken), None)
        if point is not None:
            self._study.enqueue_trial(point)
        return point is not None

    @property
    def is_filed(self) -> bool:
        """Whether the trials as they are now have been filed in the store."""
        return self._study.user_attrs.get("filed") == self._standing

    def set_filed(self) -> None:
        """Remember that the trials as they are now are filed in the store."""
        self._study.set_user_attr("filed", self._standing)

    @property
    def _standing(self) -> str:
        text = ",".join(f"{row.number} {row.state}" for row in self.rows())
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def rows(self) -> list[TrialRow]:
        """Return all trials, by number."""
        return [_row(t) for t in self._study.get_trials(deepcopy=False)]

    def best(self) -> list[TrialRow]:
        """Return the best finished trial; with several objectives all that none betters."""
        return best_of(self.search, self.rows())

    def importances(self) -> dict[str, float]:
        """Return each parameter's share of the first objective's variance (fANOVA), if known."""
        finished = self._study.get_trials(states=(TrialState.COMPLETE,))
        if len(finished) < 4 or len({t.values[0] for t in finished}) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
            return optuna.importance.get_param_importances(
                self._study, evaluator=evaluator, target=lambda t: t.values[0]
            )


def directions(search: Search) -> list[StudyDirection]:
    """Return which way each objective gets better."""
    least, most = StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE
    return [least if o in SMALLER_IS_BETTER else most for o in search.objectives]


def suggest(trial: optuna.Trial, name: str, range_: Range) -> Value:
    """Return the trial's value of a parameter, drawn now if it has none."""
    if isinstance(range_, Choice):
        chosen: Any = trial.suggest_categorical(name, range_.options)
        return cast(Value, chosen)
    if isinstance(range_, Int):
        return trial.suggest_int(name, range_.low, range_.high, log=range_.log)
    return trial.suggest_float(name, range_.low, range_.high, log=range_.log)


def sampler(search: Search, number: int) -> BaseSampler:
    """Return what chooses the point of a trial.

    Its seed follows from the search's and the trial's number. One seed for the whole search would
    draw the first points again whenever the search goes on after a kill.
    """
    digest = hashlib.sha256(f"{search.sampler_seed}/{number}".encode()).digest()
    seed = int.from_bytes(digest[:4], "big")
    first = max(5, min(10, (search.budget.trials or 30) // 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if search.sampler == "tpe":
            # Together, so that a ridge of lambda against tau_w is seen; parallel trials apart.
            return TPESampler(
                seed=seed, n_startup_trials=first, multivariate=True, group=True, constant_liar=True
            )
        if search.sampler == "gp":
            return GPSampler(seed=seed, n_startup_trials=first)
        if search.sampler == "cmaes":
            return CmaEsSampler(seed=seed, n_startup_trials=1, warn_independent_sampling=False)
        return RandomSampler(seed=seed)


def _asked(trial: FrozenTrial) -> dict[str, Any]:
    """Return the point a trial has, or, still waiting, is to get."""
    return trial.params or dict(trial.system_attrs.get("fixed_params", {}))


def _row(trial: FrozenTrial) -> TrialRow:
    noted = trial.user_attrs
    return TrialRow(
        number=trial.number,
        state=STATES[trial.state],
        point=_asked(trial),
        values=tuple(trial.values or ()),
        steps=dict(sorted(trial.intermediate_values.items())),
        reached=noted.get("reached", 0),
        numbers=noted.get("numbers", {}),
        seconds=noted.get("seconds", 0.0),
        cells=tuple(noted.get("cells", ())),
        error=noted.get("error", ""),
    )
