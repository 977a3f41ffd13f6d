"""The MLflow UI as people use it: a real browser follows the links of `oclgrid ui SWEEP`."""

from pathlib import Path
from typing import Any

import pytest

from oclgrid.platform.links import COMPARED, runs_link, sweep_links
from oclgrid.platform.reading import Folder
from oclgrid.platform.report import build_report
from oclgrid.platform.results import CellRun, SweepRun
from oclgrid.platform.store import Store
from oclgrid.search_spaces.sweep import Sweep, parse_sweep

AT = 1_700_000_000_000
ENDS = {"er": 0.625, "sdaf": 0.875}


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    cells = {"dataset": "digits", "memory": 10, "orders": 1, "method": list(ENDS)}
    return parse_sweep({"sweep": "looked-at", "cells": cells}, where="test")


@pytest.fixture(scope="module")
def links(server_uri: str, store_folder: Path, sweep: Sweep) -> dict[str, str]:
    """The links of a sweep whose two cells have finished, filed as `oclgrid run` files them."""
    store = Store(server_uri)
    parent = store.find_or_create(sweep.name, kind="sweep", sweep=sweep.name)
    for spec in sweep.cells:
        method = spec.method.name
        tags = {"kind": "group", "sweep": sweep.name, "group_id": spec.group_id}
        group = store.find_or_create(f"{method} group", parent=parent, **tags)
        store.log_numbers(group, {"E": ENDS[method]}, step=1, at=AT)
        run_id = store.create_cell(spec, parent=group, tags={"sweep": sweep.name})
        for stage in range(1, 6):
            end = ENDS[method] + (5 - stage) / 64
            numbers = {"E": end, "A": 0.5, "F": 0.1, "beta": 1.0, "stage": stage}
            seconds = {"train_seconds": 1.0, "inference_seconds": 1.0}
            store.log_numbers(run_id, {**numbers, **seconds}, step=stage, at=AT + stage)
        store.set_status(run_id, "FINISHED")
    source = Folder(store_folder)
    store.client.log_text(parent, build_report(sweep, source), "report.html")
    run, found = source.sweep(sweep.name), source.cells(sweep.cells)
    assert run is not None
    cells = [(spec, found[spec.cell_id]) for spec in sweep.cells]
    experiment = store.experiment
    return {
        "runs": runs_link(server_uri, experiment),
        **sweep_links(server_uri, experiment, run, cells),
    }


@pytest.mark.slow
def test_the_list_of_runs_shows_the_sweep(browser: Any, links: dict[str, str]) -> None:
    browser.open(links["runs"])
    browser.until_text("looked-at", "Sweeps hold groups")


@pytest.mark.slow
def test_the_means_are_listed_best_first(browser: Any, links: dict[str, str]) -> None:
    browser.open(links["means"])
    browser.until_text("sdaf group", "er group", "2 matching runs")
    text = browser.text()
    assert text.index("sdaf group") < text.index("er group")


@pytest.mark.slow
def test_stage_accuracies_of_two_cells_are_compared(browser: Any, links: dict[str, str]) -> None:
    browser.open(links["stages"])
    for method, end in ENDS.items():
        browser.until_text(f"{method} digits M=10 order 0", f"{end} (step=5)")
    browser.open(links["compare"])
    browser.until_text("Comparing 2 Runs", "er digits M=10 order 0", "sdaf digits M=10 order 0")


@pytest.mark.slow
def test_the_report_opens_as_an_artifact(browser: Any, links: dict[str, str]) -> None:
    browser.open(links["report"])
    browser.until("return document.querySelector('iframe')")
    browser.switch_to_frame()
    browser.until_text("Stage-wise accuracy", "Provenance")


@pytest.mark.slow
def test_a_report_sorts_its_tables_and_fits_a_phone(
    browser: Any, sweep: Sweep, store_folder: Path, links: dict[str, str], tmp_path: Path
) -> None:
    del links  # fills the store
    page = tmp_path / "report.html"
    page.write_text(build_report(sweep, Folder(store_folder)), encoding="utf-8")
    browser.size(390, 800)
    browser.open(page.as_uri())
    rows = "[...document.querySelectorAll('#results tbody tr')]"
    methods = f"return {rows}.map((row) => row.cells[2].textContent)"
    assert browser.run(methods) == ["er", "sdaf"]
    click = "document.querySelectorAll('#results th button')[4].click()"
    browser.run(f"{click}; {click}")
    assert browser.run(methods) == ["sdaf", "er"]
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    browser.size(1280, 900)


def test_addresses_stay_short_enough_for_browsers() -> None:
    cells = {"dataset": "digits", "memory": list(range(1, 51)), "orders": 2, "method": "er"}
    made = parse_sweep({"sweep": "x", "cells": cells}, where="test").cells
    run = CellRun(run_id="0" * 32, status="FINISHED", stage=5, numbers={}, error="", ended_at_ms=0)
    sweep = SweepRun(
        run_id="s", status="FINISHED", tags={"sweep": "x"}, started_at_ms=0, ended_at_ms=0
    )
    links = sweep_links("http://host", "1", sweep, [(spec, run) for spec in made])
    assert links["compare"].count("0" * 32) == COMPARED
    assert max(map(len, links.values())) < 2000
