"""Decode picture files into one array, naming the file that cannot be decoded."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from oclgrid.trainables.sources import BrokenDataError

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 2.0


def decode(files: Sequence[Path], *, side: int, mode: Literal["L", "RGB"]) -> npt.NDArray[np.uint8]:
    """Return the pictures as N x side x side x channels, in the order of the files.

    Those of another size are resized (bilinear, antialiased); how many is logged.
    """
    images = np.empty((len(files), side, side, len(mode)), dtype=np.uint8)
    resized, told = 0, time.monotonic()
    for i, file in enumerate(files):
        picture = _picture(file, mode)
        if picture.size != (side, side):
            picture = picture.resize((side, side), Image.Resampling.BILINEAR)
            resized += 1
        images[i] = np.asarray(picture).reshape(side, side, len(mode))
        if time.monotonic() > told + PROGRESS_SECONDS:
            logger.info("decoded %s of %s pictures", f"{i + 1:,}", f"{len(files):,}")
            told = time.monotonic()
    if resized:
        logger.warning(
            "%s of %s pictures were not %d x %d and were resized (bilinear, antialiased)",
            *(f"{resized:,}", f"{len(files):,}", side, side),
        )
    return images


def _picture(file: Path, mode: str) -> Image.Image:
    try:
        with Image.open(file) as picture:
            return picture.convert(mode)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BrokenDataError(f"{file} cannot be decoded: {error}") from error
