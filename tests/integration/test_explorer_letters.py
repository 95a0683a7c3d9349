"""Dead letters on the page over HTTP: what is listed and shown, what its forms do; nothing of a letter acts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import explored
import hostile
import httpx
import judged
import pytest
from explored import Explored
from html_page import Element, parse

from facetline.storage import credentials
from facetline.storage.log import apply, dead_letters
from facetline.storage.log.events import Raw

ACTS = f"{explored.SCRIPT}\x1b[31m\u202eowned\u200b"
PATHS = ("/-/dead-letters", "/-/dead-letters/1")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Explored]:
    """A collection, served, without letters."""
    given = {"support": explored.tickets()[:3]}
    explored.define(tmp_path, given["support"])
    with explored.serving(tmp_path, given) as served:
        yield served


@pytest.fixture
def client(page: Explored) -> Iterator[httpx.Client]:
    """A client that follows no redirect by itself and sends the page's own origin."""
    with httpx.Client(base_url=page.url, headers={"Origin": page.url}) as opened:
        yield opened


def _reject(page: Explored, reason: str = "not_json", message: str = "send JSON", raw: Raw | None = None) -> int:
    event = judged.refused(reason=reason, event_id=f"{reason}-{message}")
    event = replace(event, raw=raw or event.raw, message=message)
    page.run(page.pipeline.store.write(apply.append, "local", [event]))
    found = page.run(page.pipeline.store.read(dead_letters.listed, before=dead_letters.ID_MAX, limit=1))
    return int(found[0].id)


def _shown(client: httpx.Client, address: str) -> Element:
    reply = client.get(address)
    assert reply.status_code == 200, reply.text
    return parse(reply.text)


def _send(client: httpx.Client, address: str, **changed: str) -> httpx.Response:
    form = _shown(client, "/-/dead-letters").one("form", action=address)
    fields = {each.attributes["name"]: each.attributes["value"] for each in form.all("input")}
    return client.post(address, data={**fields, **changed})


def test_letters_are_listed_and_linked_with_their_number(client: httpx.Client, page: Explored):
    """The front page has the number; the list is newest first, with reason, time and message, narrowed by a reason."""
    empty = _shown(client, "/-/dead-letters")
    first, second = _reject(page), _reject(page, "too_large", "send less")
    front = _shown(client, "/").one("a", href="/-/dead-letters")
    listed = _shown(client, "/-/dead-letters").all("li", class_="letter")
    narrowed = _shown(client, "/-/dead-letters?reason=not_json").all("li", class_="letter")

    assert "None" in empty.one("section", class_="empty").text
    assert front.one("b").text == "2"
    assert [each.one("h2").one("a").attributes["href"] for each in listed] == [
        f"/-/dead-letters/{each}" for each in (second, first)
    ]
    assert "too large" in listed[0].text
    assert "send less" in listed[0].text
    assert "UTC" in listed[0].text
    assert len(narrowed) == 1


def test_a_letter_is_discarded_once_and_says_so(client: httpx.Client, page: Explored):
    """The form closes it for good; its page then says by whom and has no buttons, and the list is empty."""
    letter = _reject(page)
    sent = _send(client, f"/-/dead-letters/{letter}/discard")
    shown = _shown(client, sent.headers["location"])

    assert (sent.status_code, sent.headers["location"]) == (303, f"/-/dead-letters/{letter}")
    assert "Discarded." in shown.text
    assert "by local" in shown.text
    assert not [each for each in shown.all("form") if "/-/dead-letters/" in each.attributes["action"]]
    assert not _shown(client, "/-/dead-letters").all("li", class_="letter")


def test_a_letter_is_sent_again_and_says_what_became_of_it(client: httpx.Client, page: Explored):
    """One that is rejected again waits, with its attempts; one that stands for lost records has no such button."""
    letter, lost = _reject(page), _reject(page, "log_truncated", "lost")
    sent = _send(client, f"/-/dead-letters/{letter}/redrive")
    shown = _shown(client, sent.headers["location"])

    assert sent.status_code == 303
    assert page.run(page.pipeline.store.read(dead_letters.get, letter)).attempts == 2
    assert "2 times" in shown.text
    assert not _shown(client, "/-/dead-letters").all("form", action=f"/-/dead-letters/{lost}/redrive")
    assert _shown(client, "/-/dead-letters").all("form", action=f"/-/dead-letters/{lost}/discard")


@pytest.mark.parametrize("action", ["redrive", "discard"])
def test_forms_that_are_not_ours_change_nothing(client: httpx.Client, page: Explored, action: str):
    """Without the mark, without an origin or from another site a form is refused, and the letter stays as it was."""
    letter = _reject(page)
    before = page.run(page.pipeline.store.read(dead_letters.get, letter))
    address = f"/-/dead-letters/{letter}/{action}"
    with httpx.Client(base_url=page.url) as plain:
        refused = [
            _send(client, address, mark="0" * 64),
            client.post(address, data={"mark": ""}),
            _send(plain, address),
            client.post(address, data={"mark": ""}, headers={"Origin": "http://other.example"}),
        ]

    assert [each.status_code for each in refused] == [403] * 4
    assert page.run(page.pipeline.store.read(dead_letters.get, letter)) == before


def test_nothing_of_a_letter_acts(client: httpx.Client, page: Explored):
    """Reason, message, key, value and headers are shown as text, with what would act or hide as its escape."""
    raw = Raw(ACTS.encode(), ACTS.encode(), ((ACTS, ACTS.encode()), ("raw", b"\xff")), 0)
    letter = _reject(page, "not_json", ACTS, raw)

    for address in ("/-/dead-letters", f"/-/dead-letters/{letter}"):
        text = client.get(address).text
        assert hostile.harmful(text) == []
        assert explored.SCRIPT not in text
        assert "owned" in text


def test_letters_are_for_admins_without_a_scope(client: httpx.Client, page: Explored):
    """A token that may only read sees neither link, list nor letter, and its forms are refused."""
    _reject(page)
    for name, rights in (("reader", ("read",)), ("admin", ("read", "admin"))):
        page.run(page.pipeline.store.write(credentials.create, name, name, name=name, rights=rights, scope=None))
    replies, mark = {}, ""
    for name in ("admin", "reader"):
        headers = {"Authorization": f"Bearer {name}", "Origin": page.url}
        with httpx.Client(base_url=page.url, headers=headers) as asking:
            replies[name] = [asking.get(each).status_code for each in PATHS]
            linked = "/-/dead-letters" in asking.get("/").text
            assert linked == (name == "admin")
            if name == "admin":
                mark = _shown(asking, PATHS[0]).all("input", name="mark")[0].attributes["value"]
            else:
                assert asking.post("/-/dead-letters/1/discard", data={"mark": mark}).status_code == 403

    assert replies == {"reader": [403, 403], "admin": [200, 200]}
