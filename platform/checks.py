"""What is refused before anything starts: data, machines and clusters that could never do."""

import socket
from collections.abc import Iterable
from pathlib import Path

import torch

from oclgrid.search_spaces.sweep import Resources
from oclgrid.trainables import decoded
from oclgrid.trainables.analysis import Analysis
from oclgrid.trainables.datasets import dataset, load
from oclgrid.trainables.outliers import OUTLIERS
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import Stream


def check_data(cells: Iterable[CellSpec], root: Path, analyses: Iterable[Analysis] = ()) -> None:
    """Refuse cells whose data, or that of their analyses, is missing, damaged or too little."""
    groups = {spec.group_id: spec for spec in cells}
    splits = {name: load(dataset(name), root) for name in {s.dataset for s in groups.values()}}
    for spec in groups.values():
        Stream(spec, dataset(spec.dataset), splits[spec.dataset], device=torch.device("cpu"))
    for name in {o for a in analyses for d in splits for o in a.outlier_sets(d)}:
        decoded.load(OUTLIERS[name], root)


def check_machine(resources: Resources, cpus: int) -> None:
    """Refuse what this machine could never give to a trial."""
    if resources.cpus > cpus:
        raise SpecError(
            f"resources.cpus asks for {resources.cpus} but {cpus} can be used here; lower it"
        )
    if resources.gpu not in ("auto", 0) and not torch.cuda.is_available():
        raise SpecError(
            f"resources.gpu asks for {resources.gpu} but this machine has no GPU; set it to auto"
        )


def check_address(address: str) -> None:
    """Refuse a Ray cluster that does not answer, which Ray itself would wait for in vain."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    try:
        if not host or not port.isdigit():
            raise OSError(22, "expected HOST:PORT or auto")
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecError(
            f"no Ray cluster answers at {address} ({reason}); check --address"
        ) from error
