"""What a request says is taken exactly, or refused with what would have been right, in one shape.

Method: the application over a scripted node, without a network. What the node is asked for is what the request said.
"""

import re
from collections.abc import AsyncIterator
from typing import Any, get_args

import httpx
import pytest
import scripted_node

from facetline.facets import errors
from facetline.facets.api import models, problem_types
from facetline.facets.api.application import ROUTES, Part, application
from facetline.facets.api.limits import Limits
from facetline.facets.backend import Freshness, ReindexRequest
from facetline.facets.search.selection import Selection
from facetline.storage.jobs import decisions

SEARCH = "/v1/collections/tickets/search"
DOCUMENT = "/v1/documents/tickets/t1"
MEMBERS = {"type", "title", "status", "detail", "instance"}


@pytest.fixture
def node() -> scripted_node.ScriptedNode:
    """The node that is served."""
    return scripted_node.ScriptedNode()


@pytest.fixture
async def client(node: scripted_node.ScriptedNode) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application."""
    async with client_of(application(node, loopback=True)) as made:
        yield made


def client_of(app: object) -> httpx.AsyncClient:
    """A client of an application, without a network."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080")  # type: ignore[arg-type]


def problem_of(reply: httpx.Response, name: str) -> dict[str, Any]:
    """Return a reply's problem, after a look at its shape."""
    kind = problem_types.KINDS[name]
    found = reply.json()
    assert reply.headers["content-type"] == "application/problem+json"
    assert found.keys() >= MEMBERS
    assert (found["type"], found["title"], found["status"]) == (kind.type, kind.title, reply.status_code)
    assert found["instance"] == reply.request.url.raw_path.decode().partition("?")[0]
    assert found["detail"]
    return found


# What a search is asked for


async def test_an_address_says_what_is_searched(client: httpx.AsyncClient, node: scripted_node.ScriptedNode):
    """Every parameter of a search by address comes to the node as the same selection, and how new it must be."""
    words = "f.topic=billing&f.topic=__missing__&mc.topic=0.5&min_confidence=0.8&filter=urgent%20%3D%20true&limit=3"
    more = "&sort=-severity,doc_uri&cursor=c&counts=topic&facet_size=5&facet_sort=count&facet_min_count=1"
    reply = await client.get(f"{SEARCH}?{words}{more}&facet_mode=conjunctive&scope=a&at_least=x&at_least=y&wait_ms=5")

    assert reply.status_code == 200
    assert node.asked == [
        (
            "search",
            {
                "selection": Selection(
                    collection="tickets",
                    facets={"topic": ("billing", "__missing__")},
                    min_confidence=0.8,
                    mc={"topic": 0.5},
                    filter="urgent = true",
                    sort=("-severity", "doc_uri"),
                    limit=3,
                    cursor="c",
                    counts=("topic",),
                    facet_size=5,
                    facet_sort="count",
                    facet_min_count=1,
                    facet_mode="conjunctive",
                    scope="a",
                ),
                "freshness": Freshness(("x", "y"), 5),
            },
        )
    ]


async def test_a_body_says_the_same_as_an_address(client: httpx.AsyncClient, node: scripted_node.ScriptedNode):
    """The same search by body asks the node for the same, and the reply's own link is that search as an address."""
    body = {"facets": {"topic": ["billing", "outage"], "status": "open"}, "mc": {"topic": 0.5}, "sort": "-doc_uri",
            "counts": ["topic", "status"], "limit": 3, "filter": "a = 'b&c'", "at_least": ["x"]}  # fmt: skip
    by_body = await client.post(SEARCH, json=body)
    by_address = await client.get(by_body.json()["links"]["self"])

    assert (by_body.status_code, by_address.status_code) == (200, 200)
    assert node.asked[0][1]["selection"] == node.asked[1][1]["selection"]
    assert node.asked[0][1]["selection"].facets == {"topic": ("billing", "outage"), "status": ("open",)}


async def test_a_filter_may_come_as_json(client: httpx.AsyncClient, node: scripted_node.ScriptedNode):
    """CQL2 JSON in a body asks for what its text asks for, and the reply's link holds the text."""
    tree = {"op": "=", "args": [{"property": "topic"}, "billing"]}
    by_body = await client.post(SEARCH, json={"filter": tree})
    by_address = await client.get(by_body.json()["links"]["self"])
    refused = await client.post(SEARCH, json={"filter": {"op": "=", "args": [tree, 1]}})

    assert (by_body.status_code, by_address.status_code) == (200, 200)
    assert node.asked[0][1]["selection"].filter == node.asked[1][1]["selection"].filter == "\"topic\" = 'billing'"
    assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (400, "filter-syntax")


