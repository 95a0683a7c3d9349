"""What bob has in the store, alice never learns: every route says the same to her, byte for byte, with it and without.

Method: a store with alice's documents is copied; in one copy bob does all that leaves traces. Then the same requests,
some for each route that the application has, are made with alice's token over both. Times, ids and counters are equal
because the copies are; three things cannot be, and are made equal in the replies: how long a reply took, the random
ids of events without a key, and when the documents were answered that alice writes meanwhile.
"""

import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from polling import eventually
from runtimes import Site
from starlette.routing import Mount, Route

from facetline.facets.agents import http as agents
from facetline.facets.api.application import application
from facetline.facets.api.middleware import Middleware
from facetline.facets.explorer import routes as explorer
from facetline.storage import credentials
from facetline.streams.pipeline import Pipeline
from facetline.streams.serve.node import open_node

ALICE, BOB, ADMIN = "flt_alice", "flt_bob", "flt_admin"
URL = "http://127.0.0.1:8080"
SEARCH = "/v1/collections/tickets/search"
TICKET = "/v1/documents/@alice/tickets/"
BOBS = "/v1/documents/@bob/tickets/b1"
NOTE = "/v1/documents/notes/n1"
NOBODYS = "/v1/documents/@carol/tickets/c1"
KEY = "one-key-for-all"
ABSENT_JOB = "/v1/jobs/00000000-0000-0000-0000-000000000000"


