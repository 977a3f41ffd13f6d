import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from oclgrid.trainables.configs.er import ErConfig
from oclgrid.trainables.configs.scr import ScrConfig
from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec, MethodConfig

SPEC = CellSpec(
    dataset="digits",
    data_digest="0" * 64,
    memory_size=50,
    class_order=0,
    seed=0,
    method=ErConfig(),
)
CHANGED_SPEC: dict[str, Any] = {
    "dataset": "cifar10",
    "data_digest": "1" * 64,
    "memory_size": 51,
    "class_order": 1,
    "seed": 1,
    "method": SdafConfig(),
    "protocol": "validation",
    "stream_fraction": 0.5,
    "arrival": "natural",
}
CHANGED_ER: dict[str, Any] = {
    "name": "er2",
    "updates_per_batch": 1,
    "learning_rate": 0.2,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "batch_size": 20,
    "memory_batch_size": 20,
    "classifier": "ncm-euclid",
    "normalise_features": True,
    "eigenvalue_cutoff": 1e-15,
    "feature_pool": "grid",
    "normalise_inputs": True,
    "replay_from": "old",
    "memory_update": "before",
    "short_memory": "wait",
    "precision": "bfloat16",
    "composition": "union",
}


def numbers(
    spec: CellSpec, purpose: str = "views", stage: int = 0, count: int = 8
) -> tuple[float, ...]:
    drawn = torch.rand(count, generator=spec.generator(purpose, stage))
    return tuple(drawn.tolist())


def spoilt(config: MethodConfig, **changes: Any) -> str:
    """Return the message with which a change is refused."""
    with pytest.raises(SpecError) as caught:
        replace(config, **changes)
    return str(caught.value)


def test_a_cell_keeps_its_stored_name() -> None:
    assert SPEC.cell_id == "59d482e6bac93130"
    assert SPEC.group_id == "74b5b0587b9c764f"


def test_equal_specs_have_equal_names() -> None:
    assert replace(SPEC, method=ErConfig()).cell_id == SPEC.cell_id


def test_the_lists_of_changes_below_cover_every_field() -> None:
    assert set(CHANGED_SPEC) == {f.name for f in fields(CellSpec)}
    assert set(CHANGED_ER) == {f.name for f in fields(ErConfig)}


@pytest.mark.parametrize("field", CHANGED_SPEC)
def test_every_field_of_the_spec_changes_the_cell(field: str) -> None:
    assert replace(SPEC, **{field: CHANGED_SPEC[field]}).cell_id != SPEC.cell_id


@pytest.mark.parametrize("field", CHANGED_ER)
def test_every_field_of_the_method_changes_the_cell(field: str) -> None:
    method = replace(SPEC.method, **{field: CHANGED_ER[field]})
    assert replace(SPEC, method=method).cell_id != SPEC.cell_id


def test_a_field_two_levels_down_changes_the_cell() -> None:
    plain = SdafConfig()
    nested = replace(plain, long=replace(plain.long, crop_min=0.6))
    assert replace(SPEC, method=plain).cell_id != replace(SPEC, method=nested).cell_id


def test_class_order_and_seed_are_not_interchangeable() -> None:
    swapped = {
        replace(SPEC, class_order=a, seed=b).cell_id for a, b in ((0, 1), (1, 0), (1, 1), (0, 0))
    }
    assert len(swapped) == 4


@pytest.mark.parametrize("order", [1, 2, 10**6])
def test_cells_that_differ_in_class_order_share_a_group(order: int) -> None:
    assert replace(SPEC, class_order=order).group_id == SPEC.group_id


@pytest.mark.parametrize("field", sorted(set(CHANGED_SPEC) - {"class_order"}))
def test_every_other_field_of_the_spec_changes_the_group(field: str) -> None:
    assert replace(SPEC, **{field: CHANGED_SPEC[field]}).group_id != SPEC.group_id


@pytest.mark.parametrize("field", CHANGED_ER)
def test_every_field_of_the_method_changes_the_group(field: str) -> None:
    method = replace(SPEC.method, **{field: CHANGED_ER[field]})
    assert replace(SPEC, method=method).group_id != SPEC.group_id


def test_a_resolved_spec_survives_json() -> None:
    spec = replace(SPEC, method=SdafConfig())
    assert json.loads(json.dumps(spec.resolved)) == spec.resolved


def test_the_title_names_method_dataset_memory_and_order() -> None:
    assert replace(SPEC, class_order=2).title == "er digits M=50 order 2"


def test_the_same_purpose_and_stage_give_the_same_numbers() -> None:
    assert numbers(SPEC, "views", 3) == numbers(SPEC, "views", 3)


def test_generators_keep_their_stored_numbers() -> None:
    assert numbers(SPEC, "views", 3, count=2) == pytest.approx((0.2969303, 0.9624528), rel=1e-6)


