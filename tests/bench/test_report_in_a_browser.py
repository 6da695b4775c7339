"""A report opened in headless Chromium: no console error, no request, readable narrow and wide, judged by axe.

Runs where Debian's `chromium` and the extra `browser` (Playwright, axe-core) are installed: `make browser-test`.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchrun.bench.report.build import build_report
from batchrun.bench.report.page import to_html
from tests.bench.measurements import ladder, measurement_of, run_of

sync_api = pytest.importorskip("playwright.sync_api", reason="`make browser-test` installs it")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="`make browser-test` installs it")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; on Debian: apt-get install chromium"),
]
LONG = "a-word-that-never-ends-" * 20


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module", params=["ladder", "two", "hostile"])
def page_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = {
        "ladder": lambda: measurement_of(ladder()),
        "two": lambda: measurement_of([*ladder(group="A"), *ladder(group="B", speed=1.3)]),
        "hostile": lambda: replace(
            measurement_of([run_of(failed={3: f"<script>{LONG}</script>"}, warnings=[LONG])]), id=LONG
        ),
    }[request.param]()
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(to_html(build_report(made)), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_quiet_fits_and_can_be_read_by_everyone(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [page_file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    words = page.evaluate(
        "[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height).filter(h => h > 0)"
    )
    assert min(words, default=20) >= 9  # a line of 8 px letters is about 9 px high
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found] == []
    context.close()
