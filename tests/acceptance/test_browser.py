"""The page in a real Chromium, with JavaScript and without it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import explored
import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import PHONE, WIDE, Watched
from explored import COUNTS, TOTAL, UNANSWERED
from playwright.sync_api import Browser, expect

from facetline.facets.api.application import ROUTES


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for all tests here."""
    with browser.running() as started:
        yield started


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a `facetline serve` over the support tickets and the probes."""
    folder = tmp_path_factory.mktemp("browsed")
    given = {"support": explored.tickets(), "probes": explored.probes()}
    explored.define(folder, [each for listed in given.values() for each in listed], more=explored.PROBES)
    with explored.command(folder, given) as address:
        yield address


@pytest.fixture
def seen(chromium: Browser, served: str) -> Iterator[Watched]:
    """A page with JavaScript; in the end nothing bad was heard of it."""
    with browser.watched(chromium, served) as page:
        yield page
        page.check()


@pytest.fixture
def plain(chromium: Browser, served: str) -> Iterator[Watched]:
    """A page without JavaScript."""
    with browser.watched(chromium, served, scripts=False) as page:
        yield page
        page.check()


def _total(seen: Watched, number: int) -> None:
    expect(seen.page.locator("#total b")).to_have_text(f"{number:,}")


def test_link_shows_its_choice_without_javascript(plain: Watched):
    """Without JavaScript a link shows billing checked at once, with every option's count and the missing row."""
    plain.page.goto("/support?f.topic=billing")

    facet = plain.page.get_by_role("group", name="topic")
    expect(facet.get_by_role("checkbox", name="billing")).to_be_checked()
    for option, count in COUNTS.items():
        expect(facet.get_by_role("checkbox", name=f"{option} {count} document")).to_be_visible()
    expect(facet.get_by_role("checkbox", name=f"no answer {UNANSWERED}")).to_be_visible()
    _total(plain, COUNTS["billing"])


def test_everything_works_without_javascript(plain: Watched):
    """Without JavaScript: tick, set the confidence, apply; order, turn the page, read a document, ask again."""
    page = plain.page
    page.goto("/support")
    page.get_by_role("checkbox", name="billing").check()
    page.get_by_role("checkbox", name="feature").check()
    page.get_by_role("button", name="Apply").click()
    expect(page).to_have_url(f"{plain.url}/support?f.topic=billing&f.topic=feature")
    page.get_by_role("slider", name="Minimum confidence").fill("0.5")
    page.get_by_label("Order").select_option("-severity")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Next").click()
    page.get_by_role("link", name="Previous").click()
    page.locator(".hit h2 a").first.click()
    expect(page.get_by_role("heading", name="Answers", exact=True)).to_be_visible()
    page.get_by_role("navigation").get_by_role("link", name="support").click()
    page.get_by_role("link", name="Ask again").click()
    page.get_by_label("All documents").check()
    page.get_by_role("button", name="Estimate").click()

    expect(page.get_by_role("button", name=f"Ask about {TOTAL} documents")).to_be_enabled()


def test_ticking_changes_address_and_total_and_keeps_the_focus(seen: Watched):
    """With JavaScript a tick changes the total and the address at once, the focus stays, and back brings all back."""
    page = seen.page
    page.goto("/support?f.topic=billing")
    bug = page.get_by_role("checkbox", name="bug")

    bug.focus()
    page.keyboard.press("Space")

    _total(seen, COUNTS["billing"] + COUNTS["bug"])
    assert seen.path() == "/support?f.topic=billing&f.topic=bug"
    expect(bug).to_be_focused()
    expect(bug).to_be_checked()
    expect(page.locator("#live")).to_have_text(f"{COUNTS['billing'] + COUNTS['bug']} documents 1 to 20")
    page.go_back()
    _total(seen, COUNTS["billing"])
    expect(bug).not_to_be_checked()
    assert seen.path() == "/support?f.topic=billing"
    page.go_forward()
    _total(seen, COUNTS["billing"] + COUNTS["bug"])
    expect(bug).to_be_checked()


def test_quick_ticks_all_count(seen: Watched):
    """Boxes ticked faster than the server answers all count."""
    page = seen.page
    page.goto("/support")
    page.evaluate("for (const name of ['1', '2', '4']) document.getElementById(`f-topic-${name}`).click()")

    _total(seen, COUNTS["bug"] + COUNTS["feature"] + COUNTS["other"])
    assert seen.path() == "/support?f.topic=bug&f.topic=feature&f.topic=other"