def test_purposes_stages_seeds_and_orders_give_different_numbers() -> None:
    drawn = [
        numbers(replace(SPEC, seed=seed, class_order=order), purpose, stage)
        for seed in (0, 1)
        for order in (0, 1)
        for purpose in ("weights", "stream", "memory", "views", "method")
        for stage in (0, 1, 11)
    ]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize(
    "changes",
    [{"method": SdafConfig()}, {"memory_size": 1000}, {"protocol": "validation"}],
    ids=["method", "memory size", "protocol"],
)
def test_generators_do_not_depend_on(changes: dict[str, Any]) -> None:
    assert numbers(replace(SPEC, **changes)) == numbers(SPEC)


def test_a_generator_does_not_touch_the_global_one() -> None:
    before = torch.random.get_rng_state()
    numbers(SPEC)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("field", ["memory_size", "class_order", "seed"])
def test_negative_counts_are_refused(field: str) -> None:
    with pytest.raises(SpecError, match=rf"^{field} must not be negative, got -1$"):
        replace(SPEC, **{field: -1})
    replace(SPEC, **{field: 0})


def test_a_memory_beyond_ten_million_is_refused() -> None:
    with pytest.raises(SpecError, match="memory_size must not exceed 10000000, got 10000001"):
        replace(SPEC, memory_size=10_000_001)
    replace(SPEC, memory_size=10_000_000)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.001])
def test_a_stream_fraction_outside_its_range_is_refused(fraction: float) -> None:
    with pytest.raises(SpecError, match=r"stream_fraction must lie in \(0, 1\], got"):
        replace(SPEC, stream_fraction=fraction)


@pytest.mark.parametrize("field", ["updates_per_batch", "batch_size", "memory_batch_size"])
def test_a_count_below_one_is_refused(field: str) -> None:
    assert spoilt(ErConfig(), **{field: 0}) == f"er.{field} must lie in [1, 100000], got 0"
    replace(ErConfig(), **{field: 1})


@pytest.mark.parametrize("rate", [0.0, -0.1, 100.1])
def test_a_learning_rate_outside_its_range_is_refused(rate: float) -> None:
    message = spoilt(ErConfig(), learning_rate=rate)
    assert message == f"er.learning_rate must lie in (0, 100], got {rate}"


@pytest.mark.parametrize("field", ["momentum", "weight_decay", "eigenvalue_cutoff"])
@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_a_share_outside_its_range_is_refused(field: str, value: float) -> None:
    message = spoilt(ErConfig(), **{field: value})
    assert message == f"er.{field} must lie in [0, 1), got {value}"


@pytest.mark.parametrize("config", [ScrConfig(), SdafConfig()], ids=["scr", "sdaf"])
def test_methods_keep_the_rules_that_all_share(config: MethodConfig) -> None:
    message = spoilt(config, batch_size=0)
    assert message == f"{config.name}.batch_size must lie in [1, 100000], got 0"


def test_scr_refuses_a_softmax_it_does_not_train() -> None:
    message = spoilt(ScrConfig(), classifier="softmax")
    assert message == "scr.classifier must be a nearest-centre one, got 'softmax'"


@pytest.mark.parametrize("value", [0.0, 0.0009, 1001.0])
def test_scr_refuses_a_temperature_outside_its_range(value: float) -> None:
    message = spoilt(ScrConfig(), temperature=value)
    assert message == f"scr.temperature must lie in [0.001, 1000], got {value}"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("self_supervised_weight", -0.1, "sdaf.lambda must lie in [0, 1000], got -0.1"),
        ("self_supervised_weight", 1001.0, "sdaf.lambda must lie in [0, 1000], got 1001.0"),
        ("temperature", 0.0, "sdaf.tau_w must lie in [0.0001, 10000], got 0.0"),
        ("temperature", 20000.0, "sdaf.tau_w must lie in [0.0001, 10000], got 20000.0"),
        ("predictor_hidden", 0, "sdaf.predictor_hidden must lie in [1, 65536], got 0"),
        ("predictor_hidden", 65537, "sdaf.predictor_hidden must lie in [1, 65536], got 65537"),
    ],
)
def test_sdaf_refuses_in_the_papers_words(field: str, value: float, message: str) -> None:
    assert spoilt(SdafConfig(), **{field: value}) == message


@pytest.mark.parametrize(
    ("config", "updates"), [(ErConfig(), 8), (ScrConfig(), 4), (SdafConfig(), 1)]
)
def test_defaults_are_the_papers_values(config: MethodConfig, updates: int) -> None:
    assert config.updates_per_batch == updates
    assert (config.learning_rate, config.momentum, config.weight_decay) == (0.1, 0, 0)
    assert (config.batch_size, config.memory_batch_size) == (10, 10)


def test_a_spec_refuses_a_protocol_that_does_not_exist() -> None:
    with pytest.raises(SpecError, match="protocol"):
        replace(SPEC, protocol="tset")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["learning_rate", "momentum", "weight_decay"])
def test_what_is_no_number_is_refused(field: str, value: float) -> None:
    message = spoilt(ErConfig(), **{field: value})
    assert message == f"er.{field} must be a finite number, got {value}"