def test_every_field_of_a_selection_can_be_asked_for():
    """A search by body and one by address have exactly the fields that a selection has, and how new it must be."""
    fields = set(Selection.model_fields) - {"collection"} | set(models.Fresh.model_fields)

    assert set(models.Search.model_fields) == fields
    assert set(models.SearchParameters.model_fields) == fields - {"facets"} | {"f", "stream"}


async def test_empty_parameters_count_as_absent(client: httpx.AsyncClient, node: scripted_node.ScriptedNode):
    """What a form sends of its empty fields is nothing."""
    await client.get(f"{SEARCH}?filter=&sort=&f.topic=&cursor=&limit=&min_confidence=")

    assert node.asked[0][1]["selection"] == Selection(collection="tickets")


async def test_a_reply_says_where_the_next_page_and_the_rows_are(client: httpx.AsyncClient):
    """Its links and the Link header are the same search: the next page, all rows as CSV, the SQL."""
    reply = await client.get(f"{SEARCH}?f.topic=billing&limit=1&cursor=c1")

    body = reply.json()
    assert body["next_url"] == f"{SEARCH}?f.topic=billing&limit=1&cursor=c2"
    assert body["links"] == {
        "self": f"{SEARCH}?f.topic=billing&limit=1&cursor=c1",
        "csv": f"{SEARCH}.csv?f.topic=billing",
        "sql": "SELECT count(*) FROM tickets",
    }
    assert reply.headers["link"] == f'<{body["next_url"]}>; rel="next", <{body["links"]["csv"]}>; rel="alternate"'


# What a write is asked for


@pytest.mark.parametrize(
    ("address", "uri"),
    [
        ("tickets/t1", "tickets/t1"),
        ("tickets%2Ft1", "tickets/t1"),
        ("tickets/a%252Fb", "tickets/a%2Fb"),
        ("@alice/notes/%C3%BC%20%3F%23", "@alice/notes/ü ?#"),
        ("tickets/a+b", "tickets/a+b"),
        ("tickets//t1", "tickets//t1"),
    ],
)
async def test_a_uri_is_decoded_once(
    client: httpx.AsyncClient, node: scripted_node.ScriptedNode, address: str, uri: str
):
    """What stands behind /v1/documents/ is the uri, percent-decoded once; whether it is one is the node's to judge."""
    for method in ("PUT", "GET", "DELETE"):
        await client.request(method, f"/v1/documents/{address}", **({"json": {"body": "x"}} if method == "PUT" else {}))

    assert [given["uri"] for _, given in node.asked] == [uri] * 3


async def test_a_uri_that_is_not_utf8_is_refused(client: httpx.AsyncClient, node: scripted_node.ScriptedNode):
    """Bad UTF-8 is no other document's uri."""
    reply = await client.get("/v1/documents/tickets/%ff")

    assert problem_of(reply, "write-refused")["reason"] == "invalid_uri"
    assert node.asked == []


async def test_a_write_says_what_it_waits_for(client: httpx.AsyncClient, node: scripted_node.ScriptedNode):
    """Content, key, wait and timeout come to the node as they were given; the key quoted or bare."""
    for key in ("k-1", '"k-1"'):
        await client.put(
            f"{DOCUMENT}?wait=answered&timeout=500ms", json={"body": "x", "state": {"a": 1}},
            headers={"Idempotency-Key": key},
        )  # fmt: skip

    given = {"uri": "tickets/t1", "body": "x", "state": {"a": 1}, "event_id": "k-1", "wait": "answered"}
    assert node.asked == [("write", {**given, "timeout_s": 0.5})] * 2


async def test_a_write_that_is_not_applied_yet_says_where_to_look(client: httpx.AsyncClient):
    """202 names the event, and when to ask for it."""
    reply = await client.put(f"{DOCUMENT}?wait=none", json={"body": "x"}, headers={"Idempotency-Key": "a/b c"})

    assert reply.status_code == 202
    assert (reply.headers["location"], reply.headers["retry-after"]) == ("/v1/events/a%2Fb%20c", "1")
    assert reply.json() == {"uri": "tickets/t1", "event_id": "a/b c", "token": "t-event"}


