"""The views of an SDAF batch against torchvision's transforms, one image at a time."""

import torch

from benchmarks.learners import LAST_STAGE, learner
from benchmarks.measure import Entry, entry, interleaved, middle
from benchmarks.plain import one_by_one
from oclgrid.trainables.views import rotations, view

REPEATS = 15


def measure() -> list[Entry]:
    """Return the ratio for each series; one thread, 80 images of 32x32."""
    torch.set_num_threads(1)
    sdaf = learner("sdaf")
    incoming = next(sdaf.stream.batches(LAST_STAGE))
    images = rotations(torch.cat([incoming.images, incoming.images]))
    generator = torch.Generator()
    entries = []
    for name in ("long", "short"):
        series = getattr(sdaf.config, name)
        ours, theirs = interleaved(
            [
                lambda series=series: view(series, images, generator),  # type: ignore[misc]
                lambda series=series: one_by_one(series, images, generator),  # type: ignore[misc]
            ],
            REPEATS,
        )
        ratios = [slow / quick for quick, slow in zip(ours, theirs, strict=True)]
        figures = {"ms": middle(ours)}
        what = f"{len(images)} {name} views"
        entries.append(entry(what, ratios, "torchvision, one by one", figures=figures))
    return entries
