"""The demo: a small CRATE-MAE on scikit-learn's digits, from random weights to a report, in a minute or two."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from rich.console import Console
from torch import Tensor

from crate_mae import figures
from crate_mae.analysis.completion import completion_panels
from crate_mae.analysis.layerwise import LayerCurves, layer_curves
from crate_mae.data.digits import split_digits
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.checkpoint import BEST
from crate_mae.models.zoo import create_model
from crate_mae.progress import progress
from crate_mae.report import Report
from crate_mae.tokens import random_mask
from crate_mae.training.optim import adamw, cosine_schedule
from crate_mae.training.probe import Probe, linear_probe

MASK_RATIO = 0.75
BATCH = 64
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.05
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
SHOWN = 8


@dataclass(frozen=True)
class Digits:
    """Normalised 8 x 8 images of handwritten digits, three quarters of them for training."""

    train: Float[Tensor, "n 1 8 8"]
    train_labels: Int[np.ndarray, " n"]
    test: Float[Tensor, "m 1 8 8"]
    test_labels: Int[np.ndarray, " m"]
    mean: float
    std: float

    @staticmethod
    def load(seed: int) -> "Digits":
        digits = split_digits(seed)
        mean, std = float(digits.train.mean()), float(digits.train.std())
        normalised = (torch.from_numpy((part - mean) / std)[:, None] for part in (digits.train, digits.test))
        return Digits(next(normalised), digits.train_labels, next(normalised), digits.test_labels, mean, std)


@dataclass
class Curve:
    """The loss while training."""

    losses: list[float] = field(default_factory=list)
    """On each training batch."""
    held_out: dict[int, float] = field(default_factory=dict)
    """On the test images, after so many steps."""


def run(out: Path, steps: int, seed: int, device: torch.device, console: Console) -> None:
    """Pretrain, measure, draw, and write everything to ``out``."""
    start = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    digits = Digits.load(seed)
    model = create_model(
        "crate_mae_tiny",
        generator=generator,
        image_size=8,
        patch_size=(2, 4),
        channels=1,
        dim=192,
        depth=2,
        heads=6,
        mean=(digits.mean,),
        std=(digits.std,),
    ).to(device)
    console.print(f"Pretraining a CRATE-MAE of {model.num_parameters:,} parameters on {len(digits.train)} digits:")
    untrained = probe(model, digits, seed)
    curve = pretrain(model, digits, steps, generator, console)
    model.save(out / BEST)

    probes = {
        "untrained network": untrained,
        "raw pixels": probe_pixels(digits, seed),
        "pretrained CRATE-MAE": probe(model, digits, seed),
    }
    mask = held_out_mask(model, digits)
    filled = mean_patch_error(model, digits, mask)
    curves = layer_curves(model.encoder, (model.embed(part) for part in digits.test.to(device).split(64)))
    numbers = {
        "seed": seed,
        "steps": steps,
        "parameters": model.num_parameters,
        "mask_ratio": MASK_RATIO,
        "completion_error": curve.held_out[steps],
        "mean_patch_error": filled,
        "probe_accuracy": {name: result.accuracy for name, result in probes.items()},
        "probe_C": {name: result.C for name, result in probes.items()},
        "compression": curves["compression"].mean.tolist(),
        "sparsity": curves["sparsity"].mean.tolist(),
        "training_loss": curve.losses,
        "held_out_loss": curve.held_out,
    }
    report = draw(out, model, digits, mask, curve, filled, probes, curves)
    numbers["seconds"] = round(time.monotonic() - start, 1)
    (out / "numbers.json").write_text(json.dumps(numbers, indent=2) + "\n")
    for line in summary(curve.held_out[steps], filled, probes):
        console.print(line, highlight=False)
    console.print(f"Checkpoint: {out / BEST}", highlight=False, soft_wrap=True)
    console.print(f"Report:     {report}", highlight=False, soft_wrap=True)


def pretrain(
    model: MaskedAutoencoder, digits: Digits, steps: int, generator: torch.Generator, console: Console
) -> Curve:
    """Masked autoencoding with AdamW, a warm-up of a tenth of the steps and a cosine."""
    optimiser = adamw(model, LEARNING_RATE, WEIGHT_DECAY)
    curve = Curve()
    held_out = held_out_mask(model, digits)
    with progress("pretraining", steps, console) as advance:
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = cosine_schedule(step, steps, steps // 10, LEARNING_RATE)
            images = digits.train[torch.randint(len(digits.train), (BATCH,), generator=generator)].to(model.device)
            loss = model(images, random_mask(BATCH, model.num_patches, MASK_RATIO, generator=generator)).loss
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            curve.losses.append(loss.item())
            if step % max(steps // 20, 1) == 0 or step == steps - 1:
                curve.held_out[step + 1] = _held_out_loss(model, digits, held_out)
            advance(f"loss {loss.item():.3f}")
    return curve


@torch.no_grad()
def _held_out_loss(model: MaskedAutoencoder, digits: Digits, mask: Tensor) -> float:
    return model(digits.test.to(model.device), mask).loss.item()


def held_out_mask(model: MaskedAutoencoder, digits: Digits) -> Tensor:
    """The same masks for the test images whenever they are measured."""
    return random_mask(len(digits.test), model.num_patches, MASK_RATIO, generator=torch.Generator().manual_seed(0))


def mean_patch_error(model: MaskedAutoencoder, digits: Digits, mask: Tensor) -> float:
    """The error of filling each masked patch with the training set's mean patch at that place."""
    mean, test = model.patches(digits.train.to(model.device)).mean(0), model.patches(digits.test.to(model.device))
    return (test - mean).square().mean(-1)[mask.to(model.device)].mean().item()


