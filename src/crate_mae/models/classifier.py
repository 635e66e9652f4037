"""Classification from the mean of the patches, or from the class token."""

from collections.abc import Sequence
from typing import Any, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from crate_mae.errors import UserError, brief
from crate_mae.models.config import ModelConfig, Pool
from crate_mae.models.image_model import ImageModel, Images
from crate_mae.models.initialise import initialise
from crate_mae.models.stack import Tokens
from crate_mae.usable_path import is_unicode


class Classifier(ImageModel):
    """u = W^head LN(z): one score for each class.

    z is the mean over the patches (``pool="mean"``), or the class token as in the paper (``pool="cls"``, appendix B.1).
    The LN is the encoder's final norm, applied before pooling, if it has one; otherwise a norm of the classifier's own.
    """

    kind = "classifier"

    def __init__(
        self,
        config: ModelConfig,
        class_names: Sequence[str],
        generator: torch.Generator | None = None,
        pool: Pool = "mean",
    ):
        super().__init__(config, masks=False)
        if pool not in get_args(Pool):
            raise UserError(f"pool is {brief(pool)}; a classifier reads 'mean' or 'cls'.")
        self.pool: Pool = pool
        self.class_names = _checked(class_names)
        self.norm = nn.Identity() if config.final_norms else nn.LayerNorm(config.dim, eps=config.final_norm_eps)
        self.head: nn.Module = nn.Linear(config.dim, len(class_names), bias=False)
        initialise(self, generator)

    @classmethod
    def on(
        cls,
        model: ImageModel,
        class_names: Sequence[str],
        generator: torch.Generator | None = None,
        pool: Pool = "mean",
    ) -> "Classifier":
        """A classifier that starts from a copy of a model's embedding and encoder; the head is new."""
        classifier = cls(model.config, class_names, generator, pool)
        classifier.adopt_encoder(model)
        return classifier

    def extras(self) -> dict[str, Any]:
        return {"class_names": list(_checked(self.class_names)), "pool": self.pool}

    def forward(self, images: Images) -> Float[Tensor, "b classes"]:
        return self.forward_head(self.forward_features(images))

    # --- timm's verbs ---

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def forward_head(self, tokens: Tokens, pre_logits: bool = False) -> Float[Tensor, "b classes"]:
        """The scores from ``forward_features``; with ``pre_logits`` the input of the head, LN(z)."""
        pooled = self.norm(self.pooled(tokens, self.pool))
        return pooled if pre_logits else self.head(pooled)

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(
        self,
        num_classes: int,
        class_names: Sequence[str] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        """A new head with random weights; the classes are named 0, 1, .. by default.

        With 0 classes there is no head, and the model returns the pooled features.
        """
        names = tuple(map(str, range(num_classes))) if class_names is None else tuple(class_names)
        if len(names) != num_classes:
            raise UserError(f"there are {len(names)} names for {num_classes} classes; give one name for each class.")
        if num_classes == 0:
            self.class_names, self.head = (), nn.Identity()
            return
        like = self.embedding.class_token
        self.class_names = _checked(names)
        self.head = nn.Linear(self.config.dim, num_classes, bias=False, device=like.device, dtype=like.dtype)
        self.head.train(self.training)
        initialise(self.head, generator)


def _checked(class_names: Sequence[str]) -> tuple[str, ...]:
    if len(class_names) < 2 or not all(isinstance(name, str) and is_unicode(name) for name in class_names):
        raise UserError(f"a classifier needs the names of at least two classes as text, not {brief(class_names)}.")
    return tuple(class_names)
