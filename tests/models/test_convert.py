import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

import crate_mae
from crate_mae import ImageEncoder, MaskedAutoencoder, UserError
from crate_mae.models.layouts import official_pairs
from tests.conftest import SHARED, small_model
from tests.models import official_reference

OWN = Path(__file__).parents[1] / "fixtures" / "official_tiny.safetensors"
GOLDEN = SHARED / "golden" / "official_crate_mae_tiny.safetensors"
close = {"rtol": 1e-5, "atol": 1e-5}


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        config = json.loads(file.metadata()["config"])
    parts = [
        {name.removeprefix(p): t for name, t in tensors.items() if name.startswith(p)} for p in ("weights.", "io.")
    ]
    return parts[0], parts[1], config


def imported(weights: dict[str, Tensor], config: dict[str, Any]) -> MaskedAutoencoder:
    names = ("image_size", "heads", "lambda_", "eta", "norm_pix_loss")
    return crate_mae.from_official(weights, **{name: config[name] for name in names})


# --- the authors' layout ---


def test_own_golden_file() -> None:
    weights, io, config = read(OWN)
    model = imported(weights, config)
    out = model(io["images"], io["mask"])
    torch.testing.assert_close(out.loss, io["loss"], **close)
    torch.testing.assert_close(out.prediction, io["prediction"], **close)
    torch.testing.assert_close(model.encode(io["images"], io["mask"]), io["latent"], **close)
    for label, tokens in [
        ("layer", model.embed(io["images"], io["mask"])),
        ("unmasked_layer", model.embed(io["images"])),
    ]:
        for i, step in enumerate(model.encoder.steps(tokens)):
            torch.testing.assert_close(step.tokens, io[f"{label}.{i}"], **close)
    torch.testing.assert_close(model.encode(io["images"]), io["unmasked_features"], **close)
    torch.testing.assert_close(model.attention(io["images"]), io["unmasked_layer.attention"], **close)
    out.loss.backward()
    torch.testing.assert_close(model.encoder.blocks[0].ista.dictionary.grad, io["grad.ista"], **close)
    torch.testing.assert_close(model.encoder.blocks[0].mssa.subspaces.grad, io["grad.qkv"], **close)


@pytest.mark.skipif(not GOLDEN.is_file(), reason="the authors' golden tensors are not beside the checkout")
def test_the_authors_golden_file() -> None:
    weights, io, config = read(GOLDEN)
    model = imported(weights, config)
    mask = io["mask"].bool()
    out = model(io["images"], mask)
    torch.testing.assert_close(out.loss, io["loss"][0], **close)
    torch.testing.assert_close(out.prediction, io["pred"], **close)
    torch.testing.assert_close(model.encode(io["images"], mask), io["latent"], **close)
    for i, step in enumerate(model.encoder.steps(model.embed(io["images"]))):
        torch.testing.assert_close(step.tokens, io[f"unmasked_layer.{i}"], **close)
        torch.testing.assert_close(model.features(io["images"], i + 1, "cls"), io[f"unmasked_layer.{i}"][:, 0], **close)
    torch.testing.assert_close(model.encode(io["images"]), io["unmasked_features"], **close)
    torch.testing.assert_close(model.attention(io["images"]), io["unmasked_last_layer_attention"], **close)
    out.loss.backward()
    torch.testing.assert_close(model.encoder.blocks[0].ista.dictionary.grad, io["grad.blocks.0.ista"], **close)
    torch.testing.assert_close(model.encoder.blocks[0].mssa.subspaces.grad, io["grad.blocks.0.qkv"], **close)
    back = model.to_official()
    assert back.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(back[name], torch.zeros_like(tensor) if name.startswith("decoder_embed") else tensor), name


@pytest.mark.skipif(not GOLDEN.is_file(), reason="the authors' golden tensors are not beside the checkout")
def test_the_reference_of_the_own_file_is_right() -> None:
    weights, io, config = read(GOLDEN)
    exact = {name: value.double() for name, value in weights.items()}
    outputs = official_reference.run(exact, io["images"].double(), io["mask"].bool(), config)
    torch.testing.assert_close(outputs["loss"].float(), io["loss"][0], **close)
    torch.testing.assert_close(outputs["prediction"].float(), io["pred"], **close)
    torch.testing.assert_close(outputs["unmasked_features"].float(), io["unmasked_features"], **close)


