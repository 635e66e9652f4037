"""The page in a real browser: by mouse, by keyboard, wide and narrow, light and dark, one model and two."""

import json
import re
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from crate_mae.web import views
from crate_mae.web.samples import samples
from crate_mae.web.views import choose_mask
from tests.web.conftest import CLIENT, CRATE, SERVED, app_of, photo, png, serving

Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def two() -> Iterator[str]:
    with serving(app_of()) as address:
        yield address


@pytest.fixture(scope="module")
def one() -> Iterator[str]:
    with serving(app_of(SERVED[0])) as address:
        yield address


@pytest.fixture
def visit(browser: Any) -> Iterator[Opened]:
    """Opens pages; afterwards, none may have complained or asked for anything elsewhere."""
    contexts, complaints, requests = [], [], []
    expected: list[str] = []

    def open_page(address: str, allowed: str = "", width: int = 1280, **options: Any) -> Any:
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append((address, request.url)))
        expected.append(allowed)
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    for address, url in requests:
        root = "/".join(address.split("/")[:3])
        assert url.startswith((root, f"blob:{root}", "data:")), url
    assert [words for words in complaints if not any(one and one in words for one in expected)] == []


def until(page: Any, condition: str, given: object = None, seconds: float = 60) -> None:
    """Wait; Playwright's own way evaluates strings in the page, which its policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition, given):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(20)


def settled(page: Any) -> Any:
    """When the picture is there and nothing is under way."""
    page.wait_for_selector(".completion:not([hidden]) img[src^=data]")
    until(
        page,
        "document.querySelectorAll('[aria-busy=true]').length === 0"
        " && [...document.querySelectorAll('.inside:not([hidden])')].every(one => one.querySelector('.quantity')"
        " && one.querySelector('.heads canvas'))",
    )
    return page


def mask(page: Any) -> str:
    return page.eval_on_selector_all(
        "#mask [role=gridcell]", "all => all.map(one => +(one.ariaSelected === 'true')).join('')"
    )


def shows(page: Any, painted: str) -> None:
    """The completion on the page is the model's for that mask of digit 0."""
    expected = views.complete(CRATE, samples(CRATE.config)["digit-0"].picture, choose_mask(CRATE, painted)).completed
    until(page, "url => document.querySelector('.completion img').src === url", expected)