async def test_a_write_whose_answer_takes_longer_says_so(client: httpx.AsyncClient, node: scripted_node.ScriptedNode):
    """`answered` that ran out of time is 202 and pending; `applied` never is."""
    node.written = {"status": "pending", "facets": None}
    statuses = {}
    for wait in ("applied", "answered"):
        reply = await client.put(f"{DOCUMENT}?wait={wait}", json={"body": "x"})
        statuses[wait] = (reply.status_code, reply.json()["status"], reply.headers.get("retry-after"))

    assert statuses == {"applied": (200, "pending", None), "answered": (202, "pending", "1")}


async def test_a_job_is_accepted_and_a_dry_run_answered(client: httpx.AsyncClient, node: scripted_node.ScriptedNode):
    """A reindex is 202 with the job's address; a dry run is 200 and starts nothing; no body means what is missing."""
    path = "/v1/collections/tickets/reindex"
    job = await client.post(path, json={"outdated": True, "filter": "a = 1"}, headers={"Idempotency-Key": "k"})
    plan = await client.post(path, json={"dry_run": True, "force": True})
    bare = await client.post(path)

    assert (job.status_code, job.headers["location"], job.headers["retry-after"]) == (202, "/v1/jobs/j1", "1")
    assert (plan.status_code, plan.json()["dry_run"], bare.status_code) == (200, True, 202)
    assert node.asked == [
        ("reindex", {"request": ReindexRequest("tickets", outdated=True, filter="a = 1"), "key": "k"}),
        ("plan", ReindexRequest("tickets", force=True)),
        ("reindex", {"request": ReindexRequest("tickets"), "key": None}),
    ]


# What is refused


@pytest.mark.parametrize(
    ("method", "address", "body", "kind", "member"),
    [
        ("GET", f"{SEARCH}?limt=3", None, "unknown-parameter", {"nearest": "limit"}),
        ("GET", f"{SEARCH}?limt=", None, "unknown-parameter", {"nearest": "limit"}),
        ("GET", f"{SEARCH}?topic=billing", None, "unknown-parameter", {}),
        ("GET", f"{SEARCH}?f=billing", None, "unknown-parameter", {}),
        ("GET", f"{SEARCH}?f.=billing", None, "unknown-parameter", {}),
        ("GET", f"{SEARCH}?limit=3&limit=4", None, "invalid-parameter", {}),
        ("GET", f"{SEARCH}?mc.topic=0.3&mc.topic=0.4", None, "invalid-parameter", {}),
        ("GET", f"{SEARCH}?limit=three", None, "invalid-parameter", {}),
        ("GET", f"{SEARCH}?limit=201", None, "invalid-parameter", {}),
        ("GET", f"{SEARCH}?min_confidence=nan", None, "invalid-parameter", {}),
        ("GET", f"{SEARCH}?filter=%ff", None, "invalid-parameter", {}),
        ("GET", f"{SEARCH}?wait_ms=30001", None, "invalid-parameter", {}),
        ("GET", f"{SEARCH}?stream=on", None, "invalid-parameter", {}),
        ("GET", f"{SEARCH}?{'&'.join(['at_least=x'] * 17)}", None, "invalid-parameter", {}),
        ("GET", f"{SEARCH}?{'&'.join(['at_least=x'] * 201)}", None, "invalid-parameter", {}),
        ("GET", f"{SEARCH}.csv?cursor=c", None, "invalid-parameter", {}),
        ("GET", "/v1/collections?limit=1", None, "unknown-parameter", {"known": []}),
        ("POST", f"{SEARCH}?limit=1", b"{}", "unknown-parameter", {}),
        ("POST", SEARCH, b'{"limt": 3}', "unknown-parameter", {"nearest": "limit"}),
        ("POST", SEARCH, b'{"limit": "3"}', "invalid-request", {}),
        ("POST", SEARCH, b'{"limit": true}', "invalid-request", {}),
        ("POST", SEARCH, b'{"facets": {"topic": [1.5]}}', "invalid-request", {}),
        ("POST", SEARCH, b'{"limit": 1, "limit": 2}', "invalid-json", {}),
        ("POST", SEARCH, b'{"min_confidence": NaN}', "invalid-json", {}),
        ("POST", SEARCH, b'{"min_confidence": 1e999}', "invalid-request", {}),
        ("POST", SEARCH, b'{"a": \n  }', "invalid-json", {"line": 2, "column": 3}),
        ("POST", SEARCH, b"\xff", "invalid-json", {}),
        ("POST", SEARCH, b"[]", "invalid-request", {}),
        ("POST", SEARCH, b"", "invalid-json", {}),
        ("POST", SEARCH, b'{"a":' * 100_000, "invalid-json", {}),
        ("POST", SEARCH, b'{"a":' * 40 + b"1" + b"}" * 40, "invalid-json", {}),
        ("POST", SEARCH, b"[" * 33 + b"]" * 33, "invalid-request", {}),
        ("PUT", DOCUMENT, b'{"body": 5}', "write-refused", {"reason": "invalid_body"}),
        ("PUT", DOCUMENT, b'{"state": []}', "write-refused", {"reason": "invalid_state"}),
        ("PUT", DOCUMENT, b'{"bdy": "x"}', "unknown-parameter", {"nearest": "body"}),
        ("PUT", f"{DOCUMENT}?wait=some", b"{}", "invalid-parameter", {}),
        ("PUT", f"{DOCUMENT}?timeout=10", b"{}", "invalid-parameter", {}),
        ("PUT", f"{DOCUMENT}?timeout=61s", b"{}", "invalid-parameter", {}),
        ("PUT", DOCUMENT, b" " * 5_242_881, "too-large", {}),
        ("PATCH", DOCUMENT, None, "method-not-allowed", {"allowed": ["DELETE", "GET", "PUT"]}),
        ("POST", "/v1/collections", None, "method-not-allowed", {"allowed": ["GET"]}),
        ("GET", "/v1/collections/tickets/reindex", None, "method-not-allowed", {"allowed": ["POST"]}),
        ("DELETE", "/livez", None, "method-not-allowed", {"allowed": ["GET"]}),
        ("GET", "/v1/documets/tickets/t1", None, "not-found", {}),
        ("GET", "/v1/collections/", None, "not-found", {}),
        ("GET", "/nothing", None, "not-found", {}),
        ("GET", "/v1/problems/nothing", None, "problem-not-found", {}),
        ("GET", "/v1/sql.csv", None, "invalid-parameter", {}),
        ("GET", "/v1/jobs/j1/items?limit=0", None, "invalid-parameter", {}),
    ],
)
async def test_what_is_wrong_is_refused_with_what_would_be_right(
    client: httpx.AsyncClient,
    node: scripted_node.ScriptedNode,
    method: str,
    address: str,
    body: bytes | None,
    kind: str,
    member: dict[str, Any],
):
    """Each misuse has its kind of problem, in the one shape, with the members that help; the node is not asked."""
    headers = {} if body is None else {"content-type": "application/json"}
    problem = problem_of(await client.request(method, address, content=body, headers=headers), kind)

    assert {name: problem[name] for name in member} == member
    assert node.asked == []


