"""A cell that trains nothing and tells of it as often as a real one; it imports nothing heavy."""

import time
from typing import Any

from ray import tune

STAGE_SECONDS = 10


class Resting(tune.Trainable):
    """Stages of sleep without end, with progress every second and the results of real stages."""

    def setup(  # type: ignore[override]  # Tune hands over what with_parameters was given
        self, config: dict[str, Any], board: Any, **_: Any
    ) -> None:
        """Remember where to post."""
        self._board = board
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take on another cell."""
        self._cell_id, self._stage = new_config["cell_id"], 0
        return True

    def step(self) -> dict[str, Any]:
        """Rest for a stage."""
        self._stage += 1
        for second in range(STAGE_SECONDS):
            where = {"stage": self._stage, "batch": second, "batches": STAGE_SECONDS}
            speed = {"loss": 1.0, "images_per_second": 100.0, "live": {}}
            self._board.post.remote(self._cell_id, where | speed)
            time.sleep(1)
        numbers = dict.fromkeys(("E", "A", "F", "beta"), 0.5)
        return {
            **numbers,
            "cell_id": self._cell_id,
            "stage": self._stage,
            "cell_done": False,
            "done": False,
            "next": "",
            "stage_seconds": float(STAGE_SECONDS),
        }
