"""What the store knows of a cell, as tables and plans see it."""

from dataclasses import dataclass

INTERRUPTED = "interrupted"
"""Why a cell has not finished, where nothing went wrong with it."""
NUMBERS = ("E", "A", "F", "beta")


@dataclass(frozen=True, kw_only=True, slots=True)
class CellRun:
    """What the store knows of a cell."""

    run_id: str
    status: str
    stage: int
    """Finished stages."""
    numbers: dict[str, float]
    """Latest value of each stage metric."""
    error: str
    ended_at_ms: int

    @property
    def is_finished(self) -> bool:
        """Whether all stages are done and filed."""
        return self.status == "FINISHED"
