"""The page while its server does not answer, in a real Chromium: it says so until the server answers again."""

from pathlib import Path
from urllib.parse import urlsplit

import browser
import pytest
import small_api
from browser import PHONE, WIDE
from playwright.sync_api import Page, Route, expect
from serving import serve_process

SAID = "The server cannot be reached. What is shown may be out of date."


def _inside(page: Page) -> bool:
    """Say whether the notice is whole within the window."""
    return bool(
        page.locator("#away").evaluate(
            "each => { const box = each.getBoundingClientRect();"
            " return box.left >= 0 && box.top >= 0 && box.right <= innerWidth && box.bottom <= innerHeight; }"
        )
    )


@pytest.mark.timeout(180)
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_page_says_that_the_server_is_away_until_it_is_back(tmp_path: Path, size: tuple[int, int]):
    """A tick after the server has stopped shows the notice, as a status; it goes when the server answers again."""
    place = small_api.place_in(tmp_path)
    with (
        browser.running() as chromium,
        serve_process(place) as server,
        browser.watched(chromium, server.url, size=size) as seen,
    ):
        page = seen.page
        page.goto("/tickets")
        notice = page.locator("#away[role=status]")
        expect(notice).to_be_empty()
        server.stop()
        page.evaluate("document.getElementById('f-topic-0').click()")
        expect(notice).to_have_text(SAID)
        assert _inside(page)
        with serve_process(place, "--port", str(urlsplit(server.url).port)):
            expect(notice).to_be_empty(timeout=20_000)
            page.evaluate("document.getElementById('f-topic-1').click()")
            expect(page.locator("#live")).not_to_be_empty()
            expect(notice).to_be_empty()


@pytest.mark.timeout(180)
def test_proxy_errors_and_silence_count_as_away(tmp_path: Path):
    """A 502 of a proxy and a request without an answer show the notice; a refusal of the server's own does not."""
    silent: list[Route] = []

    def kept(route: Route) -> None:
        silent.append(route)

    with (
        browser.running() as chromium,
        serve_process(small_api.place_in(tmp_path)) as server,
        browser.watched(chromium, server.url) as seen,
    ):
        page = seen.page
        page.goto("/tickets")
        notice = page.locator("#away")
        page.get_by_label("Filter", exact=True).fill("topic = 'biling'")
        page.get_by_label("Filter", exact=True).press("Enter")
        expect(page.get_by_role("alert")).to_be_visible()
        expect(notice).to_be_empty()
        page.route("**/livez", lambda route: route.fulfill(status=502))
        page.route("**/tickets?*", lambda route: route.fulfill(status=502, body="<p>Bad gateway</p>"))
        page.evaluate("document.getElementById('f-topic-0').click()")
        expect(notice).to_have_text(SAID)
        page.unroute("**/livez")
        expect(notice).to_be_empty()
        page.unroute("**/tickets?*")
        page.route("**/tickets?*", kept)
        page.goto("/tickets")
        page.evaluate("htmx.config.defaultTimeout = 300; document.getElementById('f-topic-0').click()")
        expect(notice).to_have_text(SAID)
        for route in silent:
            route.abort()
