"""The page in a real browser: by mouse, by keyboard, wide and narrow, light and dark, one model and two."""

import json
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

from crate_mae import image_files
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
        " && document.querySelector('.quantity')"
        " && [...document.querySelectorAll('.inside:not([hidden])')].every(one => one.querySelector('.heads canvas'))",
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
    page = settled(visit(one, allowed="status of 422"))
    page.click("#clear")
    assert mask(page) == "0" * 16
    until(page, "document.querySelector('.completion .number').textContent === 'Nothing is masked'")
    page.click("#invert")
    assert "keep at least one patch" in page.wait_for_selector("#completion-section > .problem p").text_content()
    page.click("#clear")
    page.wait_for_selector(".message", state="detached")
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
    assert page.text_content("#mask-words") == "3 of 16 patches, painted"


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
    assert page.evaluate("document.activeElement.id") == "errors"


def drawn_mask(count: int, seed: int) -> str:
    return views.as_text(choose_mask(CRATE, None, count / 16, seed))


def masked(page: Any, expected: str) -> None:
    """Wait until the mask is this one."""
    cells = (
        "[...document.querySelectorAll('#mask [role=gridcell]')].map(one => +(one.ariaSelected === 'true')).join('')"
    )
    until(page, f"mask => {cells} === mask", expected)


