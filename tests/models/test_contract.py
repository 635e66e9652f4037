"""What every model of every family does, whatever its encoder sees."""

import copy
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor

import crate_mae
from crate_mae import MaskedAutoencoder, UserError
from crate_mae.tokens import normalise_patches, patchify, unpatchify

N, D = 12, 4 * 6 * 3


def masks(model: MaskedAutoencoder, batch: int = 3, ratio: float = 0.75) -> Tensor:
    return crate_mae.random_mask(batch, model.num_patches, ratio, generator=torch.Generator().manual_seed(5))


UNEQUAL = torch.zeros(3, N, dtype=torch.bool)
UNEQUAL[0, :11] = True
UNEQUAL[1, ::2] = True
UNEQUAL[2, 3] = True


def test_shapes(model: MaskedAutoencoder, images: Tensor) -> None:
    out = model(images, masks(model))
    assert out.loss.shape == ()
    assert out.prediction.shape == (3, N, D)
    assert out.completed.shape == images.shape
    assert model.num_patches == N
    assert model.encode(images).shape == (3, 1 + N, 16)
    visible = 3 if model.config.encoder_sees == "visible" else N
    assert model.encode(images, masks(model)).shape == (3, 1 + visible, 16)


def test_the_loss_is_the_mean_over_masked_patches_alone(model: MaskedAutoencoder, images: Tensor) -> None:
    mask = UNEQUAL
    out = model(images, mask)
    target = patchify(images, (4, 6))
    target = normalise_patches(target) if model.config.norm_pix_loss else target
    errors = [(out.prediction[b, n] - target[b, n]).square().mean() for b in range(3) for n in range(N) if mask[b, n]]
    torch.testing.assert_close(out.loss, torch.stack(errors).mean())


def test_masked_pixels_never_reach_the_prediction(model: MaskedAutoencoder, images: Tensor) -> None:
    mask = masks(model)
    hidden = patchify(images, (4, 6)).clone()
    hidden[mask] += 100
    changed = unpatchify(hidden, (4, 6), (3, 4))
    torch.testing.assert_close(model(changed, mask).prediction, model(images, mask).prediction)
    visible = patchify(images, (4, 6)).clone()
    visible[~mask] += 1
    moved = unpatchify(visible, (4, 6), (3, 4))
    assert not torch.allclose(model(moved, mask).prediction, model(images, mask).prediction)


def test_unequal_counts_equal_the_one_by_one_result(model: MaskedAutoencoder, images: Tensor) -> None:
    model, images = model.double(), images.double()  # in float32, processors differ by more than the tolerance
    together = model(images, UNEQUAL)
    for i in range(3):
        alone = model(images[i : i + 1], UNEQUAL[i : i + 1])
        torch.testing.assert_close(together.prediction[i : i + 1], alone.prediction)
    visible = 1 + (~UNEQUAL).sum(1) if model.config.encoder_sees == "visible" else torch.tensor([1 + N] * 3)
    latents = model.encode(images, UNEQUAL)
    for i in range(3):
        alone = model.encode(images[i : i + 1], UNEQUAL[i])
        torch.testing.assert_close(latents[i, : visible[i]], alone[0])


def test_encode_then_decode_is_the_prediction(model: MaskedAutoencoder, images: Tensor) -> None:
    latent = model.encode(images, UNEQUAL)
    torch.testing.assert_close(model.decode(latent, UNEQUAL), model(images, UNEQUAL).prediction)


def test_one_mask_serves_all_images(model: MaskedAutoencoder, images: Tensor) -> None:
    mask = UNEQUAL[1]
    torch.testing.assert_close(model(images, mask).prediction, model(images, mask.expand(3, -1)).prediction)


def test_completed_keeps_what_is_visible(model: MaskedAutoencoder, images: Tensor) -> None:
    mask = masks(model)
    out = model(images, mask)
    for completed in (out.completed, out.completed_blind):
        patches = patchify(completed, (4, 6))
        assert torch.equal(patches[~mask], patchify(images, (4, 6))[~mask])
        assert not torch.allclose(patches[mask], patchify(images, (4, 6))[mask])
    if not model.config.norm_pix_loss:
        assert torch.equal(patchify(out.completed, (4, 6))[mask], out.prediction[mask])


