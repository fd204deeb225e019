"""The page in a real browser: replies coloured by their sources, a panel that tells of them, and plain decoding."""

import shutil

import pytest

from paceline.service.llm import LLM
from tests.server.conftest import serving

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium, as .ci/run does")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def repeating(talker):
    """A server that drafts in every round."""
    with serving(lambda: LLM(talker, draft="suffix", control="fixed", context=4096)) as server:
        yield server


@pytest.fixture
def page(browser, repeating):
    opened = browser.new_page(viewport={"width": 1100, "height": 800})
    said = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(repeating.url)
    opened.wait_for_selector("#model option", state="attached")
    yield opened
    assert said == []
    opened.close()


def ask(page, text):
    page.fill("#text", text)
    page.keyboard.press("Enter")
    page.wait_for_selector("#compare:not([disabled])")


def test_a_reply_is_coloured_and_the_panel_tells_of_it(page):
    ask(page, "abab" * 10)
    assert page.locator("li.reply span[data-source=suffix]").count() > 3
    assert "guessed by suffix at depth" in page.locator("li.reply span[data-source=suffix]").first.get_attribute(
        "title"
    )
    assert page.inner_text("#speed").endswith("tokens/s")
    assert "accepted" in page.inner_text("#sources")
    assert page.locator("#depths li").count() > 0
    assert page.locator("#tree svg path.kept").count() >= 0
    assert page.locator("#tree svg text").count() > 1
    assert len(page.inner_text("li.reply")) > 100


def test_plain_decoding_says_the_same(page):
    ask(page, "Say something long.")
    page.click("#compare")
    page.wait_for_selector("#compared:has-text('tokens:')")
    assert page.inner_text("#compared").startswith("The same ")


def test_the_conversation_goes_on_and_begins_anew(page):
    ask(page, "One.")
    ask(page, "Two.")
    assert page.locator("#turns li").count() == 4
    page.click("#anew")
    assert page.locator("#turns li").count() == 0


def test_escape_stops_a_reply_and_an_error_is_shown(page):
    page.fill("#most", "4000")
    page.fill("#text", "Long.")
    page.keyboard.press("Enter")
    page.wait_for_selector("li.reply span")
    page.keyboard.press("Escape")
    page.wait_for_selector("#send:not([disabled])")
    assert page.inner_text("#error") == ""


def test_the_page_fits_a_phone(page):
    page.set_viewport_size({"width": 360, "height": 740})
    ask(page, "Hello.")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_the_page_loads_nothing_from_elsewhere(page, repeating):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    assert asked
    assert all(url.startswith((repeating.url, "data:")) for url in asked), asked
