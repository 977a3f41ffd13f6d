import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oclgrid.trainables.maths.metrics import (
    average_accuracy,
    balance,
    end_accuracy,
    forgetting,
)

ACCURACY = st.floats(0, 1)
NAN = math.nan


def matrix(rows: list[list[float]]) -> Tensor:
    """Rows of growing length, filled up with NaN."""
    classes = len(rows[-1])
    filled = [row + [NAN] * (classes - len(row)) for row in rows]
    return torch.tensor(filled, dtype=torch.float64)


GOLDEN = [[0.9], [0.6, 0.8], [0.7, 0.5, 0.9]]


@st.composite
def stages(draw: st.DrawFn) -> list[list[float]]:
    """Accuracies per stage, with one to three new classes in each."""
    rows, seen = [], 0
    for new in draw(st.lists(st.integers(1, 3), min_size=1, max_size=5)):
        seen += new
        rows.append(draw(st.lists(ACCURACY, min_size=seen, max_size=seen)))
    return rows


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def slow_forgetting(rows: list[list[float]]) -> float:
    per_stage = []
    for t in range(1, len(rows)):
        lost = []
        for c in range(len(rows[t - 1])):
            earlier = [row[c] for row in rows[:t] if c < len(row)]
            lost.append(max(earlier) - rows[t][c])
        per_stage.append(mean(lost))
    return mean(per_stage)


def slow_balance(values: list[float]) -> float:
    return mean([math.exp(-((a - b) ** 2) / 0.5) for a in values for b in values])


def test_metrics_of_three_stages_match_the_hand_computed_values() -> None:
    assert average_accuracy(matrix(GOLDEN)) == pytest.approx(0.766667, abs=1e-6)
    assert end_accuracy(matrix(GOLDEN)) == pytest.approx(0.7)
    assert forgetting(matrix(GOLDEN)) == pytest.approx(0.275)


def test_balance_of_three_accuracies_matches_the_hand_computed_value() -> None:
    accuracies = torch.tensor([0.9, 0.5, 0.7], dtype=torch.float64)
    assert balance(accuracies) == pytest.approx(0.904974, abs=1e-6)


@settings(deadline=None)
@given(stages())
def test_average_accuracy_weighs_stages_alike_whatever_their_size(rows: list[list[float]]) -> None:
    assert average_accuracy(matrix(rows)) == pytest.approx(mean([mean(row) for row in rows]))


@settings(deadline=None)
@given(stages())
def test_end_accuracy_is_the_mean_of_the_last_stage(rows: list[list[float]]) -> None:
    assert end_accuracy(matrix(rows)) == pytest.approx(mean(rows[-1]))


@settings(deadline=None)
@given(stages().filter(lambda rows: len(rows) > 1))
def test_forgetting_is_eq_15_and_16(rows: list[list[float]]) -> None:
    assert forgetting(matrix(rows)) == pytest.approx(slow_forgetting(rows), abs=1e-12)


@settings(deadline=None)
@given(stages())
def test_every_metric_is_finite_and_a_plain_float(rows: list[list[float]]) -> None:
    for metric in (average_accuracy, end_accuracy, forgetting):
        value = metric(matrix(rows))
        assert type(value) is float
        assert math.isfinite(value)


def test_a_single_stage_forgets_nothing() -> None:
    assert forgetting(matrix([[0.9, 0.4]])) == 0.0
    assert average_accuracy(matrix([[0.9, 0.4]])) == end_accuracy(matrix([[0.9, 0.4]]))


def test_accuracies_that_never_change_are_never_forgotten() -> None:
    assert forgetting(matrix([[0.9], [0.9, 0.8], [0.9, 0.8, 0.1]])) == 0


def test_forgetting_counts_from_the_best_stage_and_not_the_latest() -> None:
    # Stage 2 loses 0.3. Stage 3 loses 0.3 of class 0, since its best was 0.9, and 0 of class 1.
    assert forgetting(matrix([[0.9], [0.6, 0.5], [0.6, 0.5, 1.0]])) == pytest.approx(0.225)


def test_forgetting_is_negative_when_old_classes_improve() -> None:
    assert forgetting(matrix([[0.5], [0.8, 0.5]])) == pytest.approx(-0.3)


def test_metrics_of_one_class_are_defined() -> None:
    accuracy = torch.tensor([[0.9], [0.7]], dtype=torch.float64)
    assert average_accuracy(accuracy) == pytest.approx(0.8)
    assert end_accuracy(accuracy) == pytest.approx(0.7)
    assert forgetting(accuracy) == pytest.approx(0.2)
    assert balance(accuracy[-1]) == 1


@pytest.mark.parametrize(
    "rows",
    [
        [[NAN, 0.9]],
        [[0.9, NAN, 0.8]],
        [[0.9, 0.8], [0.9, NAN]],
        [[NAN, NAN], [0.9, 0.8]],
    ],
)
@pytest.mark.parametrize("metric", [average_accuracy, end_accuracy, forgetting])
def test_metrics_refuse_rows_in_which_classes_do_not_arrive_in_order(
    metric: Callable[[Tensor], float], rows: list[list[float]]
) -> None:
    with pytest.raises(ValueError, match=r"accuracy_TC must list|classes seen must"):
        metric(torch.tensor(rows, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (3,)])
def test_metrics_refuse_what_is_not_a_filled_matrix(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="accuracy_TC must be a non-empty matrix"):
        end_accuracy(torch.zeros(shape))


@settings(deadline=None)
@given(st.lists(ACCURACY, min_size=1, max_size=8))
def test_balance_is_eq_18_and_lies_between_zero_and_one(values: list[float]) -> None:
    beta = balance(torch.tensor(values, dtype=torch.float64))
    assert beta == pytest.approx(slow_balance(values))
    assert 0 < beta <= 1 + 1e-12


@settings(deadline=None)
@given(ACCURACY, st.integers(1, 8))
def test_balance_of_equal_accuracies_is_one(value: float, classes: int) -> None:
    assert balance(torch.full((classes,), value, dtype=torch.float64)) == 1


@settings(deadline=None)
@given(st.lists(ACCURACY, min_size=2, max_size=8).filter(lambda v: max(v) - min(v) > 1e-4))
def test_balance_of_unequal_accuracies_is_below_one(values: list[float]) -> None:
    assert balance(torch.tensor(values, dtype=torch.float64)) < 1


@pytest.mark.parametrize("shape", [(0,), (2, 2), ()])
def test_balance_refuses_what_is_not_a_filled_vector(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="accuracy_C must be a non-empty vector"):
        balance(torch.zeros(shape))