def test_keyboard_alone_finds_a_document(seen: Watched):
    """With the keyboard alone: skip to the content, tick an option, move the slider, open a document."""
    page = seen.page
    page.goto("/support")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    slider = page.get_by_role("slider", name="Minimum confidence")
    for _ in range(10):
        page.keyboard.press("Tab")
        if slider.evaluate("each => each === document.activeElement"):
            break
    page.keyboard.press("End")
    _total(seen, TOTAL)
    expect(page.locator("#least-said")).to_have_text("1.00")
    expect(slider).to_be_focused()
    page.keyboard.press("Home")
    expect(page.locator("#least-said")).to_have_text("any")
    page.get_by_role("checkbox", name="billing").press("Space")
    _total(seen, COUNTS["billing"])
    page.locator(".hit h2 a").first.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text("Charged twice")


def test_filter_is_told_where_it_is_wrong(chromium: Browser, served: str):
    """A wrong filter is told at the field, which keeps its text and the focus; mended, the documents are there."""
    with browser.watched(chromium, served) as seen:
        page = seen.page
        page.goto("/support")
        field = page.get_by_label("Filter", exact=True)
        field.fill("topic = 'biling'")
        field.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("did you mean 'billing'?")
        expect(field).to_have_value("topic = 'biling'")
        expect(field).to_be_focused()
        field.fill("topic = 'billing'")
        field.press("Enter")

        _total(seen, COUNTS["billing"])
        expect(page.get_by_role("alert")).to_have_count(0)
        # Chromium itself writes a refused request to the console.
        assert all("400 (Bad Request)" in heard for heard in seen.heard)


def test_sql_and_csv_of_a_search(seen: Watched, tmp_path: Path):
    """Show SQL opens over the page and runs to its total; CSV has a line more than the total."""
    page = seen.page
    page.goto("/support?f.topic=billing&min_confidence=0.5")
    total = int(page.locator("#total b").inner_text())
    page.get_by_role("link", name="Show SQL").click()
    dialog = page.get_by_role("dialog")
    text = dialog.locator("#sql-text").inner_text()
    answer = page.request.post("/v1/sql", data={"sql": text}).json()
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    download.value.save_as(tmp_path / "found.csv")

    assert answer["rows"] == [[total]]
    assert len((tmp_path / "found.csv").read_text().splitlines()) == total + 1


def test_copy_link_puts_the_search_into_the_clipboard(chromium: Browser, served: str):
    """Copy link puts the address of the search into the clipboard."""
    with browser.watched(chromium, served, permissions=["clipboard-read", "clipboard-write"]) as seen:
        page = seen.page
        page.goto("/support")
        page.get_by_role("checkbox", name="bug").check()
        _total(seen, COUNTS["bug"])
        page.get_by_role("button", name="Copy link").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()

        assert page.evaluate("navigator.clipboard.readText()") == f"{served}/support?f.topic=bug"
        seen.check()


def test_job_is_watched_to_its_end(seen: Watched):
    """Asking again from the dialog shows an estimate, and then the job until it has ended."""
    page = seen.page
    page.goto("/support?filter=topic%20%3D%20%27bug%27")
    page.get_by_role("link", name="Ask again").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("All documents").check()
    dialog.get_by_role("button", name=f"Ask about {COUNTS['bug']} documents").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Asked again")
    expect(page.get_by_text(f"{COUNTS['bug']} of {COUNTS['bug']} documents")).to_be_visible()


def test_strip_moves_by_itself(seen: Watched):
    """A document that is written while the page is open is counted in the strip without a reload."""
    page = seen.page
    page.goto("/probes")
    before = len(explored.probes())
    expect(page.locator("#strip")).to_contain_text(f"{before} answered")
    page.evaluate("document.querySelector('#strip').setAttribute('data-old', '')")
    page.request.put("/v1/documents/probes/late", data={"body": "Late", "state": {"title": "Late"}})

    expect(page.locator("#strip")).to_contain_text("1 failed", timeout=40_000)
    expect(page.locator("#strip[data-old]")).to_have_count(0)


