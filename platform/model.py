"""The trained classifier of a cell as an MLflow model: images in, class ids out."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from oclgrid.trainables.predictor import Predictor, dump, evaluating, restore
from oclgrid.trainables.stream import to_float

BATCH = 250


class ClassifierModel:
    """What MLflow serves: N x H x W x 3 images of bytes to N class ids."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor

    def predict(
        self, images: npt.NDArray[Any], params: dict[str, Any] | None = None
    ) -> npt.NDArray[np.int64]:
        """Return the class id of each image."""
        del params
        batch = np.ascontiguousarray(images, dtype=np.uint8)
        with evaluating(self._predictor):
            parts = [
                self._predictor.classify(to_float(batch[i : i + BATCH], torch.device("cpu")))
                for i in range(0, len(batch), BATCH)
            ]
        return np.concatenate([p.numpy() for p in parts])


def write_model(predictor: Predictor, folder: Path, *, side: int) -> None:
    """Write an MLflow model folder that holds tensors and plain values only, no pickled objects."""
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    data = folder.parent / "predictor.pt"  # MLflow copies it
    data.write_bytes(dump(predictor))
    images = TensorSpec(np.dtype(np.uint8), (-1, side, side, 3))
    classes = TensorSpec(np.dtype(np.int64), (-1,))
    mlflow.pyfunc.save_model(
        str(folder),
        loader_module="oclgrid.platform.model",
        data_path=str(data),
        signature=ModelSignature(Schema([images]), Schema([classes])),
        input_example=np.zeros((1, side, side, 3), dtype=np.uint8),
        pip_requirements=["oclgrid", "mlflow", "torch"],
    )
    data.unlink()


def _load_pyfunc(path: str) -> ClassifierModel:
    """Load what ``write_model`` wrote; MLflow calls this by its name."""
    return ClassifierModel(restore(Path(path).read_bytes()))
