"""What sweeps and searches run in: a store with its server, and Ray, while a command lasts."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oclgrid.platform.data import telling
from oclgrid.platform.display import Display
from oclgrid.platform.gpu_share import UNMEASURED
from oclgrid.platform.location import Location
from oclgrid.platform.stopping import Stop
from oclgrid.search_spaces.sweep import Resources
from oclgrid.trainables.analysis import Analysis
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
    """CPUs to use on this machine; None means all."""

    def check(
        self,
        resources: Resources,
        cells: Iterable[CellSpec],
        display: Display,
        analyses: Iterable[Analysis] = (),
    ) -> None:
        """Refuse what could never run here; decode the data where that was not done yet."""
        # Here, as it takes PyTorch: where nothing is left to run, nobody waits for it.
        from oclgrid.platform.checks import check_address, check_data, check_machine

        if self.address is None:
            check_machine(resources, self.slots)
        else:
            check_address(self.address)
        with display.phase("checking the data"), telling(display.say):
            check_data(cells, self.data, analyses)


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
        with display.phase("starting the tracking server and Ray"):
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