def test_a_painting_is_not_lost_and_everything_can_be_undone(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    masked(page, drawn_mask(12, 0))
    assert page.is_disabled("#undo")
    page.click("#clear")
    box = page.locator("#mask").bounding_box()
    y = box["y"] + box["height"] * 0.4
    page.mouse.move(box["x"] + 5, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 5, y)
    page.mouse.up()
    painted = "0000" + "1111" + "0" * 8
    masked(page, painted)
    page.fill("#count", "3")  # a nudge of the slider leaves a painting alone
    page.focus("#count")
    page.keyboard.press("ArrowRight")
    page.fill("#seed", "4")
    page.keyboard.press("Enter")
    assert mask(page) == painted
    assert page.text_content("#mask-words") == "4 of 16 patches, painted"
    page.click("#random")
    masked(page, drawn_mask(4, 4))
    page.click("#random")  # another one at every press
    masked(page, drawn_mask(4, 5))
    assert page.text_content("#mask-words") == "4 of 16 patches, seed\xa05"
    page.keyboard.press("Control+z")
    masked(page, drawn_mask(4, 4))
    page.keyboard.press("Control+z")
    masked(page, painted)  # a stroke is one step
    shows(page, painted)
    page.click("#undo")
    masked(page, "0" * 16)
    page.click("#undo")
    masked(page, drawn_mask(12, 0))
    assert page.is_disabled("#undo")
    for expected in ("0" * 16, painted, drawn_mask(4, 4)):
        page.keyboard.press("Control+Shift+Z")
        masked(page, expected)
    page.keyboard.press("Control+y")
    masked(page, drawn_mask(4, 5))
    assert page.is_disabled("#redo")


def test_a_finger_paints_sideways_taps_and_scrolls_up_and_down(one: str, visit: Opened) -> None:
    page = settled(visit(one, width=390, has_touch=True, is_mobile=True))
    page.click("#clear")
    page.evaluate("document.querySelector('.paint').scrollIntoView()")
    page.wait_for_timeout(300)
    touch = page.context.new_cdp_session(page)
    box = page.locator("#mask").bounding_box()

    def swipe(*points: tuple[float, float]) -> None:
        at = [{"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]} for x, y in points]
        touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [at[0]]})
        for before, after in pairwise(at):
            for step in range(1, 9):
                point = {axis: before[axis] + (after[axis] - before[axis]) * step / 8 for axis in "xy"}
                touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        page.wait_for_timeout(200)

    swipe((0.1, 0.1))
    assert mask(page) == "1" + "0" * 15
    swipe((0.1, 0.4), (0.9, 0.4), (0.9, 0.9))  # once it paints, it may go anywhere
    painted = "1000" + "1111" + "0001" * 2
    masked(page, painted)
    before = page.evaluate("scrollY")
    swipe((0.5, 0.9), (0.5, 0.1))
    assert page.evaluate("scrollY") > before + 50
    assert mask(page) == painted


def test_masked_patches_are_hatched(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    style = "getComputedStyle(document.querySelector('#mask [aria-selected={}]')).backgroundImage"
    assert page.evaluate(style.format("true")).startswith("repeating-linear-gradient")
    assert page.evaluate(style.format("false")) == "none"
    last = "getComputedStyle(document.querySelector('#mask [role=row]:last-child > :last-child')).{}"
    assert page.evaluate(last.format("backgroundSize")) == "400% 400%"  # stripes run from patch to patch
    assert page.evaluate(last.format("backgroundPosition")) == "100% 100%"
    corners = page.locator(".surface").evaluate_all(
        "all => all.map(one => { const style = getComputedStyle(one); return [style.borderRadius, style.overflow]; })"
    )
    assert len(set(map(tuple, corners))) == 1


def test_the_map_of_errors_and_the_mean_patch(two: str, visit: Opened) -> None:
    page = settled(visit(two))
    answers = [
        views.complete(one.model, samples(CRATE.config)["digit-0"].picture, choose_mask(CRATE)) for one in SERVED
    ]
    for answer, words in zip(answers, page.locator(".completion .words").all_text_contents(), strict=True):
        said = float(words.removeprefix("over the masked patches; the mean patch gives ").removesuffix("."))
        assert said == pytest.approx(answer.mean_patch_error, rel=1e-3)
    assert page.locator(".completion canvas:visible").count() == 0
    page.check("#errors")
    largest = max(error for answer in answers for row in answer.errors for error in row if error is not None)
    labels = page.locator(".completion canvas:visible").evaluate_all("all => all.map(one => one.ariaLabel)")
    assert len(labels) == 2
    for label in labels:  # one scale for both
        assert float(label.rpartition(" ")[2]) == pytest.approx(largest, rel=1e-2)
    pixels = page.locator(".completion canvas").first.evaluate(
        "one => [...one.getContext('2d').getImageData(0, 0, 4, 4).data].filter((_, index) => index % 4 === 3)"
    )
    assert [int(pixel > 0) for pixel in pixels] == [int(place) for place in mask(page)]
    page.click("#clear")
    until(page, "[...document.querySelectorAll('.number')].every(one => one.textContent === 'Nothing is masked')")
    settled(page)  # without errors there is no map, and no scale of one
    assert page.locator(".completion canvas:visible, #error-scale:visible, .dimmed").count() == 0


def test_a_click_on_a_curve_chooses_the_layer(two: str, visit: Opened) -> None:
    page = settled(visit(two))
    assert page.input_value("#layer") == "1"
    page.locator(".quantity").nth(1).locator(".hit").nth(1).click()
    assert page.input_value("#layer") == "2"
    settled(page)
    page.wait_for_selector(".heads canvas[aria-label^='Attention of head 1 at layer 2']")
    assert page.locator(".quantity").nth(1).locator("polyline").count() == 2  # both models on one axis
    assert all("in layer 2" in words for words in page.locator(".value").all_text_contents())


CURVES = {  # as drawn for photographs: each has first or last values near another line
    "rising": [[1909, 2030, 1983, 2125, 2138, 2206]],
    "crossing": [[390.9, 418.2, 429.8, 442, 450.4, 456.8], [266.6, 448.2, 475.4, 486, 493.4]],
    "falling at the end": [[450.4, 418.2, 410, 300], [442, 430, 420, 410]],
    "equal": [[5, 5, 5], [5, 5, 5]],
}


def test_no_line_crosses_the_first_and_last_values(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    for name, values in CURVES.items():
        crossed = page.evaluate(
            """async (all) => {
              const { curves } = await import("/curves.js");
              const drawn = curves(all.map((values, order) => ({ values, order })), 6, 2, String, "", () => {});
              document.getElementById("numbers").replaceChildren(drawn);
              const labels = [...drawn.querySelectorAll("text[class*=line-]")];
              const boxes = labels.map((one) => one.getBBox());
              const points = [...drawn.querySelectorAll("polyline")].flatMap((line) => {
                const length = line.getTotalLength();
                return Array.from({ length: 400 }, (_, part) => line.getPointAtLength((part / 399) * length));
              });
              const middles = boxes.map((box) => ({ x: box.x + box.width / 2, y: box.y + box.height / 2 }));
              return labels.filter((_, index) => {
                const box = boxes[index];
                const inside = ({ x, y }) => x > box.x && x < box.x + box.width && Math.abs(y - middles[index].y) < 5;
                return [...points, ...middles.toSpliced(index, 1)].some(inside);
              }).map((label) => label.textContent);
            }""",
            values,
        )
        assert crossed == [], name
        assert page.locator("#numbers .behind").count() == 2 * len(values)  # nor does the line of the marked layer


def test_every_heading_has_a_sentence_and_a_formula_behind_it(two: str, visit: Opened) -> None:
    page = settled(visit(two))
    for place in ["#completion-section", "#inside-section", *[".quantity"] * 3, ".pca", ".attention"]:
        part = page.locator(place).first
        assert part.locator("p.quiet").first.text_content()
        assert part.locator("details").first.locator("div").text_content()
        assert not part.locator("details").first.evaluate("one => one.open")
    page.locator(".quantity summary").first.click()
    page.fill("#layer", "2")
    assert page.locator(".quantity details").first.evaluate("one => one.open")  # and stays so


def test_an_outage_is_told_once_and_asked_again(two: str, visit: Opened) -> None:
    page = settled(visit(two, allowed="ERR_FAILED"))
    page.route("**/api/complete**", lambda route: route.abort())
    page.route("**/api/layer**", lambda route: route.abort())
    page.click("#random")
    page.fill("#layer", "2")
    page.wait_for_selector("#outage .message")
    until(page, "document.querySelectorAll('.stale').length === 5")
    assert page.locator(".message").count() == 1
    assert "does not answer" in page.text_content("#outage")
    of = "getComputedStyle(document.querySelector('.completion.stale {}')).{}"
    assert float(page.evaluate(of.format("img", "opacity"))) < 0.5
    assert (
        page.evaluate(of.format(".note p", "textDecorationLine")) == "line-through"
    )  # the caption goes with its picture
    assert page.locator(".age:visible").count() == 5  # at completions, layers, and the mask that the server draws
    page.unroute("**/api/complete**")
    page.unroute("**/api/layer**")
    page.click("#outage button")
    until(page, "document.querySelectorAll('.stale, .message').length === 0")
    masked(page, drawn_mask(12, 1))
    page.wait_for_selector(".heads canvas[aria-label^='Attention of head 1 at layer 2']")


def test_a_question_that_failed_is_asked_again_where_it_failed(one: str, visit: Opened) -> None:
    page = settled(visit(one, allowed="status of 504"))
    problem = json.dumps({"error": "the request was not finished within 20 seconds and was given up; try again."})
    page.route("**/api/complete**", lambda route: route.fulfill(status=504, body=problem), times=1)
    page.click("#random")
    button = page.wait_for_selector("#completion-section > .problem button")
    assert page.locator(".message").count() == 1
    button.click()
    masked(page, drawn_mask(12, 1))
    assert page.locator(".message, .stale").count() == 0


def test_own_photos_are_cropped_fitted_or_stretched(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    page.set_input_files("#file", {"name": "wide.png", "mimeType": "image/png", "buffer": png(photo(90, 60))})
    until(page, "document.getElementById('original-note').textContent.startsWith('wide.png, the middle')")
    settled(page)

    def error(picture: Image.Image) -> float:
        return views.complete(CRATE, picture, choose_mask(CRATE)).error

    words = "`Error ${{({}).toLocaleString('en', {{ maximumSignificantDigits: 4 }})}}`"
    shown = f"document.querySelector('.completion .number').textContent === {words}"
    until(page, shown.format(error(photo(90, 60).crop((15, 0, 75, 60)))))
    page.locator("#fit input").nth(1).check()
    until(page, "document.getElementById('original-note').textContent.startsWith('wide.png, all of it with a border')")
    until(page, shown.format(error(image_files.padded(photo(90, 60), 1, (8, 8)))))
    page.locator("#fit input").nth(2).check()
    until(page, "document.getElementById('original-note').textContent.startsWith('wide.png, stretched')")
    until(page, shown.format(error(photo(90, 60))))


def test_the_whole_page_lights_up_for_a_drop(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    drag = (
        "([kind, file]) => { const data = new DataTransfer(); if (file) data.items.add(new File(['x'], 'a.png'));"
        " window.dispatchEvent(new DragEvent(kind, { dataTransfer: data })); }"
    )
    page.evaluate(drag, ["dragover", False])  # words or a link
    assert not page.is_visible("#dropping")
    page.evaluate(drag, ["dragover", True])
    box = page.locator("#dropping").bounding_box()
    assert (box["x"], box["y"], box["width"], box["height"]) == (0, 0, 1280, 800)
    page.evaluate(drag, ["dragleave", True])
    assert not page.is_visible("#dropping")


def test_the_layer_slider_stays_in_sight_on_a_phone(two: str, visit: Opened) -> None:
    page = settled(visit(two, width=390, has_touch=True, is_mobile=True))
    for place in (".quantity:last-child", ".inside:first-child .heads", ".inside:last-child .heads"):
        page.evaluate("place => document.querySelector(place).scrollIntoView({ block: 'end' })", place)
        box = page.locator("#layer").bounding_box()
        assert 0 <= box["y"] < 200


def test_maps_and_their_words_stand_level_on_a_phone(one: str, visit: Opened) -> None:
    page = settled(visit(one, width=390, has_touch=True, is_mobile=True))
    for caption in page.locator(".heads figcaption").all():
        boxes = [word.bounding_box() for word in caption.locator("span").all()]
        assert len({box["x"] for box in boxes}) == 1  # head, largest and own weight, each in its line
        assert len({box["y"] for box in boxes}) == 3
    canvas, words = (page.locator(f".pca {part}").bounding_box() for part in ("canvas", ".words"))
    assert canvas["x"] + canvas["width"] < words["x"]


def test_columns_are_full_at_1280(two: str, visit: Opened) -> None:
    page = settled(visit(two))
    for view in range(3):
        page.locator("#views input").nth(view).check()
        settled(page)
        right = "all => Math.max(...all.filter(one => one.offsetWidth).map(one => one.getBoundingClientRect().right))"
        edge = page.locator("#stage").evaluate("one => one.getBoundingClientRect().right")
        rows = (".sources > *", ".tools > *", ".stage figure", ".results > *", ".layer-bar > *", ".quantity", ".inside")
        for row in rows:
            assert page.locator(row).evaluate_all(right) > edge - 20, row
        whole = page.locator("#numbers").bounding_box()["width"]
        for card in page.locator(".quantity:not(:has(svg))").all():  # what no model has takes no column
            assert card.bounding_box()["width"] == whole


@pytest.mark.parametrize("width", [720, 768, 1024])
def test_pictures_and_samples_fill_their_rows_on_a_tablet(two: str, visit: Opened, width: int) -> None:
    page = settled(visit(two, width=width))
    for view in range(3):
        page.locator("#views input").nth(view).check()
        settled(page)
        edge = page.locator("#stage").evaluate("one => one.getBoundingClientRect().right")
        assert page.locator(".original").evaluate("one => one.getBoundingClientRect().right") > edge - 2
    tops = page.locator("#samples button").evaluate_all("all => all.map(one => one.offsetTop)")
    assert len(set(tops)) == 2  # ten digits in two rows
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_constant_curve_is_drawn_over_zero(two: str, visit: Opened) -> None:
    page = settled(visit(two))
    page.locator("#views input").nth(1).check()
    settled(page)
    axis = page.locator(".quantity", has_text="Non-zero entries").locator("svg text.end:not([class*=line-])")
    assert axis.all_text_contents() == ["0\xa0%", "50\xa0%", "100\xa0%"]  # no share is above 100 %


def test_forced_colours_keep_the_mask_and_the_choice_visible(one: str, visit: Opened) -> None:
    page = settled(visit(one, forced_colors="active"))
    of = "getComputedStyle(document.querySelector('{}')).{}"
    assert "gradient" in page.evaluate(of.format("#mask [aria-selected=true]", "backgroundImage"))
    chosen, other = (
        page.evaluate(of.format(f"#fit label:nth-of-type({number}) span", "backgroundColor")) for number in (1, 2)
    )
    assert chosen != other
    line, card = (
        page.evaluate(of.format(*parts)) for parts in [("polyline", "stroke"), ("section", "backgroundColor")]
    )
    assert line != card


def test_the_api_page_has_a_list_of_contents(one: str, visit: Opened) -> None:
    page = visit(f"{one}/api")
    page.wait_for_selector("main section")
    links = page.locator(".contents a")
    assert "/api/complete" in links.all_text_contents()
    for address in links.evaluate_all("all => all.map(one => one.getAttribute('href'))"):
        assert page.locator(f"h2{address}").count() == 1
    links.nth(3).click()
    assert page.locator("#api-complete").bounding_box()["y"] < 100
    broken = page.locator("td:not(:last-child)").evaluate_all(
        """all => all.filter((cell) => {
          const longest = cell.textContent.split(" ").reduce((one, other) => (one.length < other.length ? other : one));
          const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
          for (let text = walk.nextNode(); text; text = walk.nextNode()) {
            const at = text.data.indexOf(longest);
            if (at < 0 || !longest) continue;
            const range = document.createRange();
            range.setStart(text, at);
            range.setEnd(text, at + longest.length);
            if (range.getClientRects().length > 1) return true;
          }
          return false;
        }).map(cell => cell.textContent)"""
    )
    assert broken == []


def test_count_seed_and_layer_move_what_is_shown(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    page.fill("#count", "8")
    assert page.text_content("#count-out") == "8 of 16 (50 %)"
    page.fill("#seed", "7")
    page.keyboard.press("Enter")
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
        shown = page.locator(".quantity", has_text="Non-zero entries").locator("b").text_content()
        assert float(shown.removesuffix("\xa0%")) == pytest.approx(share, abs=0.051)
        ends = page.locator(".quantity", has_text="Non-zero entries").locator("svg text[class*=line-]")
        first, last = (text.removesuffix("\xa0%") for text in ends.all_text_contents())
        assert float(first) == pytest.approx(100 * numbers.curves["sparsity"][0], abs=0.051)
        assert float(last) == pytest.approx(100 * numbers.curves["sparsity"][-1], abs=0.051)
        rate = page.locator(".quantity", has_text="compression").locator("b").text_content()
        expected_rate = numbers.curves["compression"][layer - 1]
        assert float(rate.removesuffix(" nats").replace(",", "")) == pytest.approx(expected_rate, rel=1e-3)
        largest = max(max(row) for row in views.layer(CRATE, picture, layer, "authors").attention[3])
        label = f"Attention of head 4 at layer {layer}, largest weight "
        page.wait_for_selector(f".heads canvas[aria-label^='{label}']")
        said = page.locator(".heads canvas").nth(3).get_attribute("aria-label").removeprefix(label)
        assert float(said) == pytest.approx(largest, rel=0.05)
    assert page.locator(".heads canvas").count() == 4


def test_two_models_side_by_side_or_one(two: str, visit: Opened) -> None:
    page = settled(visit(two))
    visible = page.locator(".completion:visible .by")
    assert visible.all_text_contents() == ["by CRATE-MAE", "by ViT-MAE"]
    missing = page.locator(".quantity", has_text="compression").locator(".missing").text_content()
    assert missing.startswith("ViT-MAE not defined: it needs the subspaces U of a white-box layer")
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
    message = page.wait_for_selector("#picture-section > .problem .message")
    assert "This is not a JPEG" in message.text_content()
    assert page.locator(".message").count() == 1
    assert page.get_attribute("#original", "src") == before
    (tmp_path / "huge.jpg").write_bytes(bytes(11_000_000))
    page.set_input_files("#file", tmp_path / "huge.jpg")
    until(page, "document.querySelector('#picture-section .problem').textContent.includes('the limit is 10 MB')")
    (tmp_path / "photo.png").write_bytes(png(photo()))
    page.set_input_files("#file", tmp_path / "photo.png")
    note = "photo.png, the middle of it, 8\xa0×\xa08"
    until(page, "note => document.getElementById('original-note').textContent.startsWith(note)", note)
    assert page.locator(".message").count() == 0
    settled(page)
    assert page.evaluate("document.getElementById('original').naturalWidth") == 8
    dropped = (
        "file => { const data = new DataTransfer(); data.items.add(new File([new Uint8Array(file)], 'dropped.png'));"
    )
    page.evaluate(
        f"{dropped} window.dispatchEvent(new DragEvent('drop', {{ dataTransfer: data }})); }}", list(png(photo()))
    )
    until(page, "document.getElementById('original-note').textContent.startsWith('dropped.png')")


def test_a_chosen_file_may_change_or_go(one: str, visit: Opened, tmp_path: Path) -> None:
    page = settled(visit(one))
    (tmp_path / "mine.png").write_bytes(png(photo()))
    page.set_input_files("#file", tmp_path / "mine.png")
    until(page, "document.getElementById('original-note').textContent.startsWith('mine.png, the middle')")
    settled(page)
    (tmp_path / "mine.png").write_bytes(b"another")
    page.locator("#fit input").nth(1).check()
    until(page, "document.getElementById('original-note').textContent.startsWith('mine.png, all of it')")
    assert page.locator(".message").count() == 0


def test_a_folder_and_an_empty_file_are_told(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    page.set_input_files("#file", {"name": "nothing.png", "mimeType": "image/png", "buffer": b""})
    problem = "document.querySelector('#picture-section .problem').textContent.includes('{}')"
    until(page, problem.format("The file nothing.png is empty; choose another file."))
    page.evaluate("() => { Blob.prototype.arrayBuffer = () => Promise.reject(new Error()); }")
    page.set_input_files("#file", {"name": "folder", "mimeType": "", "buffer": b"x"})
    until(page, problem.format("The file folder can\\'t be read; choose an image file."))
    assert page.locator("#outage .message").count() == 0


def test_a_busy_server_is_told_and_asked_again(one: str, visit: Opened) -> None:
    page = settled(visit(one, allowed="status of 503"))
    refused = []

    def turn_away(route: Any) -> None:
        refused.append(time.monotonic())
        problem = json.dumps({"error": "the server is busy: 66 requests are before this one; try again in a moment."})
        route.fulfill(status=503, body=problem, headers={"Retry-After": "1", "Content-Type": "application/json"})

    page.route("**/api/complete**", turn_away, times=1)
    page.fill("#seed", "5")
    page.keyboard.press("Enter")
    message = page.wait_for_selector("#completion-section > .problem .busy")
    assert "busy" in message.text_content()
    assert "This page tries again in 1 s" in message.text_content()
    page.wait_for_selector(".message", state="detached")
    assert len(refused) == 1
    drawn = choose_mask(CRATE, None, 0.75, 5)[0]
    shows(page, "".join(str(int(place)) for place in drawn))


def test_the_picture_is_saved(two: str, visit: Opened) -> None:
    page = settled(visit(two))
    with page.expect_download() as waiting:
        page.click("#save")
    assert waiting.value.suggested_filename == "crate-mae-digit-0-ratio-0.75-seed-0.png"
    saved = Path(waiting.value.path()).read_bytes()
    with Image.open(BytesIO(saved)) as picture:
        assert picture.width > 3 * picture.height
        assert (picture.text["mask ratio"], picture.text["seed"]) == ("0.75", "0")
        assert picture.text["mask"] == mask(page)
    expected = CLIENT.post(f"{two}/api/sheet", params={"sample": "digit-0"}, timeout=60).content
    assert saved == expected
    page.click("#invert")
    with page.expect_download() as waiting:
        page.click("#save")
    assert waiting.value.suggested_filename == "crate-mae-digit-0-painted-4-of-16.png"


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
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(two: str, visit: Opened, scheme: str) -> None:
    page = settled(visit(two, allowed="status of 504", color_scheme=scheme, width=1280 if scheme == "light" else 390))
    assert Axe().run(page).response["violations"] == []
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.check("#errors")
    problem = json.dumps({"error": "the request was not finished within 20 seconds and was given up; try again."})
    for path in ("complete", "layer?"):
        page.route(f"**/api/{path}*", lambda route: route.fulfill(status=504, body=problem))
    page.click("#random")
    page.select_option("#convention", "paper")
    for section in ("completion", "inside"):  # the same problem of both models is told once
        message = page.wait_for_selector(f"#{section}-section > .problem .message")
        until(page, f"document.querySelector('#{section}-section > .problem').textContent.startsWith('CRATE-MAE and ')")
        assert message.query_selector("p").text_content() == "CRATE-MAE and ViT-MAE: " + json.loads(problem)["error"]
        assert page.locator(f"#{section}-section .message").count() == 1
    page.wait_for_timeout(300)  # colours settle
    assert Axe().run(page).response["violations"] == []


def test_axe_finds_nothing_on_the_api_page(one: str, visit: Opened) -> None:
    page = visit(f"{one}/api")
    page.wait_for_selector("main section")
    assert Axe().run(page).response["violations"] == []


def test_the_page_finds_a_server_that_is_back_by_itself(one: str, visit: Opened) -> None:
    page = settled(visit(one, allowed="ERR_FAILED"))
    first, second = drawn_mask(12, 0), drawn_mask(12, 1)
    page.click("#random")
    masked(page, second)
    settled(page)
    page.route("**/*", lambda route: route.abort())
    until(page, "fetch('/icon.svg', { cache: 'no-store' }).then(() => false, () => true)")  # the server is gone
    page.keyboard.press("Control+z")  # a mask that was drawn before needs no server
    page.wait_for_selector("#outage .message")
    assert mask(page) == first
    page.unroute("**/*")
    until(page, "!document.querySelector('.message, .stale')", seconds=20)
    shows(page, first)


def test_the_page_opens_with_the_maps_that_the_layers_compute(one: str, visit: Opened) -> None:
    page = settled(visit(one))
    assert page.input_value("#convention") == "authors"
    picture = samples(CRATE.config)["digit-0"].picture
    for convention in ("authors", "paper"):
        page.select_option("#convention", convention)
        settled(page)
        largest = max(map(max, views.layer(CRATE, picture, 1, convention).attention[0]))
        words = f"max {largest:.2g}"
        until(page, "words => document.querySelector('.heads figcaption').textContent.includes(words)", words)
