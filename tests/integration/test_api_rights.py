"""Who may ask for what: tokens, rights, hosts, origins, on every route that there is; and nothing of it in the logs.

Method: the routes come from the application's own list, so that a new one is judged, too.
"""

import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import scripted_node
from structlog.testing import capture_logs

from facetline.facets.api.application import ROUTES, application
from facetline.facets.api.routing import RouteSpec
from facetline.facets.backend import RIGHTS, Caller

ADDRESSES = {
    "uri:path": "tickets/t1",
    "event_id": "e1",
    "collection": "tickets",
    "job_id": "j1",
    "id": "1",
    "name": "busy",
}
OPEN = {"/livez", "/readyz", "/health"}
URL = "http://127.0.0.1:8080"


def address_of(declared: RouteSpec) -> str:
    """Return an address that the route takes."""
    found = declared.path
    for name, value in ADDRESSES.items():
        found = found.replace(f"{{{name}}}", value)
    asked = {"/v1/sql.csv": "?sql=SELECT%201", "/v1/collections/tickets/grep": "?pattern=a"}
    return found + asked.get(found, "")


def body_of(declared: RouteSpec) -> dict[str, Any] | None:
    """Return a body that the route takes."""
    return None if declared.body is None else {"sql": "SELECT 1"} if declared.path == "/v1/sql" else {}


async def ask(client: httpx.AsyncClient, declared: RouteSpec, **headers: str) -> httpx.Response:
    """Send a request that is right in everything but what the headers say."""
    return await client.request(declared.method, address_of(declared), json=body_of(declared), headers=headers)


def ids(value: object) -> str | None:
    """Return how a route is called in the test's name."""
    return f"{value.method}-{value.path}" if isinstance(value, RouteSpec) else None


@pytest.fixture
def node() -> scripted_node.ScriptedNode:
    """A node with a token for each right, one for all, and scoped ones."""
    made = scripted_node.ScriptedNode()
    made.callers = {
        **{f"only-{right}": Caller(f"c-{right}", frozenset({right})) for right in RIGHTS},
        "all": Caller("c-all", frozenset(RIGHTS)),
        "scoped": Caller("c-scoped", frozenset(RIGHTS), "alice"),  # no such token is ever made
    }
    return made


@pytest.fixture
async def client(node: scripted_node.ScriptedNode) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that is reached from elsewhere."""
    async with client_of(application(node, loopback=False)) as made:
        yield made


def client_of(app: object) -> httpx.AsyncClient:
    """A client of an application, without a network."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL)  # type: ignore[arg-type]


@pytest.mark.parametrize("declared", ROUTES, ids=ids)
async def test_a_route_asks_for_its_right(client: httpx.AsyncClient, declared: RouteSpec):
    """Without a valid token 401 and how to send one, without the right 403, with it an answer."""
    without = await ask(client, declared)
    wrong = await ask(client, declared, Authorization="Bearer guessed")
    basic = await ask(client, declared, Authorization="Basic YTpi")
    by_right = {
        right: (await ask(client, declared, Authorization=f"Bearer only-{right}")).status_code for right in RIGHTS
    }

    if declared.path in OPEN:
        assert without.status_code == 200
        return
    assert [each.status_code for each in (without, wrong, basic)] == [401] * 3
    assert without.headers["www-authenticate"] == 'Bearer realm="facetline"'
    assert wrong.headers["www-authenticate"] == 'Bearer realm="facetline", error="invalid_token"'
    assert [each.json()["detail"] for each in (without, basic)] == ["send a token: Authorization: Bearer …"] * 2
    assert {right for right, status in by_right.items() if status < 300} == {declared.right}
    assert {status for right, status in by_right.items() if right != declared.right} == {403}


@pytest.mark.parametrize("declared", [each for each in ROUTES if each.everywhere], ids=ids)
async def test_what_shows_all_scopes_is_not_for_one(client: httpx.AsyncClient, declared: RouteSpec):
    """Metrics, SQL and dead letters are refused to a token with a scope, whatever its rights."""
    assert (await ask(client, declared, Authorization="Bearer scoped")).status_code == 403


