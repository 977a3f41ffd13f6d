import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oclgrid.trainables.network import Backbone, Block, DualBackbone, Features, feature_size, mlp


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def images(count: int = 2, side: int = 16) -> Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def test_the_backbone_has_1093140_parameters() -> None:
    assert parameters(Backbone()) == 1_093_140


@pytest.mark.parametrize(("classes", "count"), [(10, 1_094_750), (100, 1_109_240)])
def test_the_backbone_with_a_classifier_has_the_references_size(classes: int, count: int) -> None:
    assert parameters(Backbone()) + parameters(nn.Linear(160, classes)) == count


def test_no_convolution_has_a_bias() -> None:
    convolutions = [m for m in Backbone().modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 1 + 2 * 8 + 3
    assert all(m.bias is None for m in convolutions)


@pytest.mark.parametrize(
    ("pool", "side", "size"),
    [
        ("global", 16, 160),
        ("global", 32, 160),
        ("global", 84, 160),
        ("grid", 16, 160),
        ("grid", 32, 160),
        ("grid", 84, 640),
    ],
)
@torch.inference_mode()
def test_features_have_the_stated_size(pool: str, side: int, size: int) -> None:
    assert feature_size(side, pool) == size
    assert Backbone(pool=pool).eval()(images(1, side)).shape == (1, size)


@torch.inference_mode()
def test_both_poolings_agree_at_32() -> None:
    whole, grid = Backbone().eval(), Backbone(pool="grid").eval()
    grid.load_state_dict(whole.state_dict())
    assert torch.allclose(whole(images(2, 32)), grid(images(2, 32)), atol=1e-6)


@pytest.mark.parametrize("kind", [Backbone, DualBackbone])
@torch.inference_mode()
def test_shorter_numbers_change_features_by_their_rounding(kind: type[Features]) -> None:
    long, short = kind().eval(), kind(precision="bfloat16").eval()
    short.load_state_dict(long.state_dict())
    expected, found = long(images(4, 32)), short(images(4, 32))
    assert found.dtype == torch.float32
    gap = (found - expected).norm() / expected.norm()
    assert 1e-5 < gap < 2e-2  # eight bits of fraction, rounded in some twenty layers


@torch.inference_mode()
def test_maps_shrink_by_eight_without_a_pooling_stem() -> None:
    backbone = Backbone().eval()
    assert backbone.stem(images(1, 84)).shape == (1, 20, 84, 84)
    assert backbone.blocks(backbone.stem(images(1, 84))).shape == (1, 160, 11, 11)


@pytest.mark.parametrize("training", [True, False])
@torch.inference_mode()
def test_features_are_never_negative(training: bool) -> None:
    features = Backbone().train(training)(images(4))
    assert (features >= 0).all()
    assert (features > 0).any()


@torch.inference_mode()
def test_a_block_is_two_convolutions_and_a_shortcut() -> None:
    block, x = Block(3, 5, 2).eval(), images()
    inner = block.conv2(F.relu(block.bn1(block.conv1(x))))
    around = block.shortcut[1](block.shortcut[0](x))
    assert torch.equal(block(x), F.relu(block.bn2(inner) + around))


@torch.inference_mode()
def test_a_block_that_keeps_its_shape_has_a_plain_shortcut() -> None:
    block, x = Block(3, 3, 1).eval(), images()
    nn.init.zeros_(block.conv2.weight)
    assert torch.allclose(block(x), x)


@pytest.mark.parametrize(
    ("sizes", "count"),
    [((160, 160, 128), 46_368), ((640, 640, 128), 492_288), ((128, 128, 128), 33_024)],
)
def test_heads_have_their_published_size(sizes: tuple[int, int, int], count: int) -> None:
    assert parameters(mlp(*sizes)) == count


def test_a_head_has_batchnorm_only_when_asked() -> None:
    assert not any(isinstance(m, nn.BatchNorm1d) for m in mlp(4, 3, 2))
    assert [type(m) for m in mlp(4, 3, 2, norm=True)] == [
        nn.Linear,
        nn.BatchNorm1d,
        nn.ReLU,
        nn.Linear,
    ]


@torch.inference_mode()
def test_a_head_is_two_layers_with_a_rectifier_between() -> None:
    head, x = mlp(4, 3, 2), torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    first, last = head[0], head[-1]
    hidden = (x @ first.weight.T + first.bias).clamp(min=0)
    assert torch.allclose(head(x), hidden @ last.weight.T + last.bias, atol=1e-6)


@pytest.mark.parametrize(
    ("mean", "std"),
    [((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)), ((0.0, 0.0, 0.0), (0.2, 0.3, 0.4))],
    ids=["mean and std", "std alone"],
)
@torch.inference_mode()
def test_inputs_are_standardised_by_channel(
    mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    plain, standard = Backbone().eval(), Backbone(mean=mean, std=std).eval()
    standard.load_state_dict({**plain.state_dict(), "mean": standard.mean, "std": standard.std})
    x = images()
    by_hand = torch.stack([(x[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    assert torch.allclose(standard(x), plain(by_hand), atol=1e-6)


@torch.inference_mode()
def test_inputs_are_left_alone_by_default() -> None:
    backbone, x = Backbone().eval(), images()
    by_hand = backbone.blocks(F.relu(backbone.bn(backbone.stem(x)))).mean(dim=(2, 3))
    assert torch.equal(backbone(x), by_hand)