def call_of(tool: str, **arguments: Any) -> dict[str, Any]:
    """Return an agent's call of a tool."""
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def reads(bobs_token: str) -> dict[tuple[str, str], list[tuple[str, Any]]]:
    """Return the requests of each route that reads: address and JSON body. They change nothing."""
    outside = (NOTE, BOBS, NOBODYS, "/v1/documents/@bob/tickets/absent", "/v1/documents/nowhere/x")
    searches = [
        "",
        "?f.topic=billing&counts=*&limit=1",
        "?counts=topic&f.topic=__missing__",
        "?min_confidence=0.5&counts=*&sort=-doc_written_at",
        "?filter=doc_scope%20%3D%20%27bob%27&counts=*",
        "?filter=doc_scope%20%3C%3E%20%27alice%27",
        "?filter=doc_key%20%3D%20%27b1%27",
        "?q=card+money+bob+secret&highlight=true&score_details=true&counts=*",
        "?q=secretwork&mode=keyword",
        "?grep=.&highlight=true",
        "?glob=**",
        "?scope=bob",
        "?scope=carol",
        "?scope=alice",
        "?f.topic=biling",
        "?f.topik=billing",
        f"?at_least={bobs_token}&wait_ms=0",
    ]
    names = ("tickets", "notes", "nowhere", "ticket")
    tools = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1, "method": "resources/list"},
        call_of("list_collections"),
        call_of("search_tickets", topic="billing"),
        call_of("get_document", uri="@bob/tickets/b1"),
        call_of("get_document", uri="@alice/tickets/a1"),
    ]
    pages = ["tickets", "notes", "nowhere"]
    return {
        ("GET", "/v1/documents/{uri:path}"): [(each, None) for each in (f"{TICKET}a1", f"{TICKET}gone", *outside)],
        ("GET", "/v1/events/{event_id}"): [(f"/v1/events/{each}", None) for each in (KEY, "bobs-key", "nothing")],
        ("GET", "/v1/collections"): [("/v1/collections", None)],
        ("GET", "/v1/collections/{collection}"): [(f"/v1/collections/{each}", None) for each in names],
        ("GET", "/v1/collections/{collection}/search"): [
            *((SEARCH + each, None) for each in searches),
            *((f"/v1/collections/{each}/search", None) for each in names),
        ],
        ("POST", "/v1/collections/{collection}/search"): [
            (SEARCH, {"counts": "*", "facets": {"topic": ["billing", "__missing__"]}}),
            (SEARCH, {"scope": "bob"}),
            (SEARCH, {"at_least": [bobs_token], "wait_ms": 0}),
        ],
        ("GET", "/v1/collections/{collection}/search.csv"): [
            (f"{SEARCH}.csv", None),
            (f"{SEARCH}.csv?scope=bob", None),
        ],
        ("GET", "/v1/collections/{collection}/search.ndjson"): [(f"{SEARCH}.ndjson{each}", None) for each in searches],
        ("GET", "/v1/collections/{collection}/grep"): [
            (f"/v1/collections/{each}/grep?pattern=.{more}", None)
            for each in names
            for more in ("", "&scope=bob", "&glob=b*", "&context=2")
        ],
        ("GET", "/v1/collections/{collection}/glob"): [
            (f"/v1/collections/{each}/glob{more}", None) for each in names for more in ("", "?pattern=b*", "?scope=bob")
        ],
        ("GET", "/v1/jobs"): [("/v1/jobs", None)],
        ("GET", "/v1/jobs/{job_id}"): [(ABSENT_JOB, None)],
        ("GET", "/v1/jobs/{job_id}/items"): [(f"{ABSENT_JOB}/items", None)],
        ("GET", "/v1/dead-letters"): [("/v1/dead-letters", None), ("/v1/dead-letters?reason=no_document", None)],
        ("GET", "/v1/dead-letters/{id}"): [("/v1/dead-letters/1", None), ("/v1/dead-letters/2", None)],
        ("GET", "/v1/sql.csv"): [("/v1/sql.csv?sql=SELECT%20count(*)%20FROM%20tickets", None)],
        ("POST", "/v1/sql"): [("/v1/sql", {"sql": "SELECT count(*) FROM tickets"})],
        ("GET", "/livez"): [("/livez?verbose", None)],
        ("GET", "/readyz"): [("/readyz", None), ("/readyz?verbose", None)],
        ("GET", "/health"): [("/health", None), ("/health?verbose", None)],
        ("GET", "/metrics"): [("/metrics", None)],
        ("GET", "/v1"): [("/v1", None)],
        ("GET", "/docs"): [("/docs", None)],
        ("GET", "/-/openapi.json"): [("/-/openapi.json", None)],
        ("GET", "/openapi.json"): [("/openapi.json", None)],
        ("GET", "/v1/problems/{name}"): [("/v1/problems/busy", None)],
        ("*", "/v1/{rest:path}"): [("/v1/nothing", None)],
        ("*", "/mcp"): [("/mcp", each) for each in tools],
        ("GET", "/"): [("/", None)],
        ("GET", "/{collection}"): [*((f"/{each}", None) for each in pages), ("/tickets?f.topic=billing", None)],
        ("GET", "/{collection}/{uri:path}"): [
            (f"/tickets/{quote(each)}", None)
            for each in (
                "@alice/tickets/a1",
                "@alice/tickets/failing",
                "@bob/tickets/b1",
                "@carol/tickets/c1",
                "notes/n1",
            )
        ],
        **{
            ("GET", f"/-/{part}/{{collection}}"): [(f"/-/{part}/{each}", None) for each in pages]
            for part in ("strip", "sql", "json", "csv", "failed", "reindex")
        },
        ("GET", "/-/dead-letters"): [("/-/dead-letters", None)],
        ("GET", "/-/dead-letters/{id}"): [("/-/dead-letters/1", None)],
        ("GET", "/-/job/{id}"): [("/-/job/00000000-0000-0000-0000-000000000000", None)],
        ("GET", "/-/sign-in"): [],  # shows nothing that is in the store
        ("*", "/static"): [],  # files
    }


