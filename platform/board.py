"""Where trials tell how far they are; it imports nothing heavy, as it is a process of its own."""

from typing import Any

import ray


@ray.remote(num_cpus=0)
class Board:
    """The latest progress of every running cell, as plain data."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[str, Any]] = {}

    def post(self, cell_id: str, progress: dict[str, Any]) -> None:
        """Note the latest progress of a cell."""
        self._latest[cell_id] = progress

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the latest progress of every cell that has any."""
        return self._latest