@pytest.mark.parametrize(
    "media", [None, "text/plain", "application/x-www-form-urlencoded", "application/json;charset=latin1"]
)
async def test_a_body_of_another_type_is_refused(client: httpx.AsyncClient, media: str | None):
    """Only JSON in UTF-8 is read as JSON, whatever the body looks like."""
    reply = await client.post(SEARCH, content=b"{}", headers={} if media is None else {"content-type": media})

    problem_of(reply, "unsupported-media-type")


@pytest.mark.parametrize("key", ["", '""', "ü", "a\tb", "x" * 256])
async def test_a_key_that_is_none_is_refused(client: httpx.AsyncClient, key: str):
    """An Idempotency-Key is some printable ASCII characters."""
    reply = await client.put(DOCUMENT, json={"body": "x"}, headers=[("Idempotency-Key", key.encode())])

    problem_of(reply, "invalid-parameter")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.NotFound("no"), "document-not-found"),
        (errors.UnknownCollection("no", allowed=["tickets"]), "unknown-collection"),
        (errors.InvalidEvent("invalid_uri", "no"), "write-refused"),
        (errors.InvalidEvent("too_large", "no"), "too-large"),
        (errors.InvalidEvent("id_reused", "no"), "key-reused"),
        (errors.InvalidEvent("expired", "no"), "write-in-doubt"),
        (errors.InvalidEvent("unknown_collection", "no"), "unknown-collection"),
        (errors.InvalidCursor("no"), "cursor-mismatch"),
        (errors.UnknownValue("no (did you mean 'a'?)", allowed=["a", "b"]), "unknown-value"),
        (errors.InvalidFilter("no", line=1, column=7), "filter-syntax"),
        (errors.Conflict("no"), "conflict"),
        (errors.KeyReused("no"), "key-reused"),
        (errors.Forbidden("no"), "forbidden"),
        (errors.NotCaughtUp("no"), "not-caught-up"),
        (errors.WriteInDoubt("no"), "write-in-doubt"),
        (errors.StoreUnavailable("no"), "store-unavailable"),
        (errors.BrokerUnavailable("no"), "broker-unavailable"),
        (errors.EvaluatorUnavailable("no"), "unavailable"),
        (errors.StoreMismatch("secret"), "internal-error"),
        (RuntimeError("secret"), "internal-error"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_every_error_has_its_problem(
    client: httpx.AsyncClient, node: scripted_node.ScriptedNode, error: Exception, kind: str
):
    """What goes wrong in the node is the problem that its kind is; what may pass says when to try again."""
    node.fails = error
    reply = await client.get(DOCUMENT)

    problem = problem_of(reply, kind)
    assert ("retry-after" in reply.headers) == (reply.status_code == 503)
    assert "secret" not in reply.text
    assert problem.get("allowed", []) == list(getattr(error, "allowed", []))
    assert problem.get("nearest") == ("a" if kind == "unknown-value" else None)
    assert (problem.get("line"), problem.get("column")) == ((1, 7) if kind == "filter-syntax" else (None, None))


def test_every_kind_of_query_error_is_a_kind_of_problem():
    """No error of a search or of SQL falls back to a general kind."""
    classes = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.InvalidQuery)
    ]

    assert [each.code for each in classes if each.code not in problem_types.KINDS] == []


