"""Models as files for other programs: ONNX, and PyTorch's exported programs.

A graph contains no Python, so it differs from the model in three ways: ISTA is folded once; an encoder that sees only
visible patches gets all patches, with attention to the masked ones switched off; the input is not checked. Every file
is compared with the model before it gets its name.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from crate_mae.atomic_write import atomic_write
from crate_mae.errors import UserError, missing_extra
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.image_model import ImageEncoder, ImageModel
from crate_mae.operators import ISTA, fold, ista_folded
from crate_mae.tokens import StillMask, random_mask

Part = Literal["encoder", "autoencoder", "classifier"]
Run = Callable[..., Sequence[Tensor]]
"""Runs a part of a model: from its inputs to its outputs."""

OPSET = 20
"""Version of the ONNX operator set."""
TOLERANCE = 1e-4
"""Largest allowed difference between a file and the model, relative to the largest output if that is above 1."""
BATCHES = (1, 3)
"""Batch sizes with which a file is compared with the model."""


class Names(NamedTuple):
    """Names of the inputs and outputs of a part."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


NAMES: dict[Part, Names] = {
    "encoder": Names(("images",), ("tokens",)),
    "autoencoder": Names(("images", "mask"), ("completed", "prediction")),
    "classifier": Names(("images",), ("scores",)),
}


