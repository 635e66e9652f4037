from pathlib import Path

import pytest
import torch

import crate_mae
from crate_mae import UserError
from crate_mae.models.architectures import ZOO, model_config
from crate_mae.models.config import PRESETS, ModelConfig
from crate_mae.models.zoo import parameter_counts

TABLE_1 = {
    "crate_mae_small": 25_405_824,
    "crate_mae_base": 44_638_464,
    "vit_mae_small": 47_578_240,
    "vit_mae_base": 143_790_336,
    "vit_mae_base_he": 111_907_840,
}


@pytest.mark.parametrize("name", TABLE_1)
def test_table_1_s_counts(name: str) -> None:
    assert parameter_counts(name)[2] == TABLE_1[name]


def test_own_counts_have_no_dead_parameters() -> None:
    # Base, by hand: 24 layers of 3 d^2 + 5 d, two linear ends, the class token and the learned positions.
    d, pixels = 768, 16 * 16 * 3
    assert parameter_counts("crate_mae_base")[1] == 24 * (3 * d * d + 5 * d) + 2 * d * pixels + d + 196 * d


@pytest.mark.parametrize("name", ZOO)
def test_every_parameter_of_every_model_gets_a_gradient(name: str) -> None:
    model = crate_mae.create_model(name)
    images = torch.randn(1, 3, 224, 224)
    model(images, crate_mae.random_mask(1, model.num_patches, 0.75)).loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        if key.endswith("qkv.bias"):  # a shift of all keys changes no softmax
            query, _, value = parameter.grad.chunk(3)
            assert query.abs().max() > 0, key
            assert value.abs().max() > 0, key
        else:
            assert parameter.grad.abs().max() > 0, key


def test_sizes() -> None:
    sizes = {name: (c.dim, c.depth, c.decoder_depth, c.heads) for name in ZOO if (c := model_config(name))}
    assert sizes["crate_mae_tiny"] == (384, 12, 12, 6)
    assert sizes["crate_mae_small"] == (576, 12, 12, 12)
    assert sizes["crate_mae_base"] == (768, 12, 12, 12)
    assert sizes["crate_mae_large"] == (1024, 24, 24, 16)
    for size in ("tiny", "small", "base", "large"):
        visible = model_config(f"crate_mae_{size}_visible")
        assert visible == model_config(f"crate_mae_{size}", encoder_sees="visible")


def test_presets_differ_where_the_paper_and_the_code_do() -> None:
    paper, official = (model_config("crate_mae_base", preset) for preset in PRESETS)
    assert model_config("crate_mae_base") == paper
    for field, value in PRESETS["official"].items():
        assert getattr(official, field) == value
    assert (paper.masked_patch, paper.positions, paper.decoder_skip, paper.final_norms) == (
        "zero",
        "learned",
        "normed",
        False,
    )


def test_the_paper_s_masked_patch_is_its_position_alone() -> None:
    model = crate_mae.create_model("crate_mae_tiny", image_size=8, patch_size=4, dim=8, depth=1, heads=2)
    tokens = model.embed(torch.randn(1, 3, 8, 8), torch.tensor([True, False, True, False]))
    positions = model.embedding.positions.table
    torch.testing.assert_close(tokens[0, 1], positions[0])
    torch.testing.assert_close(tokens[0, 3], positions[2])
    assert not torch.allclose(tokens[0, 2], positions[1])


