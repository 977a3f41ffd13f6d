"""What a cluster can give: counted by nodes that are there and by those that may come."""

from pathlib import Path

import pytest
import yaml

from oclgrid.platform.capacity import HEAD, Capacity, NodeType, autoscaled, fitting
from oclgrid.trainables.schema import SpecError

IDLE_HEAD = {HEAD: 1.0}
GPU_WORKER = NodeType(resources={"CPU": 4, "GPU": 1}, most=8)


def growing(*types: NodeType, most: int = 8) -> Capacity:
    return Capacity(nodes=(IDLE_HEAD,), types=types, most_workers=most)


@pytest.mark.parametrize(
    ("asked", "node", "trials"),
    [
        ({"CPU": 1.0}, {"CPU": 2.0}, 2),
        ({"CPU": 3.0}, {"CPU": 2.0}, 0),
        ({"CPU": 1.0, "GPU": 0.25}, {"CPU": 8.0, "GPU": 1.0}, 4),
        ({"CPU": 1.0, "GPU": 0.25}, {"CPU": 3.0, "GPU": 1.0}, 3),
        ({"CPU": 1.0, "GPU": 0.1}, {"CPU": 64.0, "GPU": 1.0}, 10),  # 1 // 0.1 is 9
        ({"CPU": 1.0, "GPU": 0.4}, {"CPU": 64.0, "GPU": 4.0}, 8),  # not 10: none is split
        ({"CPU": 1.0, "GPU": 1.0}, {"CPU": 64.0, "GPU": 4.0}, 4),
        ({"CPU": 1.0, "GPU": 0.5}, {"CPU": 64.0}, 0),
    ],
)
def test_trials_fit_as_ray_packs_them(
    asked: dict[str, float], node: dict[str, float], trials: int
) -> None:
    assert fitting(asked, node) == trials


def test_a_cluster_at_zero_has_the_slots_of_the_workers_that_may_come() -> None:
    assert growing(GPU_WORKER).slots({"CPU": 1.0, "GPU": 0.25}) == 32
    assert growing(GPU_WORKER, most=3).slots({"CPU": 1.0, "GPU": 0.25}) == 12
    assert Capacity(nodes=(IDLE_HEAD,)).slots({"CPU": 1.0}) == 0


def test_the_best_types_are_counted_up_to_what_all_may_be_together() -> None:
    small = NodeType(resources={"CPU": 1}, most=8)
    assert growing(small, GPU_WORKER, most=9).slots({"CPU": 1.0}) == 8 * 4 + 1


def test_nodes_that_are_there_count_whatever_the_file_says() -> None:
    there = Capacity(nodes=(IDLE_HEAD, {"CPU": 16.0}), types=(GPU_WORKER,), most_workers=1)
    assert there.slots({"CPU": 1.0}) == 16
    assert not there.may_grow
    assert growing(GPU_WORKER).may_grow


def test_what_fits_on_no_node_is_named_before_any_is_started() -> None:
    fat = NodeType(resources={"CPU": 64}, most=1)
    with pytest.raises(SpecError, match="asks for 9 CPU but no node has more than 4"):
        growing(GPU_WORKER).check({"CPU": 9.0})
    with pytest.raises(SpecError, match=r"0\.5 GPU but no node has more than 0"):
        growing(fat).check({"CPU": 1.0, "GPU": 0.5})
    with pytest.raises(SpecError, match=r"8 CPU and 0\.5 GPU but no node has both"):
        growing(fat, GPU_WORKER).check({"CPU": 8.0, "GPU": 0.5})
    growing(GPU_WORKER).check({"CPU": 4.0, "GPU": 1.0})


def test_nodes_nobody_has_seen_are_given_the_benefit_of_the_doubt() -> None:
    """Machines of one's own say what they have when they join."""
    unseen = growing(NodeType(resources={}, most=2), most=2)
    unseen.check({"CPU": 64.0})
    assert unseen.slots({"CPU": 64.0}) == 2
    one_came = Capacity(nodes=(IDLE_HEAD, {"CPU": 8.0}), types=unseen.types, most_workers=2)
    assert one_came.slots({"CPU": 1.0}) == 16


def test_the_autoscalers_file_is_read_where_ray_up_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OCLGRID_CLUSTER_FILE", raising=False)
    assert autoscaled([IDLE_HEAD]) == Capacity(nodes=(IDLE_HEAD,))
    types = {
        "head": {"resources": {"CPU": 0}, "max_workers": 0},
        "worker": {"resources": {"CPU": 4, "GPU": 1}, "max_workers": 20},
        "free": {"resources": {"CPU": 2}},
    }
    config = {"max_workers": 5, "head_node_type": "head", "available_node_types": types}
    (tmp_path / "ray_bootstrap_config.yaml").write_text(yaml.safe_dump(config))
    found = autoscaled([IDLE_HEAD])
    assert [(t.resources["CPU"], t.most) for t in found.types] == [(2, 5), (4, 5)]
    assert found.slots({"CPU": 1.0}) == 20