@pytest.mark.parametrize("norm_pix_loss", [False, True])
def test_random_models_against_the_reference(norm_pix_loss: bool) -> None:
    model = crate_mae.create_model(
        "crate_mae_tiny", "official", image_size=8, patch_size=2, dim=24, depth=3, heads=3, norm_pix_loss=norm_pix_loss
    )
    model = model.double()
    images, mask = torch.randn(2, 3, 8, 8).double(), crate_mae.random_mask(2, 16, 0.6)
    config = {"patch_size": 2, "depth": 3, "heads": 3, "lambda_": 0.5, "eta": 0.1, "norm_pix_loss": norm_pix_loss}
    expected = official_reference.run(model.to_official(), images, mask, config)
    out = model(images, mask)
    torch.testing.assert_close(out.prediction, expected["prediction"])
    torch.testing.assert_close(out.loss, expected["loss"])


def test_to_official_returns_every_used_tensor_bit_for_bit() -> None:
    weights, _, config = read(OWN)
    back = imported(weights, config).to_official()
    assert back.keys() == weights.keys()
    for name in weights.keys() - {"pos_embed", "decoder_embed.weight", "decoder_embed.bias"}:
        assert torch.equal(back[name], weights[name]), name
    assert torch.equal(back["pos_embed"], weights["decoder_pos_embed"])
    assert not back["decoder_embed.weight"].any()
    assert not back["decoder_embed.bias"].any()


def test_a_single_head_has_no_output_map_in_their_layout_either() -> None:
    model = crate_mae.create_model("crate_mae_tiny", "official", image_size=8, patch_size=4, dim=8, depth=1, heads=1)
    weights = model.to_official()
    assert not any("to_out" in name for name in weights)
    again = crate_mae.from_official(weights)
    images, mask = torch.randn(1, 3, 8, 8), torch.tensor([True, False, True, True])
    assert torch.equal(again(images, mask).prediction, model(images, mask).prediction)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("encoder_sees", "visible"),
        ("masked_patch", "zero"),
        ("embed_bias", False),
        ("pixel_bias", False),
        ("positions", "learned"),
        ("decoder_map", True),
        ("final_norms", False),
        ("norm_eps", 1e-6),
        ("final_norm_eps", 1e-5),
        ("decoder_skip", "normed"),
        ("mssa", "tied"),
        ("decoder_dim", 24),
        ("decoder_heads", 8),
        ("channels", 1),
        ("image_size", (8, 12)),
        ("patch_size", (4, 2)),
    ],
)
def test_what_their_layout_can_t_hold_is_named(field: str, value: Any) -> None:
    fits = {"image_size": 12, "patch_size": 4, "decoder_heads": 4}
    assert small_model("crate_mae_tiny", preset="official", **fits).to_official()
    model = small_model("crate_mae_tiny", preset="official", **(fits | {field: value}))
    with pytest.raises(UserError, match=field):
        model.to_official()


def test_a_vit_is_not_the_authors_crate() -> None:
    with pytest.raises(UserError, match="family"):
        small_model("vit_mae_base").to_official()


# --- sources ---


@pytest.fixture
def official() -> tuple[dict[str, Tensor], Tensor]:
    weights, io, _ = read(OWN)
    return weights, io["images"]


def test_files_and_wrapped_checkpoints(official: tuple[dict[str, Tensor], Tensor], tmp_path: Path) -> None:
    weights, images = official
    expected = crate_mae.from_official(weights, heads=4).encode(images)
    prefixed = {f"module.{name}": tensor for name, tensor in weights.items()}
    arguments = argparse.Namespace(lr=1e-3, model="mae_crate_tiny", betas=[0.9, 0.95])
    contents = {
        "bare.pth": weights,
        "model.pth": {"model": weights, "epoch": 3, "args": arguments, "optimizer": {"state": {}}},
        "state_dict.pt": {"state_dict": prefixed},
        "module.pth": {"model": prefixed},
        "twice.pth": {"state_dict": {"model": weights}},
    }
    for name, content in contents.items():
        torch.save(content, tmp_path / name)
        for source in (tmp_path / name, str(tmp_path / name)):
            assert torch.equal(crate_mae.from_official(source, heads=4).encode(images), expected)


class Evil:
    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("loader", [crate_mae.from_official, crate_mae.from_vit_mae])
def test_a_malicious_file_is_refused_and_never_run(loader: Any, tmp_path: Path) -> None:
    torch.save({"model": {"x": torch.zeros(1)}, "args": Evil(tmp_path / "owned")}, tmp_path / "evil.pth")
    with pytest.raises(UserError, match="no code in it was run"):
        loader(tmp_path / "evil.pth")
    assert not (tmp_path / "owned").exists()


