"""Shapes are checked in the test run: what takes or gives arrays goes through beartype.

Left out are the modules that check a person's words themselves (configuration, zoo, conversion, command line): there
the sentence for people is what is tested.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import install_import_hook

from tests import shape_checks

CHECKED = [
    "analysis",
    "completion",
    "data.loader",
    "data.named_layouts",
    "data.sequential",
    "data.source",
    "data.transforms",
    "evaluation",
    "export",
    "features.embed",
    "features.extraction",
    "features.table",
    "figures",
    "image_tensors",
    "mssa_cpu",
    "operators",
    "planning",
    "reports",
    "theory",
    "tokens",
    "web.views",
]
CHECKED += [f"models.{name}" for name in ("autoencoder", "crate", "embedding", "image_model", "stack", "vit")]
TRAINING = Path(__file__).parents[1] / "src" / "crate_mae" / "training"
CHECKED += [
    f"training.{path.stem}" for path in TRAINING.glob("*.py") if path.stem not in ("__init__", "config", "run_folder")
]
install_import_hook([f"crate_mae.{name}" for name in CHECKED], f"{shape_checks.__name__}.checked")

import torch  # noqa: E402

import crate_mae  # noqa: E402

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def small_model(name: str, **overrides: Any) -> crate_mae.MaskedAutoencoder:
    """A model of the zoo's make at a size for tests: 2 + 3 layers, 12 patches of 4 x 6 pixels, not square."""
    sizes = {"dim": 16, "depth": 2, "heads": 4, "decoder_dim": 16, "decoder_depth": 3, "decoder_heads": 2}
    shape = {"image_size": (12, 24), "patch_size": (4, 6), "channels": 3}
    return crate_mae.create_model(name, generator=torch.Generator().manual_seed(1), **(sizes | shape | overrides))


MAKES: dict[str, Callable[..., crate_mae.MaskedAutoencoder]] = {
    "crate, paper": lambda **o: small_model("crate_mae_tiny", **o),
    "crate, official": lambda **o: small_model("crate_mae_tiny", preset="official", **o),
    "crate, tied": lambda **o: small_model("crate_mae_tiny", mssa="tied", epsilon=0.7, **o),
    "crate, visible, paper": lambda **o: small_model("crate_mae_tiny_visible", **o),
    "crate, visible, official": lambda **o: small_model("crate_mae_tiny_visible", preset="official", **o),
    "crate, visible, tied, wider decoder": lambda **o: small_model(
        "crate_mae_tiny_visible", **({"mssa": "tied", "decoder_dim": 24} | o)
    ),
    "crate, all, wider decoder": lambda **o: small_model("crate_mae_tiny", **({"decoder_dim": 24} | o)),
    "crate, visible, residual": lambda **o: small_model("crate_mae_tiny_residual", **o),
    "crate, all, paper, added": lambda **o: small_model("crate_mae_tiny", encoder_skip="added", **o),
    "crate, visible, relaxed": lambda **o: small_model("crate_mae_tiny_relaxed", **o),
    "crate, visible, alpha": lambda **o: small_model("crate_mae_tiny_alpha", overcomplete=2, **o),
    "vit, all": lambda **o: small_model("vit_mae_base", **o),
    "vit, visible": lambda **o: small_model("vit_mae_base_he", **o),
    "vit, visible, normalised targets": lambda **o: small_model("vit_mae_small", norm_pix_loss=True, **o),
}
"""Every combination that a user can meet, each of which passes the same contract."""


@pytest.fixture(params=MAKES)
def model(request: pytest.FixtureRequest) -> crate_mae.MaskedAutoencoder:
    """Each make of model in turn, with random biases and norms so that none of them hides a mistake."""
    built = MAKES[request.param]()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return built


@pytest.fixture
def images() -> torch.Tensor:
    """Three images for ``small_model``."""
    return torch.randn(3, 3, 12, 24, generator=torch.Generator().manual_seed(3))


def unusable_paths(folder: Path) -> dict[str, str]:
    """Paths below a folder that no file can have, by what a message says about them."""
    (folder / "loop").symlink_to(folder / "loop")
    return {
        "File name too long": str(folder / ("x" * 5000)),
        "NUL byte": str(folder / "a\0b"),
        "is not UTF-8": str(folder / "a\udcff"),
        "symbolic links": str(folder / "loop" / "out"),
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, or a relative of its."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("there is no Chromium to open the page with")
    from playwright.sync_api import sync_playwright

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=flags)
        yield launched
        launched.close()