def test_what_shows_all_scopes_is_marked():
    """Metrics, SQL and dead letters are; a route that is added with one of these rights has to say so."""
    letters = {each.path for each in ROUTES if each.path.startswith("/v1/dead-letters")}
    assert len(letters) == 4
    assert {each.path for each in ROUTES if each.everywhere} == {"/metrics", "/v1/sql", "/v1/sql.csv", *letters}
    assert {each.path for each in ROUTES if each.right == "sql" and not each.everywhere} == set()
    assert {each.path for each in ROUTES if each.right is None} == OPEN


async def test_readiness_says_why_only_to_who_may_know(client: httpx.AsyncClient):
    """Whether it is ready anybody hears, which a balancer needs; what is wrong takes a token that sees everything."""
    plain = await client.get("/readyz")
    asked = await client.get("/readyz?verbose")
    scoped = await client.get("/readyz?verbose", headers={"Authorization": "Bearer scoped"})
    known = await client.get("/readyz?verbose", headers={"Authorization": "Bearer only-read"})

    assert plain.json() == {"status": "ready"}
    assert (asked.status_code, scoped.status_code) == (401, 403)
    assert [check["name"] for check in known.json()["checks"]] == ["store"]


async def test_a_body_is_not_read_before_its_sender_is_known(client: httpx.AsyncClient):
    """Who has no token hears that first, whatever else is wrong."""
    for declared in ROUTES:
        reply = await client.request(
            declared.method, address_of(declared) + "?x=y", content=b"{", headers={"content-type": "application/json"}
        )

        assert reply.status_code == (400 if declared.path in OPEN else 401)


# Hosts and origins


@pytest.fixture
async def local() -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server without tokens on a loopback address."""
    async with client_of(application(scripted_node.ScriptedNode(), loopback=True)) as made:
        yield made


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080", "[::1]", "127.3.2.1", "localhost.:8080", "127.0.0.1:"],
)
async def test_loopback_hosts_are_answered(local: httpx.AsyncClient, host: str):
    """Without tokens a name that nobody else can give is answered."""
    assert (await local.get("/v1/jobs", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1:8080", "", "0.0.0.1"),
        *("127.0.0.1:8080@evil.example", "localhost:8080.evil.example", "localhost:evil", "localhost@evil.example"),
        *(
            "localhost:80:90",
            "[::1].evil.example",
            "[::1]evil:80",
            "[127.0.0.1]:80",
            "::1",
            "localhost/evil",
            "localhost?x",
        ),
        *(
            "localhost#evil",
            "localhost,evil.example",
            "localhost evil.example",
            "http://localhost",
            "localhost..",
            ".localhost",
        ),
        *("127.1", "0x7f.0.0.1", "2130706433", "[::ffff:10.0.0.1]", "localhost%00.evil"),
    ],
)
async def test_foreign_hosts_are_not_answered(local: httpx.AsyncClient, host: str):
    """Without tokens no page reaches the server by a name that its owner points here."""
    reply = await local.get("/v1/jobs", headers={"Host": host})

    assert (reply.status_code, reply.json()["type"]) == (403, "/v1/problems/foreign-host")


async def test_without_tokens_nobody_is_answered_from_elsewhere():
    """A server that listens on another address answers nobody who has no token, whatever the Host says."""
    async with client_of(application(scripted_node.ScriptedNode(), loopback=False)) as client:
        assert (await client.get("/v1/jobs")).status_code == 403


async def test_with_a_token_any_host_is_answered_unless_named(node: scripted_node.ScriptedNode):
    """A token is worth nothing to a page that does not have it; `hosts` narrows all the same."""
    given = {"Host": "search.example", "Authorization": "Bearer all"}
    async with client_of(application(node, loopback=True)) as client:
        assert (await client.get("/v1/jobs", headers=given)).status_code == 200
    async with client_of(application(node, loopback=True, hosts=["Other.example"])) as client:
        assert (await client.get("/v1/jobs", headers=given)).status_code == 403
        for host in ("other.example", "127.0.0.1:8080"):  # commands on this machine ask it by its own address
            assert (await client.get("/v1/jobs", headers={**given, "Host": host})).status_code == 200


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8080", "https://127.0.0.1:8080"])
async def test_own_pages_are_answered(local: httpx.AsyncClient, origin: str):
    """A page of the server itself is, also behind a proxy that ends TLS."""
    assert (await local.get("/v1/jobs", headers={"Origin": origin})).status_code == 200


FOREIGN = ("http://127.0.0.1:9", "https://evil.example", "null", "", "file://", "127.0.0.1:8080")


async def test_foreign_pages_are_not_answered(local: httpx.AsyncClient):
    """No route answers a page of another site."""
    for declared in ROUTES:
        for origin in FOREIGN:
            reply = await ask(local, declared, Origin=origin)

            assert (reply.status_code, reply.json()["type"]) == (403, "/v1/problems/foreign-origin")
            assert "access-control-allow-origin" not in reply.headers


async def test_images_scripts_frames_and_links_of_foreign_pages_are_not_answered(local: httpx.AsyncClient):
    """A browser sends no origin with them, but says that they are another site's; what asks for no right passes."""
    embedded = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}

    assert (await local.get("/v1/sql.csv?sql=x", headers=embedded)).status_code == 403
    for declared in ROUTES:
        if declared.method == "GET" and declared.right is not None:
            assert (await ask(local, declared, **followed)).json()["type"] == "/v1/problems/foreign-origin"
    assert (await local.get("/livez", headers=followed)).status_code == 200
    assert (await local.get("/v1/jobs", headers={**followed, "Sec-Fetch-Site": "same-origin"})).status_code == 200


