"""Whether a run fits into the memory of its devices, and what to change if it does not."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from crate_mae.models.image_model import ImageModel
from crate_mae.models.stack import Block
from crate_mae.planning.cost import WORD, Pass
from crate_mae.planning.hardware import Hardware
from crate_mae.training.config import FinetuneConfig, PretrainConfig, RunConfig


@dataclass(frozen=True)
class Memory:
    """Bytes on one device."""

    weights: float
    gradients: float
    moments: float
    """AdamW's two for each weight; Muon has one for each matrix of a layer, so that this is a bound for it."""
    gathered: int
    """With --shard: the layers that are gathered at the same time, and their gradients."""
    copies: int
    """The weights in bfloat16, as autocast makes them."""
    activations: int
    """Everything that grows with the number of images, at the peak of a step."""

    @property
    def total(self) -> float:
        """The sum of all items."""
        return self.weights + self.gradients + self.moments + self.gathered + self.copies + self.activations


@dataclass(frozen=True)
class Fitting:
    """A run on its devices."""

    config: RunConfig
    model: ImageModel
    """On the meta device, without weights."""
    classes: int | None
    hardware: Hardware
    devices: int
    shard: bool

    @cached_property
    def parameters(self) -> int:
        """Trainable parameters of the model."""
        return self.model.num_parameters

    @property
    def micro_batch(self) -> int:
        """Images in a micro-batch on one device."""
        return self.config.batch // (self.devices * self.config.accumulation)

    def work(self, images: int) -> Pass:
        """A forward and backward pass of a number of images."""
        mask_ratio = self.config.mask_ratio if isinstance(self.config, PretrainConfig) else 0.0
        pool = self.config.pool if isinstance(self.config, FinetuneConfig) else "mean"
        return Pass(self.model.config, images, mask_ratio, self.classes, pool)

    def memory(self, images: int) -> Memory:
        """On one device, with a number of images in a micro-batch.

        --shard gives each device an equal part of weights, gradients and moments. A layer is gathered when it is
        needed, and the next one at the same time; parameters outside the layers stay gathered. With several
        micro-batches the gradients are accumulated unsharded, and exchanged after the last.
        """
        precision, work = self.config.precision, self.work(images)
        whole = self.parameters * WORD[precision]
        share = whole / self.devices if self.shard else whole
        sums_whole = self.shard and self.config.accumulation > 1
        return Memory(
            weights=share,
            gradients=share + whole if sums_whole else share,
            moments=2 * share,
            gathered=self._gathered() * WORD[precision] if self.shard else 0,
            copies=work.cast(precision),
            activations=work.peak(precision, self.hardware.is_gpu, self.config.gradient_checkpointing),
        )

    def fits(self, images: int) -> bool:
        """Whether a micro-batch of a number of images does."""
        return self.memory(images).total <= self.hardware.usable

    def largest_micro_batch(self) -> int:
        """The most images in a micro-batch, by bisection; 0 if not even one fits."""
        low, high = 0, 1
        while self.fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(middle) else (low, middle)
        return low

    def remedies(self) -> list[str]:
        """The smallest changes that make it fit, each as arguments of the command line; none if nothing helps."""
        ways = [words for words, changed in self._changes() if changed.fits(changed.micro_batch)]
        fewest = min(map(len, ways), default=0)
        return [" ".join(words) for words in ways if len(words) == fewest]

    def _changes(self) -> Iterator[tuple[list[str], "Fitting"]]:
        """Every combination of --shard and gradient checkpointing, each with the fewest micro-batches that fit."""
        own = self.config
        for shard, again in product(sorted({self.shard, self.devices > 1}), sorted({own.gradient_checkpointing, True})):
            words = ["--shard"] * (shard != self.shard)
            words += ["--set gradient_checkpointing=true"] * (again != own.gradient_checkpointing)
            for parts in self._divisors():
                config = replace(own, gradient_checkpointing=again, accumulation=parts)
                changed = replace(self, config=config, shard=shard)
                if changed.fits(changed.micro_batch):
                    yield words + [f"--set accumulation={parts}"] * (parts != own.accumulation), changed
                    break

    def _divisors(self) -> list[int]:
        """Numbers of micro-batches that divide the images of a batch on one device, from the current number up."""
        share = self.config.batch // self.devices
        return [parts for parts in range(self.config.accumulation, share + 1) if share % parts == 0]

    def _gathered(self) -> int:
        """Numbers in this layer's and the next one's weights, this one's gradients, and both outside the layers."""
        layers = [
            sum(weight.numel() for weight in module.parameters())
            for module in self.model.modules()
            if isinstance(module, Block)
        ]
        return 3 * max(layers) + 2 * (self.parameters - sum(layers))
