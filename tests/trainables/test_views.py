import json
import math
import re
from dataclasses import asdict, fields, replace

import pytest
import torch
from torch import Tensor
from torchvision.transforms import ColorJitter, RandomResizedCrop
from torchvision.transforms import functional as tv

from oclgrid.trainables.series import LONG, SCR, SHORT, ViewSeries
from oclgrid.trainables.views import ViewParameters, apply, draw, rotations, view

IDENTITY = ViewSeries(
    crop_min=1.0, flip=0.0, brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0, grey=0.0
)
EXTREME = ViewSeries(
    crop_min=0.01, flip=0.5, brightness=1.0, contrast=1.0, saturation=1.0, hue=0.5, grey=0.1
)
SERIES = {"long": LONG, "short": SHORT, "scr": SCR, "extreme": EXTREME, "identity": IDENTITY}
KINDS = ("noise", "smooth", "primary", "grey", "black", "white")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(n: int = 8, size: int = 16, kind: str = "noise") -> Tensor:
    """Return ``n`` images of one kind; the last four kinds are where hue is degenerate."""
    noise = torch.rand(n, 3, size, size, generator=seeded(99))
    if kind == "smooth":
        return torch.nn.functional.avg_pool2d(noise, 5, stride=1, padding=2)
    if kind == "primary":
        return noise.round()
    if kind == "grey":
        return noise[:, :1].repeat(1, 3, 1, 1)
    if kind in ("black", "white"):
        return torch.full_like(noise, float(kind == "white"))
    return noise


def drawn(series: ViewSeries, n: int, size: int = 32, seed: int = 0) -> ViewParameters:
    return draw(series, n, height=size, width=size, generator=seeded(seed))


def one_by_torchvision(image: Tensor, parameters: ViewParameters, i: int) -> Tensor:
    """Return image ``i``'s view by torchvision alone."""
    box = [int(getattr(parameters, side)[i]) for side in ("top", "left", "height", "width")]
    out: Tensor = tv.resized_crop(image, *box, size=list(image.shape[1:]), antialias=True)
    out = tv.hflip(out) if parameters.flip[i] else out
    if parameters.jitter[i]:
        adjust = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)
        amounts = [*parameters.factors[i].tolist(), float(parameters.hue[i])]
        for operation in parameters.order[i].tolist():
            # The class leaves out a hue of nothing; the function would still round it.
            if operation < 3 or amounts[operation] != 0:
                out = adjust[operation](out, amounts[operation])
    if parameters.grey[i]:
        out = tv.rgb_to_grayscale(out, 3)
    return out


def all_by_torchvision(images: Tensor, parameters: ViewParameters) -> Tensor:
    return torch.stack([one_by_torchvision(x, parameters, i) for i, x in enumerate(images)])


# Where a crop's pixels fall is rounded by both sides, except at powers of two. On noise, the
# steepest of images, and after factors of up to 2, that is up to 1/80 of a grey level at 84 x 84.
@pytest.mark.parametrize(("size", "n", "atol"), [(16, 48, 5e-6), (32, 32, 5e-6), (84, 8, 1e-4)])
@pytest.mark.parametrize("name", SERIES)
def test_every_view_is_torchvisions_view_of_that_image_alone(
    name: str, size: int, n: int, atol: float
) -> None:
    images, parameters = batch(n, size), drawn(SERIES[name], n, size)
    wanted = all_by_torchvision(images, parameters)
    torch.testing.assert_close(apply(images, parameters), wanted, atol=atol, rtol=0)


