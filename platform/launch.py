"""Run cells as Ray Tune trials, on this machine or on a cluster, and tell what happens."""

import logging
import os
import stat
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray._private.node import Node
from ray.tune.experiment import Trial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import TrialScheduler
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from oclgrid.platform.board import Board
from oclgrid.platform.capacity import Capacity, autoscaled
from oclgrid.platform.environment import ENVIRONMENT
from oclgrid.platform.gpu_share import UNMEASURED
from oclgrid.platform.machine import usable_cpus
from oclgrid.platform.oversight import Heed, InOrder, Overseer, why_failed
from oclgrid.platform.results import INTERRUPTED
from oclgrid.platform.stopping import Stop
from oclgrid.search_spaces.sweep import Resources
from oclgrid.trainables.cell import Assignment, CellTrainable
from oclgrid.trainables.loop import Progress
from oclgrid.trainables.schema import SpecError

LOST_WORKERS = 10
"""How often a trial may lose its worker, its node or the store before it counts as failed.

Failures of the program are counted apart, by the trial itself.
"""
OBJECT_STORE_BYTES = 256 * 2**20
UNREAD = {"enable_metrics_collection": False, "task_events_report_interval_ms": 0}
"""What Ray would count for a dashboard, which it has none of here; cells want the time."""
STARTS = 3
"""How often to start Ray on this machine: on a busy one it may give up waiting for itself."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Events:
    """Who to tell when a stage, or a cell, has ended."""

    on_result: Callable[[dict[str, Any]], None]
    on_retry: Callable[[str, str], None]
    """Told of the cell and why its worker did not go on."""


class Cluster:
    """Ray, started here or joined, for as long as one command lasts."""

    def __init__(
        self,
        address: str | None,
        *,
        cpus: int | None,
        say: Callable[[str], None] = logger.warning,
        stop: Stop | None = None,
    ) -> None:
        self.stop, self._say, self._is_joined = stop or Stop(), say, address is not None
        if address is None:
            _start(cpus or usable_cpus(), say)
        else:
            ray.init(
                address=address,
                logging_level=logging.ERROR,
                log_to_driver=False,
                runtime_env={"env_vars": ENVIRONMENT},
            )
        # Beside this process: a worker may go away, and would stay for the board's sake if idle.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        made: Any = Board  # by ray.remote
        self.board: Any = made.options(scheduling_strategy=here).remote()

    def progress(self) -> dict[str, Progress]:
        """Return how far each running cell is."""
        latest: dict[str, dict[str, Any]] = ray.get(self.board.read.remote(), timeout=10)
        return {cell_id: Progress(**plain) for cell_id, plain in latest.items()}

    def request(
        self, resources: Resources, *, one_node: bool, auto_share: float = UNMEASURED
    ) -> dict[str, float]:
        """Return what one trial asks Ray for; refuse what no node could ever give.

        With ``one_node``, also refuse a cluster whose other nodes could not reach our store.
        ``auto_share`` is the share of a GPU that auto means.
        """
        capacity = self._capacity()
        if one_node and (len(capacity.nodes) > 1 or capacity.may_grow):
            raise SpecError(
                f"a cluster of {len(capacity.nodes)} nodes, or more as it grows, cannot reach a "
                f"store in a folder of this machine; start an MLflow server and give its address "
                f"with --store"
            )
        gpu = resources.gpu
        if gpu == "auto":
            gpu = auto_share if capacity.largest("GPU") else 0.0
        asked = {"CPU": float(resources.cpus), **({"GPU": gpu} if gpu else {})}
        capacity.check(asked)
        if Capacity(nodes=capacity.nodes).slots(asked) == 0:
            self._say("no node has room for a trial yet; asking the autoscaler for some")
        return asked

    def slots(self, asked: dict[str, float]) -> int:
        """Return how many trials fit at once, when the cluster has grown as far as it may."""
        return self._capacity().slots(asked)

    def _capacity(self) -> Capacity:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return autoscaled(nodes) if self._is_joined else Capacity(nodes=tuple(nodes))

    def run(
        self,
        assignments: dict[str, Assignment],
        *,
        asked: dict[str, float],
        data: Path,
        events: Events,
    ) -> dict[str, str]:
        """Run every assignment; return why each did not finish, "" where it did, by cell id."""
        errors = dict.fromkeys(assignments, INTERRUPTED)
        self.fit(
            CellTrainable,
            {"assignments": assignments, "data": str(data), "share": asked},
            asked=asked,
            callback=_Tell(errors, events),
            name_key="cell_id",
            space={"cell_id": tune.grid_search(list(assignments))},
        )
        return errors

    def fit(
        self,
        trainable: type[tune.Trainable],
        given: dict[str, Any],
        *,
        asked: dict[str, float],
        callback: tune.Callback,
        name_key: str,
        space: dict[str, Any] | None = None,
        scheduler: TrialScheduler | None = None,
        **options: Any,
    ) -> None:
        """Run trials until there is none left to start, or someone asks to stop.

        Args:
            trainable: What a trial runs; told of the board beside what is ``given``.
            given: Keyword arguments of its setup.
            asked: What a trial owns.
            callback: Told of every result.
            name_key: Where in a trial's config its name is.
            space: The configs, where no search algorithm among the options makes them.
            scheduler: Decides who goes on; it has to let an overseer look.
            options: Further options of Tune: search algorithm, concurrency.
        """
        with_board = tune.with_parameters(trainable, board=self.board, **given)
        with tempfile.TemporaryDirectory(prefix="oclgrid-tune-") as scratch:
            tuner = tune.Tuner(
                tune.with_resources(with_board, asked),
                param_space=space,
                tune_config=tune.TuneConfig(
                    reuse_actors=True,
                    scheduler=scheduler or InOrder(Overseer(self.stop, asked)),
                    trial_name_creator=lambda t: str(t.config[name_key]),
                    trial_dirname_creator=lambda t: str(t.config[name_key]),
                    **options,
                ),
                run_config=tune.RunConfig(
                    name="cells",
                    storage_path=scratch,
                    verbose=0,
                    stop=Heed(self.stop),
                    failure_config=tune.FailureConfig(max_failures=LOST_WORKERS),
                    checkpoint_config=tune.CheckpointConfig(
                        checkpoint_frequency=0, checkpoint_at_end=False
                    ),
                    callbacks=[callback, _Quiet()],
                ),
            )
            # Of failures the callback tells; Tune would add a traceback of its own.
            logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tuner.fit()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the cluster, or end it if it was started here."""
        ray.shutdown()


