#!/usr/bin/env python3
"""Make the pictures of the page that the README shows: `make screenshot`, or `.venv/bin/python docs/screenshot.py`.

The real page of a real server, over the sample tickets, which the small embedded model answers. It needs Chromium.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "streams" / "samples"
IMAGES = ROOT / "docs" / "images"
COMMAND = [sys.executable, "-c", "from facetline.streams.cli.main import main; main()"]
ADDRESS = "/tickets?f.topic=billing&f.topic=login&sort=team_confidence"
WIDTH, HEIGHT, SCALE = 1280, 860, 1.5
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STOP_S = 20.0


def main() -> None:
    """Write the pictures."""
    images = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    images.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="facetline-screenshot-") as folder, served(Path(folder)) as url:
        take(url, images)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the answered sample tickets and yield the address."""
    shutil.copy(SAMPLES / "facetline.toml", folder)
    own = {name: value for name, value in os.environ.items() if not name.startswith("FACETLINE_")}
    given = {**own, "PYTHONPATH": str(ROOT), "FACETLINE_LOG_LEVEL": "error"}
    words = ["import", str(SAMPLES / "tickets.ndjson"), "--collection", "tickets", "--wait", "answered"]
    subprocess.run([*COMMAND, *words], cwd=folder, env=given, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 (our own command)
    server = subprocess.Popen(  # noqa: S603 (our own command)
        [*COMMAND, "serve", "--port", "0"], cwd=folder, env=given, stdout=subprocess.PIPE, text=True
    )
    try:
        yield next(line.split()[-1] for line in server.stdout or () if line.startswith("serving on "))
    finally:
        server.terminate()
        server.wait(STOP_S)


def take(url: str, images: Path) -> None:
    """Take the pictures, light and dark."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        sys.exit("no Chromium on the path; on Debian: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-background-networking"])
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE, color_scheme=scheme
            )
            page.goto(url + ADDRESS)
            page.locator("#strip").wait_for()
            page.screenshot(path=images / f"explorer-{scheme}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
