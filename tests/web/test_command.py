"""crate-mae serve as a person starts it; with the demo's model, 50 at once."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from crate_mae import ImageEncoder, MaskedAutoencoder, UserError, recipes
from crate_mae.cli import explore, main
from crate_mae.web import command
from crate_mae.web.command import address_of, bind, hosts_of, load_served
from crate_mae.web.limits import Limits
from tests.reports.test_inspect_measurements import for_digits
from tests.web.conftest import CLIENT, photo, png

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def demo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command's own process around a model of the demo's size."""
    folder = tmp_path_factory.mktemp("serve")
    MaskedAutoencoder(recipes.digits().model_config()).save(folder / "demo" / "checkpoints" / "best")
    words = [sys.executable, "-m", "crate_mae", "serve", "demo", "--port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        printed = ""
        while not (found := re.search(r"Serving on (\S+)", printed)):
            line = process.stdout.readline()
            assert line, printed
            printed += line
        assert "demo: CRATE-MAE" in printed
        yield process, found[1]
        process.kill()


def test_fifty_at_once_are_all_answered_and_ctrl_c_ends_it(demo_server: tuple[subprocess.Popen[str], str]) -> None:
    process, address = demo_server
    start = threading.Barrier(50)
    picture = png(photo(400, 300), "JPEG")

    def one(number: int) -> tuple[int, dict]:
        start.wait()
        kinds = ["complete?ratio=0.5", "layers?", "layer?layer=2"]
        response = CLIENT.post(f"{address}/api/{kinds[number % 3]}&model=0", content=picture)
        return response.status_code, response.json()

    with ThreadPoolExecutor(50) as people:
        answers = list(people.map(one, range(50)))
    assert [status for status, _ in answers] == [200] * 50
    for kind in range(3):
        same = [answer for _, answer in answers[kind::3]]
        assert all(answer == same[0] for answer in same)
    assert CLIENT.get(f"{address}/").status_code == 200

    def sheet(_: int) -> int:
        start.wait()
        return CLIENT.post(f"{address}/api/sheet", content=picture).status_code

    with ThreadPoolExecutor(50) as people:
        assert list(people.map(sheet, range(50))) == [200] * 50
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert process.stdout is not None
    assert "Traceback" not in process.stdout.read()


def served(tmp_path: Path, *models: MaskedAutoencoder) -> list[Path]:
    return [model.save(tmp_path / f"run{number}" / "checkpoints" / "best") for number, model in enumerate(models)]


def test_two_models_share_a_grid_and_keep_their_names(tmp_path: Path) -> None:
    paths = served(tmp_path, for_digits(), for_digits("vit_mae_base_he", image_size=(16, 16), patch_size=(4, 4)))
    assert [one.name for one in load_served(paths, CPU)] == ["run0", "run1"]
    assert [one.name for one in load_served([paths[0].parents[1]] * 2, CPU)] == ["run0 (1)", "run0 (2)"]


def errors(tmp_path: Path, taken: int) -> dict[str, tuple[list[str], str]]:
    good, other, channels = map(
        str, served(tmp_path, for_digits(), for_digits(image_size=(8, 4)), for_digits(channels=2))
    )
    encoder = str(ImageEncoder(for_digits().config).save(tmp_path / "encoder"))
    return {
        "port in use": (
            [good, "--port", str(taken)],
            f"can't listen on 127.0.0.1 port {taken} (Address already in use)",
        ),
        "no port": ([good, "--port", "70000"], "--port is 70000"),
        "no host": ([good, "--host", "no.such.host.invalid"], "not an address of this machine"),
        "no checkpoint": ([str(tmp_path), "--port", "0"], "no checkpoint"),
        "no decoder": ([encoder, "--port", "0"], "no decoder"),
        "grids": ([good, other, "--port", "0"], "4 x 4 and 4 x 2 patches"),
        "channels": ([channels, "--port", "0"], "2 channels"),
        "limit": ([good, "--max-upload-mb", "nan"], "--max-upload-mb"),
        "workers": ([good, "--workers", "0"], "--workers is 0"),
    }


def test_a_wrong_start_gets_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for name, (words, expected) in errors(tmp_path, taken.getsockname()[1]).items():
            with pytest.raises(SystemExit) as stop:
                main(["serve", *words])
            printed = capsys.readouterr()
            assert stop.value.code == 2, name
            assert expected in printed.err, name
            assert printed.err.count("\n") == 1, name


def test_without_the_extra_it_says_which_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explore, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stop:
        main(["serve", "owner/name"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == (
        "crate-mae: error: the page needs the extra web; pip install 'crate-mae[web]' installs it.\n"
    )


def test_too_few_descriptors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "descriptors", lambda: 50)
    with pytest.raises(UserError, match=r"only 50 files may be open at once; allow more, as with ulimit -n 1024\."):
        command.configured(lambda *_: None, Limits())


def test_loopback_unless_told_otherwise() -> None:
    with bind("127.0.0.1", 0) as here, bind("0.0.0.0", 0) as everywhere:
        assert hosts_of(here, "127.0.0.1").loopback
        assert address_of(here, "127.0.0.1") == f"http://127.0.0.1:{here.getsockname()[1]}"
        assert not hosts_of(everywhere, "0.0.0.0").loopback
        assert address_of(everywhere, "0.0.0.0").startswith("http://localhost:")


def test_the_page_is_opened_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, ran = threading.Event(), []
    monkeypatch.setattr(command.webbrowser, "open", lambda address: opened.set())
    monkeypatch.setattr(command.uvicorn.Server, "run", lambda self, sockets: ran.append(sockets[0].getsockname()[0]))
    (path,) = served(tmp_path, for_digits())
    main(["serve", str(path), "--port", "0"])
    assert not opened.wait(0.1)
    main(["serve", str(path), "--port", "0", "--open"])
    assert opened.wait(10)
    assert ran == ["127.0.0.1"] * 2
