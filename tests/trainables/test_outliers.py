from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oclgrid.trainables.outliers import OUTLIERS, load_outliers
from oclgrid.trainables.schema import SpecError


def test_photographs_are_cut_into_squares_that_touch() -> None:
    from sklearn.datasets import load_sample_image

    squares = load_outliers("photos", Path("/nonexistent"), side=32)
    assert squares.shape == (520, 32, 32, 3)
    china, flower = load_sample_image("china.jpg"), load_sample_image("flower.jpg")
    np.testing.assert_array_equal(squares[0], china[:32, :32])
    np.testing.assert_array_equal(squares[21], china[32:64, 32:64])
    np.testing.assert_array_equal(squares[260], flower[:32, :32])
    np.testing.assert_array_equal(squares[519], flower[384:416, 608:640])


def test_outliers_are_resized_as_pictures_are() -> None:
    squares = load_outliers("photos", Path("/nonexistent"), side=32)
    small = load_outliers("photos", Path("/nonexistent"), side=16)
    assert small.shape == (520, 16, 16, 3)
    pictures = [
        np.asarray(Image.fromarray(s).resize((16, 16), Image.Resampling.BILINEAR)) for s in squares
    ]
    assert np.abs(small.astype(int) - np.stack(pictures).astype(int)).max() <= 1


def test_an_unknown_set_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(SpecError, match="unknown outlier set 'minst'; did you mean 'mnist'"):
        load_outliers("minst", Path("/nonexistent"), side=32)


@pytest.mark.parametrize("name", [n for n, o in OUTLIERS.items() if not o.is_embedded])
def test_a_missing_set_is_refused_with_the_folder_and_the_command(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        load_outliers(name, tmp_path, side=32)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert f"`oclgrid data {name} --download`" in message
