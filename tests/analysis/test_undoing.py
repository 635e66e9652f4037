import numpy as np
import pytest
import torch

from crate_mae import UserError
from crate_mae.analysis.undoing import undoing, why_not_undoing
from tests.analysis.test_layerwise import some_images
from tests.analysis.test_streaming import slow_alignment
from tests.conftest import small_model

PAIRED = {"decoder_depth": 3, "depth": 3}


@pytest.mark.parametrize("name", ["crate_mae_tiny", "crate_mae_tiny_visible", "vit_mae_base"])
@torch.no_grad()
def test_errors_and_alignment_layer_by_layer(name: str) -> None:
    model, images = small_model(name, **PAIRED).double(), some_images()
    found = undoing(model, images.split(2))
    states = [model.embed(images), *(step.tokens for step in model.encoder.steps(model.embed(images)))]
    for layer in range(3):
        Z, done = states[layer], states[layer + 1]
        back = model.decoder.blocks[2 - layer](done)
        for result, error, alignment in [
            (back, found.error, found.alignment),
            (done, found.error_left_alone, found.alignment_left_alone),
        ]:
            errors = [float((result[i] - Z[i]).norm() / Z[i].norm()) for i in range(5)]
            assert error.mean[layer] == pytest.approx(np.mean(errors))
            assert error.spread[layer] == pytest.approx(np.std(errors))
            expected = slow_alignment(Z.flatten(0, 1).numpy(), result.flatten(0, 1).numpy())
            assert alignment[layer] == pytest.approx(expected, rel=1e-6)
    assert found.images == 5


def test_layers_that_do_not_pair_up_are_said_not_to() -> None:
    assert "2 encoder layers and 3" in str(why_not_undoing(small_model("crate_mae_tiny")))
    wider = small_model("crate_mae_tiny", decoder_depth=2, decoder_dim=24)
    assert "24" in str(why_not_undoing(wider))
    with pytest.raises(UserError, match="24"):
        undoing(wider, [])
