"""What may vary in SDAF: lambda, tau_w and the two series of views."""

from oclgrid.search_spaces.space import Choice, Float, Range, Space
from oclgrid.trainables.configs.sdaf import SdafConfig

FREE, TIED = ("views", "free"), ("views", "tied")


def _series(name: str, *, crop_min: float) -> dict[str, Range]:
    """Return a range for each property of one series."""
    colours = tuple(f"{name}.{field}" for field in ("brightness", "contrast", "saturation"))
    return {
        f"{name}.crop_min": Float(crop_min, 1.0, when=FREE),
        f"{name}.colour": Float(0.0, 0.8, sets=colours, when=FREE),
        f"{name}.hue": Float(0.0, 0.3, when=FREE),
        f"{name}.grey": Float(0.0, 0.5, when=FREE),
        f"{name}.flip": Float(0.0, 0.5, when=FREE),
    }


LOSS: dict[str, Range] = {
    "self_supervised_weight": Float(0.1, 10.0, log=True),  # lambda; paper 1.5
    "temperature": Float(0.05, 5.0, log=True),  # tau_w; paper 0.5
}
VIEWS: dict[str, Range] = {
    # One strength for each series, or every property by itself.
    "views": Choice(("tied", "free"), default="tied"),
    "long_strength": Float(0.0, 1.6, scales="long", when=TIED),  # crop_min 1 ... 0.2; paper 0.5
    "short_strength": Float(0.0, 2.4, scales="short", when=TIED),  # crop_min 1 ... 0.4; paper 0.75
    **_series("long", crop_min=0.2),
    **_series("short", crop_min=0.4),
}

SPACES = {
    "sdaf-lambda-tau": Space(SdafConfig(), **LOSS),
    "sdaf-views": Space(SdafConfig(), **VIEWS),
    "sdaf-all": Space(SdafConfig(), **LOSS, **VIEWS),
}
