"""Classifying test images by Mahalanobis distance over four rotations, against slower ways."""

import torch
from torch import Tensor

from benchmarks.learners import learner
from benchmarks.measure import Entry, entry, interleaved, middle
from oclgrid.trainables.predictor import CentrePredictor, evaluating, prepared

SAMPLE, TEST_SET, CHUNK = 250, 10_000, 250
REPEATS = 5


def measure() -> list[Entry]:
    """Return the ratios; one thread, the network of SDAF, ten classes."""
    torch.set_num_threads(1)
    predictor = learner("sdaf").predictor()
    assert isinstance(predictor, CentrePredictor)
    images = torch.rand(SAMPLE, 32, 32, 3).permute(0, 3, 1, 2)

    def ours() -> Tensor:
        with evaluating(predictor):
            return torch.cat([predictor(chunk) for chunk in images.split(CHUNK)])

    def theirs() -> Tensor:
        with evaluating(predictor):
            return torch.stack([_plainly(predictor, image) for image in images])

    with evaluating(predictor):
        features = [predictor.features(chunk) for chunk in images.split(CHUNK)]

    def known() -> Tensor:
        with evaluating(predictor):
            return torch.cat([predictor.scores(chunk).argmax(1) for chunk in features])

    assert torch.equal(ours(), theirs())
    assert torch.equal(ours(), known())
    fast, slow, fastest = interleaved([ours, theirs, known], REPEATS)
    each = middle([t / SAMPLE for t in fast])
    return [
        entry(
            "classifying 4 rotations of an image",
            [s / f for f, s in zip(fast, slow, strict=True)],
            "one image, rotation and class at a time",
            figures={"ms/image": each, "s for 10,000 images": round(TEST_SET * each / 1000)},
        ),
        entry(
            "classifying images that another cell of the training was tested on",
            [f / k for f, k in zip(fast, fastest, strict=True)],
            "passing them through the network again",
        ),
    ]


def _plainly(predictor: CentrePredictor, image: Tensor) -> Tensor:
    """Return the class of one image: its rotations one by one, each against each centre."""
    totals = torch.zeros(len(predictor.centres), dtype=torch.float64)
    for j in range(predictor.rotation_count):
        features = predictor.backbone(torch.rot90(image, j, dims=(1, 2)).unsqueeze(0))
        point = prepared(features, predictor.normalise)[0] @ predictor.whitening
        for c, centre in enumerate(predictor.centres[:, j]):
            totals[c] += (point - centre).square().sum().sqrt()
    return totals.argmin()