class _Quiet(TrialProgressCallback):
    """Takes the place of Tune's own, which prints of trials that end before their first result."""

    def _print(self, msg: str) -> None:
        del msg


class _Tell(tune.Callback):
    """Passes results on and keeps, for each cell, why it has not finished."""

    def __init__(self, errors: dict[str, str], events: Events) -> None:
        self._errors, self._events = errors, events

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Leave nothing of this in Tune's snapshots, which are never restored."""
        return tune.Callback, ()

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        del iteration, trials, info
        if result["cell_done"]:
            self._errors[trial.config["cell_id"]] = result.get("error", "")
        self._events.on_result(result)

    def on_trial_recover(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        del iteration, trials, info
        self._events.on_retry(trial.config["cell_id"], why_failed(trial))

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        del iteration, trials, info
        failures = trial.run_metadata.num_failures
        reason = f"given up after {failures} failures around it, the last: {why_failed(trial)}"
        self._errors[trial.config["cell_id"]] = reason


def _start(cpus: int, say: Callable[[str], None]) -> None:
    """Start Ray on this machine; where it gives up, end what it left and try again."""
    for attempt in range(1, STARTS + 1):
        old_mask = os.umask(0o077)  # Ray writes an access token; it is for this user only
        try:
            ray.init(
                "local",  # whatever RAY_ADDRESS says
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                logging_level=logging.ERROR,
                log_to_driver=False,
                _node_ip_address="127.0.0.1",
                _system_config=UNREAD,
            )
            break
        except Exception as error:  # Ray raises no narrower class when its node is too slow
            _end_half_started(error)
            reason = " ".join(str(error).split())
            if attempt == STARTS:
                raise SpecError(
                    f"Ray did not start here in {STARTS} attempts ({reason[:200]}); "
                    f"try again when the machine is less busy"
                ) from error
            say(f"Ray did not start ({reason[:60]}); trying again")
        finally:
            os.umask(old_mask)
    _end_log_monitor()
    _close_token()


def _end_half_started(error: Exception) -> None:
    """End the processes of a node that Ray gave up on.

    Ray itself forgets them: ``ray.shutdown`` knows only nodes that came up. The lost one is
    where the error was raised.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, Node):
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
    ray.shutdown()


def _end_log_monitor() -> None:
    """End what reads the workers' logs for the driver, which has asked for none; cells want it."""
    if node := ray._private.worker._global_node:
        node.kill_log_monitor(check_alive=False)


def _close_token() -> None:
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")).expanduser()
    if token.exists():
        token.chmod(stat.S_IRUSR | stat.S_IWUSR)