def writes() -> dict[tuple[str, str], list[tuple[str, Any]]]:
    """Return the requests of each route that changes something."""
    return {
        ("PUT", "/v1/documents/{uri:path}"): [
            (f"{TICKET}a1?wait=answered", {"body": "bobs own words outage"}),
            (f"{TICKET}b1?wait=answered", {"body": "billing of a key that bob has too"}),
            (f"{TICKET}new?wait=answered", {"state": {"title": "no body"}}),
            (BOBS, {"body": "x"}),
            (NOTE, {"body": "x"}),
            (NOBODYS, {"body": "x"}),
            ("/v1/documents/nowhere/x", {"body": "x"}),
        ],
        ("DELETE", "/v1/documents/{uri:path}"): [
            (each, None) for each in (f"{TICKET}a2", f"{TICKET}never", BOBS, NOTE)
        ],
        ("POST", "/v1/collections/{collection}/reindex"): [
            ("/v1/collections/tickets/reindex", {"dry_run": True}),
            ("/v1/collections/tickets/reindex", {"scope": "bob", "force": True}),
        ],
        ("POST", "/v1/jobs/{job_id}/cancel"): [(f"{ABSENT_JOB}/cancel", None)],
        **{
            ("POST", f"/v1/dead-letters/{{id}}/{each}"): [(f"/v1/dead-letters/1/{each}", None)]
            for each in ("redrive", "discard")
        },
        ("POST", "/-/sign-in"): [],  # a form, which has a mark that nobody can foresee
        ("POST", "/-/sign-out"): [],
        ("POST", "/-/reindex/{collection}"): [("/-/reindex/tickets", None)],
        **{
            ("POST", f"/-/dead-letters/{{id}}/{each}"): [(f"/-/dead-letters/1/{each}", None)]
            for each in ("redrive", "discard")
        },
        ("POST", "/-/job/{id}/cancel"): [("/-/job/00000000-0000-0000-0000-000000000000/cancel", None)],
    }


def routes_of(app: Middleware) -> set[tuple[str, str]]:
    """Return every route of the application and all that is mounted in it, the document about itself included."""
    found = set()
    for route in app.application.routes:
        if isinstance(route, Mount) or (isinstance(route, APIRoute) and len(route.methods) > 1):
            found.add(("*", route.path))
        elif isinstance(route, Route | APIRoute):
            methods = (route.methods or {"*"}) - {"HEAD"}
            found |= {(method, route.path) for method in methods}
    return found


@asynccontextmanager
async def served(site: Site) -> AsyncIterator[tuple[Pipeline, Middleware]]:
    """Serve a site's store with everything that is ever mounted."""
    async with site.pipeline(classify=True) as pipeline, open_node(pipeline) as node:
        app = application(node, loopback=True, parts=[agents.part(), explorer.part])
        async with app.application.router.lifespan_context(app.application):
            yield pipeline, app


def client_of(app: Middleware, token: str) -> httpx.AsyncClient:
    """A client with a token, for pages as well."""
    headers = {"Authorization": f"Bearer {token}", "accept": "application/json, text/event-stream, text/html"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=URL, headers=headers)


async def prepare(site: Site) -> None:
    """Fill the store with alice's documents, in every state that a document can be in."""
    async with served(site) as (pipeline, app):
        for name, token, scope in (("alice", ALICE, "alice"), ("bob", BOB, "bob"), ("admin", ADMIN, None)):
            rights = ("read", "write") if scope else ("read", "write", "admin", "sql")
            await pipeline.store.write(credentials.create, name, token, name=name, rights=rights, scope=scope)
        site.script.on("fail")
        site.script.on("held")  # both stores ask the same evaluator: its module is imported once
        async with client_of(app, ALICE) as alice:
            await eventually(lambda: is_known(alice))
            for key, body in (
                ("a1", "billing"),
                ("a2", "outage"),
                ("failing", "fail=fail"),
                ("gone", "billing"),
                ("e", ""),
            ):
                await put(alice, f"{TICKET}{key}?wait=answered", body)
            await put(alice, f"{TICKET}keyed?wait=answered", "billing", KEY)
            assert (await alice.delete(f"{TICKET}gone")).status_code == 200


async def bob_was_here(site: Site) -> str:
    """Do all that leaves traces; return one of bob's tokens."""
    async with served(site) as (_, app), client_of(app, BOB) as bob, client_of(app, ADMIN) as admin:
        for key, body in (
            ("b1", "billing"),
            ("a1", "bobs own words outage"),
            ("failing", "fail=fail"),
            ("gone", "other"),
        ):
            await put(bob, f"/v1/documents/@bob/tickets/{key}?wait=answered", body, f"bobs-key-{key}")
        refused = await bob.put("/v1/documents/@bob/tickets/none", json={"state": {"title": "no body"}})
        assert refused.json()["reason"] == "no_document"  # a dead letter
        token = (await put(bob, "/v1/documents/@bob/tickets/keyed?wait=answered", "billing", KEY)).json()["token"]
        await put(bob, "/v1/documents/@bob/tickets/b2?wait=answered", "outage", "bobs-key")
        assert (await bob.delete("/v1/documents/@bob/tickets/gone")).status_code == 200
        await put(admin, f"{NOTE}?wait=answered", "billing")
        await put(admin, "/v1/documents/@carol/tickets/c1?wait=answered", "outage")
        job = await admin.post("/v1/collections/tickets/reindex", json={"scope": "bob", "force": True})
        await eventually(lambda: is_done(admin, job.headers["location"]))
        await bob.put("/v1/documents/@bob/tickets/stuck", json={"body": "hold=held"})
        return str(token)


