"""Images of none of a cell's classes, for tests of how well a network tells them apart."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from PIL import Image

from oclgrid.trainables import decoded
from oclgrid.trainables.decoded import UNDECODED
from oclgrid.trainables.pictures import decode
from oclgrid.trainables.schema import SpecError, unknown
from oclgrid.trainables.sources import BrokenDataError, Images, MissingDataError

SVHN_PACKED = 10_000
PATCH = 32
CHUNK = 1000
"""Images resized at once, to bound the memory it takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutlierSet:
    """What is known of a set of outliers before any of its files is read."""

    name: str
    about: str
    shape: tuple[int, int, int]
    """Height, width and channels as published."""
    read: Callable[[Path, bool], tuple[Images]]
    digest: str = UNDECODED
    """sha256 of the decoded images and labels; UNDECODED where files of one set differ."""
    looked_for: str = ""
    """The files, below the data folder."""
    can_download: bool = True
    is_embedded: bool = False
    """Whether it comes with the installation, so that nothing is looked for or cached."""


def load_outliers(name: str, root: Path, *, side: int) -> npt.NDArray[np.uint8]:
    """Return the test images of a set as N x side x side x 3.

    Greyscale is repeated to three channels and nothing is inverted, so Omniglot's strokes stay
    black on white. Reading: bilinear, with the antialiasing that pictures get from torchvision's
    ``Resize``; without it, strokes of Omniglot's 105 x 105 would vanish at 32 x 32.
    """
    if name not in OUTLIERS:
        raise unknown("outlier set", name, OUTLIERS)
    (part,) = decoded.load(OUTLIERS[name], root)
    resized = [
        _resized(part.images[i : i + CHUNK], side) for i in range(0, len(part.images), CHUNK)
    ]
    return np.concatenate(resized)


def _resized(images: npt.NDArray[np.uint8], side: int) -> npt.NDArray[np.uint8]:
    import torch  # here, so that what only asks for names does without
    import torch.nn.functional as F

    pixels = torch.from_numpy(images.copy()).permute(0, 3, 1, 2)
    if pixels.shape[-2:] != (side, side):
        pixels = F.interpolate(pixels, size=(side, side), mode="bilinear", antialias=True)
    out: npt.NDArray[np.uint8] = pixels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    return out


def _mnist(root: Path, download: bool) -> tuple[Images]:
    """Return MNIST's 10,000 test images from torchvision's layout."""
    from torchvision.datasets import MNIST

    file = root / "MNIST" / "raw" / "t10k-images-idx3-ubyte"
    try:
        published = MNIST(str(root), train=False, download=download)
    except (RuntimeError, ValueError, AssertionError) as error:
        raise _refused(file, error) from error
    return (Images(published.data.numpy()[..., None], published.targets.numpy()),)


def _refused(file: Path, error: Exception) -> SpecError:
    """Return what to raise when torchvision cannot read a file."""
    kind = BrokenDataError if file.exists() else MissingDataError
    return kind(f"{file}: {str(error) or 'not in its format'}")


def read_omniglot(root: Path, download: bool, count: int = 13_180) -> tuple[Images]:
    """Return Omniglot's evaluation split, by alphabet, character and file."""
    folder = root / "omniglot-py" / "images_evaluation"
    if download:
        from torchvision.datasets import Omniglot

        try:
            Omniglot(str(root), background=False, download=True)  # checks the archive's MD5
        except RuntimeError as error:
            raise _refused(folder, error) from error
    files = sorted(folder.glob("*/*/*.png"))
    if not files:
        raise MissingDataError(f"there is no {folder}/<alphabet>/<character>/*.png")
    if len(files) != count:
        raise BrokenDataError(f"{folder} has {len(files)} images, expected {count}")
    characters = {c: i for i, c in enumerate(sorted({f.parent for f in files}))}
    labels = np.array([characters[f.parent] for f in files], dtype=np.int64)
    return (Images(decode(files, side=105, mode="L"), labels),)


def _svhn(root: Path, download: bool) -> tuple[Images]:
    """Return SVHN's test split from torchvision's file, or 10,000 of its images from an npz."""
    from torchvision.datasets import SVHN

    published, packed = root / "test_32x32.mat", root / "svhn_test_10000.npz"
    if not published.exists() and packed.exists() and not download:
        return (_packed(packed),)
    try:
        part = SVHN(str(root), split="test", download=download)  # checks the file's MD5
    except RuntimeError as error:
        raise _refused(published, error) from error
    return (Images(part.data.transpose(0, 2, 3, 1), part.labels),)


def _packed(file: Path) -> Images:
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"].astype(np.int64)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise BrokenDataError(f"{file}: {error}") from error
    if images.dtype != np.uint8 or images.shape != (SVHN_PACKED, 32, 32, 3):
        raise BrokenDataError(
            f"{file}: images must be {SVHN_PACKED} x 32 x 32 x 3 bytes, got {images.shape}"
        )
    return Images(images, labels)


def _photos(root: Path, download: bool) -> tuple[Images]:
    """Return the squares that scikit-learn's two photographs can be cut into."""
    del root, download  # embedded in scikit-learn
    package = find_spec("sklearn")
    assert package is not None  # a dependency of ours
    assert package.origin is not None
    folder = Path(package.origin).parent / "datasets" / "images"
    cut = [_squares(folder / name) for name in ("china.jpg", "flower.jpg")]
    labels = np.repeat(np.arange(2), [len(c) for c in cut])
    return (Images(np.concatenate(cut), labels),)


def _squares(file: Path) -> npt.NDArray[np.uint8]:
    with Image.open(file) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    down, across = pixels.shape[0] // PATCH, pixels.shape[1] // PATCH
    whole = pixels[: down * PATCH, : across * PATCH]
    grid = whole.reshape(down, PATCH, across, PATCH, 3).swapaxes(1, 2)
    return grid.reshape(-1, PATCH, PATCH, 3)


OUTLIERS = {
    o.name: o
    for o in (
        OutlierSet(
            name="photos",
            about="520 squares of scikit-learn's two photographs, comes with the installation",
            shape=(PATCH, PATCH, 3),
            read=_photos,
            is_embedded=True,
        ),
        OutlierSet(
            name="mnist",
            about="MNIST, 10,000 handwritten digits of the test split (torchvision's layout)",
            shape=(28, 28, 1),
            read=_mnist,
            digest="ffebde4273aab1f43748061ea9a58ebbd58f1959a6f92750e145265e4f6c826f",
            looked_for="MNIST/raw/t10k-images-idx3-ubyte",
        ),
        OutlierSet(
            name="omniglot",
            about="Omniglot, 13,180 characters of the evaluation split (torchvision's layout)",
            shape=(105, 105, 1),
            read=read_omniglot,
            looked_for="omniglot-py/images_evaluation/<alphabet>/<character>/*.png",
        ),
        OutlierSet(
            name="svhn",
            about="SVHN, house numbers of the test split (torchvision's layout, or an npz)",
            shape=(32, 32, 3),
            read=_svhn,
            looked_for="test_32x32.mat or svhn_test_10000.npz",
        ),
    )
}