@pytest.mark.parametrize("name", SERIES)
def test_smooth_views_at_84_pixels_are_torchvisions_to_five_digits(name: str) -> None:
    images, parameters = batch(8, 84, "smooth"), drawn(SERIES[name], 8, 84)
    wanted = all_by_torchvision(images, parameters)
    torch.testing.assert_close(apply(images, parameters), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_views_match_torchvision_where_hue_is_degenerate(kind: str) -> None:
    # Crops are whole, so that pure colours reach the hue operation unmixed.
    series = replace(EXTREME, crop_min=1.0)
    images, parameters = batch(48, 16, kind), drawn(series, 48, 16)
    wanted = all_by_torchvision(images, parameters)
    torch.testing.assert_close(apply(images, parameters), wanted, atol=1e-5, rtol=0)


def test_views_of_oblong_images_match_torchvision() -> None:
    images = batch(32, 40)[:, :, :18]
    parameters = draw(SCR, 32, height=18, width=40, generator=seeded())
    wanted = all_by_torchvision(images, parameters)
    torch.testing.assert_close(apply(images, parameters), wanted, atol=3e-5, rtol=0)


def test_without_hue_views_in_double_precision_match_torchvision_to_twelve_digits() -> None:
    # torchvision shifts the hue in single precision whatever the input.
    images, parameters = batch(32, 32).double(), drawn(replace(LONG, hue=0.0), 32)
    wanted = all_by_torchvision(images, parameters)
    torch.testing.assert_close(apply(images, parameters), wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", SERIES)
def test_views_stay_between_zero_and_one(name: str) -> None:
    out = view(SERIES[name], batch(64, 32, "primary"), seeded())
    assert out.min() >= 0
    assert out.max() <= 1


def test_an_image_without_jitter_or_grey_only_moves_its_pixels() -> None:
    series = replace(EXTREME, crop_min=1.0, flip=1.0, jitter=0.0, grey=0.0)
    box = {"top": 0, "left": 0, "height": 16, "width": 16}
    whole = {side: torch.full((8,), value) for side, value in box.items()}
    images, parameters = batch(8, 16), replace(drawn(series, 8, 16), **whole)
    torch.testing.assert_close(apply(images, parameters), images.flip(3), atol=2e-6, rtol=0)


def test_no_pixel_from_outside_the_crop_leaks_in() -> None:
    box = {"top": 4, "left": 6, "height": 5, "width": 7}
    series = replace(IDENTITY, flip=0.5)
    crop = {side: torch.full((8,), value) for side, value in box.items()}
    images = torch.ones(8, 3, 16, 16)
    images[:, :, 4:9, 6:13] = 0
    assert apply(images, replace(drawn(series, 8, 16), **crop)).max() < 1e-5


def test_the_input_is_left_unchanged() -> None:
    images = batch()
    before = images.clone()
    view(EXTREME, images, seeded())
    rotations(images)
    assert torch.equal(images, before)


def test_the_same_generator_state_gives_the_same_views() -> None:
    images, generator = batch(), seeded(3)
    state = generator.get_state()
    first = view(LONG, images, generator)
    generator.set_state(state)
    assert torch.equal(view(LONG, images, generator), first)


def test_a_generator_gives_other_views_the_next_time() -> None:
    images, generator = batch(), seeded(3)
    first = view(LONG, images, generator)
    assert not torch.equal(view(LONG, images, generator), first)


def test_every_series_moves_the_generator_equally_far() -> None:
    states = []
    for series in SERIES.values():
        generator = seeded()
        draw(series, 5, height=32, width=32, generator=generator)
        states.append(generator.get_state())
    assert all(torch.equal(state, states[0]) for state in states)


def test_global_random_state_is_untouched() -> None:
    before = torch.get_rng_state()
    view(LONG, batch(), seeded())
    rotations(batch())
    assert torch.equal(torch.get_rng_state(), before)


def test_equal_images_get_different_views() -> None:
    images = batch(1).repeat(32, 1, 1, 1)
    out = view(SHORT, images, seeded()).flatten(1)
    assert len(out.unique(dim=0)) == 32


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_memory_format_is_kept_and_changes_no_number(memory_format: torch.memory_format) -> None:
    images = batch(8, 32)
    out = view(LONG, images.contiguous(memory_format=memory_format), seeded())
    assert out.is_contiguous(memory_format=memory_format)
    torch.testing.assert_close(out, view(LONG, images, seeded()), atol=1e-6, rtol=0)
    turned = rotations(images.contiguous(memory_format=memory_format))
    assert turned.is_contiguous(memory_format=memory_format)
    assert torch.equal(turned, rotations(images))


def test_an_empty_batch_gives_an_empty_batch() -> None:
    assert view(LONG, batch(0), seeded()).shape == (0, 3, 16, 16)
    assert rotations(batch(0)).shape == (0, 3, 16, 16)


# Draws, against torchvision's own


@pytest.mark.parametrize(("height", "width"), [(32, 32), (84, 84), (5, 50), (50, 5), (1, 1)])
@pytest.mark.parametrize("name", SERIES)
def test_every_crop_lies_inside_the_image(name: str, height: int, width: int) -> None:
    p = draw(SERIES[name], 5000, height=height, width=width, generator=seeded())
    assert p.top.min() >= 0
    assert p.left.min() >= 0
    assert min(p.height.min(), p.width.min()) >= 1
    assert (p.top + p.height).max() <= height
    assert (p.left + p.width).max() <= width


@pytest.mark.parametrize(("height", "width"), [(32, 32), (20, 48)])
@pytest.mark.parametrize("name", ["long", "short", "scr", "identity"])
def test_crops_are_distributed_like_torchvisions(name: str, height: int, width: int) -> None:
    crop_min, n = SERIES[name].crop_min, 3000
    ours = draw(SERIES[name], 4 * n, height=height, width=width, generator=seeded())
    with torch.random.fork_rng():
        torch.manual_seed(1)
        image = torch.empty(3, height, width)
        wanted = torch.tensor(
            [RandomResizedCrop.get_params(image, [crop_min, 1.0], [3 / 4, 4 / 3]) for _ in range(n)]
        )
    for side, theirs in zip(("top", "left", "height", "width"), wanted.T, strict=True):
        assert greatest_gap(getattr(ours, side), theirs) < 0.04, side
    area = ours.height * ours.width
    assert greatest_gap(area, wanted[:, 2] * wanted[:, 3]) < 0.04
    # Joint moments, which the margins above do not see.
    for a, b in ((0, 2), (1, 3), (2, 3)):
        names = ("top", "left", "height", "width")
        product = (getattr(ours, names[a]) * getattr(ours, names[b])).double().mean()
        theirs_mean = (wanted[:, a] * wanted[:, b]).double().mean()
        assert product == pytest.approx(float(theirs_mean), rel=0.05, abs=0.05)


def greatest_gap(a: Tensor, b: Tensor) -> float:
    """Return the Kolmogorov-Smirnov distance of two samples."""
    a, b = a.double().sort().values, b.double().sort().values
    points = torch.cat((a, b))
    below = [torch.searchsorted(s, points, right=True) / len(s) for s in (a, b)]
    return float((below[0] - below[1]).abs().max())


@pytest.mark.parametrize(
    ("height", "width", "box"),
    [(5, 50, (0, 21, 5, 7)), (50, 5, (21, 0, 7, 5))],
)
def test_a_crop_that_never_fits_falls_back_to_torchvisions_central_one(
    height: int, width: int, box: tuple[int, ...]
) -> None:
    # The whole area at a ratio up to 4/3 cannot fit into an image ten times as long as wide.
    image = torch.empty(3, height, width)
    assert RandomResizedCrop.get_params(image, [1.0, 1.0], [3 / 4, 4 / 3]) == box
    p = draw(IDENTITY, 20, height=height, width=width, generator=seeded())
    boxes = torch.stack((p.top, p.left, p.height, p.width), dim=1)
    assert torch.equal(boxes, torch.tensor(box).expand(20, 4))


@pytest.mark.parametrize("name", ["long", "short", "scr"])
def test_colour_factors_are_distributed_like_torchvisions(name: str) -> None:
    series, n = SERIES[name], 3000
    ours = drawn(series, 4 * n)
    jitter = ColorJitter(series.brightness, series.contrast, series.saturation, series.hue)
    ranges = (jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        wanted = torch.tensor([ColorJitter.get_params(*ranges)[1:] for _ in range(n)])
    for i, theirs in enumerate(wanted.T):
        mine = ours.factors[:, i] if i < 3 else ours.hue
        assert greatest_gap(mine, theirs) < 0.04
        low, high = ranges[i]
        assert low <= mine.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < mine.max() <= high


def test_all_orders_of_the_colour_operations_are_equally_likely() -> None:
    n = 24_000
    orders, counts = drawn(LONG, n).order.unique(dim=0, return_counts=True)
    assert len(orders) == math.factorial(4)
    chi_square = ((counts - n / 24) ** 2 / (n / 24)).sum()
    assert chi_square < 49.7  # 99.9 % point at 23 degrees of freedom


@pytest.mark.parametrize("name", SERIES)
def test_chances_are_those_of_the_series(name: str) -> None:
    p = drawn(SERIES[name], 20_000)
    for field in ("flip", "jitter", "grey"):
        share = getattr(p, field).double().mean()
        assert share == pytest.approx(getattr(SERIES[name], field), abs=0.012), field


def test_draws_of_one_image_are_independent_of_each_other() -> None:
    p = drawn(SCR, 20_000)
    columns = (p.height * p.width, p.flip, p.jitter, p.grey, *p.factors.T, p.hue, p.order[:, 0])
    correlation = torch.corrcoef(torch.stack([c.double() for c in columns]))
    assert (correlation - torch.eye(len(columns))).abs().max() < 0.03


# Rotations


def test_rotations_of_an_image_are_adjacent_and_start_with_the_image() -> None:
    images = batch(3)
    out = rotations(images)
    assert out.shape == (12, 3, 16, 16)
    for i, image in enumerate(images):
        assert torch.equal(out[4 * i], image)
        for j in range(1, 4):
            assert torch.equal(out[4 * i + j], torch.rot90(image, j, dims=(1, 2)))


def test_four_quarter_turns_give_the_input_back_bit_for_bit() -> None:
    images = batch(3)
    out = images
    for _ in range(4):
        out = rotations(out)[1::4]
    assert torch.equal(out, images)


def test_a_quarter_turn_moves_the_corners_round() -> None:
    image = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).expand(1, 3, 2, 2)
    corners = [out[0].flatten().tolist() for out in rotations(image)]
    assert corners == [[1, 2, 3, 4], [2, 4, 1, 3], [4, 3, 2, 1], [3, 1, 4, 2]]


def test_one_rotation_is_the_images_themselves() -> None:
    images = batch(3)[:, :, :9]
    assert torch.equal(rotations(images, 1), images)


# Refusals


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("crop_min", 2, "(0, 1]"),
        ("crop_min", 0, "(0, 1]"),
        ("crop_min", math.nan, "(0, 1]"),
        ("flip", -0.1, "[0, 1]"),
        ("brightness", 1.5, "[0, 1]"),
        ("contrast", -1, "[0, 1]"),
        ("saturation", math.inf, "[0, 1]"),
        ("hue", 0.6, "[0, 0.5]"),
        ("jitter", 1.1, "[0, 1]"),
        ("grey", math.nan, "[0, 1]"),
    ],
)
def test_values_out_of_range_are_refused_by_name(field: str, value: float, rule: str) -> None:
    message = f"{field} must lie in {rule}, got {value}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        replace(LONG, **{field: value})


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16])
def test_images_too_coarse_to_resample_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=f"must be float32 or float64 .* got {dtype}"):
        view(LONG, torch.zeros(2, 3, 8, 8, dtype=dtype), seeded())


