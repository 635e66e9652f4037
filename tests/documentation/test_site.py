"""``make docs`` builds a site without a warning, that asks nothing of the network."""

import fcntl
import functools
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.pages import PAGES, ROOT

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed")
SOURCE = ROOT / "src" / "crate_mae"
WIDTHS = {"wide": 1280, "narrow": 390}
CUT_CODE = """() => [...document.querySelectorAll("pre > code")]
    .filter(code => code.scrollWidth > code.clientWidth + 1).map(code => code.innerText)"""
"""Blocks of code that are wider than their column."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` builds it: any warning stops it. The processes of a test run share it."""
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "search" / "search_index.js").is_file():  # what is written last
            words = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
            environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
            built = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
            assert built.returncode == 0, built.stdout + built.stderr
            assert "WARNING" not in built.stderr
    return out


def test_make_builds_it_so() -> None:
    printed = subprocess.run(["make", "-n", "-B", "docs"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "mkdocs build --strict" in printed


def test_every_page_is_there_and_asks_for_nothing_outside(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in PAGES if page.parent != ROOT}
    pages |= {Path(name) for name in ("index.html", "contributing.html", "changelog.html", "search/search_index.json")}
    assert all((site / page).is_file() for page in pages)
    fetched = re.compile(r"""<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=["']?(https?:)?//""")
    for file in site.rglob("*.html"):
        assert not fetched.search(file.read_text()), file
    for file in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", file.read_text()), file


def test_the_reference_has_every_module_and_formulas_stay_whole(site: Path) -> None:
    reference = {file.stem: file.read_text() for file in (site / "reference").glob("*.html")}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if not any(part.startswith("_") for part in parts):
            assert f'id="crate_mae.{".".join(parts)}"' in reference[parts[0]], path
    slanted = {words for page in reference.values() for words in re.findall(r"<em>(.*?)</em>", page)}
    assert slanted <= {"required"}  # a formula with two stars would be another; write it in backticks
    shown = re.sub(r"<[^>]+>", "", reference["operators"])
    assert re.search(r"Float\[Tensor, &#39;d_out d&#39;\]|Float\[Tensor, (?:\"|&quot;)d_out d(?:\"|&quot;)\]", shown)
    assert "softmax_i &lt;U_k^T z_i, U_k^T z_cls&gt;" in reference["analysis"]  # and no tag of that name
    assert "&lt;U_k^T z_i, U_k^T z_cls&gt;" in (site / "look-inside.html").read_text()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("served", [True, False], ids=["from a server", "from the disk"])
def test_in_a_browser_it_opens_searches_and_fits_any_width(
    served: bool, site: Path, address: str, browser: Any
) -> None:
    start = address if served else site.as_uri()
    page = browser.new_page()
    page.set_default_timeout(120_000)  # other tests share the machine
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    for name in ("index", "theory", "reference/operators"):
        for width in WIDTHS.values():
            page.set_viewport_size({"width": width, "height": 800})
            page.goto(f"{start}/{name}.html", wait_until="networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            assert page.evaluate(CUT_CODE) == [], (name, width)
    page.set_viewport_size({"width": WIDTHS["wide"], "height": 800})
    page.locator("[data-md-component=search-query]").press_sequentially("soft-impute")  # it listens to the keys
    page.wait_for_selector(".md-search-result__item a[href*=theory]")
    page.close()
    assert [url for url in asked if not url.startswith((start, "data:", "about:"))] == []
    assert said == []
