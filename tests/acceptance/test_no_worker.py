"""A worker that is killed is missed: on the page, in `/readyz` of `serve` and by `doctor`, and no longer once one runs.

Method: a real Kafka and PostgreSQL, a `facetline serve` in a process of its own, Chromium, and SIGKILL.
"""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import browser
import pytest
import runtimes
from browser import PHONE, WIDE, Watched
from playwright.sync_api import expect
from polling import eventually
from runtimes import Site
from serving import ServeProcess, serve_process

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(300)]

MISSED_S = 25.0
"""A row counts for 15 s, `serve` looks every 5 s; the rest is for a busy machine."""
WARNING = re.compile(
    r"No worker is running: 2 documents wait for an answer, the oldest for .+; start 'facetline worker'\."
)


def test_a_killed_worker_is_missed_until_another_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    """With two documents under way the worker is killed: all three say so, and all are content when one runs again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    with runtimes.made("kafka", tmp_path, request.getfixturevalue) as site, browser.running() as chromium:
        site.script.on("held")
        with serve_process(site.place) as served, browser.watched(chromium, served.url) as seen:
            with site.worker() as worker:
                for key in ("n1", "n2"):
                    served.request("PUT", f"/v1/documents/notes/{key}", body=f"billing hold=held {key}")
                _until(lambda: len(site.script.calls()) == 2)
                _until(lambda: _workers(served)["level"] == "ok" and "asks; 2 documents" in _workers(served)["detail"])
                seen.page.goto("/notes")
                expect(seen.page.locator("#strip")).to_contain_text("is answering", timeout=MISSED_S * 1_000)
                worker.kill()
                worker.wait()
                _missed(site, served, seen)
            site.script.off("held")
            with site.worker():
                _back(site, served, seen)
        seen.check()


def _missed(site: Site, served: ServeProcess, seen: Watched) -> None:
    strip = seen.page.locator("#strip")
    expect(strip.locator(".note")).to_have_text(WARNING, timeout=MISSED_S * 1_000)
    expect(strip).to_contain_text("is not asked")
    expect(strip).to_contain_text("2 waiting")
    expect(strip.locator(".lamp-absent")).to_have_count(1)
    _until(lambda: _workers(served)["level"] == "degraded")
    said = _workers(served)["detail"]
    assert re.fullmatch(
        r"2 documents wait for their answers since 20\S+ \S+ UTC; no worker is running: start 'facetline worker'", said
    )
    assert served.request("GET", "/readyz").json()["status"] == "degraded"
    done = site.place.run("doctor", "--json")
    [check] = [line for line in done.lines if line["check"] == "worker"]
    assert (done.code, check["ok"], said in check["detail"]) == (1, False, True)
    for width, height in (WIDE, PHONE):
        seen.page.set_viewport_size({"width": width, "height": height})
        expect(strip.locator(".note")).to_be_in_viewport()
        assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def _back(site: Site, served: ServeProcess, seen: Watched) -> None:
    strip = seen.page.locator("#strip")
    expect(strip).to_contain_text("is answering", timeout=runtimes.ANSWERED_S * 1_000)
    expect(strip.locator(".note")).to_have_count(0)
    _until(lambda: _workers(served)["level"] == "ok")
    done = site.place.run("doctor", "--json")
    [check] = [line for line in done.lines if line["check"] == "worker"]
    assert (check["ok"], "worker on " in check["detail"]) == (True, True)


def _workers(served: ServeProcess) -> dict[str, Any]:
    """Return the check of `/readyz`; an empty one before the first look."""
    checks = served.request("GET", "/readyz?verbose").json()["checks"]
    return next((check for check in checks if check["name"] == "workers"), {"level": "", "detail": ""})


def _until(condition: Callable[[], bool]) -> None:
    """Wait for it, in a thread: the browser's event loop runs in this one."""
    with ThreadPoolExecutor(1) as waiting:
        waiting.submit(asyncio.run, eventually(condition, deadline_s=runtimes.ANSWERED_S, every_s=0.2)).result()
