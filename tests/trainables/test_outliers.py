from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oclgrid.trainables.outliers import OUTLIERS, load_outliers, read_omniglot
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.sources import BrokenDataError


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


def omniglot(root: Path, count: int) -> Path:
    """Write pictures of one shade each, in alphabet and character folders."""
    folder = root / "omniglot-py" / "images_evaluation"
    for i in range(count):
        place = folder / f"alphabet{i // 4}" / f"character{i // 2 % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (105, 105), 10 * i).save(place / f"{i}.png")
    return folder


def test_omniglot_is_read_by_alphabet_character_and_file(tmp_path: Path) -> None:
    omniglot(tmp_path, 8)
    (part,) = read_omniglot(tmp_path, False, count=8)
    assert part.images.shape == (8, 105, 105, 1)
    assert part.images[:, 0, 0, 0].tolist() == [10 * i for i in range(8)]
    assert part.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_omniglot_must_be_whole(tmp_path: Path) -> None:
    folder = omniglot(tmp_path, 8)
    with pytest.raises(BrokenDataError, match=r"images_evaluation has 8 images, expected 13180"):
        load_outliers("omniglot", tmp_path, side=32)
    (folder / "alphabet1" / "character0" / "4.png").write_bytes(b"")
    with pytest.raises(BrokenDataError, match=r"character0/4.png cannot be decoded"):
        read_omniglot(tmp_path, False, count=8)


def test_greyscale_is_repeated_and_not_inverted(tmp_path: Path) -> None:
    folder = omniglot(tmp_path, 1)
    strokes = Image.new("L", (105, 105), 255)
    strokes.paste(0, (40, 0, 60, 105))
    strokes.save(next(folder.glob("*/*/*.png")))
    OUTLIERS["one"] = replace(
        OUTLIERS["omniglot"], name="one", read=partial(read_omniglot, count=1)
    )
    try:
        (image,) = load_outliers("one", tmp_path, side=21)
    finally:
        del OUTLIERS["one"]
    assert image.shape == (21, 21, 3)
    assert (image[:, 9:11] == 0).all()
    assert (image[:, [0, 1, 2, 18, 19, 20]] == 255).all()


def test_packed_svhn_is_read_without_unpickling(tmp_path: Path) -> None:
    file = tmp_path / "svhn_test_10000.npz"
    images = np.zeros((10_000, 32, 32, 3), dtype=np.uint8)
    images[7, 3, 2] = (1, 2, 3)
    np.savez_compressed(file, images=images, labels=np.arange(10_000, dtype=np.uint8) % 10)
    loaded = load_outliers("svhn", tmp_path, side=32)
    assert loaded.shape == (10_000, 32, 32, 3)
    assert loaded[7, 3, 2].tolist() == [1, 2, 3]
    content = file.read_bytes()
    (tmp_path / "oclgrid" / "svhn.arrow").unlink()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(BrokenDataError, match=r"svhn_test_10000\.npz"):
        load_outliers("svhn", tmp_path, side=32)


@pytest.mark.parametrize(
    "arrays",
    [
        {"images": np.array([{}] * 2, dtype=object), "labels": np.zeros(2)},
        {"images": np.zeros((2, 32, 32, 3), dtype=np.uint8), "labels": np.zeros(2)},
        {"images": np.zeros((2, 32, 32, 3))},
    ],
    ids=["objects", "too few", "no labels"],
)
def test_a_foreign_npz_is_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "svhn_test_10000.npz", **arrays)
    with pytest.raises(BrokenDataError, match=r"svhn_test_10000\.npz"):
        load_outliers("svhn", tmp_path, side=32)


def test_svhn_of_another_md5_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_32x32.mat").write_bytes(b"MATLAB 5.0")
    with pytest.raises(BrokenDataError, match=r"test_32x32\.mat: Dataset not found or corrupted"):
        load_outliers("svhn", tmp_path, side=32)


def test_mnist_must_be_the_published_one(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, shape in (("images-idx3", (2, 28, 28)), ("labels-idx1", (2,))):
        for part in ("train", "t10k"):
            sizes = b"".join(n.to_bytes(4, "big") for n in shape)
            content = bytes([0, 0, 8, len(shape)]) + sizes + bytes(int(np.prod(shape)))
            (raw / f"{part}-{name}-ubyte").write_bytes(content)
    with pytest.raises(BrokenDataError, match=r"'mnist' .* is not the published one"):
        load_outliers("mnist", tmp_path, side=32)
    images = raw / "t10k-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(BrokenDataError, match=r"t10k-images-idx3-ubyte"):
        load_outliers("mnist", tmp_path, side=32)
