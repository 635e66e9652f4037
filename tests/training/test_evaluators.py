"""What pretraining says of where it stands, against a computation by hand."""

import json
from pathlib import Path

import pytest
from torch import Tensor

from crate_mae import figures
from crate_mae.cli import main
from crate_mae.data.loader import evaluation_batches
from crate_mae.data.masked import MaskedBatch
from crate_mae.data.open import find_images
from crate_mae.models.zoo import load
from crate_mae.tokens import normalise_patches, patchify
from crate_mae.training.evaluators import evenly_spaced, masked_as_evaluated
from crate_mae.training.run_folder import Run
from tests.training.runs import metrics, words


def whole(split: str, run: Path) -> MaskedBatch:
    """The images and masks of a run's evaluations."""
    samples = masked_as_evaluated(evenly_spaced(find_images("digits").split(split), 40), load(run).config, 0.75)
    return next(evaluation_batches(samples, 40))


@pytest.mark.parametrize("normalised", [False, True])
def test_a_run_says_the_error_of_the_mean_patch(
    normalised: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    real = figures.run_curves
    monkeypatch.setattr(figures, "run_curves", lambda *args: drawn.append(args) or real(*args))
    run = tmp_path / "run"
    main(words(run, steps=2, evaluate_every=1, mask_ratio=0.75, model__norm_pix_loss=str(normalised).lower()))
    size = load(run).config.patch_size

    def targets(images: Tensor) -> Tensor:
        patches = patchify(images, size).double()
        return normalise_patches(patches) if normalised else patches

    train, val = whole("train", run), whole("val", run)
    filled = targets(train.images).mean(0).expand(40, -1, -1)
    expected = (targets(val.images) - filled)[val.masks].square().mean().item()
    said = [line["mean_patch_error"] for line in metrics(run) if "val_loss" in line]
    assert said == pytest.approx([expected] * 3, rel=1e-5)
    assert said[0] == said[1] == said[2]
    assert capsys.readouterr().out.count(f"mean patch error {expected:.4g}") == 3
    assert drawn[0][-2:] == (("mean patch", said[0]), "")


def test_the_curve_says_what_the_loss_of_training_batches_has_on_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluations and the mean patch are errors without it, so the axis is theirs."""
    drawn = []
    real = figures.run_curves
    monkeypatch.setattr(figures, "run_curves", lambda *args: drawn.append(real(*args)) or drawn[-1])
    main(words(tmp_path / "run", steps=2, evaluate_every=1, detail=0.5))
    (ax, *_) = drawn[0].axes
    assert ax.get_ylabel() == "mean squared error on masked patches"
    assert "training batches, + 0.5 x detail error" in [line.get_label() for line in ax.lines]


def test_the_mean_patch_is_a_line_in_the_curve() -> None:
    curves = ({1: 0.9, 100: 0.5}, {"validation": {0: 2.0, 100: 0.6}}, {}, "error")
    figure = figures.run_curves(*curves, ("mean patch", 0.8))
    (ax,) = figure.axes
    level = next(line for line in ax.lines if line.get_label() == "mean patch (0.800)")
    assert set(level.get_ydata()) == {0.8}
    assert ax.get_ylim()[1] > 0.8
    without = figures.run_curves(*curves)
    assert len(without.axes[0].lines) == len(ax.lines) - 1


def test_a_run_that_began_before_it_was_recorded_is_drawn_without(tmp_path: Path) -> None:
    run = tmp_path / "run"
    main(words(run, steps=2, evaluate_every=1))
    lines = [json.loads(line) for line in Run(run).metrics.read_text().splitlines()]
    kept = [{name: value for name, value in line.items() if name != "mean_patch_error"} for line in lines]
    Run(run).metrics.write_text("".join(json.dumps(line) + "\n" for line in kept))
    main(["pretrain", "--out", str(run), "--resume"])
    assert (run / "curves.png").is_file()
