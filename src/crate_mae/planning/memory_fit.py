"""Whether a run fits into its devices' memory, and what to change where it does not."""

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
    """AdamW's two for each weight."""
    gathered: int
    """With --shard: the layers that are whole for a moment, and their gradients."""
    copies: int
    """The weights in bfloat16, as autocast makes them."""
    activations: int
    """All that grows with the number of images, at the height of a pass."""

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.moments + self.gathered + self.copies + self.activations


@dataclass(frozen=True)
class Fitting:
    """A run on its devices."""

    config: RunConfig
    model: ImageModel
    """On the meta device: shapes alone."""
    classes: int | None
    hardware: Hardware
    devices: int
    shard: bool

    @cached_property
    def parameters(self) -> int:
        return self.model.num_parameters

    @property
    def part(self) -> int:
        """Images that one device works on at a time."""
        return self.config.batch // (self.devices * self.config.accumulation)

    def work(self, images: int) -> Pass:
        """A pass of so many images."""
        mask_ratio = self.config.mask_ratio if isinstance(self.config, PretrainConfig) else 0.0
        pool = self.config.pool if isinstance(self.config, FinetuneConfig) else "mean"
        return Pass(self.model.config, images, mask_ratio, self.classes, pool)

    def memory(self, images: int) -> Memory:
        """On one device, with so many images at a time.

        --shard gives each device an equal share of weights, gradients and moments. A layer is gathered when its turn
        comes, and the next one meanwhile; what lies outside the layers stays whole. Over several parts the gradients
        are summed up whole, and exchanged after the last.
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
        """Whether so many images at a time do."""
        return self.memory(images).total <= self.hardware.usable

    def largest_part(self) -> int:
        """The most images at a time, 0 where not even one fits; by halving an interval."""
        low, high = 0, 1
        while self.fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(middle) else (low, middle)
        return low

    def remedies(self) -> list[str]:
        """The least changes that make it fit, each in words for the command line; none where nothing helps."""
        ways = [words for words, changed in self._changes() if changed.fits(changed.part)]
        fewest = min(map(len, ways), default=0)
        return [" ".join(words) for words in ways if len(words) == fewest]

    def _changes(self) -> Iterator[tuple[list[str], "Fitting"]]:
        """Every combination of --shard, gradient checkpointing and, for each, the fewest parts that fit."""
        own = self.config
        for shard, again in product(sorted({self.shard, self.devices > 1}), sorted({own.gradient_checkpointing, True})):
            words = ["--shard"] * (shard != self.shard)
            words += ["--set gradient_checkpointing=true"] * (again != own.gradient_checkpointing)
            for parts in self._divisors():
                config = replace(own, gradient_checkpointing=again, accumulation=parts)
                changed = replace(self, config=config, shard=shard)
                if changed.fits(changed.part):
                    yield words + [f"--set accumulation={parts}"] * (parts != own.accumulation), changed
                    break

    def _divisors(self) -> list[int]:
        """Numbers of parts that a device's share of the batch can be cut into, from the present one up."""
        share = self.config.batch // self.devices
        return [parts for parts in range(self.config.accumulation, share + 1) if share % parts == 0]

    def _gathered(self) -> int:
        """Numbers: this layer's and the next one's weights, this one's gradients, and both of what is in no layer."""
        layers = [
            sum(weight.numel() for weight in module.parameters())
            for module in self.model.modules()
            if isinstance(module, Block)
        ]
        return 3 * max(layers) + 2 * (self.parameters - sum(layers))
