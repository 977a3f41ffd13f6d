"""Read arrays of bytes out of a pickle from outside, without running anything it asks for."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oclgrid.trainables.sources import BrokenDataError


def load_arrays(file: Path) -> dict[str, Any]:
    """Return the dictionary in a pickle; it may hold arrays of bytes, dict, list, str and numbers.

    A pickle is a program. This one meets none of NumPy's functions, only stand-ins that take what
    a plain array of bytes consists of; any other name in it is refused before it is looked up.
    """
    try:
        with file.open("rb") as stream:
            content = _Unpickler(stream, encoding="latin1").load()
        if not isinstance(content, dict):
            raise TypeError("it is not a dictionary")
        return {k: v.values if isinstance(v, _Array) else v for k, v in content.items()}
    except OSError:
        raise
    except Exception as error:  # a foreign program can fail in any way
        reason = f"{error}" or type(error).__name__
        raise BrokenDataError(f"{file} is refused: {reason}") from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        try:
            return _STAND_INS[module.replace("numpy._core", "numpy.core"), name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which no array of bytes needs"
            ) from None


class _Dtype:
    """Of bytes, the only one there is here."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        """Bytes have no byte order, fields or alignment."""


class _Array:
    """An array whose content comes later, as pickles before protocol 5 have it."""

    __slots__ = ("values",)
    values: npt.NDArray[np.uint8]

    def __setstate__(self, state: tuple[int, object, object, bool, object]) -> None:
        _, shape, dtype, is_fortran, raw = state
        self.values = _values(raw, dtype, shape, is_fortran=is_fortran)


# Instances without attributes: a pickle can call them, but not change them.
class _MakeDtype:
    __slots__ = ()

    def __call__(self, name: object, *_: object) -> _Dtype:
        if name not in ("u1", "|u1"):
            raise TypeError(f"its array is of {name!r}, not of bytes")
        return _Dtype()


class _Reconstruct:
    __slots__ = ()

    def __call__(self, *_: object) -> _Array:
        return _Array()


class _FromBuffer:
    __slots__ = ()

    def __call__(self, raw: object, dtype: object, shape: object, order: object) -> _Array:
        array = _Array()
        array.values = _values(raw, dtype, shape, is_fortran=order == "F")
        return array


class _Encode:
    """How protocols before 3 write bytes."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str) -> bytes:
        if type(text) is not str or encoding != "latin1":
            raise TypeError("its bytes are not written as text in latin1")
        return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): _MakeDtype(),
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy.core.numeric", "_frombuffer"): _FromBuffer(),
    ("_codecs", "encode"): _Encode(),
}


def _values(
    raw: object, dtype: object, shape: object, *, is_fortran: object
) -> npt.NDArray[np.uint8]:
    if isinstance(raw, str):  # bytes of Python 2
        raw = raw.encode("latin1")
    if not isinstance(raw, bytes | bytearray) or not isinstance(dtype, _Dtype):
        raise TypeError("its array is not one of bytes")
    if type(shape) is not tuple or not all(type(n) is int and n >= 0 for n in shape):
        raise TypeError("its array has no proper shape")
    return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if is_fortran else "C")
