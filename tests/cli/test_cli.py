"""The commands: what they print, and one sentence for whatever is wrong."""

import errno
import inspect
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from PIL import Image

import crate_mae
from crate_mae import atomic_write, recipes
from crate_mae.cli import VERBS, main
from crate_mae.cli.arguments import checked, recipe_verbs
from crate_mae.data.checking import processors
from crate_mae.training.config import FinetuneConfig, PretrainConfig
from tests.conftest import small_model

OWN = Path(__file__).parents[1] / "fixtures" / "official_tiny.safetensors"


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.effect_noise((40, 30), 80).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return small_model("crate_mae_tiny").save(tmp_path / "checkpoint")


def official(tmp_path: Path) -> Path:
    model = crate_mae.create_model("crate_mae_tiny", "official", image_size=32, depth=1)
    torch.save({"model": model.to_official()}, tmp_path / "official.pth")
    return tmp_path / "official.pth"


def test_the_seed_decides_the_mask(checkpoint: Path, picture: Path) -> None:
    def complete(seed: int) -> bytes:
        out = picture.parent / f"{seed}.png"
        main(["complete", str(picture), "--checkpoint", str(checkpoint), "--seed", str(seed), "--out", str(out)])
        return out.read_bytes()

    assert complete(0) == complete(0)
    assert complete(0) != complete(1)


