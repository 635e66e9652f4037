"""The API over HTTP: answers, problems, headers, and what never reaches the disk."""

import sys
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

import crate_mae
from crate_mae.web import views
from crate_mae.web.guard import Hosts
from crate_mae.web.samples import samples
from crate_mae.web.static_files import FILES
from tests.web.conftest import CRATE, VIT, app_of, photo, png

PICTURE = png(photo())


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app_of(), base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client


def test_what_the_server_offers(client: TestClient) -> None:
    about = client.get("/api/about").json()
    assert about["version"] == crate_mae.__version__
    assert [(one["family"], one["grid"], one["layers"]) for one in about["models"]] == [
        ("CRATE-MAE", [4, 4], 2),
        ("ViT-MAE", [4, 4], 2),
    ]
    for sample in about["samples"]:
        picture = client.get(f"/api/samples/{sample['name']}")
        assert picture.headers["content-type"] == "image/png"


@pytest.mark.parametrize("index", [0, 1])
def test_the_api_gives_what_the_functions_behind_it_give(client: TestClient, index: int) -> None:
    model = [CRATE, VIT][index]
    mask = views.choose_mask(model, None, 0.5, 7)
    params = {"model": index, "ratio": 0.5, "seed": 7}
    drawn = client.post("/api/complete", params=params, content=PICTURE).json()
    assert drawn == views.complete(model, photo(), mask).model_dump()
    given = client.post("/api/complete", params={"model": index, "mask": drawn["mask"]}, content=PICTURE).json()
    assert given == drawn
    layers = client.post("/api/layers", params={"model": index}, content=PICTURE).json()
    assert layers == views.layers(model, photo()).model_dump()
    asked = {"model": index, "layer": 2, "convention": "authors", "threshold": 0.2}
    layer = client.post("/api/layer", params=asked, content=PICTURE).json()
    assert layer == views.layer(model, photo(), 2, "authors", 0.2).model_dump(mode="json")
    taken = client.post("/api/original", params={"model": index}, content=PICTURE)
    assert taken.content == views.original(model, photo())


def test_a_sample_stands_for_a_body(client: TestClient) -> None:
    answer = client.post("/api/layers?sample=digit-4").json()
    assert answer == views.layers(CRATE, samples(CRATE.config)["digit-4"].picture).model_dump()


SHEETS = {
    "sample=digit-1": "digit-1-ratio-0.75-seed-0",
    "sample=digit-2&ratio=0.3333333333&seed=12": "digit-2-ratio-0.333-seed-12",
    f"sample=digit-1&mask={'10' * 8}": "digit-1-painted-8-of-16",
}


def test_the_sheet_is_a_picture_of_all_models_or_one(client: TestClient) -> None:
    both = client.post("/api/sheet?sample=digit-1")
    one = client.post("/api/sheet?sample=digit-1&model=1")
    assert both.content[:8] == one.content[:8] == b"\x89PNG\r\n\x1a\n"
    assert both.content != one.content
    names = [client.post(f"/api/sheet?{words}").headers["content-disposition"] for words in SHEETS]
    assert names == [f'attachment; filename="crate-mae-{name}.png"' for name in SHEETS.values()]


WRONG = {
    "/api/complete?model=2": (422, "no model 2"),
    "/api/complete?model=-1": (422, "model: input should be greater"),
    "/api/complete?mask=0120": (422, "mask: "),
    "/api/complete?mask=01": (422, "2 entries"),
    f"/api/complete?mask={'1' * 16}": (422, "nothing visible"),
    "/api/complete?ratio=nan": (422, "ratio: "),
    "/api/complete?seed=4294967296": (422, "seed: "),
    "/api/complete?rato=0.5": (
        422,
        "there is no parameter rato; this address takes mask, ratio, seed, model, sample, fit",
    ),
    f"/api/complete?mask={'10' * 8}&seed=1": (422, "give mask, or ratio and seed, but not both"),
    "/api/complete?sample=digit-1&sample=digit-2": (422, "the parameter sample is given 2 times; give it once."),
    f"/api/complete?{'a' * 9000}=1": (422, f"there is no parameter {'a' * 40};"),
    "/api/layers?fit=shrink": (422, "fit: input should be 'stretch', 'crop' or 'pad'"),
    "/api/layers?layer=1": (422, "there is no parameter layer"),
    "/api/layer": (422, "layer: field required"),
    "/api/layer?layer=3": (422, "layers 1 to 2"),
    "/api/layer?layer=1&convention=mine": (422, "convention: "),
    "/api/complete?sample=../../etc/passwd": (404, "no such sample"),
    "/api/nothing": (404, "nothing at this address"),
    "/api/about": (405, "does not take this method"),
}


