"""What sweeps and searches run in: a store with its server, and Ray, while a command lasts."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oclgrid.platform.data import telling
from oclgrid.platform.display import Display
from oclgrid.platform.gpu_share import UNMEASURED
from oclgrid.platform.location import Location
from oclgrid.platform.machine import cpus_for, free_mb, trial_mb, usable_cpus
from oclgrid.platform.stopping import Stop
from oclgrid.search_spaces.sweep import Resources
from oclgrid.trainables.analysis import Analysis
from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.spec import CellSpec

if TYPE_CHECKING:
    from oclgrid.platform.launch import Cluster
    from oclgrid.platform.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Where and with what cells run; none of it changes a number."""

    location: Location
    data: Path
    address: str | None = None
    """Of a Ray cluster; None starts Ray on this machine."""
    slots: int | None = None
    """CPUs to use on this machine; None until ``checked`` has chosen."""

    def checked(
        self,
        resources: Resources,
        cells: Sequence[CellSpec],
        display: Display,
        analyses: Iterable[Analysis] = (),
    ) -> "Surroundings":
        """Refuse what could never run here, decode the data, and choose how many CPUs to use."""
        # Here, as it takes PyTorch: where nothing is left to run, nobody waits for it.
        from oclgrid.platform.checks import check_address, check_data, check_machine

        slots = self.slots
        if self.address is None:
            check_machine(resources, slots or usable_cpus())
            slots = slots or _chosen(resources, cells, display)
        else:
            check_address(self.address)
        with display.phase("checking the data"), telling(display.say):
            check_data(cells, self.data, analyses)
        return replace(self, slots=slots)


def _chosen(resources: Resources, cells: Sequence[CellSpec], display: Display) -> int:
    """Return how many CPUs to use: all, unless memory is short."""
    side, cpus, free = max(dataset(c.dataset).side for c in cells), usable_cpus(), free_mb()
    chosen = cpus_for(side, threads=resources.cpus, cpus=cpus, free=free)
    if chosen < cpus:
        display.say(
            f"using {chosen} of {cpus} CPUs: a trial holds about {trial_mb(side) / 1000:.1f} GB "
            f"and {free / 1000:.1f} GB are free; --slots overrides this"
        )
    return chosen


class Session(NamedTuple):
    """A store to write to and, where something is to be trained, a cluster."""

    store: "Store"
    cluster: "Cluster | None"
    asked: dict[str, float]
    """What one trial asks Ray for."""
    stop: Stop
    """Heeded by the cluster; whoever writes to the store has to let it heed signals."""


@contextmanager
def session(
    place: Surroundings,
    resources: Resources,
    display: Display,
    *,
    trains: bool,
    auto_share: float = UNMEASURED,
) -> Iterator[Session]:
    """Hold the store, and Ray if something is to be trained, until the block ends.

    ``auto_share`` is the share of a GPU that auto means.
    """
    stop = Stop(display.say)
    with ExitStack() as stack:
        with display.phase(f"starting the tracking server{' and Ray' if trains else ''}"):
            server = stack.enter_context(place.location.serving())
            # Imported here: the server starts up beside these slow imports and Ray.
            from oclgrid.platform.launch import Cluster
            from oclgrid.platform.store import Store

            cluster, asked = None, {}
            if trains:
                started = Cluster(place.address, cpus=place.slots, say=display.say, stop=stop)
                cluster = stack.enter_context(started)
                is_here = server is not None
                asked = cluster.request(resources, one_node=is_here, auto_share=auto_share)
            if server is not None:
                server.wait()
            store = Store(server.uri if server else place.location.reading_uri)
        yield Session(store, cluster, asked, stop)
