"""Chromium for tests: one for a module, each page with ears for what a page must never do."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import missing
from playwright.sync_api import Browser, Page, sync_playwright

WIDE = (1440, 900)
PHONE = (390, 844)
LIMIT_MS = 10_000
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_QUIET = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run")


@contextmanager
def running() -> Iterator[Browser]:
    """Start the machine's Chromium; without one the tests skip, or fail where nothing may be skipped."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        missing.skip_or_fail("no Chromium: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(_QUIET))
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page and what was heard of it: messages of the console, errors, requests to other hosts."""

    page: Page
    url: str
    heard: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Fail if the page did what it must not."""
        assert not self.heard

    def path(self) -> str:
        """Return the address that the browser shows, from its path on."""
        found = urlsplit(self.page.url)
        return found.path + (f"?{found.query}" if found.query else "")


@contextmanager
def watched(
    browser: Browser, url: str, *, size: tuple[int, int] = WIDE, dark: bool = False, scripts: bool = True, **more: Any
) -> Iterator[Watched]:
    """Open a page of a fresh profile on the front page of a server."""
    width, height = size
    context = browser.new_context(
        base_url=url,
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        java_script_enabled=scripts,
        **more,
    )
    context.set_default_timeout(LIMIT_MS)
    page = context.new_page()
    host = urlsplit(url).netloc
    found = Watched(page, url)
    page.on("console", lambda message: found.heard.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: found.heard.append(f"error: {error}"))

    def requested(request: Any) -> None:
        if urlsplit(request.url).netloc != host:
            found.heard.append(f"request: {request.url}")

    page.on("request", requested)
    try:
        yield found
    finally:
        context.close()