@pytest.mark.parametrize("address", WRONG)
def test_a_wrong_request_gets_one_sentence(client: TestClient, address: str) -> None:
    status, words = WRONG[address]
    response = client.post(address, content=PICTURE)
    assert response.status_code == status
    assert list(response.json()) == ["error"]
    assert words in response.json()["error"]


def test_an_address_without_parameters_takes_none(client: TestClient) -> None:
    for address in ("/api/about?a=b", "/api/samples/digit-1?size=9"):
        assert client.get(address).status_code == 422
        assert "this address takes none" in client.get(address).json()["error"]


def test_a_mistake_of_the_server_is_told_and_survived(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    with monkeypatch.context() as patch:
        patch.setattr(views, "layers", broken)
        response = client.post("/api/layers?sample=digit-1")
    assert response.status_code == 500
    assert "it keeps running" in response.json()["error"]
    assert "secret" not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert client.post("/api/layers?sample=digit-1").status_code == 200


@pytest.mark.parametrize("address", [*FILES, "/openapi.json", "/api/about", "/nothing"])
def test_every_answer_carries_the_policy(client: TestClient, address: str) -> None:
    response = client.get(address)
    assert response.status_code == (404 if address == "/nothing" else 200)
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("host", "loopback", "elsewhere"),
    [
        ("127.0.0.1:8000", True, True),
        ("localhost", True, True),
        ("[::1]:80", True, True),
        ("evil.example:8000", False, False),
        ("127.0.0.1.evil.example", False, False),
        ("192.168.1.5:8000", False, True),
        ("my-box:8000", False, True),
        ("[", False, False),
        ("", False, False),
    ],
)
def test_only_own_names_are_answered(client: TestClient, host: str, loopback: bool, elsewhere: bool) -> None:
    response = client.get("/api/about", headers={"Host": host})
    assert response.status_code == (200 if loopback else 421)
    assert Hosts(frozenset({"localhost", "my-box"}), loopback=False).allow(host) == elsewhere


def test_another_sites_page_can_send_nothing(client: TestClient) -> None:
    for origin, status in {
        "http://127.0.0.1:8000": 200,
        "http://evil.example": 403,
        "null": 403,
        "http://[": 403,
    }.items():
        response = client.post("/api/layers?sample=digit-1", headers={"Origin": origin})
        assert response.status_code == status
        assert "Content-Security-Policy" in response.headers


def test_the_pages_own_files_listen_to_nothing(client: TestClient) -> None:
    assert client.get("/?response=hello").content == client.get("/").content


OPENED: list[str] = []
WATCHING: list[bool] = []
sys.addaudithook(
    lambda event, given, on=WATCHING, opened=OPENED: opened.append(str(given[0])) if on and event == "open" else None
)


def test_no_path_from_a_request_reaches_the_disk(client: TestClient) -> None:
    def ask() -> None:
        for name in ("/etc/passwd", "..%2f..%2fetc%2fpasswd", "digit-1/../../x", "%00", "digit-1"):
            client.get(f"/api/samples/{name}")
            client.get(f"/{name}")
            client.get(f"/static/{name}")
            client.post(f"/api/layers?sample={name}")
        client.post("/api/complete?model=0", content=PICTURE, headers={"Content-Type": "file:///etc/passwd"})

    ask()  # what is imported once is not the question
    WATCHING.append(True)
    try:
        ask()
    finally:
        WATCHING.clear()
    assert OPENED == []


def test_the_openapi_document_says_everything(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/api/about",
        "/api/samples/{name}",
        *(f"/api/{name}" for name in ("original", "complete", "layers", "layer", "sheet")),
    }
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            assert all(one["description"] for one in operation.get("parameters", []))
            if "requestBody" in operation:
                assert operation["requestBody"]["content"].keys() == {"application/octet-stream", "multipart/form-data"}
                assert {"413", "415", "422", "503", "504"} <= operation["responses"].keys()
