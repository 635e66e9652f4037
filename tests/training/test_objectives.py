from dataclasses import replace

import pytest
import torch
from torch import Tensor

from crate_mae.errors import UserError
from crate_mae.models.classifier import Classifier
from crate_mae.tokens import random_mask
from crate_mae.training.loop import seed_step
from crate_mae.training.objectives import Classifying, Completing, drop_path
from tests.conftest import small_model

NAMES = ["a", "b", "c", "d"]
LABELS = torch.tensor([0, 1, 2, 3, 1, 1])


def classifier(name: str = "crate_mae_tiny", **overrides: object) -> Classifier:
    return Classifier.on(small_model(name, **overrides), NAMES, torch.Generator().manual_seed(4)).double()


@pytest.fixture
def six() -> Tensor:
    return torch.randn(6, 3, 12, 24, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """- sum_c t_c log p_c, the mean over the batch."""
    return -(targets * scores.log_softmax(-1)).sum(-1).mean()


def test_mixup_is_cross_entropy_on_mixed_pictures_and_labels(six: Tensor) -> None:
    objective = Classifying(classifier(), mixup=0.8).train()
    torch.manual_seed(7)
    loss = objective(six, LABELS)
    torch.manual_seed(7)
    share = torch.distributions.Beta(0.8, 0.8).sample().item()
    partner = torch.randperm(6)
    assert 0.02 < share < 0.98
    assert (partner != torch.arange(6)).any()
    one_hot = torch.eye(4, dtype=torch.float64)[LABELS]
    mixed = torch.stack([share * six[i] + (1 - share) * six[int(partner[i])] for i in range(6)])
    targets = torch.stack([share * one_hot[i] + (1 - share) * one_hot[int(partner[i])] for i in range(6)])
    torch.testing.assert_close(loss, cross_entropy(objective.model(mixed), targets))


def test_the_share_of_mixup_is_of_the_beta_distribution() -> None:
    objective = Classifying(classifier(depth=1), mixup=0.3).train()
    seen: list[float] = []
    objective.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0][0, 0, 0, 0].item()))
    objective.model.encoder = torch.nn.Identity()  # only what enters is looked at
    pair = torch.stack([torch.zeros(3, 12, 24), torch.ones(3, 12, 24)]).double()
    for _ in range(600):
        objective(pair, LABELS[:2])
    # The first picture stays 0 where the permutation is the identity; else it is 1 - share, of variance 1/(4 (2a + 1)).
    moved = torch.tensor([value for value in seen if value > 0])
    assert len(moved) == pytest.approx(300, abs=60)
    assert moved.mean().item() == pytest.approx(0.5, abs=0.1)
    assert moved.var().item() == pytest.approx(1 / (4 * 1.6), abs=0.03)


def test_label_smoothing_by_hand(six: Tensor) -> None:
    objective = Classifying(classifier(), label_smoothing=0.2).train()
    targets = torch.full((6, 4), 0.2 / 4, dtype=torch.float64)
    targets[torch.arange(6), LABELS] += 0.8
    torch.testing.assert_close(objective(six, LABELS), cross_entropy(objective.model(six), targets))


def test_smoothing_and_mixing_are_for_training_alone(six: Tensor) -> None:
    objective = Classifying(classifier(), mixup=0.8, label_smoothing=0.2).eval()
    one_hot = torch.eye(4, dtype=torch.float64)[LABELS]
    torch.testing.assert_close(objective(six, LABELS), cross_entropy(objective.model(six), one_hot))


@pytest.mark.parametrize("name", ["crate_mae_tiny", "vit_mae_small"])
def test_drop_path_skips_a_layer_or_scales_its_change(name: str) -> None:
    """Every sample is its input, or input + (layer - input) / (1 - p); and as often as p says, p linear in depth."""
    plain, dropping = (classifier(name, depth=4) for _ in range(2))
    drop_path(dropping, 0.6)
    dropping.train()
    tokens = torch.randn(2000, 3, 16, dtype=torch.float64)
    for number, rate in enumerate((0.15, 0.3, 0.45, 0.6)):
        with torch.no_grad():
            full = plain.encoder.blocks[number](tokens)
            drawn = dropping.encoder.blocks[number](tokens)
        skipped = (drawn == tokens).flatten(1).all(1)
        assert skipped.double().mean().item() == pytest.approx(rate, abs=0.04)
        torch.testing.assert_close(drawn[~skipped], (tokens + (full - tokens) / (1 - rate))[~skipped])


@pytest.mark.parametrize("name", ["crate_mae_tiny", "vit_mae_small"])
def test_drop_path_is_the_plain_layer_on_average(name: str) -> None:
    plain, dropping = (classifier(name) for _ in range(2))
    drop_path(dropping, 0.5)
    dropping.train()
    tokens = torch.randn(1, 3, 16, dtype=torch.float64)
    with torch.no_grad():
        draws = dropping.encoder.blocks[1](tokens.expand(5000, -1, -1))
        full = plain.encoder.blocks[1](tokens)[0]
    deviation = (full - tokens[0]).abs().max() / 5000**0.5  # p = 1/2: each draw is one change off
    torch.testing.assert_close(draws.mean(0), full, rtol=0, atol=4 * deviation.item())