async def put(client: httpx.AsyncClient, address: str, body: str, key: str | None = None) -> httpx.Response:
    """Write, as one must be able to."""
    reply = await client.put(address, json={"body": body}, headers={} if key is None else {"Idempotency-Key": key})
    assert reply.status_code == 200, reply.text
    return reply


async def is_known(client: httpx.AsyncClient) -> bool:
    """Say whether the server has heard of the client's token."""
    return (await client.get("/v1/collections")).status_code == 200


async def is_done(client: httpx.AsyncClient, job: str) -> bool:
    """Say whether a job has ended."""
    return (await client.get(job)).json()["state"] == "succeeded"


async def answers(site: Site, bobs_token: str) -> dict[str, str]:
    """Make all requests as alice and return the replies by request."""
    found: dict[str, str] = {}
    read, written = reads(bobs_token), writes()
    async with served(site) as (_, app), client_of(app, ALICE) as alice:
        assert routes_of(app) ^ {*read, *written} == set()
        await eventually(lambda: is_known(alice))
        for name, routes in (("before", read), ("meanwhile", written), ("after", read)):
            for (method, _), requests in routes.items():
                for address, body in requests:
                    verb = method if method != "*" else "GET" if body is None else "POST"
                    reply = await alice.request(verb, address, json=body)
                    found[f"{name} {verb} {address} {json.dumps(body)}"] = shown(reply, written=name != "before")
            if name == "meanwhile":
                token = (await put(alice, f"{TICKET}last", "")).json()["token"]
                assert (await alice.get(f"{SEARCH}?at_least={token}&wait_ms=30000")).status_code == 200
    return found


TOOK = re.compile(r'"took_ms":[\d.]+')
EVENT_ID = re.compile(r'"event_id":"[0-9a-f]{8}-[0-9a-f-]{27}"')  # made for a write without a key
MOMENT = re.compile(r"2\d{3}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| UTC)?|\d\d:\d\d:\d\d UTC")


def shown(reply: httpx.Response, *, written: bool) -> str:
    """Return a reply whole, without what cannot be the same twice: see the module. `written`: alice has written now."""
    headers = dict(reply.headers)
    text = EVENT_ID.sub('"event_id":"…"', reply.text)
    text, found = TOOK.subn('"took_ms":0', text)
    if found:
        del headers["content-length"]
    if written:
        text, found = MOMENT.subn("MOMENT", text)
        if found:
            headers.pop("etag", None)
    return f"{reply.status_code}\n{headers}\n\n{text}"


def copied(folder: Path) -> Site:
    """Return the site in a copy of its folder, with the same configuration."""
    text = (folder / "facetline.toml").read_text()
    made = Site("local", folder, {})
    (folder / "facetline.toml").write_text(text)
    return made


@pytest.mark.timeout(180)
async def test_alice_learns_nothing_of_bob(tmp_path: Path):
    """Every route answers alice the same, byte for byte, whether bob's documents, events, jobs and tokens are there."""
    alone = tmp_path / "alone"
    alone.mkdir()
    site = Site("local", alone, {})
    await prepare(site)
    both = tmp_path / "both"
    shutil.copytree(alone, both)
    other = copied(both)
    bobs_token = await bob_was_here(other)

    without, with_him = await answers(site, bobs_token), await answers(other, bobs_token)

    assert {request: reply for request, reply in with_him.items() if reply != without[request]} == {}
    assert sum(reply.startswith("200") for reply in without.values()) > 40
