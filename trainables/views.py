"""Random views of a batch of images, drawn per image, as torchvision makes them, with no loop."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional

from oclgrid.trainables.series import Colours, ViewSeries

_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = range(4)
_CROP_TRIES = 10
_MAX_LOG_RATIO = math.log(4 / 3)
_GREY = (0.2989, 0.587, 0.114)  # torchvision's digits; 0.299 is the usual rounding.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ViewParameters:
    """One draw for n images; every field is a CPU tensor with n rows."""

    top: Tensor
    """First row of the crop, in pixels; ``left``, ``height`` and ``width`` alike."""
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    """Whether the crop is mirrored."""
    jitter: Tensor
    """Whether the colour operations are applied."""
    order: Tensor
    """(n, 4): turns of brightness 0, contrast 1, saturation 2 and hue 3, first to last."""
    factors: Tensor
    """(n, 3): factors of brightness, contrast and saturation."""
    hue: Tensor
    """Shift of the hue, in turns of the colour circle."""
    grey: Tensor
    """Whether the view ends in greyscale."""


def draw(
    series: ViewSeries, n: int, *, height: int, width: int, generator: torch.Generator
) -> ViewParameters:
    """Return independent parameters for ``n`` images of one size.

    ``generator`` lives on the CPU, so that a seed means the same views on every device. It
    moves on by the same amount whatever the series.
    """
    counts = [2 * _CROP_TRIES + 2, 3, 4, 4]
    uniform = torch.rand(n, sum(counts), generator=generator, dtype=torch.float64)
    crop, chance, turn, colour = uniform.split_with_sizes(counts, dim=1)
    corner, side = _crop(crop, series.crop_min, height=height, width=width)
    happens = chance < chance.new_tensor([series.flip, series.jitter, series.grey])
    spread = [series.brightness, series.contrast, series.saturation, series.hue]
    colour = (2 * colour - 1) * colour.new_tensor(spread)
    return ViewParameters(
        top=corner[:, 0],
        left=corner[:, 1],
        height=side[:, 0],
        width=side[:, 1],
        flip=happens[:, 0],
        jitter=happens[:, 1],
        order=turn.argsort(dim=1),
        factors=1 + colour[:, :_HUE],
        hue=colour[:, _HUE],
        grey=happens[:, 2],
    )


def _crop(uniform: Tensor, crop_min: float, *, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return (top, left) and (height, width) of the crops, each of shape (n, 2)."""
    area, ratio, corner = uniform.split_with_sizes([_CROP_TRIES, _CROP_TRIES, 2], dim=1)
    area = height * width * (crop_min + (1 - crop_min) * area)
    ratio = torch.exp(_MAX_LOG_RATIO * (2 * ratio - 1))
    tries = torch.stack((area / ratio, area * ratio), dim=2).sqrt().round()
    # One more try that always fits: the largest central crop within the limits of the ratio.
    largest = [min(height, round(width * 4 / 3)), min(width, round(height * 4 / 3))]
    tries = torch.cat((tries, tries.new_tensor(largest).expand(len(tries), 1, 2)), dim=1)
    whole = tries.new_tensor([height, width])
    first = ((tries >= 1) & (tries <= whole)).all(dim=2).int().argmax(dim=1)
    side = tries[torch.arange(len(tries)), first]
    is_central = (first == _CROP_TRIES).unsqueeze(1)
    corner = torch.where(is_central, (whole - side) / 2, corner * (whole - side + 1)).floor()
    return corner.long(), side.long()


def apply(
    images: Tensor, parameters: ViewParameters, *, colours: Colours = "torchvision"
) -> Tensor:
    """Return one view of each image, of the same size, device and memory format.

    Args:
        images: (N, 3, H, W), float32 or float64 in [0, 1]. Left unchanged.
        parameters: A draw for these N images.
        colours: Whose colour operations; the draw means either.
    """
    # Half precision cannot say where a pixel falls to better than a sixteenth of its width.
    is_precise = images.dtype in (torch.float32, torch.float64)
    if images.ndim != 4 or images.shape[1] != 3 or not is_precise:
        found = f"{images.dtype} of shape {tuple(images.shape)}"
        raise ValueError(f"images must be float32 or float64 of shape (N, 3, H, W), got {found}")
    if len(images) != (n := len(parameters.flip)):
        raise ValueError(f"parameters must be drawn for {len(images)} images, got {n}")
    views = _resized_crop(images, parameters)
    (_jitter_ if colours == "torchvision" else _jiggle_)(views, parameters)
    rows = parameters.grey.nonzero().squeeze(1).to(images.device)
    views[rows] = _grey(views[rows])
    return views.contiguous(memory_format=_memory_format(images))


def view(
    series: ViewSeries,
    images: Tensor,
    generator: torch.Generator,
    *,
    shared: bool = False,
    colours: Colours = "torchvision",
) -> Tensor:
    """Return one fresh view of each image; with ``shared``, one draw serves them all."""
    (height, width), n = images.shape[2:], 1 if shared else len(images)
    drawn = draw(series, n, height=height, width=width, generator=generator)
    if shared:
        rows = {f.name: getattr(drawn, f.name) for f in fields(drawn)}
        drawn = ViewParameters(**{k: v.expand(len(images), *v.shape[1:]) for k, v in rows.items()})
    return apply(images, drawn, colours=colours)


def rotations(images: Tensor, k: int = 4) -> Tensor:
    """Return S of Eq. 5: row ``i * k + j`` is image ``i`` turned by ``j`` quarter turns.

    Pixels are moved and never mixed. ``k`` is K: 4, or 1 for the images as they are.
    """
    if k not in (1, 4):
        raise ValueError(f"k must be 1 or 4, got {k}")
    n, channels, height, width = images.shape
    if k == 4 and height != width:
        raise ValueError(f"images must be square to be turned, got {height} x {width}")
    turned = torch.empty(
        (n * k, channels, height, width),
        dtype=images.dtype,
        device=images.device,
        memory_format=_memory_format(images),
    )
    for j in range(k):
        turned[j::k] = torch.rot90(images, j, dims=(2, 3))
    return turned


