"""Classifiers that turn images into class ids: softmax and nearest class centre."""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oclgrid.trainables.maths.centres import class_centres, mean_distance, whitening
from oclgrid.trainables.network import Backbone, DualBackbone, Features
from oclgrid.trainables.views import rotations

FORMAT = 1
PIXELS_AT_ONCE = 100 * 32 * 32
"""What a CPU evaluates in one go: maps that stay in its caches take two thirds of the time."""


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Run with fixed BatchNorm statistics and without gradients; restore the mode after."""
    modes = [m.training for m in modules]
    try:
        for m in modules:
            m.eval()
        with torch.inference_mode():
            yield
    finally:
        for m, mode in zip(modules, modes, strict=True):
            m.train(mode)


def rotated_features(
    backbone: Features, images: Tensor, k: int, *, seen: Callable[[Tensor], Tensor] = lambda x: x
) -> Tensor:
    """Return N x K x D features of K rotations of the images; call it only while evaluating.

    ``seen`` is what becomes of the rotations before the backbone takes them in.
    """
    pixels = k * images.shape[2] * images.shape[3]
    at_once = max(1, PIXELS_AT_ONCE // pixels) if images.device.type == "cpu" else len(images)
    features = torch.cat([backbone(seen(rotations(chunk, k))) for chunk in images.split(at_once)])
    return features.view(-1, k, features.shape[1])


class Predictor(nn.Module):
    """A backbone and a rule from the features of K rotations to one class."""

    class_ids: Tensor

    def __init__(self, backbone: Features, class_ids: Tensor, rotation_count: int) -> None:
        super().__init__()
        self.backbone: Features = backbone
        self.rotation_count = rotation_count
        self.register_buffer("class_ids", class_ids)

    def scores(self, features_NKD: Tensor) -> Tensor:
        """Return N x C scores by arrival rank; the highest wins."""
        raise NotImplementedError

    def features(self, images: Tensor) -> Tensor:
        """Return N x K x D features of all rotations of the images."""
        return rotated_features(self.backbone, images, self.rotation_count)

    def forward(self, images: Tensor) -> Tensor:
        """Return the arrival rank of the class of each image."""
        return self.scores(self.features(images)).argmax(1)

    def classify(self, images: Tensor) -> Tensor:
        """Return the class id of each image."""
        return self.class_ids[self(images)]


class SoftmaxPredictor(Predictor):
    """Arg-max over the softmax outputs; with rotations, of the mean log-probability over them."""

    def __init__(
        self, backbone: Features, class_ids: Tensor, rotation_count: int, *, head: nn.Linear
    ) -> None:
        super().__init__(backbone, class_ids, rotation_count)
        self.head = head

    def scores(self, features_NKD: Tensor) -> Tensor:
        """Return the mean over k of log p(extended class (c, k) | rotation k)."""
        log_p = F.log_softmax(self.head(features_NKD), dim=2)
        k = self.rotation_count
        by_class = log_p.unflatten(2, (-1, k))
        own_rotation: Tensor = by_class.diagonal(dim1=1, dim2=3)
        return own_rotation.mean(2)


class CentrePredictor(Predictor):
    """Nearest class centre (Eq. 13, 14), Euclidean or in a whitened space (Mahalanobis)."""

    centres: Tensor
    whitening: Tensor

    def __init__(
        self,
        backbone: Features,
        class_ids: Tensor,
        rotation_count: int,
        *,
        centres_CKR: Tensor,
        whitening_DR: Tensor,
        normalise: bool,
    ) -> None:
        super().__init__(backbone, class_ids, rotation_count)
        self.register_buffer("centres", centres_CKR)
        self.register_buffer("whitening", whitening_DR)
        self.normalise = normalise

    def scores(self, features_NKD: Tensor) -> Tensor:
        """Return minus the mean over k of the distance to each centre."""
        features = prepared(features_NKD, self.normalise) @ self.whitening
        return -mean_distance(features, self.centres)


def prepared(features: Tensor, normalise: bool) -> Tensor:
    """Return features in double precision, of unit length where asked for."""
    features = features.double()
    return F.normalize(features, dim=-1) if normalise else features


def fit_centres(
    backbone: Features,
    class_ids: Tensor,
    rotation_count: int,
    *,
    features_NKD: Tensor,
    labels_N: Tensor,
    classes: int,
    cutoff: float | None,
    normalise: bool,
) -> CentrePredictor:
    """Return the classifier whose centres are the means of exemplar features.

    Args:
        backbone: F, whose features these are.
        class_ids: Class id of each arrival rank.
        rotation_count: K.
        features_NKD: Exemplars' features, per rotation, un-augmented.
        labels_N: Their arrival ranks.
        classes: Classes seen so far.
        cutoff: Relative eigenvalue cut-off of the pseudo-inverse; None means Euclidean.
        normalise: Whether features are scaled to unit length, and Euclidean centres too, as in SCR.
    """
    features = prepared(features_NKD, normalise)
    size = features.shape[-1]
    rows = features.flatten(0, 1)
    if cutoff is None or len(rows) < 2:
        A_DR = torch.eye(size, dtype=features.dtype, device=features.device)
    else:
        A_DR = whitening(rows, cutoff)
    centres = class_centres(features, labels_N, classes)
    if normalise and cutoff is None:
        centres = F.normalize(centres, dim=-1)
    return CentrePredictor(
        backbone,
        class_ids,
        rotation_count,
        centres_CKR=centres @ A_DR,
        whitening_DR=A_DR,
        normalise=normalise,
    )


def dump(predictor: Predictor) -> bytes:
    """Return the predictor as tensors and plain values, readable without unpickling objects."""
    backbone = predictor.backbone
    resnet = backbone.slow if isinstance(backbone, DualBackbone) else backbone
    options: dict[str, Any] = {
        "rotation_count": predictor.rotation_count,
        "is_dual": resnet is not backbone,
        "pool": resnet.pool,
        "precision": resnet.precision,
        "mean": resnet.mean.flatten().tolist(),
        "std": resnet.std.flatten().tolist(),
    }
    if isinstance(predictor, CentrePredictor):
        options["normalise"] = predictor.normalise
    buffer = io.BytesIO()
    content = {"format": FORMAT, "options": options, "state": predictor.state_dict()}
    torch.save(content, buffer)
    return buffer.getvalue()


def restore(content: bytes) -> Predictor:
    """Return the predictor that ``dump`` wrote, in evaluation mode on the CPU."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns of foreign files before it fails
            saved = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if saved["format"] != FORMAT:
            raise ValueError(f"its format is {saved['format']}, not {FORMAT}")
        with torch.random.fork_rng(devices=[]):  # new layers draw weights, only to be replaced
            return _rebuilt(saved["options"], saved["state"]).eval()
    except Exception as error:  # torch raises many kinds for a broken or foreign file
        raise ValueError(f"not a predictor: {str(error).splitlines()[:1]}") from error


def _rebuilt(options: dict[str, Any], state: dict[str, Tensor]) -> Predictor:
    kind = DualBackbone if options["is_dual"] else Backbone
    names = ("pool", "precision", "mean", "std")  # precision has come later
    backbone = kind(**{name: options[name] for name in names if name in options})
    common = (backbone, torch.empty_like(state["class_ids"]), options["rotation_count"])
    predictor: Predictor
    if "head.weight" in state:
        outputs, inputs = state["head.weight"].shape
        predictor = SoftmaxPredictor(*common, head=nn.Linear(inputs, outputs))
    else:
        predictor = CentrePredictor(
            *common,
            centres_CKR=torch.empty_like(state["centres"]),
            whitening_DR=torch.empty_like(state["whitening"]),
            normalise=options["normalise"],
        )
    predictor.load_state_dict(state)
    return predictor