def test_with_nothing_masked_the_completion_is_the_image(model: MaskedAutoencoder, images: Tensor) -> None:
    out = model(images, torch.zeros(N, dtype=torch.bool))
    assert torch.equal(out.completed, images)
    assert out.loss == 0


def test_encode_is_deterministic_and_masks_nothing(model: MaskedAutoencoder, images: Tensor) -> None:
    first = model.encode(images)
    torch.manual_seed(99)
    assert torch.equal(first, model.encode(images))
    torch.testing.assert_close(first, model.encode(images, torch.zeros(N, dtype=torch.bool)))
    with torch.no_grad():
        torch.testing.assert_close(first, model.encode(images))


def test_steps_agree_with_forward(model: MaskedAutoencoder, images: Tensor) -> None:
    for stack, tokens, depth in [
        (model.encoder, model.embed(images), 2),
        (model.decoder, torch.randn(3, 1 + N, model.config.decoder_dim), 3),
    ]:
        steps = list(stack.steps(tokens))
        assert len(steps) == depth
        half, code, last = steps[-1]
        assert half.shape == last.shape == tokens.shape
        assert code.shape[:2] == tokens.shape[:2]
        torch.testing.assert_close(stack.norm(last), stack(tokens))


def test_the_code_is_sparse_in_a_white_box_encoder_alone(model: MaskedAutoencoder, images: Tensor) -> None:
    for step in model.encoder_steps(images):
        share = (step.code == 0).float().mean()
        assert share > 0.1 if model.config.family == "crate" else share == 0
        if model.config.family == "crate" and model.config.encoder_skip == "none":
            assert step.tokens is step.code
        else:
            assert (step.tokens == 0).float().mean() < 0.01


def test_a_masked_pass_can_be_watched_too(model: MaskedAutoencoder, images: Tensor) -> None:
    *_, (_, _, last) = model.encoder_steps(images, UNEQUAL)
    torch.testing.assert_close(model.encoder.norm(last), model.encode(images, UNEQUAL))
    *_, (_, _, last) = model.decoder_steps(images, UNEQUAL)
    prediction = model.pixels(model.decoder.norm(last)[:, 1:])
    torch.testing.assert_close(prediction, model(images, UNEQUAL).prediction)
    *_, (_, _, last) = model.encoder_steps(images)
    torch.testing.assert_close(model.encoder.norm(last), model.encode(images))


def test_tokens_that_do_not_fit_the_mask_get_one_sentence(model: MaskedAutoencoder, images: Tensor) -> None:
    latent = model.encode(images, UNEQUAL)[:, :-1]
    with pytest.raises(UserError, match="do not fit"):
        model.decode(latent, UNEQUAL)


def test_features_by_layer_and_pool(model: MaskedAutoencoder, images: Tensor) -> None:
    embedding = model.embed(images)
    fulls = [step.tokens for step in model.encoder.steps(embedding)]
    by_layer = {0: embedding, 1: fulls[0], 2: fulls[1], -1: model.encode(images), -2: fulls[0], -3: embedding}
    for layer, tokens in by_layer.items():
        torch.testing.assert_close(model.features(images, layer, "cls"), tokens[:, 0])
        torch.testing.assert_close(model.features(images, layer), tokens[:, 1:].mean(1))
        grid = model.features(images, layer, "grid")
        assert grid.shape == (3, 16, 3, 4)
        torch.testing.assert_close(grid[:, :, 2, 1], tokens[:, 1 + 2 * 4 + 1])
    for wrong in (3, -4):
        with pytest.raises(UserError, match="layer"):
            model.features(images, wrong)


def test_attention_maps(model: MaskedAutoencoder, images: Tensor) -> None:
    for layer in (1, 2, -1):
        maps = model.attention(images, layer)
        assert maps.shape == (3, 4, 1 + N, 1 + N)
        torch.testing.assert_close(maps.sum(-1), torch.ones(3, 4, 1 + N))
    assert torch.equal(model.attention(images, -2), model.attention(images, 1))
    assert not torch.allclose(model.attention(images, 1), model.attention(images, 2))
    seen = model.attention(images, 1, UNEQUAL)
    torch.testing.assert_close(seen.sum(-1), torch.ones(seen.shape[:-1]))
    tokens = torch.randn(1, 1 + N, model.config.decoder_dim)
    assert model.decoder.attention(tokens, 1).shape == (1, 2, 1 + N, 1 + N)
    for wrong in (0, 3, -3):
        with pytest.raises(UserError, match="layer"):
            model.attention(images, wrong)


