"""The analyses computed: settings and a finished cell in, plain numbers and data out."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oclgrid.trainables.analysis import Centres, Cka, Findings, Ood, Scree, Tsne
from oclgrid.trainables.maths import spectrum
from oclgrid.trainables.maths.similarity import linear_cka, seen_and_unseen
from oclgrid.trainables.predictor import CentrePredictor, fit_centres
from oclgrid.trainables.snapshots import Snapshots, spaced

ROC_POINTS = 200
"""Of a curve that is kept; its area is computed from all."""


def cka(settings: Cka, cell: Snapshots) -> Findings:
    """Return the (T - 1) x T table and its means over seen and unseen stages."""
    stages = range(1, cell.stages + 1)
    table = [
        [
            linear_cka(
                cell.arrived(s, settings.images, backbone=t),
                cell.arrived(s, settings.images, backbone=t + 1),
            )
            for s in stages
        ]
        for t in stages[:-1]
    ]
    seen, unseen = seen_and_unseen(torch.tensor(table, dtype=torch.float64))
    return Findings(numbers={"seen": seen, "unseen": unseen}, data={"table": table})


def ood(settings: Ood, cell: Snapshots) -> Findings:
    """Return the area by set, for centres of all training images and of the memory.

    Reading: the paper takes the training set as inliers; centres of the memory, as the
    classifier has them, are the other reading, left out where the memory holds too little.
    """
    turns, config = range(cell.cell.method.rotation_count), cell.cell.method.config
    count, stages = settings.images, range(1, cell.stages + 1)
    options = {
        "cutoff": config.eigenvalue_cutoff,
        "normalise": config.normalise_features and settings.normalise == "method",
    }
    arrived = _arrived(cell, count, turns)
    labels = torch.cat([cell.arrived_labels(s, count) for s in stages])
    centres = {"": _centres(cell, arrived, labels, **options)}
    if len(cell.memory_labels) > 1:
        exemplars = _stacked(lambda turn: cell.memory(turn=turn), turns)
        centres["_memory"] = _centres(cell, exemplars, cell.memory_labels, **options)
    test = _stacked(lambda turn: cell.test(turn=turn), turns)
    numbers, curves = {}, {}
    for name in settings.outlier_sets(cell.cell.spec.dataset):
        strange = _stacked(lambda turn, n=name: cell.outliers(n, count, turn=turn), turns)  # type: ignore[misc]
        for suffix, rule in centres.items():
            area, curve = _roc(_distance(rule, test), _distance(rule, strange))
            numbers[name + suffix], curves[name + suffix] = area, curve
    return Findings(numbers=numbers, data={"curves": curves})


def centres(settings: Centres, cell: Snapshots) -> Findings:
    """Return accuracies by whose centres, how far is measured, and what is classified."""
    turns, config = range(cell.cell.method.rotation_count), cell.cell.method.config
    count, stages = settings.images, range(1, cell.stages + 1)
    is_new = ~torch.cat([cell.arrived_is_kept(s, count) for s in stages])
    labels = torch.cat([cell.arrived_labels(s, count) for s in stages])
    known = {"stream": (_arrived(cell, count, turns)[is_new], labels[is_new])}
    if len(cell.memory_labels) > 1:
        exemplars = _stacked(lambda turn: cell.memory(turn=turn), turns)
        known["exemplars"] = exemplars, cell.memory_labels
        known["peers"] = _stacked(lambda turn: cell.peers(turn=turn), turns), cell.peer_labels
    test = _stacked(lambda turn: cell.test(turn=turn), turns), cell.test_labels
    numbers = {}
    for distance, cutoff in (("euclid", None), ("mahalanobis", config.eigenvalue_cutoff)):
        for source, images in known.items():
            rule = _centres(cell, *images, cutoff=cutoff, normalise=config.normalise_features)
            numbers[f"test_by_{source}_{distance}"] = _accuracy(rule, *test)
            if source == "exemplars":
                numbers[f"exemplars_by_exemplars_{distance}"] = _accuracy(rule, *images)
    return Findings(numbers=numbers)


def _accuracy(rule: CentrePredictor, features_NKD: Tensor, labels_N: Tensor) -> float:
    """Return the mean over classes of the share of images that are nearest to their own."""
    is_right = rule.scores(features_NKD).argmax(dim=1) == labels_N
    by_class = [is_right[labels_N == c].double().mean() for c in labels_N.unique()]
    return float(torch.stack(by_class).mean())


def _centres(
    cell: Snapshots,
    features_NKD: Tensor,
    labels_N: Tensor,
    *,
    cutoff: float | None,
    normalise: bool,
) -> CentrePredictor:
    return fit_centres(
        cell.backbone(),
        torch.tensor(cell.cell.stream.sequence),
        cell.cell.method.rotation_count,
        features_NKD=features_NKD,
        labels_N=labels_N,
        classes=cell.cell.info.classes,
        cutoff=cutoff,
        normalise=normalise,
    )


def _arrived(cell: Snapshots, count: int | None, turns: range) -> Tensor:
    """Return N x K x D features of training images of all stages."""
    stages = range(1, cell.stages + 1)
    return _stacked(
        lambda turn: torch.cat([cell.arrived(s, count, turn=turn) for s in stages]), turns
    )


def tsne(settings: Tsne, cell: Snapshots) -> Findings:
    """Return the plane's coordinates; the number is what t-SNE minimised."""
    from sklearn.manifold import TSNE

    (name,) = settings.outlier_sets(cell.cell.spec.dataset)
    test = spaced(cell.test().numpy(), settings.images)
    strange = cell.outliers(name, settings.images).numpy()
    fitted = TSNE(random_state=settings.seed)
    plane = fitted.fit_transform(np.concatenate([test, strange]))
    points = np.round(plane.astype(float), 3).tolist()
    return Findings(
        numbers={"kl_divergence": float(fitted.kl_divergence_)},
        data={
            "inliers": points[: len(test)],
            "outliers": points[len(test) :],
            "outlier_set": name,
        },
    )


def scree(settings: Scree, cell: Snapshots) -> Findings:
    """Return the eigenvalues, and how many directions carry the variance."""
    every = spectrum.scree(cell.test(), cell.cell.method.features_out)
    return Findings(
        numbers={"directions": spectrum.participation(every)},
        data={"eigenvalues": every[: settings.count].tolist()},
    )


def _stacked(features: Callable[[int], Tensor], turns: range) -> Tensor:
    """Return N x K x D features of all rotations."""
    return torch.stack([features(turn) for turn in turns], dim=1)


def _distance(rule: CentrePredictor, features_NKD: Tensor) -> npt.NDArray[np.float64]:
    """Return the distance of each image to the nearest class centre."""
    nearest: npt.NDArray[np.float64] = -rule.scores(features_NKD).amax(dim=1).numpy()
    return nearest


def _roc(
    inliers: npt.NDArray[np.float64], outliers: npt.NDArray[np.float64]
) -> tuple[float, list[list[float]]]:
    """Return the area under the ROC curve, and some of its points (false, true positive rate)."""
    from sklearn.metrics import roc_auc_score, roc_curve

    is_outlier = np.repeat([0, 1], [len(inliers), len(outliers)])
    score = np.concatenate([inliers, outliers])
    false, true, _ = roc_curve(is_outlier, score)
    some = np.unique(np.linspace(0, len(false) - 1, ROC_POINTS).astype(int))
    curve = [np.round(rate[some], 4).tolist() for rate in (false, true)]
    return float(roc_auc_score(is_outlier, score)), curve
