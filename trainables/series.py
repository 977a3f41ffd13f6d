"""Series of augmentations: how strong each is, the paper's two and SCR's."""

from dataclasses import dataclass, fields, replace
from typing import Literal

Colours = Literal["torchvision", "kornia"]
"""Whose colour jitter is meant: that of torchvision, or of kornia 0.4, which adds to the
brightness, multiplies for contrast, and changes the saturation of HSV."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewSeries:
    """One series of augmentations: resized crop, flip, colour jitter, greyscale, in that order."""

    crop_min: float
    """Least share of the image's area that a crop keeps; the most is 1."""
    flip: float
    """Probability of a horizontal flip."""
    brightness: float
    """Factors are uniform within this distance of 1; so too for the next two fields."""
    contrast: float
    """Blend with the image's mean grey."""
    saturation: float
    """Blend with the image's own greyscale."""
    hue: float
    """Largest shift of the hue either way, in turns of the colour circle."""
    jitter: float = 1.0
    """Probability that the four colour operations are applied at all."""
    grey: float
    """Probability of ending in greyscale."""

    def __post_init__(self) -> None:
        if not 0 < self.crop_min <= 1:
            raise ValueError(f"crop_min must lie in (0, 1], got {self.crop_min}")
        for name in (field.name for field in fields(self) if field.name != "crop_min"):
            most = 0.5 if name == "hue" else 1
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must lie in [0, {most}], got {getattr(self, name)}")


# H of the SDAF paper: the long series makes one view of a pair and the short one the other.
# Reading: the paper names torchvision's ColorJitter, which has no probability, so jitter is 1.
LONG = ViewSeries(
    crop_min=0.5, flip=0.5, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, grey=0.2
)
SHORT = ViewSeries(
    crop_min=0.75, flip=0.0, brightness=0.2, contrast=0.2, saturation=0.2, hue=0.05, grey=0.0
)
# SCR (Mai et al., 2021).
SCR = replace(LONG, crop_min=0.2, jitter=0.8)


def scaled(series: ViewSeries, strength: float) -> ViewSeries:
    """Return the series ``strength`` times as strong: 0 changes no image, 1 is the series itself.

    The share of the area that a crop may lose, the spreads of the four colour operations and the
    probabilities of flip and greyscale are all multiplied by the strength. A flip stays at its
    most random, one half, from where more would be less.
    """
    if strength == 1:
        return series  # 1 - (1 - x) is not always x
    colours = ("brightness", "contrast", "saturation", "hue", "grey")
    return replace(
        series,
        crop_min=1 - strength * (1 - series.crop_min),
        flip=min(strength * series.flip, max(0.5, series.flip)),
        **{name: strength * getattr(series, name) for name in colours},
    )