def test_bad_sources_get_one_sentence(official: tuple[dict[str, Tensor], Tensor], tmp_path: Path) -> None:
    weights, _ = official
    torch.save(weights, tmp_path / "whole.pth")
    data = (tmp_path / "whole.pth").read_bytes()
    (tmp_path / "truncated.pth").write_bytes(data[: len(data) // 2])
    (tmp_path / "empty.pth").touch()
    (tmp_path / "text.pth").write_text("hello")
    (tmp_path / "cut.safetensors").write_bytes(OWN.read_bytes()[:500])
    torch.save([1, 2], tmp_path / "list.pth")
    (tmp_path / "legacy.pth").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.")
    bad = ("truncated.pth", "empty.pth", "text.pth", "cut.safetensors", "list.pth", "missing.pth", "legacy.pth")
    for name in bad:
        with pytest.raises(UserError, match=name):
            crate_mae.from_official(tmp_path / name)
    for odd in ({1: torch.zeros(1)}, {"x": torch.eye(2).to_sparse()}, {}, {"model": 3}):
        with pytest.raises(UserError, match="no state dict"):
            crate_mae.from_official(odd)
    for name in ("cls_token", "mask_token", "norm.weight", "blocks.0.layers.0.1.fn.weight"):
        with pytest.raises(UserError, match="does not match this model"):
            crate_mae.from_official(weights | {name: torch.tensor(1.0)}, heads=4)
    with pytest.raises(UserError, match="does not match this model"):  # and no model with that many layers is built
        crate_mae.from_official(weights | {"blocks.99999999999.layers.0.1.fn.weight": torch.eye(16)}, heads=4)
    with pytest.raises(UserError, match="heads="):
        crate_mae.from_official(weights)
    with pytest.raises(UserError, match="does not match this model"):
        crate_mae.from_vit_mae(weights)
    with pytest.raises(UserError, match="does not match this model"):
        crate_mae.from_official(weights | {"surplus": torch.zeros(1)}, heads=4)
    del weights["blocks.1.layers.0.1.fn.weight"]
    with pytest.raises(UserError, match=r"lacks 1 tensors, encoder\.blocks\.1\.ista\.dictionary"):
        crate_mae.from_official(weights, heads=4)


def test_an_encoder_only_file_gives_an_encoder_and_says_so(official: tuple[dict[str, Tensor], Tensor]) -> None:
    weights, images = official
    expected = crate_mae.from_official(weights, heads=4).encode(images)
    weights["pos_embed"] = weights["decoder_pos_embed"]
    encoder = {name: tensor for name, tensor in weights.items() if not name.startswith(("decoder", "mask_token"))}
    with pytest.warns(UserWarning, match="encoder without a decoder"):
        model = crate_mae.from_official(encoder, heads=4)
    assert isinstance(model, ImageEncoder)
    assert torch.equal(model.encode(images), expected)


def test_image_size_names_an_oblong_or_interpolates() -> None:
    def oblong(image_size: tuple[int, int]) -> tuple[MaskedAutoencoder, dict[str, Tensor]]:
        model = crate_mae.create_model(
            "crate_mae_tiny", "official", image_size=image_size, patch_size=4, dim=8, depth=1, heads=2
        )
        own = model.state_dict()
        return model, {pair.theirs: pair.out(own[pair.ours], model.config) for pair in official_pairs(model.config)}

    model, weights = oblong((8, 16))
    with pytest.raises(UserError, match="not a square number"):
        crate_mae.from_official(weights, heads=2)
    assert crate_mae.from_official(weights, heads=2, image_size=(8, 16)).config == model.config
    # 2 x 8 patches are as many as 4 x 4: the table itself tells which they are.
    model, weights = oblong((8, 32))
    again = crate_mae.from_official(weights, heads=2, image_size=(8, 32))
    assert torch.equal(again.embedding.positions.table, model.embedding.positions.table)
    _, weights = oblong((16, 16))
    stretched = crate_mae.from_official(weights, heads=2, image_size=(8, 32))
    assert not torch.equal(stretched.embedding.positions.table, weights["decoder_pos_embed"][0])
    square = crate_mae.create_model("crate_mae_tiny", "official", image_size=8, patch_size=4, dim=8, depth=1, heads=2)
    larger = crate_mae.from_official(square.to_official(), heads=2, image_size=(16, 12))
    assert larger.config.image_size == (16, 12)
    assert larger.encode(torch.randn(1, 3, 16, 12)).shape == (1, 13, 8)


# --- ViT-MAE ---


@pytest.fixture(scope="module")
def transformers() -> Any:
    import crate_mae.torchvision_fix  # noqa: F401 (torchvision first: transformers can't import it by itself here)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


def vit_mae(transformers: Any, **settings: Any) -> nn.Module:
    config = transformers.ViTMAEConfig(
        **{
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "image_size": 16,
            "patch_size": 4,
            "decoder_hidden_size": 24,
            "decoder_num_hidden_layers": 3,
            "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 36,
        }
        | settings
    )
    model = transformers.ViTMAEForPreTraining(config).eval()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in model.parameters():  # biases, norms and tables too
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm_pix_loss": True},
        {"qkv_bias": False},
        {"layer_norm_eps": 1e-3},
        {"decoder_hidden_size": 32, "decoder_intermediate_size": 48},
    ],
)
def test_our_vit_mae_equals_transformers(transformers: Any, settings: dict[str, Any]) -> None:
    theirs = vit_mae(transformers, **settings)
    ours = crate_mae.from_vit_mae(theirs)
    images, noise = torch.randn(3, 3, 16, 16), torch.rand(3, 16)
    with torch.no_grad():
        expected = theirs(images, noise=noise)
        encoded = theirs.vit(images, noise=noise)
        mask = expected.mask.bool()
        out = ours(images, mask)
        latent = ours.encode(images, mask)
    torch.testing.assert_close(out.loss, expected.loss, **close)
    torch.testing.assert_close(out.prediction, expected.logits, **close)
    visible = encoded.ids_restore.argsort(1)[:, :4]  # their order of the visible patches
    order = visible.argsort(1)[..., None].expand(-1, -1, 32)
    torch.testing.assert_close(latent[:, 1:], encoded.last_hidden_state[:, 1:].gather(1, order), **close)
    torch.testing.assert_close(latent[:, 0], encoded.last_hidden_state[:, 0], **close)


