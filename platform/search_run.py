"""Run a search: take up what is there, search on, file trials and pictures."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oclgrid.platform.estimate import kind
from oclgrid.platform.gpu_share import auto_share
from oclgrid.platform.location import Location
from oclgrid.platform.reading import open_source
from oclgrid.platform.search_display import SearchDisplay
from oclgrid.platform.session import Session, Surroundings, session
from oclgrid.platform.study import Study, open_storage
from oclgrid.platform.trials import TrialRow
from oclgrid.search_spaces.search import Search, on_data
from oclgrid.search_spaces.space import Point

if TYPE_CHECKING:
    from oclgrid.platform.search_filing import SearchFiling


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOutcome:
    """How a search stands."""

    rows: list[TrialRow]
    best: list[TrialRow]
    """The best trial first; more than one only where no objective alone decides."""
    failed: dict[int, str] = field(default_factory=dict)
    """Why, by the trial's number."""
    interrupted: int = 0
    """Trials that went back to the queue."""
    is_stopped: bool = False
    """Whether someone asked to stop before the budget was spent."""


def run_search(
    search: Search, place: Surroundings, display: SearchDisplay, *, address: str
) -> SearchOutcome:
    """Run trials until the budget is spent; return the trials and what went wrong.

    Args:
        search: What to search.
        place: Where and with what.
        display: Who is told.
        address: Where the study is kept.
    """
    place = place.checked(search.resources, [search.around], display)
    search = on_data(search, place.data)
    with place.location.claimed():
        with display.phase("opening the study"):
            study = Study(search, open_storage(address))
            study.prepare()
        display.follow(study)
        if study.is_filed and not study.queue_next():
            display.say(f"all trials of {search.name} are there")
            return SearchOutcome(rows=study.rows(), best=study.best())
        return _run(study, place, display)


def _run(study: Study, place: Surroundings, display: SearchDisplay) -> SearchOutcome:
    search = study.search
    display.say(f"study {search.study}: {len(study.rows())} trials are there")
    trains = study.queue_next()
    share = auto_share([_gpu_peak(search, place.location)])
    failed: dict[int, str] = {}
    with (
        session(place, search.resources, display, trains=trains, auto_share=share) as held,
        held.stop.heeded(),
        ExitStack() as stack,
    ):
        from oclgrid.platform.claims import Driver
        from oclgrid.platform.search_filing import SearchFiling

        if trains:
            search.budget.check_countable(held.asked)
        is_only = place.location.folder is not None
        driver = stack.enter_context(Driver(held.store, is_only=is_only))
        filing = SearchFiling(search, held.store, place.location, driver)
        if trains:
            failed = _train(study, place, held, _Watcher(study, filing, display))
        interrupted = study.put_back()
        if held.stop.is_asked:
            interrupted = [row.state for row in study.rows()].count("waiting")
        is_stopped = held.stop.is_asked and study.queue_next()
        with display.phase("drawing and filing"):
            from oclgrid.platform.study_plots import pictures

            filing.close(study, pictures(study), is_done=not (interrupted or failed or is_stopped))
    return SearchOutcome(
        rows=study.rows(),
        best=study.best(),
        failed=failed,
        interrupted=interrupted,
        is_stopped=is_stopped,
    )


def _gpu_peak(search: Search, location: Location) -> float:
    """Return the largest part of a GPU's memory that cells like the search's have needed."""
    times = open_source(location).stage_times(*kind(search.around)) if location.exists else []
    return max((t.gpu_peak for t in times), default=0.0)


def _train(study: Study, place: Surroundings, held: Session, watcher: "_Watcher") -> dict[int, str]:
    from oclgrid.platform.search import search_points
    from oclgrid.platform.search_filing import Assign
    from oclgrid.trainables.point import PointTrainable

    assert held.cluster is not None
    given = {
        "assign": Assign(study.search, held.store.uri, watcher.claimant),
        "data": str(place.data),
        "share": held.asked,
    }
    slots = held.cluster.slots(held.asked)
    with watcher.display.watching({}, {}, slots=slots, poll=held.cluster.progress):
        return search_points(
            held.cluster, study, watcher, trainable=PointTrainable, given=given, asked=held.asked
        )


class _Watcher:
    """Files what happens to trials, and shows it."""

    def __init__(self, study: Study, filing: "SearchFiling", display: SearchDisplay) -> None:
        self._search, self._filing, self.display = study.search, filing, display
        self._points: dict[int, Point] = {}
        self.claimant = filing.driver.claimant

    def begin(self, number: int, point: Point) -> dict[str, Any]:
        self._points[number] = point
        self.display.begin(number, point, self._search)
        return self._filing.begin(number, point)

    def result(self, result: dict[str, Any]) -> None:
        self.display.result(result)

    def retry(self, number: int, why: str) -> None:
        self.display.lost(number, why)

    def end(self, number: int, state: str) -> None:
        self._filing.end(self._points[number], state)
        self.display.end(number, state)