def test_weights_come_from_the_generator_alone() -> None:
    def build(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        model = crate_mae.create_model("crate_mae_tiny", generator=generator, image_size=32, depth=1)
        return torch.cat([parameter.flatten() for parameter in model.parameters()])

    first = build(0)
    torch.manual_seed(7)
    assert torch.equal(first, build(0))
    assert not torch.equal(first, build(1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"image_size": 30}, "patch"),
        ({"image_size": (32, 30)}, "width of 30"),
        ({"heads": 5}, "heads=5 does not divide dim=384"),
        ({"decoder_heads": 7}, "decoder_heads=7"),
        ({"depht": 3}, "did you mean depth"),
        ({"encoder_sees": "some"}, "choose one of all, visible"),
        ({"mean": (0.5,)}, "3 channels"),
        ({"std": (0.0, 1.0, 1.0)}, "std is .* from 1e-06 to 1,000,000"),
        ({"std": (1e-46, 1.0, 1.0)}, "std is .* from 1e-06"),
        ({"mean": (1e300, 0.0, 0.0)}, "mean is .* to 1,000,000"),
        ({"mean": (10**5000, 0.0, 0.0)}, "mean is .* to 1,000,000"),
        ({"mean": [10**400] * 3}, "mean is .* to 1,000,000"),
        ({"dim": 0}, "whole number"),
        ({"mean": 0.5}, "mean is 0.5; choose several numbers"),
        ({"lambda_": "0.5"}, "lambda_ is '0.5'; choose a number from 0"),
        ({"embed_bias": "no"}, "choose true or false"),
        ({"image_size": 12.0}, "image_size is 12.0; choose two whole numbers"),
        ({"image_size": None}, "image_size is None; choose two whole numbers"),
        ({"image_size": 0}, "size"),
        ({"decoder_depth": -1}, "decoder_depth"),
        ({"eta": float("inf")}, "eta"),
        ({"dim": 18, "heads": 3, "positions": "fixed"}, "learned"),
        ({"lambda_": -1.0}, "lambda_"),
        ({"norm_pix_loss": True, "patch_size": 1, "channels": 1}, "norm_pix_loss"),
        ({"image_size": "large"}, "size"),
    ],
)
def test_contradictions_get_one_sentence(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        crate_mae.create_model("crate_mae_tiny", **settings)


def test_weights_start_as_documented() -> None:
    model = crate_mae.create_model("crate_mae_tiny", image_size=32, depth=1)
    block = model.encoder.blocks[0]
    dim = 384
    for weight, bound in [(block.ista.dictionary, (6 / dim) ** 0.5), (block.mssa.subspaces, (3 / dim) ** 0.5)]:
        assert bound * 0.98 < weight.abs().max() <= bound  # uniform: Kaiming's and Xavier's bounds
    assert model.embedding.positions.table.std().item() == pytest.approx(0.02, rel=0.1)
    assert not block.mssa.output.bias.any()


def test_wrong_names_and_presets_get_one_sentence() -> None:
    with pytest.raises(UserError, match="there is no model crate_mae_huge; did you mean crate_mae_large"):
        crate_mae.create_model("crate_mae_huge")
    with pytest.raises(UserError, match="only CRATE models"):
        crate_mae.create_model("vit_mae_base", preset="official")
    with pytest.raises(UserError, match="paper, official"):
        crate_mae.create_model("crate_mae_tiny", preset="theirs")


def test_a_config_survives_json() -> None:
    for name in ZOO:
        config = model_config(name)
        assert ModelConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_any_number_of_channels_and_any_patch(channels: int) -> None:
    model = crate_mae.create_model(
        "crate_mae_tiny", image_size=(10, 6), patch_size=(5, 2), channels=channels, dim=12, depth=1, heads=3
    )
    assert model.num_patches == 6
    out = model(torch.randn(2, channels, 10, 6), torch.tensor([True, False, False, True, True, False]))
    assert out.completed.shape == (2, channels, 10, 6)


def test_an_image_size_that_fills_the_memory_is_refused(tmp_path: Path) -> None:
    folder = crate_mae.create_model("crate_mae_tiny", depth=1, dim=24, heads=3, image_size=32).save(tmp_path / "model")
    with pytest.raises(UserError, match=r"makes 3,906,250,000 patches; choose a size that makes at most 262,144"):
        crate_mae.load(folder, image_size=1_000_000)
    assert crate_mae.load(folder, image_size=64).num_patches == 16