def _memory_format(images: Tensor) -> torch.memory_format:
    is_last = images.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if is_last else torch.contiguous_format


def _resized_crop(images: Tensor, parameters: ViewParameters) -> Tensor:
    """Return the crops, mirrored where asked, resized to the full size by bilinear weights."""
    height, width = images.shape[2:]
    y = _sampling(parameters.top, parameters.height, height)
    x = _sampling(parameters.left, parameters.width, width)
    x = torch.where(parameters.flip.unsqueeze(1), x.flip(1), x)
    x = x.to(images).unsqueeze(1).expand(-1, height, -1)
    y = y.to(images).unsqueeze(2).expand(-1, -1, width)
    grid = torch.stack((x, y), dim=3)
    views = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    return views.contiguous()  # The colour operations are fastest on whole channels.


def _sampling(start: Tensor, length: Tensor, size: int) -> Tensor:
    """Return where each of ``size`` pixels falls, in the [-1, 1] of ``grid_sample``."""
    start, length = start.unsqueeze(1), length.unsqueeze(1)
    centre = (torch.arange(size, dtype=torch.float64) + 0.5) * (length / size) - 0.5
    # Held inside the crop, so that no pixel from beyond its edge is blended in.
    inside = start + torch.minimum(centre.clamp(min=0), length - 1.0)
    return (2 * inside + 1) / size - 1


def _jitter_(images: Tensor, parameters: ViewParameters) -> None:
    """Change the colours of the images in place, each by its operations in its own order.

    Three of the four operations are one blend, f * x + (1 - f) * reference, which runs on
    the whole batch at once. Hue runs on the images whose turn it is.
    """
    order, shifts = parameters.order, parameters.jitter & (parameters.hue != 0)
    blends = order[order != _HUE].view(-1, 3)
    factors = torch.where(parameters.jitter.unsqueeze(1), parameters.factors.gather(1, blends), 1)
    to_mean = (1 - factors) * (blends == _CONTRAST)
    to_grey = (1 - factors) * (blends == _SATURATION)
    weights = torch.stack((factors, to_mean, to_grey)).to(images)[..., None, None, None]
    for turn in range(4):
        rows = (shifts & (order[:, turn] == _HUE)).nonzero().squeeze(1)
        shift = parameters.hue[rows].to(images)
        rows = rows.to(images.device)
        images.index_copy_(0, rows, _shift_hue(images.index_select(0, rows), shift))
        if turn < 3:
            factor, mean_weight, grey_weight = weights[:, :, turn]
            grey = _grey(images)
            mean = grey.mean(dim=(2, 3), keepdim=True)
            images.mul_(factor).add_(mean * mean_weight + grey * grey_weight).clamp_(0, 1)


def _jiggle_(images: Tensor, parameters: ViewParameters) -> None:
    """Change the colours of the images in place as kornia 0.4's ColorJitter did.

    It is called ColorJiggle today: brightness is a term and not a factor, contrast a factor of all
    channels alike, saturation that of HSV, at equal hue and value.
    """

    def saturate(some: Tensor, factor: Tensor) -> Tensor:
        value = some.amax(dim=1, keepdim=True)
        chroma = value - some.amin(dim=1, keepdim=True)
        # A saturation beyond 1 is held at 1.
        factor = torch.minimum(factor, value / chroma.clamp(min=torch.finfo(some.dtype).tiny))
        return value - (value - some) * factor

    operations: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
        _BRIGHTNESS: lambda some, factor: some + (factor - 1),
        _CONTRAST: lambda some, factor: some * factor,
        _SATURATION: saturate,
        _HUE: lambda some, turns: _shift_hue(some, turns.flatten()),
    }
    amounts = torch.cat((parameters.factors, parameters.hue.unsqueeze(1)), dim=1)
    for turn in range(4):
        for operation, change in operations.items():
            rows = (parameters.jitter & (parameters.order[:, turn] == operation)).nonzero()[:, 0]
            amount = amounts[rows, operation].to(images).view(-1, 1, 1, 1)
            rows = rows.to(images.device)
            images[rows] = change(images[rows], amount).clamp_(0, 1)


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.chunk(3, dim=1)
    return _GREY[0] * red + _GREY[1] * green + _GREY[2] * blue


def _shift_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Return the images with their hue moved, at equal HSV saturation and value.

    The hue is the angle from red, in sixths of a turn, positive towards green. It is found
    without asking which channel is largest: comparing and selecting take twice as long.
    """
    red, green, blue = images.chunk(3, dim=1)
    low = images.amin(dim=1, keepdim=True)
    chroma = images.amax(dim=1, keepdim=True) - low
    # Falls from 2 at red to -2 at cyan on either side, twice as fast in the middle third.
    redness = ((red - green) + (red - blue)) / chroma.clamp(min=torch.finfo(images.dtype).tiny)
    angle = 1.5 - redness + redness.clamp(-1, 1) / 2
    hue = torch.copysign(angle, green - blue) + 6 * turns.view(-1, 1, 1, 1)
    hue -= 6 * (hue / 6).round()
    # A channel is full within 1 of its own hue and empty beyond 2, measured round the circle.
    own = torch.arange(0, 6, 2, dtype=hue.dtype, device=hue.device).view(3, 1, 1)
    gap = (hue - own).abs_()
    share = gap.sub_(3).abs_().sub_(1).clamp_(0, 1)
    return torch.addcmul(low, chroma, share)