def test_an_activation_that_is_not_ours_is_named(transformers: Any) -> None:
    with pytest.raises(UserError, match="relu"):
        crate_mae.from_vit_mae(vit_mae(transformers, hidden_act="relu"))


def test_odd_widths_of_the_mlp_are_kept(transformers: Any) -> None:
    theirs = vit_mae(
        transformers, hidden_size=148, intermediate_size=246, decoder_hidden_size=148, decoder_intermediate_size=246
    )
    assert crate_mae.from_vit_mae(theirs).encoder.blocks[0].mlp[0].out_features == 246


def test_saved_transformers_models_and_their_encoders(transformers: Any, tmp_path: Path) -> None:
    theirs = vit_mae(transformers)
    images, mask = torch.randn(2, 3, 16, 16), crate_mae.random_mask(2, 16, 0.5)
    expected = crate_mae.from_vit_mae(theirs)(images, mask).prediction
    theirs.save_pretrained(tmp_path)
    torch.testing.assert_close(crate_mae.from_vit_mae(tmp_path)(images, mask).prediction, expected)
    beside = crate_mae.from_vit_mae(tmp_path / "model.safetensors")  # finds the configuration next to it
    torch.testing.assert_close(beside(images, mask).prediction, expected)
    parallel = crate_mae.from_vit_mae(nn.DataParallel(theirs))
    torch.testing.assert_close(parallel(images, mask).prediction, expected)
    bare = crate_mae.from_vit_mae(theirs.state_dict(), heads=4, decoder_heads=2)
    torch.testing.assert_close(bare(images, mask).prediction, expected)
    with pytest.warns(UserWarning, match="encoder without a decoder"):
        encoder = crate_mae.from_vit_mae(theirs.vit)
    torch.testing.assert_close(encoder.encode(images), crate_mae.from_vit_mae(theirs).encode(images))


def test_he_et_al_s_layout_round_trip(tmp_path: Path) -> None:
    from crate_mae.models.layouts import mae_pairs

    model = small_model("vit_mae_base_he", image_size=12, patch_size=4, decoder_dim=32)
    own = model.state_dict()
    weights = {pair.theirs: pair.out(own[pair.ours], model.config) for pair in mae_pairs(model.config)}
    torch.save({"model": weights, "args": argparse.Namespace(mask_ratio=0.75)}, tmp_path / "mae.pth")
    again = crate_mae.from_vit_mae(tmp_path / "mae.pth", heads=4, decoder_heads=2)
    images, mask = torch.randn(2, 3, 12, 12), crate_mae.random_mask(2, 9, 0.5)
    assert torch.equal(again(images, mask).prediction, model(images, mask).prediction)
    encoder = {name: tensor for name, tensor in weights.items() if not name.startswith(("decoder", "mask"))}
    with pytest.warns(UserWarning, match="encoder without a decoder"):
        alone = crate_mae.from_vit_mae(encoder, heads=4)
    assert torch.equal(alone.encode(images), model.encode(images))


def test_the_tables_name_every_tensor_once() -> None:
    model = small_model("crate_mae_tiny", preset="official")
    pairs = official_pairs(model.config)
    assert {pair.ours for pair in pairs} == model.state_dict().keys()
    assert len({pair.theirs for pair in pairs}) == len(pairs)
