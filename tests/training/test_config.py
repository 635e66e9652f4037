"""``--set key=value``: each kind of value, typos, and what contradicts itself."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from crate_mae.cli.arguments import given
from crate_mae.errors import UserError
from crate_mae.recipes import digits, finetune_digits
from crate_mae.training.config import FinetuneConfig, PretrainConfig, override
from crate_mae.training.run_folder import Run, configured


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("steps=120", 120),
        ("learning_rate=3", 3.0),
        ("learning_rate=3e-5", 3e-5),
        ("flip=true", True),
        ("flip=No", False),
        ("clip=none", None),
        ("clip=0.5", 0.5),
        ("betas=0.9,0.99", (0.9, 0.99)),
        ("crop_area=(0.2, 1)", (0.2, 1.0)),
        ("randaugment=none", None),
        ("randaugment=2,14", (2, 14)),
        ("precision=float64", "float64"),
        ("preset=official", "official"),
        ("data=a folder=with signs", "a folder=with signs"),
        ("data_root=none", None),
        ("data_root=/mnt/sets", "/mnt/sets"),
    ],
)
def test_a_value_is_read_as_its_field(setting: str, value: object) -> None:
    found = getattr(override(digits(), [setting]), setting.partition("=")[0])
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("model.dim=24", 24),
        ("model.lambda_=5", 5.0),
        ("model.image_size=32", (32, 32)),
        ("model.image_size=16,32", (16, 32)),
        ("model.mean=0.1,0.2,0.3", (0.1, 0.2, 0.3)),
        ("model.qkv_bias=no", False),
        ("model.encoder_sees=visible", "visible"),
    ],
)
def test_a_value_of_the_model_is_read_as_its_field(setting: str, value: object) -> None:
    key = setting.partition("=")[0].removeprefix("model.")
    config = override(digits(), [setting])
    assert config.model_settings == digits().model_settings | {key: value}
    assert type(config.model_settings[key]) is type(value)


def test_of_finetuning_too() -> None:
    config = override(finetune_digits(), ["image_size=24", "random=yes", "mixup=0.8"])
    assert (config.image_size, config.random, config.mixup) == ((24, 24), True, 0.8)


def test_intervals_of_evaluation_are_set_together_or_one_by_one() -> None:
    assert override(digits(), ["evaluate_every=7"]).evaluators == {"reconstruction": 7, "representation": 7}
    mixed = override(digits(), ["evaluate_every=7", "evaluators.representation=21"])
    assert mixed.evaluators == {"reconstruction": 7, "representation": 21} != digits().evaluators
    with pytest.raises(UserError, match="evaluators lacks reconstruction, whose val_loss chooses the best checkpoint"):
        replace(digits(), evaluators={"representation": 7})
    with pytest.raises(UserError, match="one of reconstruction, representation"):
        replace(digits(), evaluators={"reconstruction": 7, "accuracy": 7})


def test_intervals_that_are_not_set_follow_the_steps_of_a_recipe() -> None:
    recipe = digits()
    every = recipe.steps // recipe.evaluators["reconstruction"]
    short = override(recipe, ["steps=30"], scale_intervals=True)
    assert set(short.evaluators.values()) == {30 // every}
    assert (short.log_every, short.checkpoint_every) == (1, 30 * recipe.checkpoint_every // recipe.steps)
    long = override(recipe, ["steps=15000"], scale_intervals=True)
    assert set(long.evaluators.values()) == {15000 // every}
    assert (long.log_every, long.checkpoint_every) == (recipe.log_every, recipe.checkpoint_every)
    words = ["steps=30", "evaluators.representation=7", "log_every=4", "checkpoint_every=500"]
    given = override(recipe, words, scale_intervals=True)
    assert given.evaluators == {"reconstruction": 30 // every, "representation": 7}
    assert (given.log_every, given.checkpoint_every) == (4, 500)
    assert override(recipe, [], scale_intervals=True) == recipe
    assert override(recipe, ["steps=30"]) == replace(recipe, steps=30)  # a run that is resumed keeps its own


def test_the_last_word_counts_and_the_recipe_stays() -> None:
    assert override(digits(), ["steps=1", "model.dim=24", "steps=2", "model.dim=48"]).model_settings["dim"] == 48
    assert digits().model_settings["dim"] == 192


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("stesp=3", "did you mean steps?"),
        ("lerning_rate=3", "did you mean learning_rate?"),
        ("model.dmi=3", "did you mean model.dim?"),
        ("lambda=3", "did you mean model.lambda_?"),
        ("model.steps=3", "did you mean steps?"),
        ("dim=3", "did you mean model.dim?"),
        ("zzzzzz=3", "there are accumulation, batch"),
        ("evaluate_every=0", "evaluate_every is 0; choose a whole number from 1 up"),
        ("evaluators.reconstructoin=3", "did you mean evaluators.reconstruction?"),
        ("evaluators=3", "there is no setting evaluators"),
        ("recipe=other", "there is no setting recipe"),
        ("steps", "takes key=value, not 'steps'"),
        ("steps=many", "steps is 'many'; choose a whole number from 1 up"),
        ("steps=1.5", "steps is '1.5'; choose a whole number from 1 up"),
        ("steps=", "steps is ''; choose a whole number from 1 up"),
        ("learning_rate=fast", "choose a number from 0 up"),
        ("learning_rate=nan", "learning_rate is nan; choose finite numbers"),
        ("flip=perhaps", "choose true or false"),
        ("clip=some", "clip is 'some'; choose a number above 0, or none"),
        ("clip=0", "clip is 0.0; choose a number above 0, or none"),
        ("betas=0.9", "choose two numbers from 0 to below 1 with a comma between"),
        ("betas=0.9,1", "betas is (0.9, 1.0); choose two numbers from 0 to below 1"),
        ("randaugment=2,1.5", "choose two whole numbers with a comma between, or none"),
        ("precision=half", "choose one of auto, float32, bfloat16, float64"),
        ("batch=0", "batch is 0; choose a whole number from 1 up"),
        ("accumulation=3", "does not divide batch=64"),
        ("mask_ratio=1.5", "choose a number from 0 to 1"),
        ("seed=" + "9" * 5000, "choose a whole number from 0 up"),
        ("steps=" + "9" * 400, "choose a whole number from 1 up"),
        ("learning_rate=1e400", "choose finite numbers"),
        ("model.std=1e-46", "choose several numbers from 1e-06 to 1,000,000"),
        ("model.mean=1e300", "choose several numbers from -1,000,000 to 1,000,000"),
        ("model.dim=x", "model.dim is 'x'; choose a whole number from 1 to 1,000,000"),
    ],
)
def test_a_mistake_is_a_sentence(setting: str, hint: str) -> None:
    with pytest.raises(UserError) as error:
        override(digits(), [setting])
    assert hint in str(error.value)


def test_every_field_passes_through_json_when_it_is_changed() -> None:
    changed = replace(
        digits(), preset="official", clip=None, randaugment=(1, 2), data_root="x", precision="float64", flip=True
    )
    again = PretrainConfig(**json.loads(json.dumps(changed.to_dict())))
    for item in fields(changed):
        assert getattr(again, item.name) == getattr(changed, item.name)
        assert type(getattr(again, item.name)) is type(getattr(changed, item.name))


def test_a_number_that_is_not_finite_is_refused_from_python_too() -> None:
    with pytest.raises(UserError, match="choose finite numbers"):
        replace(digits(), learning_rate=math.inf)


def test_options_of_the_command_line_are_not_read_as_words(tmp_path: Path) -> None:
    options = given(checkpoint=Path("none"), random=False, data=" 3=4 ", data_root=None)
    assert options == {"checkpoint": "none", "data": " 3=4 "}  # --set would make None of the first, strip the second
    config = configured(Run(tmp_path), finetune_digits(), FinetuneConfig, options, ["seed=7"])
    assert config == replace(finetune_digits(), checkpoint="none", data=" 3=4 ", seed=7)