@torch.no_grad()
def probe(model: MaskedAutoencoder, digits: Digits, seed: int) -> Probe:
    """A linear probe of the mean over the patches."""
    train, test = (
        model.features(part.to(model.device), pool="mean").cpu().numpy() for part in (digits.train, digits.test)
    )
    return linear_probe(train, digits.train_labels, test, digits.test_labels, STRENGTHS, seed)


def probe_pixels(digits: Digits, seed: int) -> Probe:
    """The same probe on the 64 pixels themselves."""
    train, test = (part.flatten(1).numpy() for part in (digits.train, digits.test))
    return linear_probe(train, digits.train_labels, test, digits.test_labels, STRENGTHS, seed)


def summary(error: float, filled: float, probes: dict[str, Probe]) -> list[str]:
    """The numbers in words, good or bad."""
    verdict = "below" if error < filled else "NOT below"
    lines = [f"Completion error {error:.3f}, {verdict} the {filled:.3f} of filling with the mean patch."]
    lines += [f"Linear probe of the {name}: {result.accuracy:.1f} %" for name, result in probes.items()]
    gain = probes["pretrained CRATE-MAE"].accuracy - probes["raw pixels"].accuracy
    lines.append(f"The probe is {abs(gain):.1f} points {'above' if gain > 0 else 'BELOW'} raw pixels.")
    return lines


def draw(
    out: Path,
    model: MaskedAutoencoder,
    digits: Digits,
    mask: Tensor,
    curve: Curve,
    filled: float,
    probes: dict[str, Probe],
    curves: LayerCurves,
) -> Path:
    """Every picture, and the report that shows them all."""
    panels = completion_panels(model, digits.test[:SHOWN].to(model.device), mask[:SHOWN])
    rows = figures.completions(panels.masked, panels.completed, panels.original, panels.errors)
    completions = figures.save(rows, out / "completions.png")
    steps = np.arange(1, len(curve.losses) + 1, dtype=float)
    losses = figures.training_curve(steps, np.array(curve.losses), curve.held_out, ("mean patch", filled))
    training = figures.save(losses, out / "training.png")
    accuracies = {name: result.accuracy for name, result in probes.items()}
    probing = figures.save(figures.bars(accuracies, "accuracy of a linear probe on test digits, %"), out / "probe.png")
    shown = {
        r"$R^c(Z^{\ell+1/2}\,|\,U^\ell)$, nats": curves["compression"],
        r"$\|Z^{\ell+1}\|_0\,/\,(dN)$": curves["sparsity"],
    }
    panels_of = [figures.LayerPanel(label, {"": (one.mean, one.spread)}) for label, one in shown.items()]
    layers = figures.save(figures.layer_curves(panels_of), out / "layers.png")

    config = model.config
    report = Report(
        "CRATE-MAE on handwritten digits",
        f"A white-box masked autoencoder of {model.num_parameters:,} parameters ({config.depth} + "
        f"{config.decoder_depth} layers, d = {config.dim}, K = {config.heads}) was pretrained for "
        f"{len(curve.losses)} steps on {len(digits.train)} unlabelled digits with {MASK_RATIO:.0%} of the patches "
        f"masked, and measured on {len(digits.test)} others.",
    )
    report.section("Numbers", *summary(curve.held_out[len(curve.losses)], filled, probes))
    report.section("Completion", "Three quarters of the patches are blanked; the model fills them in from the rest.")
    report.picture(
        completions,
        "Masked, completed and original test digits; below, the mean squared error over the masked patches, in units "
        "of the pixels' variance. Visible patches are kept.",
        "Three rows of digits: masked, completed by the model, original",
    )
    report.section("Training")
    report.picture(
        training,
        f"Mean squared error on masked patches, in units of the pixels' variance. Filling each with the training set's "
        f"mean patch at its place gives {filled:.3f}.",
        "Training and held-out loss against the step",
    )
    report.section("Features")
    report.picture(
        probing,
        "Logistic regression on standardised features: the mean over the patches of the encoder's output. C is chosen "
        "on a fifth of the training digits, the accuracy is on the test digits. One seed.",
        "Bars: probe accuracy of the untrained network, raw pixels and the pretrained network",
    )
    report.table(
        ["features", "accuracy, %", "C"],
        [[name, f"{result.accuracy:.1f}", f"{result.C:g}"] for name, result in probes.items()],
    )
    report.section("Layer by layer")
    report.picture(
        layers,
        "Left: compression, the coding rate of the tokens after MSSA against that layer's subspaces (epsilon = 0.1). "
        "Right: sparsity, the share of non-zero entries after ISTA. Mean and deviation over the test digits. The paper "
        "has both fall with depth; whether they do in so small a model is for the curves to say.",
        "Compression and sparsity against the encoder layer",
    )
    report.section(
        "Next",
        f"crate-mae complete IMAGE --checkpoint {out} --out completed.png completes a picture of your own.",
    )
    return report.write(out / "report.html")
