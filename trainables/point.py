"""A point of a search as a Ray Tune trainable: its cells, one class order after the other."""

import statistics
from collections.abc import Callable
from typing import Any

from oclgrid.trainables.cell import Assignment, CellTrainable
from oclgrid.trainables.loop import StageRecord, summary


class PointTrainable(CellTrainable):
    """One attempt at a point. One step is one stage of one of its cells.

    What an earlier attempt has finished is told again, stage by stage, before training goes on:
    whoever compares points at a step finds a result of every point for it.
    """

    def setup(  # type: ignore[override]  # Tune hands over what with_parameters was given
        self,
        config: dict[str, Any],
        assign: Callable[[dict[str, Any]], list[Assignment]],
        board: Any,
        data: str,
        share: dict[str, float],
    ) -> None:
        """Remember who says which cells a trial has."""
        self._assign, self._board, self._data, self._share = assign, board, data, share
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take on another point in the same process: nothing of the last one is kept."""
        self._assignments = {a.spec.cell_id: a for a in self._assign(new_config)}
        self._waiting = list(self._assignments)
        self._numbers: list[dict[str, float]] = []
        self._steps = 0
        return self._take()

    def _take(self) -> bool:
        """Begin with the next class order."""
        self._stage = 0
        self._numbers.append({})
        return super().reset_config({"cell_id": self._waiting.pop(0)})

    def _work(self) -> dict[str, Any]:
        cell = self._cell = self._cell or self._open()
        if self._is_filed and not cell.is_finished:
            reason = "the checkpoint of the last stage is missing or damaged"
            cell_id = self._todo.spec.cell_id
            return {"cell_id": cell_id, "error": reason, "cell_done": True, "done": True}
        stage = self._stage + 1
        is_last = stage == cell.info.stages
        if stage > len(cell.records) or (is_last and not self._is_filed):
            self._advance(cell)
            cell = self._cell or cell  # it may have been opened anew
        self._stage = stage
        return self._told(cell.records[:stage], is_last=is_last)

    def _told(self, records: list[StageRecord], *, is_last: bool) -> dict[str, Any]:
        """Return what is known after the last of these stages, of the cell and of the point."""
        spec = self._todo.spec
        self._steps += 1
        self._numbers[-1] = summary(spec, records)
        means = {f"mean_{name}": value for name, value in _means(self._numbers).items()}
        is_whole = is_last and not self._waiting
        if is_last and self._waiting:
            self._take()
        return {
            "cell_id": spec.cell_id,
            "stage": records[-1].stage,
            "stage_seconds": records[-1].train_seconds + records[-1].inference_seconds,
            **summary(spec, records),
            **means,
            "step": self._steps,
            "cell_done": is_last,
            "point_done": is_whole,
            "done": is_whole,
        }


def _means(numbers: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each number over the class orders that have it."""
    names = dict.fromkeys(name for order in numbers for name in order)
    return {n: statistics.fmean(o[n] for o in numbers if n in o) for n in names}