def test_every_parameter_gets_a_gradient(model: MaskedAutoencoder, images: Tensor) -> None:
    model(images, masks(model)).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_a_checkpoint_gives_the_same_model_back(model: MaskedAutoencoder, images: Tensor, tmp_path: Path) -> None:
    model.save(tmp_path / "checkpoint")
    loaded = crate_mae.load(tmp_path / "checkpoint")
    assert isinstance(loaded, MaskedAutoencoder)
    assert loaded.config == model.config
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert torch.equal(loaded(images, masks(model)).prediction, model(images, masks(model)).prediction)


def test_another_image_size_interpolates_the_positions(model: MaskedAutoencoder, tmp_path: Path) -> None:
    model.save(tmp_path / "checkpoint")
    larger = crate_mae.load(tmp_path / "checkpoint", image_size=(24, 24))
    images = torch.randn(2, 3, 24, 24)
    assert larger.num_patches == 24
    assert larger(images, masks(larger, 2)).prediction.shape == (2, 24, D)
    same = crate_mae.load(tmp_path / "checkpoint", image_size=(12, 24))
    for name, tensor in model.state_dict().items():
        assert torch.equal(same.state_dict()[name], tensor)


@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_a_classifier_starts_from_the_encoder(
    model: MaskedAutoencoder, images: Tensor, pool: str, tmp_path: Path
) -> None:
    classifier = crate_mae.Classifier.on(model, ["cat", "dog", "horse"], pool=pool)
    torch.testing.assert_close(classifier.encode(images), model.encode(images))
    logits = classifier(images)
    z = model.features(images, pool=pool)
    normed = z if model.config.final_norms else torch.nn.functional.layer_norm(z, (16,), eps=1e-6)
    torch.testing.assert_close(logits, normed @ classifier.head.weight.T)
    logits.logsumexp(-1).sum().backward()
    for name, parameter in classifier.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    loaded = crate_mae.load(classifier.save(tmp_path))
    assert loaded.class_names == ("cat", "dog", "horse")
    assert loaded.pool == pool
    assert torch.equal(loaded(images), logits)


@pytest.mark.parametrize("shape", [(3, 12, 24), (1, 3, 24, 12), (1, 1, 12, 24)])
def test_images_of_another_shape_get_one_sentence(model: MaskedAutoencoder, shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="preprocess"):
        model.encode(torch.randn(shape))


def test_no_images_and_another_precision_get_one_sentence(model: MaskedAutoencoder) -> None:
    with pytest.raises(UserError, match="preprocess"):
        model(torch.randn(0, 3, 12, 24), torch.zeros(N, dtype=torch.bool))
    with pytest.raises(UserError, match="float64"):
        model.encode(torch.randn(1, 3, 12, 24).double())


def test_copies_and_other_precisions_work(model: MaskedAutoencoder, images: Tensor) -> None:
    with torch.no_grad():
        expected = model.encode(images)
        torch.testing.assert_close(copy.deepcopy(model).encode(images), expected)
        torch.testing.assert_close(pickle.loads(pickle.dumps(model)).encode(images), expected)
        double = copy.deepcopy(model).double().encode(images.double())
    torch.testing.assert_close(double.float(), expected, rtol=1e-4, atol=1e-4)


def test_the_meta_device_counts_without_memory(model: MaskedAutoencoder) -> None:
    with torch.device("meta"):
        ghost = MaskedAutoencoder(model.config)
        assert ghost.encode(torch.empty(2, 3, 12, 24)).shape == (2, 1 + N, 16)
    assert all(tensor.is_meta for tensor in ghost.state_dict().values())
    assert ghost.num_parameters == model.num_parameters


def test_integer_images_get_one_sentence(model: MaskedAutoencoder) -> None:
    with pytest.raises(UserError, match="float"):
        model.encode(torch.zeros(1, 3, 12, 24, dtype=torch.uint8))
