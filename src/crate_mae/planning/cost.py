"""The cost of a pass through a model, from its configuration alone: matrix products, and bytes for the backward pass.

Nothing is built or run here. The tests compare every number with torch's own count on the real models.
"""

from dataclasses import astuple, dataclass
from functools import cached_property

from crate_mae.models.config import ModelConfig
from crate_mae.mssa_cpu import chunk_size, fits_in_cache, keeps_maps
from crate_mae.tokens import masked_count
from crate_mae.training.config import Precision

WORD = {"float32": 4, "bfloat16": 4, "float64": 8}
"""Bytes of a weight, a gradient, a moment: autocast to bfloat16 leaves them in float32."""
PRODUCT_WORD = {"float32": 4, "bfloat16": 2, "float64": 8}
"""Bytes of a number in the input or output of a matrix product."""


@dataclass(frozen=True)
class Products:
    """Multiply-adds in the matrix products of a forward pass, by the products that their backward pass needs."""

    linear: int = 0
    """y = x W. Backward: one product for the gradient of x, one for that of W."""
    one_back: int = 0
    """Backward: one product. The embedding, whose input needs no gradient, and ISTA's product D^T D."""
    attention: int = 0
    """softmax(Q K^T) V, two products."""
    attention_back: int = 0
    """Backward: five, the first of which computes Q K^T again, as it was not kept; fewer where Q = K = V on a CPU."""

    def __add__(self, other: "Products") -> "Products":
        return Products(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def forward_flops(self) -> int:
        """A multiply-add is two operations."""
        return 2 * (self.linear + self.one_back + self.attention)

    @property
    def backward_flops(self) -> int:
        """Twice the forward pass, except for ``one_back`` and attention."""
        return 2 * (2 * self.linear + self.one_back + self.attention_back)


@dataclass(frozen=True)
class Layers:
    """A stack of equal layers and the tokens that it is applied to."""

    config: ModelConfig
    decodes: bool
    images: int
    tokens: int
    """Tokens of one image, including the class token."""

    @property
    def count(self) -> int:
        """The number of layers."""
        return self.config.decoder_depth if self.decodes else self.config.depth

    @property
    def dim(self) -> int:
        """The width of a token."""
        return self.config.decoder_dim if self.decodes else self.config.dim

    @property
    def heads(self) -> int:
        """Subspaces, or attention heads."""
        return self.config.decoder_heads if self.decodes else self.config.heads

    @property
    def hidden(self) -> int:
        """Width of the MLP's hidden layer."""
        return round(self.dim * self.config.mlp_ratio)

    @property
    def rows(self) -> int:
        """Tokens of all images."""
        return self.images * self.tokens

    @property
    def sparsifies(self) -> bool:
        """Whether a layer has ISTA."""
        return self.config.family == "crate" and not self.decodes

    @property
    def overcompletes(self) -> bool:
        """Whether it is CRATE-alpha's, in an overcomplete dictionary."""
        return self.sparsifies and self.config.sparsifier == "alpha"

    @property
    def atoms(self) -> int:
        """Columns of that dictionary."""
        return self.dim * self.config.overcomplete

    @property
    def skips(self) -> bool:
        """Whether the layer's output is a sum with the half step."""
        return self.config.family == "vit" or (self.sparsifies and self.config.encoder_skip != "none")

    @property
    def folds(self) -> bool:
        """Whether ISTA makes P = eta D^T (I - D) once and then needs one product per token: as ``operators.ista``."""
        return self.sparsifies and not self.overcompletes and self.rows > self.dim

    def subspace_attention(self, on_gpu: bool) -> bool:
        """Whether attention is ``mssa_cpu.SubspaceAttention``, as in ``operators.attend``."""
        by_hand = self.config.family == "crate" and fits_in_cache(self.tokens)
        return by_hand and not on_gpu

    @property
    def keeps_maps(self) -> bool:
        """Whether that attention keeps its maps for the backward pass."""
        return keeps_maps(self.images, self.heads, self.tokens)

    @property
    def maps(self) -> int:
        """Numbers in the matrices of one layer, each of which is multiplied with each token once."""
        d = self.dim
        if self.config.family == "vit":
            return 3 * d * d + d * d + 2 * d * self.hidden  # queries, keys and values; output; MLP
        output = self.config.mssa == "tied" or self.heads > 1
        if self.overcompletes:
            return (1 + output) * d * d + 4 * d * self.atoms  # D three times in two steps, D' once
        dictionary = 2 if self.sparsifies and not self.folds else 1
        return (1 + output + dictionary) * d * d  # subspaces; output; D or E

    @property
    def cast(self) -> int:
        """Numbers in the matrices of one layer that autocast copies; the folded dictionary is counted as kept."""
        twice_more = 2 * self.dim * self.atoms if self.overcompletes else 0  # D has one copy for three products
        return self.maps - twice_more - (self.dim**2 if self.folds else 0)

    @property
    def last_map(self) -> int:
        """Numbers in the last map of a layer, where its result is only added to the skip: it is not computed again."""
        if self.config.family == "vit":
            return self.hidden * self.dim
        if self.overcompletes:
            return self.atoms * self.dim
        output = self.config.mssa == "tied" or self.heads > 1
        return self.dim**2 if self.decodes and output else 0

    def flops_again(self) -> int:
        """FLOPs of computing all layers a second time, each as far as its backward pass needs."""
        return self.products().forward_flops - 2 * self.count * self.rows * self.last_map

    def products(self, on_gpu: bool = False) -> Products:
        """Matrix products of all layers."""
        folding = self.dim**3 if self.folds else 0
        mixing = self.images * self.tokens**2 * self.dim
        back = 5 if not self.subspace_attention(on_gpu) else 3 if self.keeps_maps else 4
        return Products(
            self.count * self.rows * self.maps,
            self.count * folding,
            self.count * 2 * mixing,
            self.count * back * mixing,
        )

    def stream_word(self, precision: Precision, on_gpu: bool) -> int:
        """Bytes of a number in the input of a layer's norms, as it is kept.

        The outputs of ISTA and E have the precision that they compute in; a sum with a skip stays in float32. On a GPU
        autocast computes every norm in float32, if needed from a copy.
        """
        return WORD[precision] if self.skips or on_gpu else PRODUCT_WORD[precision]

    def kept(self, precision: Precision, on_gpu: bool) -> int:
        """Bytes that one layer keeps for the backward pass.

        crate, each token: the inputs of the two norms, of U, the softmax, O and the dictionary: 6 d. ISTA's output is
        the next layer's input, kept a second time where that is a copy or a sum. An overcomplete code is
        kept after each of its two steps, with the residual between them.
        vit: the same with Q, K, V in place of U^T z, and the MLP's hidden layer before and after GELU: 8 d + 2 hidden.
        """
        word, stream = PRODUCT_WORD[precision], self.stream_word(precision, on_gpu)
        if self.config.family == "vit":
            computed = 6 * self.dim + 2 * self.hidden
        elif self.overcompletes:
            computed = 5 * self.dim + 2 * self.atoms
        else:
            twice = self.skips or stream != word
            residual = not self.folds and (self.skips or not twice)  # z - D z
            computed = 4 * self.dim + (self.dim * (twice + residual) if self.sparsifies else 0)
        in_norms = 2 * self.dim * stream + 4 * WORD[precision]  # two means, two standard deviations
        softmax = self.heads * WORD[precision]  # the logarithm of its sum, or the map itself, or nothing
        if self.subspace_attention(on_gpu):
            softmax *= self.tokens if self.keeps_maps else 0
        folded = self.dim**2 * PRODUCT_WORD[precision] if self.folds else 0
        return self.rows * (computed * word + in_norms + softmax + self._rounded_late(precision, on_gpu)) + folded

    def _rounded_late(self, precision: Precision, on_gpu: bool) -> int:
        """Further bytes of a token because attention on a CPU is in float32 under autocast (``operators.attend``)."""
        if precision != "bfloat16" or on_gpu:
            return 0
        if self.subspace_attention(on_gpu):
            return 2 * self.dim  # U^T z
        counted = 3 if self.config.family == "vit" else 1
        return (4 * 4 - counted * 2) * self.dim  # queries, keys, values and the result

    def entering(self, precision: Precision, on_gpu: bool) -> int:
        """Bytes of the input of one layer: all that gradient checkpointing keeps of it."""
        return self.rows * self.dim * self.stream_word(precision, on_gpu)

    def recomputed(self, precision: Precision, on_gpu: bool) -> int:
        """Bytes that gradient checkpointing computes again in the backward pass through one layer."""
        return self.kept(precision, on_gpu) - self.entering(precision, on_gpu)

    def returning(self, precision: Precision, on_gpu: bool) -> int:
        """Bytes of the gradients that are alive at once within one layer in the backward pass."""
        width = max(4 * self.dim, self.hidden) if self.config.family == "vit" else 4 * self.dim
        if self.overcompletes:  # its own gradients are the widest, and what it kept is free before MSSA's are made
            width = self.atoms
        maps = 0
        if self.subspace_attention(on_gpu):
            images, heads = chunk_size(self.images, self.heads, self.tokens)
            maps = (2 if self.keeps_maps else 3) * images * heads * self.tokens**2
        return self.rows * width * PRODUCT_WORD[precision] + maps * WORD[precision]


@dataclass(frozen=True)
class Pass:
    """One micro-batch on one device, through an autoencoder, or through a classifier if there are classes."""

    config: ModelConfig
    images: int
    mask_ratio: float = 0.0
    """The autoencoder's."""
    classes: int | None = None
    pool: str = "mean"
    """The classifier's."""

    @property
    def patches_seen(self) -> int:
        """Patches of an image that the encoder sees."""
        patches = self.config.num_patches
        masks = self.classes is None and self.config.encoder_sees == "visible"
        return patches - masked_count(patches, self.mask_ratio) if masks else patches

    @cached_property
    def encoder(self) -> Layers:
        """The encoder's layers on the tokens that it sees."""
        return Layers(self.config, False, self.images, 1 + self.patches_seen)

    @cached_property
    def decoder(self) -> Layers | None:
        """The decoder's layers on all tokens; None for a classifier."""
        if self.classes is not None:
            return None
        return Layers(self.config, True, self.images, 1 + self.config.num_patches)

    @property
    def stacks(self) -> list[Layers]:
        """The encoder, and the decoder if there is one."""
        return [self.encoder] if self.decoder is None else [self.encoder, self.decoder]

    @property
    def maps_between(self) -> bool:
        """Whether there is a linear map between encoder and decoder."""
        return self.decoder is not None and (self.config.decoder_map or self.config.dim != self.config.decoder_dim)

    def products(self, on_gpu: bool = False) -> Products:
        """Matrix products of the whole forward pass."""
        c, images = self.config, self.images
        total = sum((stack.products(on_gpu) for stack in self.stacks), Products(one_back=self._embedded * c.dim))
        if self.maps_between:
            total += Products(linear=self.encoder.rows * c.dim * c.decoder_dim)
        if self.classes is not None:
            return total + Products(linear=images * c.dim * self.classes)
        return total + Products(linear=images * c.num_patches * c.decoder_dim * c.patch_pixels)

    def step_flops(self, gradient_checkpointing: bool, on_gpu: bool = False) -> int:
        """Forward and backward; gradient checkpointing repeats nearly all of the layers' forward pass."""
        products = self.products(on_gpu)
        again = sum(stack.flops_again() for stack in self.stacks) if gradient_checkpointing else 0
        return products.forward_flops + products.backward_flops + again

    def kept(self, precision: Precision, on_gpu: bool, gradient_checkpointing: bool) -> int:
        """Bytes kept for the backward pass at its start. With gradient checkpointing: the input of each layer."""
        of_layer = Layers.entering if gradient_checkpointing else Layers.kept
        layers = sum(stack.count * of_layer(stack, precision, on_gpu) for stack in self.stacks)
        return layers + self._kept_outside(precision, on_gpu) + self._kept_at_the_end(precision)

    def peak(self, precision: Precision, on_gpu: bool, gradient_checkpointing: bool) -> int:
        """The most bytes alive at once, besides weights, their copies, gradients and moments.

        The images and what is kept, plus the larger of two: at the loss, patches, predictions and squares; in the
        backward pass, gradients within a layer, and with gradient checkpointing all of that layer again.
        """
        kept = self.kept(precision, on_gpu, gradient_checkpointing)
        images = self._pixels * WORD[precision]
        at_loss = 3 * images if self.decoder else 0
        back = max(
            stack.returning(precision, on_gpu) + gradient_checkpointing * stack.recomputed(precision, on_gpu)
            for stack in self.stacks
        )
        return images + kept + max(at_loss, back - self._kept_at_the_end(precision))

    def cast(self, precision: Precision) -> int:
        """Bytes of the weights' copies in bfloat16 that autocast makes; the folded dictionaries are in ``kept``."""
        if precision != "bfloat16":
            return 0
        c = self.config
        matrices = sum(stack.count * stack.cast for stack in self.stacks)
        matrices += c.dim * c.patch_pixels + (c.dim * c.decoder_dim if self.maps_between else 0)
        matrices += c.dim * self.classes if self.classes is not None else c.decoder_dim * c.patch_pixels
        return matrices * PRODUCT_WORD[precision]

    @property
    def _pixels(self) -> int:
        return self.images * self.config.num_patches * self.config.patch_pixels

    @property
    def _embedded(self) -> int:
        """Numbers of the patches that are embedded."""
        return self.images * self.patches_seen * self.config.patch_pixels

    @property
    def _coded(self) -> bool:
        """Whether the encoder's output is ISTA's code, which its backward pass needs."""
        return self.encoder.sparsifies and not self.encoder.skips and not self.encoder.overcompletes

    def _kept_outside(self, precision: Precision, on_gpu: bool) -> int:
        c, word, full = self.config, PRODUCT_WORD[precision], WORD[precision]
        latent = self.encoder.rows * c.dim
        total = self._embedded * word
        # Tokens with their positions are sums in float32, and so is the skip over the first MSSA.
        total += 2 * latent * (full - self.encoder.stream_word(precision, on_gpu))
        if c.final_norms:
            total += sum(stack.rows * stack.dim * stack.stream_word(precision, on_gpu) for stack in self.stacks)
        if self.decoder is None:
            return total
        scattered = self._coded and c.encoder_sees == "visible" and not c.final_norms
        if self.maps_between or scattered:  # the encoder's output, where the decoder's input is another tensor
            total += latent * word
        return total

    def _kept_at_the_end(self, precision: Precision) -> int:
        """The input of the map to pixels, and the error; or the pooled tokens, of which the class token is a view.

        The backward pass frees these first.
        """
        if self.decoder is None:
            whole = self.pool == "cls" or (self._coded and not self.config.final_norms)
            rows = self.encoder.rows * whole + self.images * (self.pool == "mean")
            return rows * self.config.dim * PRODUCT_WORD[precision]
        entering = self.images * self.config.num_patches * self.config.decoder_dim
        return entering * PRODUCT_WORD[precision] + self._pixels * WORD[precision]