async def test_every_kind_of_problem_is_explained_at_its_type(client: httpx.AsyncClient):
    """A problem's `type` leads to what it means and what to do."""
    for kind in problem_types.KINDS.values():
        reply = await client.get(kind.type)

        assert reply.json() == {"type": kind.type, "title": kind.title, "status": kind.status, "mend": kind.fix}


# What a reply says


async def test_a_tag_changes_only_with_what_is_said(client: httpx.AsyncClient, node: scripted_node.ScriptedNode):
    """A new token and another time alone are no change: 304 without a body, and how new it is now."""
    for address in (SEARCH, DOCUMENT):
        first, second = await client.get(address), await client.get(address)
        same = await client.get(address, headers={"If-None-Match": f'"other", {first.headers["etag"]}'})

        assert first.text != second.text
        assert first.headers["etag"] == second.headers["etag"]
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["facetline-as-of"] not in {first.headers["facetline-as-of"], ""}
    before = (await client.get(SEARCH)).headers["etag"]
    node.total = 2
    changed = await client.get(SEARCH, headers={"If-None-Match": before})

    assert (changed.status_code, changed.headers["etag"] == before) == (200, False)


@pytest.mark.parametrize("address", [SEARCH, DOCUMENT, f"{SEARCH}.csv", f"{SEARCH}.ndjson", "/v1/sql.csv?sql=x"])
async def test_a_reply_that_reads_says_how_new_it_is(client: httpx.AsyncClient, address: str):
    """Each has the header with the token that a later read may ask for."""
    assert (await client.get(address)).headers["facetline-as-of"].startswith("t-")


async def test_every_reply_has_the_headers_that_keep_browsers_safe(client: httpx.AsyncClient):
    """Also the problems, and what no route takes."""
    for address in (SEARCH, "/livez", "/nothing", f"{SEARCH}?x=y"):
        headers = (await client.get(address)).headers

        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["referrer-policy"] == "no-referrer"
        assert "no-" in headers["cache-control"]


async def test_head_is_get_without_a_body():
    """Every address that takes GET takes HEAD."""
    async with client_of(application(scripted_node.ScriptedNode(), loopback=True)) as client:
        assert (await client.head(SEARCH)).status_code == 200
        assert (await client.head("/v1/jobs")).status_code == 200


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "application/json"),
        ("text/csv", "text/csv; charset=utf-8"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("text/csv;q=0.5, application/json", "application/json"),
        ("text/csv;q=0, application/x-ndjson;q=0.1", "application/x-ndjson"),
    ],
)
async def test_the_form_goes_by_what_is_accepted(client: httpx.AsyncClient, accept: str, media: str):
    """One address has three forms; who does not care gets JSON."""
    reply = await client.get(SEARCH, headers={"accept": accept})

    assert reply.headers["content-type"] == media
    assert "Accept" in reply.headers["vary"]


