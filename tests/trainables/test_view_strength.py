"""One strength moves all properties of a series of views together."""

from dataclasses import replace

import pytest

from oclgrid.trainables.series import LONG, SCR, SHORT, ViewSeries, scaled

IDENTITY = ViewSeries(
    crop_min=1.0, flip=0.0, brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0, grey=0.0
)


def test_a_scaled_series_multiplies_what_each_property_may_do() -> None:
    weak, strong = scaled(LONG, 0.5), scaled(LONG, 1.5)
    assert weak == ViewSeries(
        crop_min=0.75, flip=0.25, brightness=0.2, contrast=0.2, saturation=0.2, hue=0.05, grey=0.1
    )
    assert (strong.crop_min, strong.flip) == (0.25, 0.5)  # no flip is more random than one half
    assert strong.grey == pytest.approx(0.3)


def test_strength_one_is_the_series_itself_and_strength_zero_changes_nothing() -> None:
    for series in (LONG, SHORT, SCR):
        assert scaled(series, 1.0) == series
        assert scaled(series, 0.0) == replace(IDENTITY, jitter=series.jitter)


def test_a_strength_beyond_what_an_image_has_is_refused() -> None:
    with pytest.raises(ValueError, match="crop_min"):
        scaled(LONG, 2.0)