def test_text_of_documents_is_never_run_as_markup(seen: Watched):
    """No uri, text, state or option runs or loads anything, on the list and on each document's page."""
    page = seen.page
    page.goto("/probes")
    links = [each.get_attribute("href") for each in page.locator(".hit h2 a").all()]
    page.get_by_role("checkbox", name="<script>").check()
    expect(page.locator(".chosen")).to_contain_text("<script>")
    titles = []
    for link in links:
        page.goto(str(link))
        titles.append(page.title())

    assert len(links) >= len(explored.probes())
    assert "taken" not in titles


_PAGES = {
    "collections": "/",
    "search": "/support?f.topic=billing&min_confidence=0.7",
    "problem": "/support?filter=topic%20in%20(",
    "nothing": "/support?f.topic=praise",
    "document": "/support/support/d-10",
    "failed": "/-/failed/support",
    "reindex": "/-/reindex/support?mode=force",
    "sql": "/-/sql/support?f.topic=billing",
    "absent": "/absent",
    "sign-in": "/-/sign-in",
}


# The same templates: in the dark only colours differ, on a phone what stands beside each other.
_LOOKS = {
    "light": tuple(_PAGES),
    "dark": ("search", "problem", "document", "reindex"),
    "phone": ("collections", "search", "document", "reindex"),
}


@pytest.mark.parametrize("look", list(_LOOKS))
def test_pages_are_accessible(chromium: Browser, served: str, look: str):
    """axe-core finds nothing wrong with any page, light or dark, wide or on a phone, and no page is too wide."""
    found: dict[str, Any] = {}
    with browser.watched(chromium, served, size=PHONE if look == "phone" else WIDE, dark=look == "dark") as seen:
        for name in _LOOKS[look]:
            seen.page.goto(_PAGES[name])
            if look == "phone" and seen.page.locator("#side > summary").count():
                seen.page.locator("#side > summary").click()
            rules = {"runOnly": ["color-contrast"]} if look == "dark" else None
            # A list of twenty hits takes ten times as long as one of two, and is no different.
            seen.page.evaluate("document.querySelectorAll('.hit:nth-child(n + 4)').forEach((each) => each.remove())")
            report = Axe().run(seen.page, options=rules)
            found[name] = [
                (each["id"], [node["html"][:160] for node in each["nodes"]]) for each in report.response["violations"]
            ]
            width = seen.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            found[name] += [("too wide", width)] if width > 0 else []

    assert {name: problems for name, problems in found.items() if problems} == {}


def test_docs_show_the_api_and_try_it_out(seen: Watched):
    """`/docs` lists each route under its name and sends a request with a facet that the server takes."""
    page = seen.page
    page.goto("/docs")
    expect(page.locator(".opblock")).to_have_count(len(ROUTES))
    page.locator("#operations-collections-search").get_by_role("button").first.click()
    block = page.locator("#operations-collections-search")
    block.locator("tr[data-param-name=collection] input").fill("support")
    block.locator("tr[data-param-name=f] textarea").fill('{"f.topic": "billing"}')
    block.locator("tr[data-param-name=mc] textarea").fill("{}")
    block.get_by_role("button", name="Execute").click()

    expect(block.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
    expect(block.locator(".live-responses-table")).to_contain_text(f'"total": {COUNTS["billing"]}')
    assert "f.topic=billing" in block.locator(".request-url").inner_text()


def test_docs_without_javascript_lead_to_the_document(plain: Watched):
    """Without JavaScript `/docs` leads to the OpenAPI document."""
    plain.page.goto("/docs")
    address = plain.page.get_by_role("link", name="the OpenAPI document").get_attribute("href")

    assert plain.page.request.get(str(address)).json()["openapi"] == "3.1.0"


def test_phone_folds_the_facets_away(chromium: Browser, served: str):
    """On a phone the facets are folded away, and stay open once they are opened."""
    with browser.watched(chromium, served, size=PHONE) as seen:
        page = seen.page
        page.goto("/support")
        billing = page.get_by_role("checkbox", name="billing")
        expect(billing).not_to_be_visible()
        page.locator("#side > summary").click()
        billing.check()
        _total(seen, COUNTS["billing"])

        expect(billing).to_be_visible()
        expect(page.locator("#side > summary")).to_contain_text("1 chosen")
        seen.check()
