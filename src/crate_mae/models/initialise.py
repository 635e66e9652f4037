"""Initial weights."""

import torch
from torch import nn

from crate_mae.models.embedding import Handover, PatchEmbedding, Positions
from crate_mae.operators import ISTA, MSSA, OvercompleteISTA


@torch.no_grad()
def initialise(model: nn.Module, generator: torch.Generator | None = None) -> None:
    """Initialise a model with random weights, from ``generator`` or torch's global one.

    Dictionaries are Kaiming-uniform as in the paper's listing. The rest follows He et al.: linear maps and subspaces
    Xavier-uniform with zero biases, tokens and learned positions normal with standard deviation 0.02.
    """
    for module in model.modules():
        match module:
            case nn.Linear():
                nn.init.xavier_uniform_(module.weight, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            case MSSA():
                nn.init.xavier_uniform_(module.subspaces, generator=generator)
            case ISTA():
                nn.init.kaiming_uniform_(module.dictionary, generator=generator)
            case OvercompleteISTA():
                for dictionary in module.parameters():
                    nn.init.kaiming_uniform_(dictionary, generator=generator)
            case PatchEmbedding() | Handover():
                for token in module.parameters(recurse=False):
                    nn.init.normal_(token, std=0.02, generator=generator)
            case Positions() if module.learned:
                nn.init.normal_(module.table, std=0.02, generator=generator)