def test_drop_path_leaves_evaluation_alone(six: Tensor) -> None:
    plain, dropping = (classifier() for _ in range(2))
    drop_path(dropping, 0.9)
    assert torch.equal(dropping.eval()(six), plain(six))
    assert not torch.equal(dropping.train()(six), plain(six))
    assert dropping.state_dict().keys() == plain.state_dict().keys()
    drop_path(plain, 0.0)
    assert torch.equal(plain.train()(six), plain.eval()(six))


def test_seed_step_and_rank_decide_what_is_drawn(six: Tensor) -> None:
    objective = Classifying(classifier(), mixup=0.8)
    drop_path(objective.model, 0.5)
    objective.train()

    def loss(seed: int, step: int, rank: int, before: int) -> float:
        torch.rand(before)  # whatever was drawn earlier
        seed_step(seed, step, rank)
        return objective(six, LABELS).item()

    assert loss(3, 5, 0, 0) == loss(3, 5, 0, 11)
    assert len({loss(3, 5, 0, 0), loss(4, 5, 0, 0), loss(3, 6, 0, 0), loss(3, 5, 1, 0)}) == 4


def test_computing_layers_again_draws_the_same(six: Tensor) -> None:
    """Gradient checkpointing must skip the same layers in the second forward pass."""
    objective = Classifying(classifier(depth=3), mixup=0.8)
    drop_path(objective.model, 0.6)
    objective.train()
    gradients = []
    for recompute in (False, True):
        objective.model.encoder.recompute = recompute
        objective.zero_grad()
        seed_step(0, 1, 0)
        objective(six, LABELS).backward()
        gradients.append([parameter.grad.clone() for parameter in objective.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("name", ["crate_mae_tiny", "vit_mae_small"])
def test_all_options_work_in_bfloat16(name: str, six: Tensor) -> None:
    objective = Classifying(classifier(name).float(), 0.8, 0.1)
    drop_path(objective.model, 0.5)
    with torch.autocast("cpu", torch.bfloat16):
        loss = objective.train()(six.float(), LABELS)
    loss.backward()
    assert torch.isfinite(loss)


def test_a_classifier_can_start_from_another_of_other_classes() -> None:
    first = classifier()
    second = Classifier.on(first, ["x", "y"], torch.Generator().manual_seed(9))
    same = Classifier.on(first, ["p", "q", "r", "s"], torch.Generator().manual_seed(9))
    assert second.head.weight.shape == (2, 16)
    assert not torch.equal(same.head.weight.double(), first.head.weight)  # of other classes: nothing of it is kept
    for name, tensor in first.encoder.state_dict().items():
        assert torch.equal(second.encoder.state_dict()[name], tensor.float())
    with torch.no_grad():
        second.embedding.class_token.zero_()
    assert first.embedding.class_token.abs().sum() > 0


def test_a_classifier_needs_two_classes() -> None:
    with pytest.raises(UserError, match="two classes"):
        Classifier.on(small_model("crate_mae_tiny"), ["only"])


def test_detail_is_the_error_around_the_mean_over_the_variance(six: Tensor) -> None:
    model = small_model("crate_mae_tiny_residual").double()
    masks = random_mask(6, model.num_patches, 0.5, torch.Generator().manual_seed(1))
    completion = model(six, masks)
    shares = []
    for image, patch in masks.nonzero().tolist():
        original, predicted = completion.patches[image, patch], completion.prediction[image, patch]
        error = (predicted - predicted.mean()) - (original - original.mean())
        shares.append(error.square().mean() / (original.var() + 0.01))
    torch.testing.assert_close(completion.detail_error, torch.stack(shares).mean())
    loss = Completing(model, detail=0.3)(six, masks)
    torch.testing.assert_close(loss, completion.loss + 0.3 * completion.detail_error)
    assert Completing(model)(six, masks) == completion.loss


def test_a_wrong_mean_colour_is_no_error_of_detail(six: Tensor) -> None:
    model = small_model("crate_mae_tiny").double()
    completion = model(six, random_mask(6, model.num_patches, 0.5, torch.Generator().manual_seed(1)))
    brighter = replace(completion, prediction=completion.patches + 3)
    torch.testing.assert_close(brighter.detail_error, torch.zeros((), dtype=torch.float64))


def test_patches_of_one_number_have_no_detail() -> None:
    model = small_model("crate_mae_tiny", image_size=4, patch_size=1, channels=1)
    with pytest.raises(UserError, match="detail needs patches of more than one number"):
        Completing(model, detail=0.3)
