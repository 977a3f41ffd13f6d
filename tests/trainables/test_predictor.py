import io
import math
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oclgrid.trainables.network import Backbone
from oclgrid.trainables.predictor import (
    CentrePredictor,
    Predictor,
    SoftmaxPredictor,
    dump,
    evaluating,
    fit_centres,
    restore,
)

CLASSES = 3
CLASS_IDS = torch.tensor([7, 2, 9, 4])
D = 6
CUTOFF = 1e-2
"""High, so that the pseudo-inverse of the tests drops some directions."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def exemplars(k: int, count: int = 12, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return features of which one direction hardly varies, and labels of all three classes."""
    labels = torch.arange(count) % CLASSES
    features = torch.rand(count, k, D, generator=seeded(seed)) + labels[:, None, None] / 2
    features[:, :, -1] = 0.5 + features[:, :, -1] / 1000
    return features, labels


def fitted(k: int, *, cutoff: float | None, normalise: bool, seed: int = 1) -> CentrePredictor:
    features, labels = exemplars(k, seed=seed)
    return fit_centres(
        Backbone(),
        CLASS_IDS,
        k,
        features_NKD=features,
        labels_N=labels,
        classes=CLASSES,
        cutoff=cutoff,
        normalise=normalise,
    )


def mean(vectors: list[list[float]]) -> list[float]:
    return [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]


