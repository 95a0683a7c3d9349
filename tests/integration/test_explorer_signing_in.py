"""Signing in to the page with a token: what a session may see, and what ends it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import explored
import httpx
import pytest
from explored import Explored
from html_page import Element, parse

from facetline.facets.backend import Caller, Right
from facetline.facets.explorer import sessions
from facetline.storage import credentials

Enter = Callable[[str], httpx.Client]


@dataclass(frozen=True)
class Guarded:
    """A page that asks for tokens: one each of an administrator, a reader, a reader of alice's, and a writer."""

    page: Explored
    tokens: dict[str, str]


_RIGHTS = {
    "admin": (("read", "write", "admin", "sql"), None),
    "reader": (("read",), None),
    "alice": (("read", "write"), "alice"),
    "writer": (("write",), None),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Tickets, and notes of two scopes, behind tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    given = {"support": explored.tickets()[:3], "notes": explored.notes()}
    explored.define(
        folder, [each for listed in given.values() for each in listed if each.scope != "bob"], more=explored.NOTES
    )
    with explored.serving(folder, given) as page:
        tokens = {name: credentials.new_token() for name in _RIGHTS}
        for name, (rights, scope) in _RIGHTS.items():
            page.run(_create(page, name, tokens[name], rights, scope))
        assert explored.until(lambda: page.run(page.node.needs_tokens()))
        yield Guarded(page, tokens)


async def _create(page: Explored, name: str, token: str, rights: tuple[str, ...], scope: str | None) -> None:
    await page.pipeline.store.write(credentials.create, name, token, name=name, rights=rights, scope=scope)


@pytest.fixture
def enter(guarded: Guarded) -> Iterator[Enter]:
    """Return a client that has signed in with a token, by its name."""
    opened: list[httpx.Client] = []

    def made(name: str) -> httpx.Client:
        client = httpx.Client(base_url=guarded.page.url, headers={"Origin": guarded.page.url})
        opened.append(client)
        assert _sign_in(client, guarded.tokens[name]).status_code == 303
        return client

    yield made
    for client in opened:
        client.close()


def _sign_in(client: httpx.Client, token: str, onward: str = "") -> httpx.Response:
    form = parse(client.get("/-/sign-in", params={"next": onward}).text).one("form")
    fields = {each.attributes["name"]: each.attributes.get("value", "") for each in form.all("input")}
    return client.post("/-/sign-in", data={**fields, "token": token})


def _shown(client: httpx.Client, address: str) -> Element:
    reply = client.get(address)
    assert reply.status_code == 200, reply.text
    return parse(reply.text)


def test_nobody_is_led_to_the_sign_in_page_and_back(guarded: Guarded):
    """Without a session every page leads to the sign-in page, and a valid token from there to where one was going."""
    with httpx.Client(base_url=guarded.page.url, headers={"Origin": guarded.page.url}) as client:
        away = client.get("/support?f.topic=billing")
        part = client.get("/support", headers={"HX-Request": "true"})
        form = parse(client.get(away.headers["location"]).text)
        onward = form.one("input", name="next").attributes["value"]
        back = _sign_in(client, guarded.tokens["reader"], onward)
        found = client.get(back.headers["location"])

    assert away.status_code == 303
    assert part.headers["hx-refresh"] == "true"
    assert onward == "/support?f.topic=billing"
    assert found.status_code == 200
    assert not form.all("form", action="/-/sign-out")


def test_cookie_is_no_token_and_nothing_reads_it(guarded: Guarded):
    """The session's cookie is HttpOnly and SameSite=Strict, and holds nothing of the token."""
    with httpx.Client(base_url=guarded.page.url, headers={"Origin": guarded.page.url}) as client:
        cookie = _sign_in(client, guarded.tokens["reader"]).headers["set-cookie"]
        again = _sign_in(client, guarded.tokens["reader"]).headers["set-cookie"]

    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert guarded.tokens["reader"] not in cookie
    assert guarded.tokens["reader"].removeprefix(credentials.PREFIX)[:12] not in cookie
    assert cookie.split(";")[0] != again.split(";")[0]


@pytest.mark.parametrize("token", ["", "wrong", "flt_" + "x" * 43, "é" * 20, "x" * 10_000])
def test_wrong_token_is_refused(guarded: Guarded, token: str):
    """What is no token opens no session, and the page says so."""
    with httpx.Client(base_url=guarded.page.url, headers={"Origin": guarded.page.url}) as client:
        reply = _sign_in(client, token)

    assert reply.status_code == 401
    assert "set-cookie" not in reply.headers
    assert "not valid" in parse(reply.text).one(role="alert").text


@pytest.mark.parametrize(
    "onward", ["//other.example/", "https://other.example/", "/\\other.example", "javascript:1", "x"]
)
def test_sign_in_leads_nowhere_else(guarded: Guarded, onward: str):
    """After signing in nobody is led to another site, whatever the link said."""
    with httpx.Client(base_url=guarded.page.url, headers={"Origin": guarded.page.url}) as client:
        reply = _sign_in(client, guarded.tokens["reader"], onward)

    assert reply.headers["location"] == "/"


def test_foreign_page_cannot_sign_anybody_in(guarded: Guarded):
    """A form that another site sends, or one without its mark, opens no session."""
    with httpx.Client(base_url=guarded.page.url) as client:
        token = guarded.tokens["reader"]
        mark = parse(client.get("/-/sign-in").text).one("input", name="mark").attributes["value"]
        foreign = client.post(
            "/-/sign-in", data={"token": token, "mark": mark}, headers={"Origin": "http://other.example"}
        )
        unmarked = client.post("/-/sign-in", data={"token": token}, headers={"Origin": guarded.page.url})

    assert [foreign.status_code, unmarked.status_code] == [403, 403]
    assert "set-cookie" not in {**foreign.headers, **unmarked.headers}


def test_scope_is_all_that_its_session_sees(enter: Enter):
    """A session of alice's token sees her notes alone: no unscoped collection, no document or count of bob's."""
    client = enter("alice")
    front = _shown(client, "/")
    notes = _shown(client, "/notes")

    assert [each.one("h2").text for each in front.all("li", class_="card")] == ["notes"]
    assert notes.one("p", id="total").text == "3 documents"
    assert "bob" not in notes.text
    assert "failed" not in notes.one(id="strip").text
    assert client.get("/support").status_code == 404
    assert client.get("/notes/@bob/notes/n3").status_code == 404
    assert client.get("/notes?scope=bob").text.count("@bob") == 0
    assert client.get("/-/failed/support").status_code == 404
    assert "bob" not in client.get("/-/failed/notes").text
    assert "@alice/notes/n0" in _shown(client, "/notes/@alice/notes/n0").text
    assert not notes.all("a", href="/-/reindex/notes")


def test_beginnings_of_other_scopes_are_not_there(guarded: Guarded):
    """How documents begin is told within the caller's scope, cut as asked, and not of what is absent."""
    page = guarded.page
    alice = Caller("alice", frozenset[Right]({"read"}), "alice")
    uris = ["@bob/notes/n3", "@alice/notes/n0", "@alice/notes/none"]

    found = page.run(page.node.beginnings(alice, uris, chars=6))

    assert found == {"@alice/notes/n0": (1, "Note 0")}


def test_rights_are_those_of_the_token(enter: Enter):
    """Who may only read is shown no way to ask again, and refused it; who may not read sees nothing."""
    reader = enter("reader")
    shown = _shown(reader, "/support")

    assert not [each for each in shown.all("a") if "/-/reindex/" in each.attributes["href"]]
    assert reader.get("/-/reindex/support").status_code == 403
    assert enter("writer").get("/").status_code == 403
    assert enter("admin").get("/-/reindex/support").status_code == 200


def test_form_of_one_session_is_none_of_another(enter: Enter):
    """The mark of one session's form is not taken from another session."""
    first, second = enter("admin"), enter("admin")
    form = next(
        each
        for each in _shown(first, "/-/reindex/notes").all("form")
        if each.attributes["method"] == "post" and each.attributes["action"] == "/-/reindex/notes"
    )
    fields = {each.attributes["name"]: each.attributes["value"] for each in form.all("input")}

    assert second.post("/-/reindex/notes", data=fields).status_code == 403
    assert first.post("/-/reindex/notes", data=fields).status_code == 303


def test_signing_out_ends_the_session(enter: Enter):
    """After signing out the same cookie is nobody's."""
    client = enter("reader")
    name = client.cookies[sessions.COOKIE]
    form = _shown(client, "/").one("form", action="/-/sign-out")
    fields = {each.attributes["name"]: each.attributes["value"] for each in form.all("input")}
    out = client.post("/-/sign-out", data=fields)
    client.cookies.set(sessions.COOKIE, name)

    assert out.headers["location"] == "/-/sign-in"
    assert client.get("/support").status_code == 303


def test_who_may_not_look_can_sign_out(enter: Enter):
    """A token without the right to read is refused every page, and its session ends when it is asked to."""
    client = enter("writer")
    refused = client.get("/")
    form = parse(refused.text).one("form", action="/-/sign-out")
    fields = {each.attributes["name"]: each.attributes["value"] for each in form.all("input")}

    out = client.post("/-/sign-out", data=fields)

    assert (refused.status_code, out.status_code, out.headers.get("location")) == (403, 303, "/-/sign-in")
    assert client.get("/").status_code == 303


def test_revoked_token_ends_its_sessions(guarded: Guarded, enter: Enter):
    """A token that is revoked is nobody's on the page within seconds."""
    token = credentials.new_token()
    guarded.page.run(_create(guarded.page, "gone", token, ("read",), None))
    with httpx.Client(base_url=guarded.page.url, headers={"Origin": guarded.page.url}) as client:
        assert _sign_in(client, token).status_code == 303
        assert client.get("/support").status_code == 200
        guarded.page.run(guarded.page.pipeline.store.write(credentials.revoke, "gone"))
        ended = explored.until(lambda: client.get("/support").status_code == 303)

    assert ended


def test_cookie_opens_the_page_alone(guarded: Guarded, enter: Enter):
    """The session's cookie is for the page: the API still wants the token."""
    client = enter("admin")

    assert client.get("/v1/collections").status_code == 401
    assert client.get("/-/json/support").json()["total"] == 3


def test_the_api_is_described_to_who_may_read(guarded: Guarded, enter: Enter):
    """`/docs` and its document ask to sign in, are refused without `read`, and take no session for the API itself."""
    with httpx.Client(base_url=guarded.page.url) as nobody:
        away = {address: nobody.get(address).headers.get("location") for address in ("/docs", "/-/openapi.json")}
    writer, reader, alice = enter("writer"), enter("reader"), enter("alice")
    refused = [writer.get(address).status_code for address in away]
    found = reader.get("/-/openapi.json")

    assert away == {"/docs": "/-/sign-in?next=%2Fdocs", "/-/openapi.json": "/-/sign-in?next=%2F-%2Fopenapi.json"}
    assert refused == [403, 403]
    assert reader.get("/docs").status_code == alice.get("/docs").status_code == 200
    assert found.json() == alice.get("/-/openapi.json").json()
    assert "/v1/documents/{uri}" in found.json()["paths"]
    assert reader.get("/openapi.json").status_code == 401