def test_models_lists_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    main(["models"])
    printed = capsys.readouterr().out
    for word in ("crate_mae_large_visible", "44,638,464", "43,890,432", "143,790,336", "111,907,840"):
        assert word in printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("pretrain --recipe digit --out run", "there is no recipe digit; did you mean digits?"),
        ("pretrain --recipe finetune_digits --out run", "is a recipe of crate-mae finetune"),
        ("complete none.jpg --checkpoint checkpoint --out x.png", "there is no image or folder none.jpg."),
        ("probe checkpoint --data cifra10", "no set of that name; did you mean cifar10?"),
        ("probe none --data digits", "none is no checkpoint"),
        ("serve", "name a checkpoint"),
    ],
)
def test_what_needs_no_torch_is_checked_before_it_is_imported(words: str, sentence: str, tmp_path: Path) -> None:
    small_model("crate_mae_tiny").save(tmp_path / "checkpoint")
    script = f"""
import sys
from pathlib import Path
from crate_mae.cli import main
from crate_mae.models import shipped
shipped.ROOT = Path("none")
try:
    main({words.split()!r})
except SystemExit as stop:
    assert stop.code == 2
assert "torch" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert sentence in ran.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"crate-mae {crate_mae.__version__}\n"


def test_convert_then_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["convert", str(official(tmp_path)), "--from", "official", "--out", str(tmp_path / "out"), "--lambda", "0.2"])
    assert "an autoencoder" in capsys.readouterr().out
    config = crate_mae.load(tmp_path / "out").config
    assert (config.lambda_, config.eta, config.heads, config.preset) == (0.2, 0.1, 6, "official")


def test_zero_is_a_number_too(tmp_path: Path) -> None:
    main(["convert", str(official(tmp_path)), "--from", "official", "--out", str(tmp_path / "out"), "--lambda", "0"])
    assert crate_mae.load(tmp_path / "out").config.lambda_ == 0


def test_a_picture_without_a_suffix_is_a_png(checkpoint: Path, picture: Path) -> None:
    main(["complete", str(picture), "--checkpoint", str(checkpoint), "--out", str(picture.parent / "plain")])
    with Image.open(picture.parent / "plain") as drawn:
        assert drawn.format == "PNG"


def test_an_encoder_only_file_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = torch.load(official(tmp_path))["model"]
    torch.save({k: v for k, v in weights.items() if not k.startswith("decoder_")}, tmp_path / "encoder.pth")
    main(["convert", str(tmp_path / "encoder.pth"), "--from", "official", "--out", str(tmp_path / "out")])
    printed = capsys.readouterr()
    assert "without a decoder" in printed.err
    assert "an encoder" in printed.out


def errors(tmp_path: Path, picture: Path, checkpoint: Path) -> dict[str, tuple[list[str], str]]:
    """Each kind of bad input, and a word of the sentence that it gets."""
    cut = small_model("crate_mae_tiny").save(tmp_path / "cut")
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:2000])
    encoder = crate_mae.ImageEncoder(small_model("crate_mae_tiny").config).save(tmp_path / "encoder")
    out = ["--out", str(tmp_path / "out.png")]
    good = ["--checkpoint", str(checkpoint), *out]
    source = str(official(tmp_path))
    return {
        "no image": (["complete", str(tmp_path / "none.png"), *good], "no image"),
        "ratio": (["complete", str(picture), *good, "--mask-ratio", "2"], "ratio"),
        "no checkpoint": (["complete", str(picture), "--checkpoint", str(tmp_path), *out], "no checkpoint"),
        "truncated": (["complete", str(picture), "--checkpoint", str(cut), *out], "truncated"),
        "no decoder": (["complete", str(picture), "--checkpoint", str(encoder), *out], "no decoder"),
        "device": (["complete", str(picture), *good, "--device", "mps"], "mps"),
        "bad suffix": (["complete", str(picture), *good[:2], "--out", str(tmp_path / "out.xyz")], "--out"),
        "does not match": (["convert", source, "--from", "mae", "--out", str(tmp_path / "c")], "does not match"),
        "foreign option": (["convert", source, "--from", "official", "--norm-eps", "1e-6", *out], "--norm-eps"),
        "heads": (["convert", source, "--from", "official", "--heads", "7", *out], "does not divide"),
        "size": (["convert", source, "--from", "official", "--image-size", "30", *out], "patches of 16"),
        "no heads": (["convert", source, "--from", "official", "--heads", "0", *out], "heads is 0"),
        "no size": (["convert", source, "--from", "official", "--image-size", "0", *out], "image_size is 0"),
        "no step": (["convert", source, "--from", "official", "--eta", "0", *out], "eta is 0"),
        "folder as out": (["complete", str(picture), *good[:2], "--out", str(tmp_path)], "is a folder; name a file"),
        "device as out": (["complete", str(picture), *good[:2], "--out", "/dev/full"], "is a device or a pipe"),
        "file as out": (["demo", "--out", str(picture), "--steps", "1"], "is a file"),
        "below a file": (["demo", "--out", str(picture / "x"), "--steps", "1"], "Not a directory"),
        "negative seed": (["demo", "--seed", "-1", "--out", str(tmp_path / "demo")], "--seed"),
        "huge seed": (["complete", str(picture), *good, "--seed", "9" * 30], "--seed"),
        "no steps": (["demo", "--steps", "0", "--out", str(tmp_path / "demo")], "--steps"),
        "no such layer": (["inspect", str(checkpoint), "--data", "digits", "--layer", "9", *out], "layers 1 to 2"),
        "no such set": (["inspect", str(checkpoint), "--data", str(tmp_path / "none"), *out], "no folder"),
        "nothing to inspect": (["inspect", str(tmp_path), "--data", "digits", *out], "no checkpoint"),
        "no verb": ([], "name a command: demo, "),
        "no such option first": (["--nonsense"], "no command --nonsense"),
        "wrong verb": (["compleat"], "did you mean complete?"),
        "missing option": (["complete", str(picture)], "complete needs --out"),
        "missing place": (["probe", "--data", "digits"], "probe needs CHECKPOINT"),
        "missing value": (["pretrain", "--out"], "--out takes a path, and none is given"),
        "wrong option": (["complete", str(picture), *good, "--sede", "1"], "no option --sede; did you mean --seed?"),
        "wrong value": (["complete", str(picture), *good, "--seed", "x"], "--seed takes a whole number, not x"),
        "wrong value by =": (["complete", str(picture), *good, "--mask_ratio=x"], "--mask-ratio takes a number, not x"),
        "wrong choice": (["complete", str(picture), *good, "--device", "tpu"], "--device takes one of auto, cpu,"),
        "too few": (["complete", str(picture), *good, "--rectangle", "0", "1"], "--rectangle takes 4 numbers, not 0 1"),
        "wrong layer": (["probe", "x", "--data", "d", "--layer", "x"], "one of all or a whole number, not x"),
        "a word too many": (["models", "extra"], "can't use extra"),
        "words too many": (["models", "extra", "words"], "can't use extra; crate-mae models --help"),
        "recipe": (["pretrain", "--recipe", "digitz", *out], "did you mean digits?"),
        "recipe of another verb": (["pretrain", "--recipe", "finetune_digits", *out], "a recipe of crate-mae finetune"),
    }


def test_a_full_disk_gets_one_sentence_and_exit_code_2(
    tmp_path: Path,
    picture: Path,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(temporary: Path, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(atomic_write, "commit", full)
    with pytest.raises(SystemExit) as ended:
        main(["complete", str(picture), "--checkpoint", str(checkpoint), "--out", str(tmp_path / "out.png")])
    assert ended.value.code == 2
    assert "No space left" in capsys.readouterr().err
    assert not list(tmp_path.glob("*out.png*"))


def test_bad_input_gets_one_sentence_and_exit_code_2(
    tmp_path: Path, picture: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, (arguments, word) in errors(tmp_path, picture, checkpoint).items():
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        printed = capsys.readouterr()
        assert stop.value.code == 2, name
        assert word in printed.err + printed.out, name
        assert "Traceback" not in printed.err + printed.out, name
        assert printed.err.startswith("crate-mae: error:"), name
        assert printed.err.count("\n") == 1, name


COMMANDS = {
    "demo": [],
    "pretrain": ["--recipe", "digits"],
    "finetune": ["--recipe", "finetune_digits"],
    "probe": ["CHECKPOINT", "--data", "digits"],
    "evaluate": ["CHECKPOINT", "--data", "digits"],
    "predict": ["picture.png", "--checkpoint", "CHECKPOINT"],
    "inspect": ["CHECKPOINT", "--data", "digits"],
    "complete": ["picture.png", "--checkpoint", "CHECKPOINT"],
    "embed": ["digits", "--checkpoint", "CHECKPOINT"],
    "convert": ["picture.png", "--from", "mae"],
    "theory": [],
    "reproduce": ["table1"],
    "bench": [],
    "data pack": ["."],
}
"""Every verb that takes --out, with what else it needs."""


def test_every_verb_with_an_out_is_here() -> None:
    assert COMMANDS.keys() == {name for name, verb in VERBS.items() if "out" in inspect.signature(verb).parameters}


@pytest.mark.parametrize("verb", COMMANDS)
@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("x" * 5000, "File name too long"),
        ("a\0b", "NUL byte"),
        (os.fsdecode(b"\xff\xfe"), r"b'\xff\xfe' is not UTF-8"),
        ("loop/x", "symbolic links"),
    ],
    ids=["long", "NUL", "not UTF-8", "loop"],
)
def test_an_out_that_no_file_can_have(
    verb: str,
    out: str,
    words: str,
    picture: Path,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(picture.parent)
    Path("loop").symlink_to("loop")
    before = sorted(Path().rglob("*"))
    given = [str(checkpoint) if word == "CHECKPOINT" else word for word in COMMANDS[verb]]
    with pytest.raises(SystemExit) as stop:
        main([*verb.split(), *given, "--out", out])
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert len(printed.err) < 400
    assert sorted(Path().rglob("*")) == before


def test_images_behind_a_loop_of_links(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    with pytest.raises(SystemExit) as stop:
        main(["probe", str(checkpoint), "--data", "loop/x"])
    assert stop.value.code == 2
    assert "symbolic links" in capsys.readouterr().err


def test_a_name_that_is_not_utf8_is_printed(tmp_path: Path, checkpoint: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / os.fsdecode(b"a\xff.png"))
    command = [sys.executable, "-m", "crate_mae", "complete", b"a\xff.png", b"b\xff.png", "--checkpoint", checkpoint]
    result = subprocess.run([*command, "--out", "out"], cwd=tmp_path, capture_output=True, check=False)
    assert result.returncode == 2
    assert result.stderr == b"crate-mae: error: there is no image or folder b\\xff.png.\n"


@pytest.mark.parametrize("words", [["evaluate", "a\nb", "--data", "digits"], ["demo", "--steps", "a\r\nb"]])
def test_a_line_s_end_in_a_word_stays_in_the_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert said.count("\n") == 1
    assert "\\nb" in said


def test_more_workers_than_processors_are_capped_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        assert checked("embed", {"workers": 2**31}) == {"workers": processors()}
        assert checked("embed", {"workers": 1}) == {"workers": 1}
        assert checked("data check", {"workers": None}) == {"workers": None}
    (note,) = notes
    assert f"--workers is {2**31}, and this machine has {processors()} processors" in str(note.message)


def test_the_verb_of_a_recipe_follows_from_its_configuration() -> None:
    verbs = {PretrainConfig: "pretrain", FinetuneConfig: "finetune"}
    every = recipes.PRETRAIN | recipes.FINETUNE
    assert recipe_verbs() == {name: verbs[type(recipe())] for name, recipe in every.items()}


def test_cheap_checks_come_before_torch(tmp_path: Path, checkpoint: Path) -> None:
    good = str(checkpoint)
    cases = [
        ["pretrain", "--recipe", "digitz", "--out", "x"],
        ["finetune", "--recipe", "digits", "--out", "x"],
        ["plan", "--recipe", "digitz"],
        ["plan", "--recipe", "digits", "--set", "model.dimm=3"],
        ["pretrain", "--recipe", "digits", "--out", "x", "--set", "stepz=3"],
        ["pretrain", "--recipe", "digits", "--out", "x", "--set", "steps=many"],
        ["pretrain", "--out", "x"],
        ["finetune", "--recipe", "finetune_digits", "--out", "x", "--set", "drop_path=2"],
        ["bench", "--only", "bsae"],
        ["bench", "--race", "--only", "cifra10"],
        ["bench", "--race", "--seeds", "0"],
        ["reproduce", "tabel1"],
        ["reproduce", "table1", "--seeds", "0"],
        ["theory", "--seed", "-1"],
        ["demo", "--steps", "0"],
        ["inspect", good, "--data", "digits", "--images", "0"],
        ["inspect", good, "--data", "digits", "--threshold", "-1"],
        ["serve", good, "--port", "70000"],
        ["serve", good, "--max-waiting", "-1"],
        ["finetune", "--recipe", "finetune_digits", "--checkpoint", "none", "--out", "x"],
        ["probe", "none", "--data", "digits"],
        ["serve", "none"],
        ["complete", "a.png", "--checkpoint", "none", "--out", "x"],
        ["complete", "a.png", "--checkpoint", ".", "--out", "x"],
        ["complete", "a.png", "--checkpoint", good, "--mask", "m.png", "--mask-ratio", "0.5", "--out", "x"],
        ["complete", "a.png", "--checkpoint", good, "--out", "x", "--seed", "-1"],
        ["embed", "digits", "--checkpoint", good, "--out", "x.npz", "--batch-size", "0"],
        ["export", good],
        ["demo", "--out", "x" * 5000],
        ["complete", "a.png", "--sede", "1"],
    ]
    script = f"""
import sys
from crate_mae.cli import main
for words in {cases!r}:
    try:
        main(words)
    except SystemExit as stop:
        assert stop.code == 2, words
    else:
        assert False, words
    assert not {{"torch", "numpy", "matplotlib"}} & sys.modules.keys(), words
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


def test_no_traceback_from_a_real_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "crate_mae", "complete", "none.png", "--checkpoint", "none", "--out", "out.png"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(
        "crate-mae: error: none is no checkpoint: a checkpoint is a folder with config.json and model.safetensors "
        "(crate-mae convert makes one from other projects' files)"
    )
    assert result.stderr.count("\n") == 1
    assert not result.stdout
