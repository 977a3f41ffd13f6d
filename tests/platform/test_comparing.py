"""Comparisons: paired by class order, exact, and honest about what few orders can show."""

import itertools
import math
import statistics

import pytest

from oclgrid.platform.comparing import compare, reading, sign_flip_p, to_markdown
from oclgrid.platform.results import CellRun
from oclgrid.search_spaces.sweep import Sweep, parse_sweep
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec

ENDS = {"er": (0.50, 0.52, 0.57, 0.55), "sdaf": (0.60, 0.64, 0.65, 0.67)}


def sweep(**fields: object) -> Sweep:
    cells = {"dataset": "digits", "memory": 10, "orders": 4, "method": ["er", "sdaf"], **fields}
    return parse_sweep({"sweep": "x", "cells": cells}, where="file.yaml")


def run(end_accuracy: float, status: str = "FINISHED") -> CellRun:
    numbers = {"E": end_accuracy, "A": 0.5, "F": 1 - end_accuracy, "beta": 0.9}
    numbers |= {"train_seconds": 1.0, "inference_seconds": 1.0}
    return CellRun(run_id="0", status=status, stage=5, numbers=numbers, error="", ended_at_ms=0)


def found(cells: tuple[CellSpec, ...]) -> dict[str, CellRun]:
    return {s.cell_id: run(ENDS[s.method.name][s.class_order]) for s in cells}


def test_differences_are_paired_by_class_order() -> None:
    made = sweep()
    (c,) = compare(made, found(made.cells), ("sdaf", "er"), number="E")
    assert c.orders == (0, 1, 2, 3)
    assert c.differences == pytest.approx((0.10, 0.12, 0.08, 0.12))
    assert c.mean == pytest.approx(0.105)


def test_the_interval_is_students() -> None:
    made = sweep()
    (c,) = compare(made, found(made.cells), ("sdaf", "er"), number="E")
    # The 0.975 quantile of t with 3 degrees of freedom, from a printed table.
    expected = 3.182446 * statistics.stdev([0.10, 0.12, 0.08, 0.12]) / math.sqrt(4)
    assert c.margin == pytest.approx(expected, rel=1e-6)


def plain_sign_flip(differences: list[float]) -> float:
    """Return the share of all sign assignments whose sum is at least as far from zero."""
    flips = list(itertools.product((1, -1), repeat=len(differences)))
    observed = abs(sum(differences))
    sums = [abs(sum(s * d for s, d in zip(f, differences, strict=True))) for f in flips]
    return sum(s >= observed - 1e-12 for s in sums) / len(flips)


@pytest.mark.parametrize(
    "differences",
    [[0.1, 0.2, 0.3], [0.1, -0.2, 0.3], [0.1, -0.1], [1.0, 2.0, 3.0, -4.0, 5.0], [0.0, 0.0]],
)
def test_the_test_counts_every_flip(differences: list[float]) -> None:
    assert sign_flip_p(differences) == plain_sign_flip(differences)


def test_by_hand() -> None:
    # |±1 ±2 ±3| reaches 6 in 2 of 8 ways, and 4 in 4 of 8.
    assert sign_flip_p([1.0, 2.0, 3.0]) == 0.25
    assert sign_flip_p([-1.0, 2.0, 3.0]) == 0.5


def test_sums_that_differ_in_the_last_bit_are_ties() -> None:
    assert sign_flip_p([0.1, 0.2, 0.3, 0.3, 0.2, 0.1]) == 2 / 64


def test_many_orders_are_sampled_and_repeatable() -> None:
    strong = [1.0] * 25
    assert sign_flip_p(strong) == sign_flip_p(strong) < 1e-4
    assert sign_flip_p([(-1.0) ** i for i in range(30)]) == 1


def test_three_orders_cannot_show_much_and_it_says_so() -> None:
    made = sweep(orders=3)
    (c,) = compare(made, found(made.cells), ("sdaf", "er"), number="E")
    assert c.p_value == c.smallest_p == 0.25
    assert "With 3 class orders p cannot fall below 0.25." in reading([c])
    text = to_markdown([c])
    assert "| digits  | 10     | sdaf  | er     | 3   | +10.0" in text
    assert "cannot fall below 0.25" in text


