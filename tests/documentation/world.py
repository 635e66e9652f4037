"""A person's folder with what the pages speak of, all of it small; and how long commands are made short."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

import crate_mae
from crate_mae import Classifier
from crate_mae.data import named_layouts
from crate_mae.data.named_layouts import Digits, split_digits
from crate_mae.data.open import open_dataset
from crate_mae.models.layouts import mae_pairs
from tests.hub.fake_hub import FakeHub, as_the_hub
from tests.hub.recorded import recorded
from tests.reports.test_inspect_measurements import for_digits

SHORT = {
    "pretrain": "steps=2 batch=4 evaluation_images=8 pictures=2 model.dim=12 model.heads=2 model.depth=1",
    "finetune": "steps=2 batch=4 evaluation_images=8",
}
"""Settings that end every such command."""
READ = {"bench", "demo", "inspect", "theory", "reproduce", "serve"}
"""Verbs that take long, or never end: tests of their own run them, here they are read."""
EVERY = 5
"""The well-known digits are one in so many here."""


@contextmanager
def world(folder: Path, page: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Fill the folder, with those models that the page speaks of and does not make itself, and go there.

    A Hub of one's own answers in place of the real one.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setattr(named_layouts, "split_digits", _some_digits)
    rng = np.random.default_rng(0)
    for number in range(24):
        bright = rng.integers(0, 128 + 127 * (number % 2), (16, 20, 3), dtype=np.uint8)
        kind, split = ("cat", "train") if number % 2 else ("dog", "val")
        for place in (f"photos/{kind}", f"downloads/imagenette2/{split}/n01440764"):
            Path(place).mkdir(parents=True, exist_ok=True)
            Image.fromarray(bright).save(f"{place}/{number}.JPEG")
    Image.fromarray(load_sample_image("flower.jpg")).save("photo.jpg")
    mask = Image.new("L", (640, 427))
    mask.paste("white", (200, 100, 400, 300))
    mask.save("mask.png")
    digits = open_dataset("digits", "test")
    Path("new/more").mkdir(parents=True)
    for number, place in enumerate(["new/3.png", "new/more/1.png"]):
        digits.read(number).save(place)
    for place, make in MODELS.items():
        if place in page and f"--out {place}" not in page:
            make(Path(place))
    with as_the_hub(monkeypatch, folder / "cache") as hub:
        yield hub


def _some_digits() -> Digits:
    whole = split_digits()
    return Digits(whole.train[::EVERY], whole.train_labels[::EVERY], whole.test[::EVERY], whole.test_labels[::EVERY])


def _autoencoder(run: Path) -> None:
    recorded(run, for_digits())


def _classifier(run: Path) -> None:
    Classifier(for_digits().config, [str(number) for number in range(10)]).save(run / "checkpoints" / "best")


def write_mae(file: Path, **overrides: Any) -> None:
    """Random weights in He et al.'s layout: their file can't be fetched by a test."""
    model = crate_mae.create_model("vit_mae_base_he", **overrides)
    own = model.state_dict()
    weights = {pair.theirs: pair.out(own[pair.ours], model.config) for pair in mae_pairs(model.config)}
    torch.save({"model": weights}, file)


MODELS: dict[str, Callable[[Path], None]] = {
    "runs/demo": _autoencoder,
    "runs/digits": _autoencoder,
    "runs/tuned": _classifier,
    "mae_pretrain_vit_base.pth": partial(write_mae, depth=1, decoder_depth=1, image_size=32),
}


def shortened(words: list[str]) -> list[str]:
    """A command of ours with as little to do as may be."""
    settings = SHORT.get(words[0], "") if "--recipe" in words else ""
    return words + [word for setting in settings.split() for word in ("--set", setting)]


def shortened_python(text: str) -> str:
    """The same for Python: one step."""
    return re.sub(r"\bsteps=\d+", "steps=1", text)