def test_the_mask_is_painted_by_mouse(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    page.click("#clear")
    assert mask(page) == "0" * 16
    until(page, "document.querySelector('.completion .number').textContent === 'Nothing is masked'")
    box = page.locator("#mask").bounding_box()
    at = [(box["x"] + (column + 0.5) * box["width"] / 4, box["y"] + box["height"] * 0.4) for column in range(4)]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.mouse.move(*at[3])  # in one leap: no patch on the way is left out
    page.mouse.up()
    page.mouse.move(*at[1])
    assert mask(page) == "0000" + "1111" + "0" * 8
    shows(page, "0000" + "1111" + "0" * 8)
    page.mouse.click(*at[2])
    assert mask(page) == "0000" + "1101" + "0" * 8
    shows(page, "0000" + "1101" + "0" * 8)
    assert page.text_content("#ratio-out") == "3 of 16 patches"


def test_the_mask_is_painted_by_keyboard_and_read_aloud(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    page.focus("#clear")
    page.keyboard.press("Enter")
    page.locator("#mask [tabindex='0']").focus()
    for key in ["ArrowDown", "ArrowRight", " ", "Shift+ArrowRight", "ArrowUp", "Enter", "Control+End", "Home", "Space"]:
        page.keyboard.press(key)
    painted = "0010" + "0110" + "0000" + "1000"
    assert mask(page) == painted
    shows(page, painted)
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "row 4, column 1, masked"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px"
    until(page, "document.getElementById('status').textContent.startsWith('4 of 16 patches masked. ')")
    page.keyboard.press("Tab")  # one stop for the whole grid
    assert page.evaluate("document.activeElement.id") == "ratio"


def test_ratio_seed_and_layer_move_what_is_shown(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    page.fill("#ratio", "50")
    page.fill("#seed", "7")
    drawn = choose_mask(CRATE, None, 0.5, 7)[0]
    expected = "".join(str(int(place)) for place in drawn)
    until(
        page,
        "mask => [...document.querySelectorAll('#mask [role=gridcell]')]"
        ".map(one => +(one.ariaSelected === 'true')).join('') === mask",
        expected,
    )
    shows(page, expected)
    picture = samples(CRATE.config)["digit-0"].picture
    numbers = views.layers(CRATE, picture)
    for layer in (1, 2):
        page.fill("#layer", str(layer))
        settled(page)
        share = 100 * numbers.curves["sparsity"][layer - 1]
        shown = page.locator(".quantity", has_text="Sparsity").locator("b").text_content()
        assert float(shown.removesuffix(" %")) == pytest.approx(share, abs=0.051)
        ends = page.locator(".quantity", has_text="Sparsity").locator("p.quiet").text_content()
        first, last = re.fullmatch(r"([\d.]+) % in layer 1, ([\d.]+) % in layer 2", ends).groups()
        assert float(first) == pytest.approx(100 * numbers.curves["sparsity"][0], abs=0.051)
        assert float(last) == pytest.approx(100 * numbers.curves["sparsity"][-1], abs=0.051)
        rate = page.locator(".quantity", has_text="compression").locator("b").text_content()
        expected_rate = numbers.curves["compression"][layer - 1]
        assert float(rate.removesuffix(" nats").replace(",", "")) == pytest.approx(expected_rate, rel=1e-3)
        largest = max(max(row) for row in views.layer(CRATE, picture, layer).attention[3])
        label = f"Attention of head 4 at layer {layer}, largest weight "
        page.wait_for_selector(f".heads canvas[aria-label^='{label}']")
        said = page.locator(".heads canvas").nth(3).get_attribute("aria-label").removeprefix(label)
        assert float(said) == pytest.approx(largest, rel=0.05)
    assert page.locator(".heads canvas").count() == 4


def test_two_models_side_by_side_or_one(two: str, visit: Opened) -> None:
    page = settled(visit(two))
    visible = page.locator(".completion:visible .by")
    assert visible.all_text_contents() == ["by CRATE-MAE", "by ViT-MAE"]
    missing = page.locator(".inside", has_text="ViT-MAE ordinary").locator(".missing").text_content()
    assert missing.startswith("Does not exist for a ViT-MAE: it is measured against the subspaces U")
    page.locator("#views input").nth(1).check()
    settled(page)
    assert visible.all_text_contents() == ["by ViT-MAE"]
    page.keyboard.press("ArrowLeft")
    settled(page)
    assert visible.all_text_contents() == ["by CRATE-MAE"]
    assert page.locator(".missing:visible").count() == 0


def test_a_photo_is_taken_and_a_bad_file_is_told(one: str, visit: Opened, tmp_path: Path) -> None:
    page = settled(visit(one, allowed="status of 415"))
    before = page.get_attribute("#original", "src")
    (tmp_path / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    page.set_input_files("#file", tmp_path / "drawing.svg")
    page.wait_for_selector("[role=alert] .message")
    assert "This is no JPEG" in page.text_content("[role=alert]")
    assert page.get_attribute("#original", "src") == before
    (tmp_path / "huge.jpg").write_bytes(bytes(11_000_000))
    page.set_input_files("#file", tmp_path / "huge.jpg")
    until(page, "document.querySelector('[role=alert]').textContent.includes('the limit is 10 MB')")
    (tmp_path / "photo.png").write_bytes(png(photo()))
    page.set_input_files("#file", tmp_path / "photo.png")
    until(page, "document.getElementById('original-note').textContent.startsWith('Photo.png, resized')")
    assert page.locator(".message").count() == 0
    settled(page)
    assert page.evaluate("document.getElementById('original').naturalWidth") == 8
    dropped = (
        "file => { const data = new DataTransfer(); data.items.add(new File([new Uint8Array(file)], 'dropped.png'));"
    )
    page.evaluate(
        f"{dropped} window.dispatchEvent(new DragEvent('drop', {{ dataTransfer: data }})); }}", list(png(photo()))
    )
    until(page, "document.getElementById('original-note').textContent.startsWith('Dropped.png')")


def test_a_busy_server_is_told_and_asked_again(one: str, visit: Opened) -> None:
    page = settled(visit(one, allowed="status of 503"))
    refused = []

    def turn_away(route: Any) -> None:
        refused.append(time.monotonic())
        problem = json.dumps({"error": "the server is busy: 66 requests are before this one; try again in a moment."})
        route.fulfill(status=503, body=problem, headers={"Retry-After": "1", "Content-Type": "application/json"})

    page.route("**/api/complete**", turn_away, times=1)
    page.fill("#seed", "5")
    message = page.wait_for_selector(".message.busy")
    assert "busy" in message.text_content()
    assert "This page does so in 1 s" in message.text_content()
    page.wait_for_selector(".message", state="detached")
    assert len(refused) == 1
    drawn = choose_mask(CRATE, None, 0.75, 5)[0]
    shows(page, "".join(str(int(place)) for place in drawn))


def test_the_picture_is_saved(two: str, visit: Opened) -> None:
    page = settled(visit(two))
    with page.expect_download() as waiting:
        page.click("#save")
    assert waiting.value.suggested_filename == "crate-mae-completion.png"
    saved = Path(waiting.value.path()).read_bytes()
    with Image.open(BytesIO(saved)) as picture:
        assert picture.width > 3 * picture.height
    expected = CLIENT.post(f"{two}/api/sheet", params={"sample": "digit-0", "mask": mask(page)}, timeout=60).content
    assert saved == expected


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_until_chosen(one: str, visit: Opened, scheme: str) -> None:
    page = visit(one, color_scheme=scheme)
    other = {"light": "dark", "dark": "light"}[scheme]

    def brightness() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))

    assert (brightness() > 380) == (scheme == "light")
    page.select_option("#theme", other)
    assert (brightness() > 380) == (other == "light")
    page.reload()
    assert (brightness() > 380) == (other == "light")
    assert page.input_value("#theme") == other


@pytest.mark.parametrize("path", ["/", "/api"])
def test_nothing_is_wider_than_a_phone(two: str, visit: Opened, path: str) -> None:
    page = visit(f"{two}{path}", width=360, has_touch=True)
    if path == "/":
        settled(page)
        assert page.locator("#mask").bounding_box()["width"] > 280
    else:
        page.wait_for_selector("main section")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_everything_has_a_name_that_can_be_read_aloud(two: str, visit: Opened) -> None:
    page = settled(visit(two))
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, canvas, svg, .surface img')].filter((one) => {
          const labels = [...(one.labels ?? [])].map((label) => label.textContent);
          return one.id !== 'under' && ![one.ariaLabel, one.alt, one.textContent.trim(), ...labels].some(Boolean);
        }).map((one) => one.outerHTML)"""
    )
    assert nameless == []
    assert page.evaluate("document.documentElement.lang") == "en"
    headings = page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(one => +one.tagName[1])")
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(headings))
