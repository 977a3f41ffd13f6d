"""What cells take on one core of a known machine, for those who have measured nothing yet."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from oclgrid.platform.results import StageTime
from oclgrid.search_spaces.yaml_file import read_yaml
from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.spec import CellSpec

FILE = Path(__file__).parent / "yardstick.yaml"
SIDE, ROTATIONS = 32, 4
"""Of the images, and in the tests, that the file's numbers are of."""


@cache
def yardstick() -> Any:
    """Return the measured numbers."""
    return read_yaml(FILE)


def stage_time(spec: CellSpec) -> StageTime | None:
    """Return the mean time of a stage there; None of a method that was not measured."""
    info, config = dataset(spec.dataset), spec.method
    measured: Mapping[int, Mapping[str, float]] = yardstick()["by_side"]
    name = "sdaf" if isinstance(config, SdafConfig) else config.name  # its ablations cost the same
    rate = yardstick()["trained_images_per_second"].get(name)
    if rate is None or info.side not in measured:
        return None
    replayed = config.memory_batch_size if spec.memory_size else 0
    trained = config.views_per_image * config.updates_per_batch * (1 + replayed / config.batch_size)
    slower = measured[info.side]["step"] / measured[SIDE]["step"]
    tested = info.test_images * (info.stages + 1) / 2 / info.stages + spec.memory_size
    turns = getattr(config, "rotation_count", 1)
    return StageTime(
        info.train_images / info.stages * trained / rate * slower,
        tested * turns / ROTATIONS * measured[info.side]["test"] / 1000,
    )
