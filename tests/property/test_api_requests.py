"""Whatever is searched for, its address asks for the same; whatever is sent, the reply has the one shape.

Method: selections and raw requests are made at random; the application runs over a scripted node, without a network.
"""

import asyncio
import functools
import string
from typing import Any
from urllib.parse import quote

import httpx
import scripted_node
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets.api.application import application

SEARCH = "/v1/collections/tickets/search"
names = st.text(string.ascii_lowercase + "_", min_size=1, max_size=8)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
shares = st.floats(0, 1)
columns = st.lists(st.builds("{}{}".format, st.sampled_from(["", "-"]), names), max_size=3)
searches = st.fixed_dictionaries(
    {},
    optional={
        "facets": st.dictionaries(names, st.lists(texts, min_size=1, max_size=3), max_size=3),
        "min_confidence": shares,
        "mc": st.dictionaries(names, shares, max_size=2),
        "filter": texts,
        "sort": columns,
        "limit": st.integers(1, 200),
        "cursor": texts,
        "counts": st.lists(names, max_size=3),
        "facet_size": st.integers(1, 1_000),
        "facet_sort": st.sampled_from(["declared", "count", "alpha"]),
        "facet_min_count": st.integers(0, 10**9),
        "facet_mode": st.sampled_from(["disjunctive", "conjunctive"]),
        "scope": texts,
        "at_least": st.lists(texts, max_size=3),
    },
)


@functools.cache
def served() -> tuple[scripted_node.ScriptedNode, object]:
    """The application, made once: that takes longer than all of its requests."""
    node = scripted_node.ScriptedNode()
    return node, application(node, loopback=True)


def exchange(*requests: dict[str, Any]) -> tuple[list[tuple[str, Any]], list[httpx.Response]]:
    """Send requests, one without an address to the link of the reply before; return what the node was asked for."""
    node, app = served()
    node.asked.clear()

    async def work() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        found: list[httpx.Response] = []
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            for each in requests:
                url = each["url"] or found[-1].json()["links"]["self"]
                found.append(await client.request(**{**each, "url": url}))
        return found

    return node.asked, asyncio.run(work())


@given(body=searches)
def test_a_search_by_body_has_an_address_that_asks_for_the_same(body: dict[str, Any]):
    """The link to itself that a search by body gets is the same selection, whatever characters are in it."""
    asked, (by_body, by_address) = exchange(
        {"method": "POST", "url": SEARCH, "json": body}, {"method": "GET", "url": None}
    )

    assert (by_body.status_code, by_address.status_code) == (200, 200)
    assert asked[0][1]["selection"] == asked[1][1]["selection"]
    assert asked[0][1]["freshness"].at_least == asked[1][1]["freshness"].at_least


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]),
    path=st.one_of(
        st.sampled_from([SEARCH, "/v1/documents/tickets/t1", "/v1/jobs", "/v1/sql", "/livez", "/v1/events/e"]),
        st.text(st.characters(codec="utf-8"), max_size=20).map(lambda text: "/v1/" + quote(text)),
    ),
    query=st.text(string.ascii_letters + string.digits + "&=%.;+-_", max_size=30),
    body=st.one_of(st.none(), st.binary(max_size=40), st.just(b"{}")),
    media=st.sampled_from(["application/json", "text/plain", ""]),
)
def test_whatever_is_sent_has_a_reply_of_the_one_shape(
    method: str, path: str, query: str, body: bytes | None, media: str
):
    """No request fails the server, and each that is refused is refused in the one shape."""
    url = httpx.URL("http://127.0.0.1:8080").copy_with(path=path, query=query.encode())
    _, [reply] = exchange({"method": method, "url": url, "content": body, "headers": {"content-type": media}})

    assert reply.status_code < 500
    if reply.status_code >= 400:
        assert reply.headers["content-type"] == "application/problem+json"
        if method != "HEAD":
            assert reply.json()["status"] == reply.status_code