def unit(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def slow_predictions(
    k: int, tested: Tensor, *, cutoff: float | None, scale: Callable[[list[float]], list[float]]
) -> list[int]:
    """Eq. 13 and 14, per image, class and rotation."""
    features, labels = exemplars(k)
    rows = [[scale(r) for r in image] for image in features.double().tolist()]
    if cutoff is None:
        inverse = torch.eye(D, dtype=torch.float64)
    else:
        pooled = torch.tensor([r for image in rows for r in image], dtype=torch.float64)
        inverse = torch.linalg.pinv(torch.cov(pooled.T), rtol=cutoff, hermitian=True)
        assert torch.linalg.matrix_rank(inverse) == D - 1
    predictions = []
    for image in tested.double().tolist():
        distances = []
        for c in range(CLASSES):
            total = 0.0
            for j in range(k):
                own = [rows[i][j] for i in range(len(rows)) if labels[i] == c]
                centre = mean(own) if cutoff is not None else scale(mean(own))
                difference = zip(scale(image[j]), centre, strict=True)
                gap = torch.tensor([a - b for a, b in difference], dtype=torch.float64)
                total += math.sqrt(float(gap @ inverse @ gap))
            distances.append(total / k)
        predictions.append(distances.index(min(distances)))
    return predictions


def some_features(k: int, count: int = 60) -> Tensor:
    """Return features near enough to the middle of all classes to be told apart by little."""
    return torch.rand(count, k, D, generator=seeded(5)) * 1.2 + 0.4


@cache
def predictors() -> dict[str, Predictor]:
    """Return a predictor of each kind on a real backbone."""
    torch.manual_seed(0)
    images = torch.rand(8, 3, 16, 16, generator=seeded(8))
    found: dict[str, Predictor] = {}
    for k in (1, 4):
        softmax = SoftmaxPredictor(Backbone(), CLASS_IDS, k, head=nn.Linear(160, 4 * k))
        found[f"softmax {k}"] = softmax
        for name, cutoff, normalise in (
            ("euclid", None, False),
            ("unit", None, True),
            ("mahalanobis", 1e-5, False),
        ):
            backbone = Backbone(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
            with evaluating(softmax):
                features = softmax.features(images)
            found[f"{name} {k}"] = fit_centres(
                backbone,
                CLASS_IDS,
                k,
                features_NKD=features,
                labels_N=torch.arange(8) % 4,
                classes=4,
                cutoff=cutoff,
                normalise=normalise,
            )
    return found


KINDS = [f"{kind} {k}" for kind in ("softmax", "euclid", "unit", "mahalanobis") for k in (1, 4)]


@pytest.mark.parametrize("k", [1, 4])
def test_mahalanobis_predictions_are_those_of_the_equations(k: int) -> None:
    predictor, tested = fitted(k, cutoff=CUTOFF, normalise=False), some_features(k)
    expected = slow_predictions(k, tested, cutoff=CUTOFF, scale=list)
    assert predictor.scores(tested).argmax(1).tolist() == expected
    assert len(set(expected)) == CLASSES


@pytest.mark.parametrize("k", [1, 4])
def test_euclidean_predictions_are_those_of_the_equations(k: int) -> None:
    predictor, tested = fitted(k, cutoff=None, normalise=False), some_features(k)
    expected = slow_predictions(k, tested, cutoff=None, scale=list)
    assert predictor.scores(tested).argmax(1).tolist() == expected


@pytest.mark.parametrize("k", [1, 4])
def test_predictions_on_the_unit_sphere_are_those_of_scr(k: int) -> None:
    predictor, tested = fitted(k, cutoff=None, normalise=True), some_features(k)
    expected = slow_predictions(k, tested, cutoff=None, scale=unit)
    assert predictor.scores(tested).argmax(1).tolist() == expected


def test_the_three_rules_differ() -> None:
    tested = some_features(1)
    found = {
        tuple(fitted(1, cutoff=cutoff, normalise=normalise).scores(tested).argmax(1).tolist())
        for cutoff, normalise in ((None, False), (None, True), (CUTOFF, False))
    }
    assert len(found) == 3


@pytest.mark.parametrize("cutoff", [None, 1e-5])
@pytest.mark.parametrize("normalise", [True, False])
def test_a_class_without_an_exemplar_is_never_predicted(
    cutoff: float | None, normalise: bool
) -> None:
    features, labels = exemplars(4)
    predictor = fit_centres(
        Backbone(),
        CLASS_IDS,
        4,
        features_NKD=features[labels != 1],
        labels_N=labels[labels != 1],
        classes=CLASSES + 1,
        cutoff=cutoff,
        normalise=normalise,
    )
    tested = torch.cat([features, some_features(4)])
    assert set(predictor.scores(tested).argmax(1).tolist()) == {0, 2}


def test_an_empty_memory_predicts_something() -> None:
    predictor = fit_centres(
        Backbone(),
        CLASS_IDS,
        4,
        features_NKD=torch.empty(0, 4, D),
        labels_N=torch.empty(0, dtype=torch.int64),
        classes=2,
        cutoff=1e-5,
        normalise=False,
    )
    assert predictor.scores(some_features(4)).argmax(1).lt(2).all()


def test_softmax_of_plain_images_is_the_arg_max_of_the_outputs() -> None:
    head, tested = nn.Linear(D, 4), some_features(1)
    predictor = SoftmaxPredictor(Backbone(), CLASS_IDS, 1, head=head)
    assert torch.equal(predictor.scores(tested).argmax(1), head(tested[:, 0]).argmax(1))


@torch.inference_mode()
def test_softmax_of_rotations_is_the_arg_max_of_the_mean_log_probability() -> None:
    head, tested = nn.Linear(D, 4 * CLASSES), some_features(4)
    predictor = SoftmaxPredictor(Backbone(), CLASS_IDS, 4, head=head)
    for image, scores in zip(tested, predictor.scores(tested), strict=True):
        for c in range(CLASSES):
            logs = [float(F.log_softmax(head(image[k]), 0)[4 * c + k]) for k in range(4)]
            assert float(scores[c]) == pytest.approx(sum(logs) / 4, rel=1e-5)


def test_rotations_of_an_image_are_turned_by_quarter_turns() -> None:
    predictor = predictors()["softmax 4"]
    images = torch.rand(2, 3, 16, 16, generator=seeded(3))
    with evaluating(predictor):
        features = predictor.features(images)
        for k in range(4):
            turned = predictor.backbone(torch.rot90(images, k, dims=(2, 3)))
            assert torch.allclose(features[:, k], turned, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_classify_gives_class_ids_and_not_ranks(name: str) -> None:
    predictor, images = predictors()[name], torch.rand(6, 3, 16, 16, generator=seeded(4))
    with evaluating(predictor):
        ranks, ids = predictor(images).tolist(), predictor.classify(images).tolist()
    assert ids == [CLASS_IDS.tolist()[rank] for rank in ranks]


@pytest.mark.parametrize("name", KINDS)
def test_a_restored_predictor_scores_the_same(name: str) -> None:
    predictor, images = predictors()[name], torch.rand(6, 3, 16, 16, generator=seeded(4))
    again = restore(dump(predictor))
    with evaluating(predictor, again):
        assert torch.equal(
            predictor.scores(predictor.features(images)), again.scores(again.features(images))
        )
        assert torch.equal(predictor.classify(images), again.classify(images))


def test_a_restored_predictor_is_in_evaluation_mode() -> None:
    assert not any(m.training for m in restore(dump(predictors()["softmax 4"])).modules())


@pytest.mark.parametrize("name", ["softmax 4", "mahalanobis 4"])
def test_restoring_leaves_global_randomness_alone(name: str) -> None:
    content, before = dump(predictors()[name]), torch.random.get_rng_state()
    restore(content)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("name", KINDS)
def test_a_dump_holds_only_tensors_and_plain_values(name: str) -> None:
    content = torch.load(io.BytesIO(dump(predictors()[name])), weights_only=True)
    assert content.keys() == {"format", "options", "state"}


def saved(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def foreign() -> dict[str, bytes]:
    return {
        "empty": b"",
        "text": b"not a predictor",
        "pickle": pickle.dumps({"format": 1}),
        "list": saved([1, 2]),
        "other format": saved({"format": 0}),
        "format alone": saved({"format": 1}),
    }


@pytest.mark.parametrize("kind", foreign())
def test_foreign_bytes_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="not a predictor"):
        restore(foreign()[kind])


def test_a_dump_keeps_the_precision_and_one_without_it_has_all_bits() -> None:
    head = nn.Linear(160, 4)
    made = SoftmaxPredictor(Backbone(precision="bfloat16"), CLASS_IDS, 1, head=head)
    again = restore(dump(made)).backbone
    assert isinstance(again, Backbone)
    assert again.precision == "bfloat16"
    content = torch.load(io.BytesIO(dump(made)), weights_only=True)
    del content["options"]["precision"]
    earlier = io.BytesIO()
    torch.save(content, earlier)
    again = restore(earlier.getvalue()).backbone
    assert isinstance(again, Backbone)
    assert again.precision == "float32"


def test_a_truncated_dump_is_refused() -> None:
    whole = dump(predictors()["softmax 1"])
    with pytest.raises(ValueError, match="not a predictor"):
        restore(whole[: len(whole) // 2])


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_restored_after_evaluating(training: bool) -> None:
    backbone = Backbone().train(training)
    with evaluating(backbone):
        assert not any(m.training for m in backbone.modules())
    assert all(m.training == training for m in backbone.modules())


def test_the_mode_is_restored_after_an_error() -> None:
    backbone = Backbone()
    with pytest.raises(RuntimeError, match="half way"), evaluating(backbone):
        raise RuntimeError("half way")
    assert all(m.training for m in backbone.modules())


def test_statistics_do_not_move_while_evaluating() -> None:
    backbone = Backbone()
    before = {k: v.clone() for k, v in backbone.state_dict().items()}
    with evaluating(backbone):
        assert not backbone(torch.rand(2, 3, 16, 16)).requires_grad
    assert all(torch.equal(v, before[k]) for k, v in backbone.state_dict().items())
