"""Classification from the class token."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from crate_mae.errors import UserError
from crate_mae.models.config import ModelConfig
from crate_mae.models.image_model import ImageModel
from crate_mae.models.initialise import initialise


class Classifier(ImageModel):
    """u = W^head LN(z_cls): one score for each class (appendix B.1).

    The LN is the encoder's final norm where it has one, and a norm of the classifier's own where it has not.
    """

    kind = "classifier"

    def __init__(self, config: ModelConfig, class_names: Sequence[str], generator: torch.Generator | None = None):
        super().__init__(config, masks=False)
        if len(class_names) < 2 or not all(isinstance(name, str) for name in class_names):
            raise UserError(f"a classifier needs at least two classes with words for names, not {class_names!r}.")
        self.class_names = tuple(class_names)
        self.norm = nn.Identity() if config.final_norms else nn.LayerNorm(config.dim, eps=config.final_norm_eps)
        self.head = nn.Linear(config.dim, len(class_names), bias=False)
        initialise(self, generator)

    @classmethod
    def on(
        cls, model: ImageModel, class_names: Sequence[str], generator: torch.Generator | None = None
    ) -> "Classifier":
        """A classifier that starts from a copy of a model's embedding and encoder; the head is new."""
        classifier = cls(model.config, class_names, generator)
        classifier.adopt_encoder(model)
        return classifier

    def extras(self) -> dict[str, Any]:
        return {"class_names": list(self.class_names)}

    def forward(self, images: Tensor) -> Float[Tensor, "b classes"]:
        return self.head(self.norm(self.features(images)))
