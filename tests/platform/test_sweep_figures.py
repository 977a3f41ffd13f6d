"""Figures of a sweep: what they show can be read, and the same data gives the same bytes."""

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from oclgrid.platform.look import mark
from oclgrid.platform.sweep_figures import (
    MOST_BANDS,
    accuracy_bars_figure,
    cka_bars_figure,
    forgetting_figure,
    ood_bars_figure,
    scree_overlay_figure,
    stagewise_figure,
    time_figure,
)

CURVES = {"er": [[0.9, 0.5, 0.3], [0.8, 0.4, 0.2]], "sdaf": [[0.95, 0.8, 0.7]]}
VALUES = {"er": [0.5, 0.4], "sdaf": [0.2]}
FIGURES: dict[str, Callable[[], str]] = {
    "stagewise": lambda: stagewise_figure(CURVES, title="a sweep"),
    "scree": lambda: scree_overlay_figure(CURVES, title="a sweep"),
    "forgetting": lambda: forgetting_figure(VALUES, title="a sweep"),
    "cka": lambda: cka_bars_figure(VALUES, VALUES, title="a sweep"),
    "ood": lambda: ood_bars_figure({"mnist": VALUES, "svhn": VALUES}, title="a sweep"),
    "centres": lambda: accuracy_bars_figure({"exemplars": VALUES}, title="a sweep"),
    "time": lambda: time_figure(VALUES, VALUES, title="a sweep"),
}


def words(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_names_its_methods_as_text_and_stays_small(name: str) -> None:
    drawn = FIGURES[name]()
    assert {"er", "sdaf", "a sweep"} <= set(words(drawn))
    assert len(drawn) < 50_000


@pytest.mark.parametrize("name", FIGURES)
def test_the_same_data_gives_the_same_bytes(name: str) -> None:
    assert FIGURES[name]() == FIGURES[name]()


def test_bars_tell_the_mean_over_class_orders() -> None:
    assert {"0.450", "0.200"} <= set(words(forgetting_figure(VALUES)))
    assert {"45.0", "20.0"} <= set(words(ood_bars_figure({"mnist": VALUES})))


def test_a_method_without_a_value_keeps_its_row() -> None:
    drawn = words(ood_bars_figure({"mnist": {"er": [], "sdaf": [0.9]}, "svhn": {"sdaf": [0.8]}}))
    assert {"er", "sdaf", "90.0", "80.0"} <= set(drawn)


def test_a_band_needs_more_than_one_class_order() -> None:
    def areas(curves: dict[str, list[list[float]]]) -> int:
        return stagewise_figure(curves).count("FillBetweenPolyCollection")

    assert areas({"er": CURVES["er"]}) == 1
    assert areas({"sdaf": CURVES["sdaf"]}) == 0
    assert areas({str(i): CURVES["er"] for i in range(MOST_BANDS)}) == MOST_BANDS
    assert areas({str(i): CURVES["er"] for i in range(MOST_BANDS + 1)}) == 0


def test_fourteen_methods_are_told_apart() -> None:
    assert len({mark(i) for i in range(14)}) == 14


def test_a_long_legend_takes_nothing_from_the_curves() -> None:
    def height(names: int) -> float:
        """What an axis of the picture measures, from its highest to its lowest grid line."""
        curves = {f"a method with a rather long name, {i}": CURVES["er"] for i in range(names)}
        root = ElementTree.fromstring(stagewise_figure(curves))
        ticks = root.findall(".//{*}g[@id='matplotlib.axis_2']//{*}use")
        places = [float(tick.attrib["y"]) for tick in ticks]
        return max(places) - min(places)

    assert height(14) > 0.9 * height(3)
