"""Complete run configurations by name. A recipe is a function; its docstring has the command, hardware, time, result.

In the code, ``# paper`` marks a value that the paper states and ``# ours`` a value that it leaves open. A recipe that
was never run to its end says "not measured".
"""

from collections.abc import Callable
from typing import TypeVar

from crate_mae.errors import UserError, did_you_mean
from crate_mae.recipes.fine_tuning import (
    finetune_cifar10,
    finetune_cifar100,
    finetune_cpu,
    finetune_digits,
    finetune_flowers102,
    finetune_oxford_pets,
)
from crate_mae.recipes.imagenet import (
    crate_mae_base_imagenet,
    crate_mae_small_imagenet,
    vit_mae_base_imagenet,
    vit_mae_small_imagenet,
)
from crate_mae.recipes.small_data import DIGITS_SHAPE as DIGITS_SHAPE
from crate_mae.recipes.small_data import (
    cifar10_cpu,
    cifar10_paper_cpu,
    digits,
    digits_paper,
    imagenette_cpu,
    tiny_imagenet_cpu,
)
from crate_mae.training.config import FinetuneConfig, PretrainConfig, RunConfig

PRETRAIN: dict[str, Callable[[], PretrainConfig]] = {
    recipe.__name__: recipe
    for recipe in (
        digits,
        digits_paper,
        cifar10_cpu,
        cifar10_paper_cpu,
        imagenette_cpu,
        tiny_imagenet_cpu,
        crate_mae_small_imagenet,
        crate_mae_base_imagenet,
        vit_mae_small_imagenet,
        vit_mae_base_imagenet,
    )
}
FINETUNE: dict[str, Callable[[], FinetuneConfig]] = {
    recipe.__name__: recipe
    for recipe in (
        finetune_digits,
        finetune_cpu,
        finetune_cifar10,
        finetune_cifar100,
        finetune_flowers102,
        finetune_oxford_pets,
    )
}
Config = TypeVar("Config", bound=RunConfig)


def find(name: str, recipes: dict[str, Callable[[], Config]]) -> Config:
    """The recipe of that name; for an unknown name, the error suggests one."""
    if name in recipes:
        return recipes[name]()
    raise UserError(f"there is no recipe {name}; {did_you_mean(name, recipes)}")
