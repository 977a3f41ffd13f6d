import colorsys
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from oclgrid.trainables.series import LONG, SCR, ViewSeries
from oclgrid.trainables.views import ViewParameters, apply, draw

SIDE, N = 4, 16
EXTREME = replace(LONG, brightness=1.0, contrast=1.0, saturation=1.0, hue=0.5)
IMAGES = {
    "noise": torch.rand(N, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)),
    "primary": torch.rand(N, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1)).round(),
    "grey": torch.rand(N, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(2)).expand(
        -1, 3, -1, -1
    ),
    "black": torch.zeros(N, 3, SIDE, SIDE),
    "white": torch.ones(N, 3, SIDE, SIDE),
}


def drawn(series: ViewSeries) -> ViewParameters:
    """Return a draw that changes nothing but colours."""
    of_colours = replace(series, crop_min=1.0, flip=0.0, grey=0.0)
    generator = torch.Generator().manual_seed(3)
    parameters = draw(of_colours, N, height=SIDE, width=SIDE, generator=generator)
    box = {"top": 0, "left": 0, "height": SIDE, "width": SIDE}
    return replace(parameters, **{name: torch.full((N,), value) for name, value in box.items()})


def pixel_by_pixel(image: Tensor, parameters: ViewParameters, i: int) -> Tensor:
    """Return image ``i`` after kornia's operations, each written out for a pixel."""
    brightness, contrast, saturation = parameters.factors[i].tolist()

    def in_hsv(rgb: tuple[float, ...], *, by: float = 1.0, turn: float = 0.0) -> Iterable[float]:
        h, s, v = colorsys.rgb_to_hsv(*rgb)
        return colorsys.hsv_to_rgb((h + turn) % 1, min(1, s * by), v)

    operations: list[Callable[..., Iterable[float]]] = [
        lambda *rgb: (x + (brightness - 1) for x in rgb),
        lambda *rgb: (x * contrast for x in rgb),
        lambda *rgb: in_hsv(rgb, by=saturation),
        lambda *rgb: in_hsv(rgb, turn=float(parameters.hue[i])),
    ]
    out = image.double().clone()
    for operation in parameters.order[i].tolist() if parameters.jitter[i] else []:
        for y in range(SIDE):
            for x in range(SIDE):
                changed = operations[operation](*out[:, y, x].tolist())
                out[:, y, x] = torch.tensor([min(1, max(0, c)) for c in changed])
    return out.float()


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("series", [LONG, SCR, EXTREME])
def test_colours_are_changed_as_kornia_did(series: ViewSeries, kind: str) -> None:
    parameters = drawn(series)
    wanted = [pixel_by_pixel(image, parameters, i) for i, image in enumerate(IMAGES[kind])]
    made = apply(IMAGES[kind], parameters, colours="kornia")
    torch.testing.assert_close(made, torch.stack(wanted), atol=1e-5, rtol=0)


def test_the_same_draw_looks_otherwise_by_torchvision() -> None:
    ours, theirs = (
        apply(IMAGES["noise"], drawn(LONG), colours=colours)
        for colours in ("torchvision", "kornia")
    )
    assert not torch.allclose(ours, theirs, atol=0.05)
