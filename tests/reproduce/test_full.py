"""The paper's scale: its recipes, the commands that start them, and what happens without the data."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from crate_mae.cli import main
from crate_mae.recipes import FINETUNE, PRETRAIN
from crate_mae.reproduce.paper_numbers import SETS
from crate_mae.reproduce.run_command import command
from crate_mae.reproduce.run_scales import digits, full
from crate_mae.reproduce.run_tasks import Finetuned, Pretrained
from crate_mae.reproduce.scales import Model
from crate_mae.reproduce.tasks import Place
from crate_mae.training.config import override

MODELS = [Model("crate", "small", "imagenet", 0), Model("visible", "base", "imagenet", 2, 5.0, 0.25)]
MODELS += [Model("vit", "base", "imagenet", 1)]


def settings(words: list[str]) -> list[str]:
    return [after for word, after in pairwise(words) if word == "--set"]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_command_starts_the_same_run(model: Model, tmp_path: Path) -> None:
    place = Place(tmp_path, full(), tmp_path / "data")
    pretrained, tuned = Pretrained(model), Finetuned(model, "cifar100")
    for task, recipes in ((pretrained, PRETRAIN), (tuned, FINETUNE)):
        config, folder = task.config(place), task.folder(place)
        words = command(config, folder)
        assert words[:1] == [config.task]
        assert words[words.index("--out") + 1] == str(folder)
        assert override(recipes[words[words.index("--recipe") + 1]](), settings(words)) == config
    assert tuned.config(place).checkpoint == str(pretrained.folder(place))


def test_the_commands_of_digits_too(tmp_path: Path) -> None:
    place = Place(tmp_path, digits())
    task = Finetuned(Model("crate", "base", "digits", 1), "digits", random=True)
    config = task.config(place)
    words = command(config, task.folder(place))
    assert override(FINETUNE[config.recipe](), settings(words)) == config


def test_full_is_the_papers_recipe() -> None:
    scale = full()
    for model in MODELS:
        config = scale.pretraining(model)
        assert (config.learning_rate, config.weight_decay, config.batch, config.data) == (3e-5, 0.1, 4096, "imagenet")
        assert config.mask_ratio == model.mask_ratio
        shape = config.model_config()
        assert shape.image_size == (224, 224)
        assert (shape.encoder_sees == "visible") == (model.variant == "visible")
        assert shape.family == ("vit" if model.variant == "vit" else "crate")
        if model.variant != "vit":
            assert shape.lambda_ == model.lambda_
        for data in SETS:
            tuned = scale.finetuning(model, data)
            assert (tuned.learning_rate, tuned.weight_decay, tuned.batch, tuned.data) == (5e-5, 0.01, 256, data)
            assert tuned.model_config() == shape


@pytest.mark.parametrize("name", ["table2", "table4", "figure5"])
def test_without_the_data_it_says_so(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", name, "--scale", "full", "--seeds", "1", "--data-root", str(tmp_path), "--out", str(tmp_path)])
    cells = json.loads((tmp_path / name / f"{name}.json").read_text())["cells"]
    assert {cell["note"] for cell in cells} == {"not run: data missing"}
    printed = capsys.readouterr().out
    assert "not run: data missing" in printed
    assert "crate-mae pretrain --recipe crate_mae_base_imagenet" in printed
    assert not (tmp_path / "models").exists()