def to_onnx(model: ImageModel, path: str | Path, part: Part | None = None) -> float:
    """Write a part of a model (all of it by default) as ONNX; return onnxruntime's largest difference to it."""
    onnx, runtime, _ = (_imported(name) for name in ("onnx", "onnxruntime", "onnxscript"))
    part = _checked(model, part)
    names, program = NAMES[part], trace(model, part)
    with _quiet():
        graph: Any = torch.onnx.export(
            program,
            input_names=names.inputs,
            output_names=names.outputs,
            dynamic_shapes=tuple({0: "batch"} for _ in names.inputs),  # else torch calls the axis s0, s31, ..
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        proto = graph.model_proto
    for node in proto.graph.node:
        del node.metadata_props[:]  # file names and line numbers of this machine
    proto.producer_name, proto.producer_version = "crate-mae", version("crate-mae")
    onnx.helper.set_model_props(proto, describe(model, part))

    def write(temporary: Path) -> Run:
        onnx.save(proto, temporary)
        onnx.checker.check_model(temporary, full_check=True)
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors only
        session = runtime.InferenceSession(temporary, options, providers=["CPUExecutionProvider"])

        def run(*inputs: Tensor) -> list[Tensor]:
            given = {name: value.numpy() for name, value in zip(names.inputs, inputs, strict=True)}
            return [torch.from_numpy(output) for output in session.run(names.outputs, given)]

        return run

    return _write_and_compare(Path(path), write, model, part)


def to_torch(model: ImageModel, path: str | Path, part: Part | None = None) -> float:
    """Write a part of a model (all of it by default) for ``torch.export.load``; return the largest difference."""
    part = _checked(model, part)
    program = trace(model, part)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # file names and line numbers of this machine

    def write(temporary: Path) -> Run:
        with _quiet(), temporary.open("wb") as file:
            torch.export.save(program, file, extra_files={"description.json": json.dumps(describe(model, part))})
        with _quiet(), temporary.open("rb") as file:
            loaded = torch.export.load(file).module()
        return lambda *inputs: _as_tuple(loaded(*inputs))

    return _write_and_compare(Path(path), write, model, part)


def trace(model: ImageModel, part: Part) -> torch.export.ExportedProgram:
    """The part as a graph of tensor operations, for any batch size."""
    module = graph_module(model, part)
    batch = torch.export.Dim("batch", min=1)
    shapes = tuple({0: batch} for _ in NAMES[part].inputs)
    with _quiet(), torch.no_grad():
        return torch.export.export(module, _example(model, part, 2, seed=0), dynamic_shapes=shapes, strict=False)


def describe(model: ImageModel, part: Part) -> dict[str, str]:
    """The metadata of a file; values other than strings are JSON.

    Images are (batch, channels, height, width): pixels in [0, 1], minus ``mean``, divided by ``std``. A mask is
    (batch, N), True where a patch is masked, with the patches in row-major order.
    """
    config = model.config
    values = {
        "channels": config.channels,
        "image_size": config.image_size,
        "patch_size": config.patch_size,
        "mean": config.mean,
        "std": config.std,
        **(model.extras() if part == model.kind else {}),
        "model": config.to_dict(),
    }
    return {"format": f"crate-mae {part}", **{name: json.dumps(value) for name, value in values.items()}}


# --- graphs ---------------------------------------------------------------------------------------------------------


class FoldedISTA(nn.Module):
    """``ista_folded`` with the matrix P computed once: one product per token."""

    folded: Tensor

    def __init__(self, ista: ISTA):
        super().__init__()
        self.eta, self.lambda_ = ista.eta, ista.lambda_
        self.register_buffer("folded", fold(ista.dictionary.detach(), ista.eta))

    def forward(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return ista_folded(tokens, self.folded, self.eta, self.lambda_)

    def synthesis(self, code: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """The identity, as in ``ISTA``: the code is the layer's output."""
        return code


class Completer(nn.Module):
    """The autoencoder as a function of images and masks."""

    def __init__(self, autoencoder: MaskedAutoencoder):
        super().__init__()
        self.autoencoder = autoencoder

    def forward(
        self, images: Float[Tensor, "b c H W"], mask: Bool[Tensor, "b N"]
    ) -> tuple[Float[Tensor, "b c H W"], Float[Tensor, "b N pixels"]]:
        completion = self.autoencoder(images, StillMask(mask, mask))
        return completion.completed, completion.prediction


def graph_module(model: ImageModel, part: Part) -> nn.Module:
    """The part on its own, on the CPU, in a form that can be traced."""
    if part == "encoder":
        encoder = ImageEncoder(model.config)
        encoder.adopt_encoder(model)
    copy = encoder if part == "encoder" else deepcopy(model).cpu()
    for module in list(copy.modules()):
        for name, child in module.named_children():
            if isinstance(child, ISTA):
                setattr(module, name, FoldedISTA(child))
    whole = Completer(copy) if isinstance(copy, MaskedAutoencoder) else copy
    return whole.eval()


def _checked(model: ImageModel, part: Part | None) -> Part:
    wanted = part or model.kind
    if wanted not in get_args(Part):
        raise UserError(f"there is no part {wanted}; choose from {', '.join(get_args(Part))}.")
    if wanted not in ("encoder", model.kind):
        kinds = "encoder" if model.kind == "encoder" else f"encoder or {model.kind}"
        article = "a" if model.kind == "classifier" else "an"
        raise UserError(f"the checkpoint holds {article} {model.kind} and no {wanted}; choose the part {kinds}.")
    return cast(Part, wanted)


# --- files ----------------------------------------------------------------------------------------------------------


def _write_and_compare(path: Path, write: Callable[[Path], Run], model: ImageModel, part: Part) -> float:
    """Write a file atomically: it gets its name after it was compared with the model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        return _largest_difference(write(temporary), model, part)


def _largest_difference(run: Run, model: ImageModel, part: Part) -> float:
    """The largest difference over all outputs on random images and masks; a ``UserError`` if it exceeds rounding."""
    largest = 0.0
    for batch in BATCHES:
        inputs = _example(model, part, batch, seed=batch)
        for name, given, expected in zip(
            NAMES[part].outputs, run(*inputs), reference(model, part, *inputs), strict=True
        ):
            difference = (given - expected).abs().max().item()
            largest = max(largest, difference)
            if not difference <= TOLERANCE * max(1.0, expected.abs().max().item()):
                raise UserError(
                    f"the exported {name} differ by {difference:.1e} from the model's; no file was written."
                )
    return largest


@torch.no_grad()
def reference(
    model: ImageModel, part: Part, images: Float[Tensor, "b c H W"], *mask: Bool[Tensor, "b N"]
) -> Sequence[Tensor]:
    """The outputs of the model itself for the inputs of a part, on the CPU."""
    was_training = model.training
    model.eval()
    try:
        given = [value.to(model.device) for value in (images, *mask)]
        if isinstance(model, MaskedAutoencoder) and part == "autoencoder":
            completion = model(*given)
            outputs: tuple[Tensor, ...] = (completion.completed, completion.prediction)
        else:
            outputs = (model.encode(*given) if part == "encoder" else model(*given),)
    finally:
        model.train(was_training)
    return [output.cpu() for output in outputs]


def _example(model: ImageModel, part: Part, batch: int, seed: int) -> tuple[Tensor, ...]:
    """Random images, and masks with a different number of visible patches for each."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(batch, model.config.channels, *model.config.image_size, generator=generator)
    if "mask" not in NAMES[part].inputs:
        return (images,)
    ratios = [(1 + index) / (1 + batch) for index in range(batch)]
    masks = [random_mask(1, model.num_patches, ratio, generator) for ratio in ratios]
    return images, torch.cat(masks)


def _as_tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise missing_extra("ONNX", "export") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters' log messages and warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
