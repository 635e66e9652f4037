"""Every recipe by name and through JSON, and what the paper fixes in its own."""

import json

import pytest

from crate_mae.errors import UserError
from crate_mae.recipes import FINETUNE, PRETRAIN, find
from crate_mae.reproduce import run_scales

RECIPES = PRETRAIN | FINETUNE


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_passes_through_json(name: str) -> None:
    config = RECIPES[name]()
    text = json.dumps(config.to_dict())
    assert type(config)(**json.loads(text)) == config
    assert config.recipe == name
    assert find(name, RECIPES) == config


def test_a_recipe_that_does_not_exist() -> None:
    with pytest.raises(UserError, match="did you mean digits"):
        find("digit", PRETRAIN)
    with pytest.raises(UserError, match="there are digits, digits_paper, cifar10_cpu"):
        find("zzzzz", PRETRAIN)


def test_the_paper_s_fine_tuning_reads_the_class_token_and_ours_the_mean() -> None:
    pools = {name: recipe().pool for name, recipe in FINETUNE.items()}
    ours = {"finetune_digits", "finetune_cpu"}
    assert {name for name, pool in pools.items() if pool == "mean"} == ours
    assert {config.pool for config in run_scales.digits().finetune.values()} == {"cls"}