def test_other_numbers_keep_their_unit() -> None:
    made = sweep()
    comparisons = compare(made, found(made.cells), ("sdaf", "er"), number="F")
    assert "-0.105" in to_markdown(comparisons)


def test_unfinished_orders_are_left_out() -> None:
    made = sweep()
    runs = found(made.cells)
    runs[made.cells[0].cell_id] = run(0.1, status="RUNNING")
    del runs[made.cells[-1].cell_id]
    (c,) = compare(made, runs, ("sdaf", "er"), number="E")
    assert c.orders == (1, 2)


@pytest.mark.parametrize("orders", [0, 1])
def test_fewer_than_two_orders_are_refused(orders: int) -> None:
    made = sweep()
    runs = found(tuple(c for c in made.cells if c.class_order < orders))
    with pytest.raises(SpecError, match=f"share {orders} finished class orders.*at least 2"):
        compare(made, runs, ("sdaf", "er"), number="E")


def test_every_memory_size_both_have_is_compared() -> None:
    made = sweep(memory=[10, 20])
    pairs = compare(made, found(made.cells), ("sdaf", "er"), number="E")
    assert [(c.one.memory, c.two.memory) for c in pairs] == [(10, 10), (20, 20)]


def test_memory_sizes_can_be_named() -> None:
    made = sweep(memory=[10, 20])
    (c,) = compare(made, found(made.cells), ("sdaf@10", "er@20"), number="E")
    assert (c.one.memory, c.two.memory) == (10, 20)
    (c,) = compare(made, found(made.cells), ("sdaf@10", "sdaf@20"), number="E")
    assert c.mean == 0
    assert "10 and 20" in to_markdown([c])


def test_variants_go_by_their_names_in_the_table() -> None:
    cells = {"dataset": "digits", "memory": 10, "orders": 2, "method": "sdaf"}
    overrides = {"sdaf": [{}, {"head_norm": True}]}
    made = parse_sweep({"sweep": "x", "cells": cells, "overrides": overrides}, where="file.yaml")
    names = ("sdaf (head_norm true)", "sdaf")
    (c,) = compare(made, found(made.cells), names, number="E")
    assert (c.one.label, c.two.label) == names


def test_a_method_that_is_not_there_is_refused_with_the_nearest() -> None:
    made = sweep()
    with pytest.raises(SpecError, match="did you mean 'sdaf'"):
        compare(made, found(made.cells), ("sdf", "er"), number="E")


def test_methods_without_a_memory_size_in_common_are_told_how_to_be_named() -> None:
    grids = [
        {"dataset": "digits", "memory": memory, "orders": 4, "method": method}
        for memory, method in ((0, "er"), (10, "sdaf"))
    ]
    made = parse_sweep({"sweep": "x", "cells": grids}, where="file.yaml")
    with pytest.raises(SpecError, match="name memory sizes"):
        compare(made, found(made.cells), ("er", "sdaf"), number="E")
    assert len(compare(made, found(made.cells), ("er@0", "sdaf@10"), number="E")) == 1


def test_what_is_ambiguous_goes_by_its_name_in_the_table_or_its_group_id() -> None:
    grid = {"dataset": "digits", "memory": 10, "orders": 4}
    cells = [{**grid, "method": "sdaf"}, *({**grid, "method": "er", "seed": s} for s in (1, 2))]
    made = parse_sweep({"sweep": "x", "cells": cells}, where="file.yaml")
    runs = found(made.cells)
    with pytest.raises(SpecError, match=r"ambiguous; name two of .*'er \(seed 1\)', 'er \(seed 2"):
        compare(made, runs, ("sdaf", "er"), number="E")
    group = next(c.group_id for c in made.cells if c.seed == 2)
    for name in ("er (seed 2)", group):
        (c,) = compare(made, runs, ("sdaf", name), number="E")
        assert c.two.spec.seed == 2
