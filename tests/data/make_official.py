"""Make ``official_tiny.safetensors``: random weights in the authors' layout and what the reference makes of them.

python -m tests.data.make_official
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.models import official_reference

CONFIG = {"image_size": 12, "patch_size": 4, "dim": 16, "depth": 2, "heads": 4, "lambda_": 0.3, "eta": 0.2}
CONFIG |= {"norm_pix_loss": False}


def layout() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the authors' state dict."""
    d, n, pixels = CONFIG["dim"], (CONFIG["image_size"] // CONFIG["patch_size"]) ** 2, CONFIG["patch_size"] ** 2 * 3
    shapes: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, d), "mask_token": (1, 1, d)}
    shapes |= {"pos_embed": (1, n + 1, d), "decoder_pos_embed": (1, n + 1, d)}
    shapes |= {"patch_embed.proj.weight": (d, 3, 4, 4), "patch_embed.proj.bias": (d,)}
    shapes |= {"decoder_embed.weight": (d, d), "decoder_embed.bias": (d,)}
    shapes |= {"decoder_pred.weight": (pixels, d), "decoder_pred.bias": (pixels,)}
    norms = ["norm", "decoder_norm"]
    for layers, mssa in [("blocks", 0), ("decoder_blocks", 1)]:
        for i in range(CONFIG["depth"]):
            name = f"{layers}.{i}.layers.0"
            norms += [f"{name}.0.norm", f"{name}.1.norm"]
            shapes |= {f"{name}.{mssa}.fn.qkv.weight": (d, d), f"{name}.{1 - mssa}.fn.weight": (d, d)}
            shapes |= {f"{name}.{mssa}.fn.to_out.0.weight": (d, d), f"{name}.{mssa}.fn.to_out.0.bias": (d,)}
    return shapes | {f"{name}.{part}": (d,) for name in norms for part in ("weight", "bias")}


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in sorted(layout().items())}
    images = torch.randn(2, 3, 12, 12, generator=generator)
    mask = torch.rand(2, 9, generator=generator) < 0.6
    exact = {name: value.double().requires_grad_() for name, value in weights.items()}
    outputs = official_reference.run(exact, images.double(), mask, CONFIG)
    wanted = {"grad.ista": "blocks.0.layers.0.1.fn.weight", "grad.qkv": "blocks.0.layers.0.0.fn.qkv.weight"}
    gradients = torch.autograd.grad(outputs["loss"], [exact[name] for name in wanted.values()])
    outputs |= dict(zip(wanted, gradients, strict=True))
    tensors = {f"weights.{name}": value for name, value in weights.items()}
    tensors |= {f"io.{name}": value.detach().float().contiguous() for name, value in outputs.items()}
    tensors |= {"io.images": images, "io.mask": mask}
    path = Path(__file__).parent / "official_tiny.safetensors"
    save_file(tensors, path, metadata={"config": json.dumps(CONFIG)})
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