def test_images_with_one_channel_are_refused() -> None:
    with pytest.raises(ValueError, match=r"got torch.float32 of shape \(2, 1, 8, 8\)"):
        view(LONG, torch.zeros(2, 1, 8, 8), seeded())


def test_a_draw_for_another_number_of_images_is_refused() -> None:
    with pytest.raises(ValueError, match="must be drawn for 8 images, got 7"):
        apply(batch(8), drawn(LONG, 7, 16))


@pytest.mark.parametrize("k", [0, 2, 3, 5, -1])
def test_other_numbers_of_rotations_are_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k must be 1 or 4, got {k}"):
        rotations(batch(), k)


def test_oblong_images_are_not_turned() -> None:
    with pytest.raises(ValueError, match="images must be square to be turned, got 9 x 16"):
        rotations(batch()[:, :, :9])


def test_a_series_survives_json() -> None:
    assert ViewSeries(**json.loads(json.dumps(asdict(SCR)))) == SCR


def test_the_series_are_those_of_the_papers() -> None:
    names = tuple(field.name for field in fields(ViewSeries))
    assert names[:1] + names[-2:] == ("crop_min", "jitter", "grey")
    assert tuple(asdict(LONG).values()) == (0.5, 0.5, 0.4, 0.4, 0.4, 0.1, 1.0, 0.2)
    assert tuple(asdict(SHORT).values()) == (0.75, 0.0, 0.2, 0.2, 0.2, 0.05, 1.0, 0.0)
    assert tuple(asdict(SCR).values()) == (0.2, 0.5, 0.4, 0.4, 0.4, 0.1, 0.8, 0.2)
