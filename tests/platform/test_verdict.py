"""Verdicts: nothing is said of the paper that protocol, orders and spreads do not allow."""

import math

import pytest

from oclgrid.platform.results import CellRun
from oclgrid.platform.spread import Spread
from oclgrid.platform.table import Row, notes, rows
from oclgrid.platform.table_formats import to_csv, to_latex, to_markdown
from oclgrid.platform.verdict import judge, welch_margin
from oclgrid.search_spaces.paper import Printed
from oclgrid.search_spaces.sweep import parse_sweep

PAPER = Printed(0.664, 0.010)


def verdict(ours: Spread | None, printed: Printed = PAPER, **fields: int | bool) -> str:
    given = {"n": 3, "asked": 3, "same": True, **fields}
    return judge(ours, printed, **given).verdict  # type: ignore[arg-type]


def test_a_difference_is_judged_by_both_spreads() -> None:
    # Equal deviations of 0.01 over 3 orders each: 2.776445 * sqrt(2 / 3) * 0.01 = 0.022670.
    assert verdict(Spread(mean=0.664 + 0.0226, std=0.01)) == "within"
    assert verdict(Spread(mean=0.664 - 0.0226, std=0.01)) == "within"
    assert verdict(Spread(mean=0.664 + 0.0228, std=0.01)) == "outside"
    assert verdict(Spread(mean=0.664 - 0.0228, std=0.01)) == "outside"


def test_a_wider_spread_of_ours_allows_more() -> None:
    assert verdict(Spread(mean=0.700, std=0.01)) == "outside"
    assert verdict(Spread(mean=0.700, std=0.05)) == "within"


def t_quantile(degrees: float, share: float) -> float:
    """Return the quantile of Student's t by Simpson's rule and bisection, in plain Python."""
    scale = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)

    def density(x: float) -> float:
        return scale * (1 + x * x / degrees) ** (-(degrees + 1) / 2)

    def below(x: float, steps: int = 2000) -> float:
        h = x / steps
        inner = sum((4 if i % 2 else 2) * density(i * h) for i in range(1, steps))
        return 0.5 + h / 3 * (density(0) + inner + density(x))

    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < share else (low, middle)
    return low


@pytest.mark.parametrize(
    ("one", "two"), [((1.0, 3), (1.0, 3)), ((2.0, 5), (1.0, 3)), ((0.0, 3), (0.7, 3))]
)
def test_the_margin_is_welchs(one: tuple[float, int], two: tuple[float, int]) -> None:
    a, b = one[0] ** 2 / one[1], two[0] ** 2 / two[1]
    degrees = (a + b) ** 2 / (a**2 / (one[1] - 1) + b**2 / (two[1] - 1))
    expected = t_quantile(degrees, 0.975) * math.sqrt(a + b)
    assert welch_margin(one, two) == pytest.approx(expected, rel=1e-6)


def test_without_any_spread_only_equality_is_within() -> None:
    assert welch_margin((0.0, 3), (0.0, 3)) == 0
    exact = Printed(0.5, 0.0)
    assert verdict(Spread(mean=0.5, std=0.0), exact) == "within"
    assert verdict(Spread(mean=0.6, std=0.0), exact) == "outside"


def test_too_few_orders_are_not_judged() -> None:
    close = Spread(mean=0.664, std=0.01)
    assert verdict(close, n=2, asked=2) == "too few orders"
    assert verdict(close, n=3, asked=4) == "too few orders"
    assert verdict(None, n=0) == "too few orders"
    assert verdict(Spread(mean=0.664, std=None), n=1, asked=1) == "too few orders"


def test_a_paper_without_a_spread_is_not_judged_against() -> None:
    found = judge(Spread(mean=0.6, std=0.01), Printed(0.5), n=3, asked=3, same=True)
    assert found.verdict == "no spread"
    assert found.difference == pytest.approx(0.1)
    assert found.margin is None


def test_another_protocol_is_never_compared() -> None:
    found = judge(Spread(mean=0.664, std=0.01), PAPER, n=3, asked=3, same=False)
    assert (found.verdict, found.difference, found.margin) == ("other protocol", None, None)


def table(**parts: object) -> list[Row]:
    """Return the rows of SDAF on CIFAR-10, M = 500, three finished orders near the paper's E."""
    cells = {"dataset": "cifar10", "memory": 500, "method": "sdaf"}
    overrides = parts.pop("overrides", {})
    made = parse_sweep(
        {"sweep": "x", "cells": {**cells, **parts}, "overrides": overrides}, where="file.yaml"
    )
    runs = {
        spec.cell_id: CellRun(
            run_id="0",
            status="FINISHED",
            stage=5,
            numbers={"E": 0.66 + i / 100, "A": 0.78, "F": 0.2, "beta": 0.9,
                     "train_seconds": 1.0, "inference_seconds": 1.0},
            error="",
            ended_at_ms=0,
        )
        for i, spec in enumerate(made.cells)
    }  # fmt: skip
    return rows(made.cells, runs)


def verdicts(made: list[Row]) -> list[str | None]:
    return [row.judgement.verdict if row.judgement else None for row in made]


@pytest.mark.parametrize(
    "parts",
    [
        {"stream_fraction": 0.5},
        {"protocol": "validation"},
        {"arrival": "natural"},
        {"overrides": {"sdaf": {"lambda": 1.0}}},
        {"overrides": {"sdaf": {"short": {"hue": 0.1}}}},
        {"overrides": {"sdaf": {"head_norm": True}}},
    ],
)
def test_a_cell_that_is_not_the_papers_is_not_judged(parts: dict[str, object]) -> None:
    made = table(**parts)
    assert verdicts(made) == ["other protocol"]
    header, _, line = to_markdown(made).splitlines()[:3]
    assert [c.strip() for c in line.split("|")][6:9] == ["66.4 ± 1.0", "", "other protocol"]
    assert "(paper)" not in header
    assert "not judged against the paper" in notes(made)[0]


@pytest.mark.parametrize(
    ("part", "told"), [(1, "what stands in brackets"), (0.5, "stream_fraction 0.5")]
)
def test_rows_that_name_their_settings_share_a_note(part: float, told: str) -> None:
    variants = [{}, {"head_norm": True}, {"unseen": "included"}]
    made = table(stream_fraction=part, overrides={"sdaf": variants})
    others = [n for n in notes(made) if "not judged" in n]
    assert others == [f"other protocol, so not judged against the paper: {told} (sdaf)."]


def test_the_papers_own_cell_is_judged() -> None:
    made = table()
    assert verdicts(made) == ["within"]
    text = to_markdown(made)
    assert "| 67.0 ± 1.0 | 66.4 ± 1.0 | +0.6 ± 2.3 | within  |" in text
    assert "78.0 ± 0.0 (78.5 ± 0.8)" in text
    assert "95 % Welch interval" in text
    assert "single run" in text
    assert "+0.6 $\\pm$ 2.3" in to_latex(made).replace("$+$", "+")
    assert to_csv(made).splitlines()[1].endswith(",0.664000,0.785000,0.197000,0.867000,"
                                                 "0.010000,0.006000,0.022670,within")  # fmt: skip


def test_a_default_that_follows_the_dataset_is_the_papers() -> None:
    assert verdicts(table(dataset="cifar100", memory=1000, method="aser")) == ["no spread"]


def test_a_dataset_that_is_not_in_the_paper_has_no_verdict() -> None:
    made = table(dataset="digits")
    assert verdicts(made) == [None]
    assert "paper" not in to_markdown(made)


def test_a_seed_is_no_other_protocol() -> None:
    assert verdicts(table(seed=7)) == ["within"]
