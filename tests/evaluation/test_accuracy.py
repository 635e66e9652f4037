import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, top_k_accuracy_score

from crate_mae.cli import main
from crate_mae.data.source import ArrayImages, Subset
from crate_mae.errors import UserError
from crate_mae.evaluation.accuracy import Marks, evaluate
from crate_mae.models.classifier import Classifier
from tests.conftest import small_model
from tests.data.conftest import write

NAMES = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
QUIET = Console(quiet=True)


def lively(names: list[str] = NAMES) -> Classifier:
    """A classifier of random weights that gives every class to some pictures."""
    model = Classifier.on(small_model("crate_mae_tiny"), names, torch.Generator().manual_seed(3), pool="cls").eval()
    with torch.no_grad():
        model.head.weight -= model.head.weight.mean(0)
        model.head.weight *= 20
    return model


def pictures(labels: np.ndarray, names: list[str] = NAMES) -> ArrayImages:
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (len(labels), 3, 4, 3), dtype=np.uint8)
    return ArrayImages("set", colours.repeat(4, 1).repeat(5, 2), labels, names)


LABELS = np.random.default_rng(1).integers(0, 8, 150)


def direct_scores(model: Classifier, source: ArrayImages) -> np.ndarray:
    """One image at a time, by the public API."""
    with torch.no_grad():
        rows = [model(model.preprocess(source.read(index))[None])[0] for index in range(len(source))]
    return torch.stack(rows).numpy()


def test_marks_are_those_of_scikit_learn() -> None:
    model, source = lively(), pictures(LABELS)
    scores = direct_scores(model, source)
    predicted = scores.argmax(1)
    assert len(set(predicted)) >= 5
    marks = evaluate(model, source, batch_size=64, console=QUIET)
    assert np.array_equal(marks.counts, confusion_matrix(LABELS, predicted, labels=range(8)))
    assert marks.top1 == pytest.approx(100 * accuracy_score(LABELS, predicted))
    assert marks.top5 == pytest.approx(100 * top_k_accuracy_score(LABELS, scores, k=5, labels=range(8)))
    assert marks.mean_class == pytest.approx(100 * balanced_accuracy_score(LABELS, predicted))
    assert marks.images == 150
    most = marks.confusions[0]
    pairs = [(NAMES[a], NAMES[b]) for a, b in zip(LABELS, predicted, strict=True) if a != b]
    assert most.images == max(pairs.count(pair) for pair in set(pairs)) == pairs.count((most.true, most.predicted))
    assert sum(each.images for each in marks.confusions) == len(pairs)


def test_classes_are_matched_by_name() -> None:
    model, source = lively(), pictures(LABELS)
    expected = evaluate(model, source, console=QUIET)
    order = np.random.default_rng(2).permutation(8)
    other = pictures(np.argsort(order)[LABELS], ["unused, unknown"] + [NAMES[place] for place in order])
    other.labels = other.labels + 1
    assert np.array_equal(evaluate(model, other, console=QUIET).counts, expected.counts)
    some = np.flatnonzero(LABELS < 3)
    few = Subset(pictures(LABELS, NAMES[:3] + ["x"] * 5), some)
    marks = evaluate(model, few, console=QUIET)
    assert np.array_equal(marks.counts[:3], expected.counts[:3])
    assert [each.name for each in marks.classes] == ["ant", "bee", "cat"]
    assert not marks.counts[3:].any()


def test_classes_that_do_not_fit_get_one_sentence() -> None:
    foreign = pictures(np.array([0, 1, 2]), ["ant", "wolf", "lynx"])
    with pytest.raises(UserError, match="no class lynx, wolf;"):
        evaluate(lively(), foreign, console=QUIET)
    many = pictures(np.arange(30), [f"{number:02d}" for number in range(30)])
    with pytest.raises(UserError, match="18, 19 and 10 more;"):
        evaluate(lively(), many, console=QUIET)
    twins = lively(["crane", "crane", "bee"])
    with pytest.raises(UserError, match="several classes are called crane"):
        evaluate(twins, pictures(np.array([0]), ["crane"]), console=QUIET)
    same = evaluate(twins, pictures(np.array([0, 1, 2]), ["crane", "crane", "bee"]), console=QUIET)
    assert same.counts.sum(1).tolist() == [1, 1, 1]  # the same list: its order tells
    assert same.top5 is None


def test_a_hundred_classes() -> None:
    names = [f"class {number}" for number in range(120)]
    labels = np.arange(120)
    model, source = lively(names), pictures(labels, names)
    scores = direct_scores(model, source)
    marks = evaluate(model, source, console=QUIET)
    assert marks.top5 == pytest.approx(100 * top_k_accuracy_score(labels, scores, k=5))
    assert len(marks.to_dict()["classes"]) == 120
    assert sum("class " in line for line in marks.summary()) == 20  # ten worst and ten confusions