async def test_pages_of_named_origins_may_read(node: scripted_node.ScriptedNode):
    """With a list of origins, and only for those: preflight, replies and problems carry the permission."""
    app = application(node, loopback=True, origins=["https://app.example"])
    async with client_of(app) as client:
        own = {"Origin": "https://app.example"}
        asked = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization"}
        preflight = await client.options("/v1/documents/tickets/t1", headers={**own, **asked})
        reply = await client.get("/v1/jobs", headers={**own, "Authorization": "Bearer all"})
        refused = await client.get("/v1/jobs", headers=own)
        foreign = await client.options("/v1/jobs", headers={"Origin": "https://evil.example", **asked})

    assert preflight.status_code == 204
    assert "PUT" in preflight.headers["access-control-allow-methods"]
    for name in ("Authorization", "MCP-Protocol-Version"):
        assert name in preflight.headers["access-control-allow-headers"]
    for each, status in ((preflight, 204), (reply, 200), (refused, 401)):
        assert (each.status_code, each.headers["access-control-allow-origin"]) == (status, "https://app.example")
        assert "Origin" in each.headers["vary"]
        assert "access-control-allow-credentials" not in each.headers
    assert foreign.status_code == 403
    assert "access-control-allow-origin" not in foreign.headers


# Logs


async def test_nothing_of_a_request_is_logged(node: scripted_node.ScriptedNode, caplog: pytest.LogCaptureFixture):
    """No body, no token, no parameter, no key and no message of an error gets into a log, whatever fails."""
    caplog.set_level(logging.DEBUG)
    with capture_logs() as entries:
        async with client_of(application(node, loopback=True)) as client:
            for failure in (None, RuntimeError("s3cret"), KeyError("s3cret")):
                node.fails = failure
                for token in ("all", "s3cret-token"):
                    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "s3cret"}
                    await client.put("/v1/documents/tickets/s3cret", json={"body": "s3cret"}, headers=headers)
                    await client.put("/v1/documents/tickets/s3cret", json={"s3cret": "s3cret"}, headers=headers)
                    await client.get("/v1/collections/tickets/search?filter=s3cret&s3cret=1", headers=headers)

    assert len(entries) == 2
    assert {entry["event"] for entry in entries} == {"request_failed"}
    assert "s3cret" not in str(entries) + "".join(
        record.getMessage() for record in caplog.records if not record.name.startswith("httpx")
    )