async def test_csv_is_harmless_for_spreadsheets_and_ndjson_exact(
    client: httpx.AsyncClient, node: scripted_node.ScriptedNode
):
    """A text that looks like a formula has an apostrophe in CSV; numbers, and NDJSON, are as they are."""
    odd = ["=1+1", "+x", "-x", "@x", "\tx", '"q",\n', "plain"]
    node.rows_ = scripted_node.Given(("a", "n"), [{"a": text, "n": -1.5} for text in odd] + [{"a": None, "n": None}])
    as_csv = (await client.get(f"{SEARCH}.csv")).text
    as_ndjson = (await client.get(f"{SEARCH}.ndjson")).text

    quoted = ["'=1+1", "'+x", "'-x", "'@x", "'\tx", '"""q"",\n"', "plain"]
    assert as_csv == "".join(f"{line}\r\n" for line in ["a,n", *(f"{text},-1.5" for text in quoted), ","])
    assert [httpx.Response(200, text=line).json()["a"] for line in as_ndjson.splitlines()] == [*odd, None]


async def test_rows_are_as_many_as_asked_for(client: httpx.AsyncClient, node: scripted_node.ScriptedNode):
    """All of them, or so many as `limit` says."""
    node.rows_ = scripted_node.Rows(250)
    every = (await client.get(f"{SEARCH}.csv?stream=on")).text
    node.rows_ = scripted_node.Rows(250)
    some = (await client.get(f"{SEARCH}.ndjson?limit=120")).text

    assert (every.count("\r\n"), some.count("\n")) == (251, 120)
    assert node.rows_.closed.is_set()


async def test_a_part_has_what_the_api_leaves():
    """A mounted part gets the addresses that are not the API's, its problems as it shows them, and runs meanwhile."""
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def anything(request: Any) -> PlainTextResponse:
        return PlainTextResponse(f"page of {request.url.path}")

    def page(connection: Any, problem: Any) -> PlainTextResponse | None:
        shown = "text/html" in connection.headers.get("accept", "")
        return PlainTextResponse(problem.detail, problem.status) if shown else None

    part = Part([Route("/{any:path}", anything)], page=page)
    async with client_of(application(scripted_node.ScriptedNode(), loopback=True, parts=[lambda _: part])) as client:
        assert (await client.get("/tickets")).text == "page of /tickets"
        assert (await client.get("/livez")).json() == {"status": "alive"}
        assert (await client.get("/v1/nothing")).status_code == 404
        assert (
            (await client.get("/v1/nothing", headers={"accept": "text/html"}))
            .headers["content-type"]
            .startswith("text/plain")
        )


async def test_every_reply_is_told_to_who_counts():
    """The hook hears the method, the route and never the address, the status and the time."""
    told: list[tuple[str, str, int]] = []
    node = scripted_node.ScriptedNode()
    app = application(
        node, loopback=True, observe=lambda method, route, status, _s: told.append((method, route, status))
    )
    async with client_of(app) as client:
        await client.get(DOCUMENT)
        await client.get("/nothing")
        await client.get("/v1/nothing")
        node.fails = RuntimeError("x")
        await client.get("/v1/jobs")

    assert told == [
        ("GET", "/v1/documents/{uri:path}", 200),
        ("GET", "(none)", 404),
        ("GET", "/v1/{rest:path}", 404),
        ("GET", "/v1/jobs", 500),
    ]


async def test_words_that_are_no_method_count_as_one():
    """To HTTP every word is a method: whoever sends new ones without end makes no counts without end."""
    told: list[str] = []
    app = application(
        scripted_node.ScriptedNode(), loopback=True, observe=lambda method, _r, _s, _t: told.append(method)
    )
    async with client_of(app) as client:
        for word in ("PATCH", "HACK", "H" * 1_000):
            await client.request(word, "/v1/jobs")

    assert told == ["PATCH", "(other)", "(other)"]


async def test_waiting_is_bounded_by_its_limits():
    """What the models take at most is what the limits say."""
    limits = Limits()

    assert limits.timeout_s == models.TIMEOUT_MAX_S
    assert limits.freshness_ms == models.FRESHNESS_MAX_MS
    assert limits.tokens == models.TOKENS_MAX


def test_states_of_items_are_those_of_the_store():
    """A job's items can be asked for by every state that they have, and by no other."""
    assert get_args(models.ItemState) == get_args(decisions.ItemState)


async def test_the_openapi_document_names_every_route(client: httpx.AsyncClient):
    """Every route of the API stands in it with its method, and every reference in it leads somewhere."""
    document = (await client.get("/openapi.json")).json()

    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert told == {(each.method, re.sub(r":path", "", each.path)) for each in ROUTES}
    names = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert names <= set(document["components"]["schemas"])