@pytest.mark.parametrize(("right", "trials"), [(0, 1), (0, 40), (7, 9), (40, 40), (9731, 10_000)])
def test_the_interval_is_wilsons(right: int, trials: int) -> None:
    """Each p that has k of n within z standard deviations: |k - n p| <= z sqrt(n p (1 - p))."""
    counts = np.array([[right, trials - right], [0, 0]])
    ends = [end / 100 for end in Marks(("a", "b"), counts, right, ()).interval]
    assert 0 <= ends[0] <= right / trials <= ends[1] <= 1
    for p in ends:
        if 1e-9 < p < 1 - 1e-9:
            deviations = abs(right - trials * p) / math.sqrt(trials * p * (1 - p))
            assert deviations == pytest.approx(1.959963984540054, abs=1e-6)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(40):
        write(tmp_path / "set" / "test" / NAMES[number % 4] / f"{number:02d}.png", number)
    return tmp_path / "set"


@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_images_are_named_and_do_not_count(tree: Path, workers: int) -> None:
    from crate_mae.data.open import open_dataset

    before = evaluate(lively(), open_dataset(tree, "test"), console=QUIET)
    for number in range(15):  # more in a row than a training run would bear
        (tree / "test" / "bee" / f"{number:02d}x.png").write_text("no image")
    after = evaluate(lively(), open_dataset(tree, "test"), batch_size=8, workers=workers, console=QUIET)
    assert np.array_equal(after.counts, before.counts)
    assert len(after.unreadable) == 15
    assert "07x.png" in after.unreadable[7]


def test_evaluate_from_the_command_line(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "test" / "ant" / "bad.png").write_text("no image")
    lively().save(tmp_path / "run" / "checkpoints" / "best")
    out = tmp_path / "new" / "marks.json"
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", str(tmp_path / "run"), "--data", str(tree), "--out", str(out), "--batch-size", "16"])
    assert stop.value.code == 1
    printed, errors = capsys.readouterr()
    assert errors.endswith("1 of 41 images can't be read.\n")
    stored = json.loads(out.read_text())
    assert f"top-1 accuracy    {stored['top1']:6.2f} %" in printed
    assert "(4 of 8 classes)" in printed
    assert "    40     (1 unreadable)" in printed
    assert stored["images"] == 40
    assert stored["split"] == "test"
    assert [each["name"] for each in stored["classes"]] == NAMES[:4]
    assert sum(each["right"] for each in stored["classes"]) == pytest.approx(stored["top1"] * 0.4)
    low, high = stored["top1_interval_95"]
    assert low < stored["top1"] < high
    assert "bad.png" in stored["unreadable"][0]


def test_a_folder_without_splits_says_which_images_were_evaluated(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = str(lively().save(tmp_path / "checkpoint"))
    main(["evaluate", checkpoint, "--data", str(tree / "test")])
    carved = capsys.readouterr()
    assert "--split all" in carved.err
    main(["evaluate", checkpoint, "--data", str(tree / "test"), "--split", "all"])
    whole = capsys.readouterr()
    assert "note" not in whole.err
    assert "images                40" in whole.out
    assert "images                40" not in carved.out


def test_what_can_not_be_evaluated_gets_one_sentence(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = str(lively().save(tmp_path / "checkpoint"))
    autoencoder = str(small_model("crate_mae_tiny").save(tmp_path / "autoencoder"))
    write(tree / "train" / "ant" / "0.png")
    write(tmp_path / "plain" / "0.png")
    write(tmp_path / "plain" / "1.png")
    (tmp_path / "broken" / "ant").mkdir(parents=True)
    (tmp_path / "broken" / "ant" / "0.png").write_text("no image")
    data = ["--data", str(tree)]
    cases = [
        ([autoencoder, *data], "crate-mae finetune"),
        ([checkpoint, "--data", str(tmp_path / "plain"), "--split", "all"], "crate-mae predict"),
        ([checkpoint, "--data", "digits"], "no class 0, 1, 2, 3"),
        ([checkpoint, "--data", str(tmp_path / "broken"), "--split", "all"], "none of the 1 images"),
        ([checkpoint, *data, "--split", "all"], "has the splits train, test"),
        ([checkpoint, *data, "--batch-size", "0"], "--batch-size is 0"),
        ([checkpoint, *data, "--workers", "-1"], "workers is -1"),
        ([checkpoint, "--data", str(tmp_path / "none")], "there is no folder"),
        ([checkpoint, *data, "--out", str(tmp_path)], "Is a directory"),
    ]
    for words, expected in cases:
        with pytest.raises(SystemExit) as stop:
            main(["evaluate", *words])
        printed = capsys.readouterr().err
        assert stop.value.code == 2
        assert expected in printed
        assert sum("error:" in line for line in printed.splitlines()) == 1


def test_marks_of_all_right_have_no_confusions() -> None:
    marks = Marks(("a", "b"), np.diag([3, 2]), 5, ())
    assert (marks.top1, marks.top5, marks.confusions) == (100, None, [])
    assert not any("confusions" in line for line in marks.summary())
