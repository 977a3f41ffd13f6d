"""What a cluster can give trials: the nodes it has, and those its autoscaler may start."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oclgrid.search_spaces.yaml_file import read_yaml
from oclgrid.trainables.schema import SpecError

CLUSTER_FILE = Path("~/ray_bootstrap_config.yaml")
"""Where `ray up` leaves the autoscaler's file on the head; $OCLGRID_CLUSTER_FILE names another.

Ray itself tells a driver nothing of nodes that are not there yet.
"""
HEAD = "node:__internal_head__"
"""The resource by which Ray marks the head."""
GRAIN = 10_000
"""Parts of a CPU or GPU that Ray counts in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeType:
    """Nodes that an autoscaler may start."""

    resources: Mapping[str, float]
    """Of one node; empty where nobody can say before it is there.

    Such a node counts like the best that is there, and for one trial while there is none.
    """
    most: int
    """How many there may be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """What there is and what may come."""

    nodes: tuple[Mapping[str, float], ...]
    """Resources of the nodes that are alive."""
    types: tuple[NodeType, ...] = ()
    most_workers: int = 0
    """How many nodes of all types there may be beside the head."""

    @property
    def may_grow(self) -> bool:
        """Whether nodes may come that are not there."""
        workers = sum(HEAD not in node for node in self.nodes)
        return workers < min(self.most_workers, sum(t.most for t in self.types))

    def largest(self, kind: str) -> float:
        """Return the most that a single node has, or would have, of a resource."""
        there = (*self.nodes, *(t.resources for t in self.types if t.most))
        return max((node.get(kind, 0.0) for node in there), default=0.0)

    def slots(self, asked: Mapping[str, float]) -> int:
        """Return how many trials fit at once, when all has come that may."""
        live = sum(fitting(asked, node) for node in self.nodes)
        grown = sum(fitting(asked, node) for node in self.nodes if HEAD in node)
        left = self.most_workers
        unseen = max([1, *(fitting(asked, node) for node in self.nodes if HEAD not in node)])
        each = [
            (fitting(asked, t.resources) if t.resources else unseen, t.most) for t in self.types
        ]
        for fit, most in sorted(each, reverse=True):
            grown, left = grown + fit * min(left, most), left - min(left, most)
        return max(live, grown)

    def check(self, asked: Mapping[str, float]) -> None:
        """Refuse a trial that fits no node there is or may be."""
        if self.slots(asked):
            return
        for kind, amount in asked.items():
            if amount > (best := self.largest(kind)):
                raise SpecError(
                    f"a trial asks for {amount:g} {kind} but no node has more than {best:g}; "
                    f"lower resources in the sweep or add a node"
                )
        told = " and ".join(f"{amount:g} {kind}" for kind, amount in asked.items())
        raise SpecError(
            f"a trial asks for {told} but no node has both; lower resources in the sweep"
        )


def fitting(asked: Mapping[str, float], node: Mapping[str, float]) -> int:
    """Return how many trials fit on a node. A share of a GPU is of one GPU, never of two."""
    return min(_fitting(amount, node.get(kind, 0.0), kind) for kind, amount in asked.items())


def _fitting(amount: float, there: float, kind: str) -> int:
    part = round(amount * GRAIN)
    if kind == "GPU" and part < GRAIN:
        return int(there) * (GRAIN // part)
    return round(there * GRAIN) // part


def autoscaled(nodes: Iterable[Mapping[str, float]]) -> Capacity:
    """Return what a cluster has and, where its autoscaler's file is on this machine, may get."""
    path = Path(os.environ.get("OCLGRID_CLUSTER_FILE", CLUSTER_FILE)).expanduser()
    config = read_yaml(path) if path.exists() else {}
    if not isinstance(config, Mapping):
        return Capacity(nodes=tuple(nodes))
    most = int(config.get("max_workers", 0))
    types = [
        NodeType(
            resources={k: float(v) for k, v in (kind.get("resources") or {}).items()},
            most=min(most, int(kind.get("max_workers", most))),
        )
        for name, kind in config.get("available_node_types", {}).items()
        if name != config.get("head_node_type") or kind.get("max_workers")
    ]
    return Capacity(nodes=tuple(nodes), types=tuple(types), most_workers=most)
