"""The node over a real pipeline: what callers see and may do, and that outside a scope everything is as if not there.

Method: one local pipeline with its side chain for the whole file, documents of scopes of their own for each test.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from folder_evaluator import Script
from polling import eventually
from serving import local_node, reader, writer

from facetline.facets import errors, tokens
from facetline.facets.backend import LOCAL, Caller, Freshness, ReindexRequest, Right
from facetline.facets.search.selection import selection_of
from facetline.storage import credentials
from facetline.streams.pipeline import Pipeline
from facetline.streams.serve.node import PipelineNode

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEW = {"body": None, "state": None, "event_id": None, "wait": "applied", "timeout_s": 20.0}


class Side:
    """One test's node and a scope that no other test has."""

    def __init__(self, pipeline: Pipeline, node: PipelineNode) -> None:
        self.pipeline, self.node = pipeline, node
        self.scope = f"s{uuid.uuid4().hex[:8]}"
        self.caller = writer(self.scope)
        self.uri = f"@{self.scope}/tickets/t1"

    async def write(self, key: str = "t1", *, caller: Caller | None = None, **given: Any) -> dict[str, Any]:
        """Write a document of this scope."""
        uri = f"@{self.scope}/tickets/{key}"
        return await self.node.write(caller or self.caller, uri, **{**NEW, "body": f"topic=billing {uri}", **given})

    async def search(self, caller: Caller, *at_least: str, wait_ms: int = 5_000, **given: Any) -> dict[str, Any]:
        """Search the tickets."""
        selection = selection_of({"collection": "tickets", **given})
        return await self.node.search(caller, selection, Freshness(at_least, wait_ms))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Pipeline, PipelineNode]]:
    """A served local pipeline."""
    folder = tmp_path_factory.mktemp("node")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        async with local_node(folder) as found:
            yield found


@pytest.fixture
def side(opened: tuple[Pipeline, PipelineNode]) -> Side:
    """This test's share of it."""
    return Side(*opened)


async def all_rows(side: Side, caller: Caller) -> None:
    """Open a stream and close it."""
    await (await side.node.rows(caller, selection_of({"collection": "tickets"}))).aclose()


async def test_a_write_is_found_by_its_token(side: Side):
    """A search that passes a write's token sees the write, as soon as it was answered."""
    written = await side.write()

    found = await side.search(side.caller, written["token"])

    assert [(hit["uri"], hit["version"] >= written["version"]) for hit in found["hits"]] == [(side.uri, True)]


async def test_all_rows_are_of_one_moment_and_of_the_callers_scope(side: Side):
    """A stream of rows has what its caller's scope had when it began, whatever is written while it is read."""
    written = [await side.write(key) for key in ("t1", "t2")]
    selection = selection_of({"collection": "tickets", "sort": "-doc_key"})
    rows = await side.node.rows(side.caller, selection, Freshness(tuple(each["token"] for each in written), 5_000))

    later = await side.write("t3")
    await side.search(side.caller, later["token"])
    found = [row async for page in rows.pages() for row in page]
    await rows.aclose()

    assert [row["doc_key"] for row in found] == ["t2", "t1"]
    assert rows.total == len(found)
    assert {row["doc_scope"] for row in found} == {side.scope}
    assert tuple(found[0]) == tuple(rows.columns)
    with pytest.raises(errors.SnapshotGone):
        await anext(rows.pages())


async def test_an_event_sent_and_not_waited_for_is_found_by_its_token(side: Side):
    """The token of a write that nobody waited for brings it into view."""
    sent = tokens.EventToken(side.pipeline.store.store_id, f"facetline/api/{side.caller.name}", "e-1")
    token = tokens.encode(sent)
    with pytest.raises(errors.NotCaughtUp):
        await side.node.get(side.caller, side.uri, Freshness((token,), 50))

    await side.write(event_id="e-1", wait="none")

    assert (await side.search(side.caller, token))["total"] == 1
    assert (await side.node.get(side.caller, side.uri, Freshness((token,))))["uri"] == side.uri


async def test_a_deleted_document_stays_deleted_for_who_deleted_it(side: Side):
    """A search that passes a delete's token does not find the document."""
    await side.write()
    gone = await side.node.delete(side.caller, side.uri, event_id=None, wait="applied", timeout_s=20.0)

    found = await side.search(side.caller, gone["token"])

    assert found["total"] == 0
    with pytest.raises(errors.NotFound):
        await side.node.get(side.caller, side.uri)


async def test_what_is_not_there_in_time_is_told(side: Side):
    """A token beyond what there is ends the wait with an error that says how far the view is."""
    store_id = side.pipeline.store.store_id
    token = tokens.encode(tokens.FeedToken(store_id, 10**12))

    with pytest.raises(errors.NotCaughtUp, match=r"changes of \d+ are to come"):
        await side.search(LOCAL, token, wait_ms=100)


async def test_a_token_of_another_store_is_refused(side: Side):
    """Positions of another store mean nothing here, and nobody waits for them."""
    token = tokens.encode(tokens.FeedToken("another", 1))

    with pytest.raises(errors.InvalidCursor, match="of another store"):
        await side.search(LOCAL, token)


async def test_a_scopes_token_counts_its_own_changes_alone(side: Side):
    """What a scope's search hands out does not move when another scope is written to, and does when it is itself."""
    written = await side.write(wait="answered")
    before = (await side.search(side.caller, written["token"]))["as_of"]
    foreign = await Side(side.pipeline, side.node).write(wait="answered")
    await side.search(LOCAL, foreign["token"])

    assert (await side.search(side.caller))["as_of"] == before
    again = await side.write(body="another text")
    assert (await side.search(side.caller, again["token"]))["as_of"]["token"] != before["token"]


async def test_a_scopes_own_token_holds_for_its_next_search(side: Side):
    """A scope may pass what its search handed out."""
    written = await side.write()
    token = (await side.search(side.caller, written["token"]))["as_of"]["token"]

    assert (await side.search(side.caller, token))["total"] == 1
    ahead = tokens.encode(tokens.ScopeToken(side.pipeline.store.store_id, "tickets", side.scope, 10**9))
    with pytest.raises(errors.NotCaughtUp):
        await side.search(side.caller, ahead, wait_ms=50)


@pytest.mark.parametrize("kind", ["write", "feed", "scope", "event"])
@pytest.mark.parametrize("exists", [True, False])
async def test_a_scope_learns_nothing_from_tokens_of_others(side: Side, kind: str, exists: bool):
    """A caller with a scope is refused tokens that name anything else, in the same words whether it exists or not."""
    other = Side(side.pipeline, side.node)
    if exists:
        await other.write(event_id="e1")
    store_id = side.pipeline.store.store_id
    token = {
        "write": tokens.WriteToken(store_id, other.uri, 1),
        "feed": tokens.FeedToken(store_id, 1),
        "scope": tokens.ScopeToken(store_id, "tickets", other.scope, 1),
        "event": tokens.EventToken(store_id, f"facetline/api/{other.caller.name}", "e1"),
    }[kind]
    text = tokens.encode(token)

    with pytest.raises(errors.InvalidCursor) as refused:
        await side.search(side.caller, text, wait_ms=50)

    assert refused.value.message == f"token {text[:40]!r} is not one that you were given; pass one that you were"


async def test_outside_a_scope_nothing_exists(side: Side):
    """Documents, collections and scopes of others are not found, in the same words with and without data there."""
    other = Side(side.pipeline, side.node)
    told = []
    for _ in range(2):
        for work in (
            side.node.get(side.caller, other.uri),
            side.node.write(side.caller, other.uri, **{**NEW, "body": "x"}),
            side.node.delete(side.caller, other.uri, event_id=None, wait="applied", timeout_s=1.0),
            side.search(side.caller, scope=other.scope),
            side.node.collection(side.caller, "notes"),
            side.node.search(side.caller, selection_of({"collection": "notes"})),
            side.node.strip(side.caller, "notes"),
        ):
            with pytest.raises((errors.NotFound, errors.UnknownCollection)) as refused:
                await work
            told.append(refused.value.message)
        await other.write(wait="answered")
        await side.node.write(LOCAL, "notes/n1", **{**NEW, "body": "x"})

    assert told[: len(told) // 2] == told[len(told) // 2 :]
    assert not any("notes/" in text for text in told)


async def test_a_scope_counts_itself_alone(side: Side):
    """Collections, counts and the strip of a scope are equal with and without documents of others."""
    written = await side.write(wait="answered")
    await side.search(side.caller, written["token"])

    async def seen() -> list[Any]:
        strip = await side.node.strip(side.caller, "tickets")
        return [await side.node.collections(side.caller), strip, await side.search(side.caller, counts=["topic"])]

    before = await seen()
    foreign = await Side(side.pipeline, side.node).write(wait="answered")
    await side.search(LOCAL, foreign["token"])
    after = await seen()

    for reply in (before[2], after[2]):
        del reply["took_ms"]
    assert after == before
    assert [each["name"] for each in before[0]] == ["tickets"]
    assert before[1]["counts"]["indexed"] == 1


async def test_a_caller_without_a_scope_sees_all_and_narrows(side: Side):
    """`scope` narrows what a caller without one sees."""
    written = await side.write()
    other = Side(side.pipeline, side.node)
    also = await other.write()

    found = await side.search(LOCAL, written["token"], also["token"], scope=side.scope)

    assert [hit["uri"] for hit in found["hits"]] == [side.uri]
    assert (await side.search(LOCAL))["total"] >= 2


@pytest.mark.parametrize("right", ["read", "write", "admin", "sql"])
async def test_each_right_opens_its_own_methods_alone(side: Side, right: Right):
    """A caller with one right is refused everything that needs another."""
    written = await side.write()
    caller = Caller("one-right", frozenset({right}))
    job = ReindexRequest("tickets", scope=side.scope)
    calls = {
        "read": [
            lambda: side.node.get(caller, side.uri),
            lambda: side.search(caller, written["token"]),
            lambda: all_rows(side, caller),
            lambda: side.node.collections(caller),
            lambda: side.node.collection(caller, "tickets"),
            lambda: side.node.strip(caller, "tickets"),
            lambda: side.node.failures(caller, "tickets", limit=1),
            lambda: side.node.sql_of(caller, selection_of({"collection": "tickets"})),
        ],
        "write": [
            lambda: side.write(caller=caller),
            lambda: side.node.delete(caller, side.uri, event_id=None, wait="applied", timeout_s=5),
        ],
        "admin": [
            lambda: side.node.jobs(caller),
            lambda: side.node.plan(caller, job),
            lambda: side.node.reindex(caller, job),
        ],
        "sql": [lambda: side.node.sql(caller, "SELECT 1 AS one", {}, limit=1, timeout_ms=20_000)],
    }

    for needed, works in calls.items():
        for work in works:
            if needed == right:
                await work()
            else:
                with pytest.raises(errors.Forbidden, match=f"'{needed}'"):
                    await work()


async def test_a_scope_gets_no_sql_and_no_jobs_whatever_its_rights_say(side: Side):
    """Rights that no scoped token can have are refused here too."""
    caller = Caller("forged", frozenset[Right]({"read", "write", "admin", "sql"}), side.scope)

    for work in (
        side.node.sql(caller, "SELECT 1", {}, limit=1, timeout_ms=1_000),
        side.node.jobs(caller),
        side.node.reindex(caller, ReindexRequest("tickets")),
    ):
        with pytest.raises(errors.Forbidden):
            await work


async def test_all_rows_are_one_snapshot_of_the_scope(side: Side):
    """A stream holds each hit of the caller's scope once, whatever is written meanwhile."""
    for key in ("a", "b", "c"):
        written = await side.write(key, wait="answered")
    await Side(side.pipeline, side.node).write()
    rows = await side.node.rows(side.caller, selection_of({"collection": "tickets"}), Freshness((written["token"],)))

    later = await side.write("d")
    await side.search(side.caller, later["token"])
    found = [row["doc_key"] async for page in rows.pages() for row in page]
    await rows.aclose()

    assert found == ["a", "b", "c"]
    assert rows.total == 3


async def test_an_event_is_shown_to_who_sent_it(side: Side):
    """What became of an event is told to its own credential; to others it is not there."""
    await side.write(event_id="e-1")

    found = await side.node.event(side.caller, "e-1")

    assert (found["uri"], found["outcome"], found["version"]) == (side.uri, "applied", 1)
    with pytest.raises(errors.NotFound):
        await side.node.event(reader(side.scope), "e-1")


async def test_the_same_id_is_one_write_within_a_credential(side: Side):
    """An id sent again by its credential is no second write; another credential's same id is one."""
    first = await side.write(event_id="e-1")
    again = await side.write(event_id="e-1")
    other = await side.write(caller=LOCAL, event_id="e-1")

    assert again["version"] == first["version"]
    assert other["version"] > first["version"]


async def test_one_key_makes_one_job(side: Side):
    """The same request under the same key is the same job, also when it is over; another request is refused by name."""
    await side.write(wait="answered")
    request = ReindexRequest("tickets", force=True, scope=side.scope)
    job = await side.node.reindex(LOCAL, request, key="k1")

    async def over() -> bool:
        return (await side.node.job(LOCAL, job["id"]))["state"] == "succeeded"

    await eventually(over, what="the job is over")

    assert (await side.node.reindex(LOCAL, request, key="k1"))["id"] == job["id"]
    assert (await side.node.reindex(LOCAL, request))["id"] != job["id"]
    with pytest.raises(errors.KeyReused, match=job["id"]):
        await side.node.reindex(LOCAL, ReindexRequest("tickets", scope=side.scope), key="k1")


async def test_a_filter_sees_what_was_written_just_before(side: Side):
    """A job with a filter, and its dry run, find documents that were written a moment ago, through the node's views."""
    await side.write("a")
    await side.write("b", wait="answered")
    request = ReindexRequest("tickets", force=True, filter="doc_key = 'a'", scope=side.scope)

    plan = await side.node.plan(LOCAL, request)
    job = await side.node.reindex(LOCAL, request)

    async def over() -> bool:
        return (await side.node.job(LOCAL, job["id"]))["state"] == "succeeded"

    await eventually(over, what="the job is over")
    assert plan["documents"] == 1
    assert (await side.node.job(LOCAL, job["id"]))["reindexed"] == [side.uri.replace("t1", "a")]
    with pytest.raises(errors.InvalidFilter):
        await side.node.plan(LOCAL, ReindexRequest("tickets", filter="doc_key ="))


KEYS = ("a", "b", "c", "d", "e", "f")


async def test_a_jobs_documents_are_listed_by_state(side: Side):
    """Pages of a job's documents hold each once, a list of jobs a few; a state that is none is refused."""
    for key in KEYS:
        await side.write(key, wait="answered")
    job = await side.node.reindex(LOCAL, ReindexRequest("tickets", force=True, scope=side.scope))

    async def over() -> bool:
        return (await side.node.job(LOCAL, job["id"]))["state"] == "succeeded"

    await eventually(over, what="the job is over")
    first = await side.node.job_items(LOCAL, job["id"], status="reindexed", cursor=None, limit=2)
    rest = await side.node.job_items(LOCAL, job["id"], status="reindexed", cursor=first["next_cursor"], limit=4)
    shown = await side.node.job(LOCAL, job["id"])
    among = next(each for each in await side.node.jobs(LOCAL) if each["id"] == job["id"])

    listed = [item["uri"] for item in [*first["items"], *rest["items"]]]
    assert listed == shown["reindexed"] == [f"@{side.scope}/tickets/{key}" for key in KEYS]
    assert among == {**shown, "reindexed": listed[:5]}
    assert rest["next_cursor"] is None
    with pytest.raises(errors.InvalidQuery, match="did you mean 'reindexed'"):
        await side.node.job_items(LOCAL, job["id"], status="reindex", cursor=None, limit=2)


async def test_failures_say_why(side: Side):
    """A failed document is listed with its reason and message, to its own scope."""
    script = Script(side.pipeline.settings.config.parent / "script")
    script.on(f"no-{side.scope}")
    failing = await side.write(body=f"fail=no-{side.scope}", wait="answered")
    await side.search(side.caller, failing["token"])
    found = await side.node.failures(side.caller, "tickets", limit=5)

    assert [(each["uri"], each["reason"]) for each in found] == [(side.uri, failing["reason"])]
    assert found[0]["message"]
    assert (await side.node.strip(side.caller, "tickets"))["failed"] == {failing["reason"]: 1}


async def test_a_token_opens_at_once_what_it_says(side: Side):
    """A token is known the moment it was made, nobody's is nobody's, and a revoked one is that within a second."""
    token = credentials.new_token()
    made = await side.pipeline.store.write(
        credentials.create, uuid.uuid4().hex, token, name="", rights=("read",), scope=side.scope
    )

    found = await side.node.authenticate(token)
    assert found == Caller(made.id, frozenset[Right]({"read"}), side.scope)
    assert await side.node.authenticate("flt_nobodys") is None
    assert await side.node.authenticate(None) is None
    assert await side.node.needs_tokens()
    await side.pipeline.store.write(credentials.revoke, made.id)

    async def gone() -> bool:
        return await side.node.authenticate(token) is None

    await eventually(gone, what="the revoked token opens nothing")
    assert await side.node.authenticate(None) is None


async def test_statements_see_all_that_a_search_sees(side: Side):
    """SQL over the views finds what was written before."""
    written = await side.write(wait="answered")
    await side.search(LOCAL, written["token"])

    async def found() -> bool:
        text = "SELECT count(*) FROM tickets WHERE doc_scope = $scope"
        reply = await side.node.sql(LOCAL, text, {"scope": side.scope}, limit=1, timeout_ms=20_000)
        return reply["rows"] == [[1]]

    await eventually(found, what="the snapshot holds the document")


async def test_health_says_what_is_looked_at(side: Side):
    """A node whose views are built is alive and ready."""
    await side.search(LOCAL)

    assert {check.level for check in await side.node.alive()} == {"ok"}
    assert {(check.name, check.level) for check in await side.node.ready()} == {
        ("store", "ok"),
        ("store_work", "ok"),
        ("view", "ok"),
        ("definitions", "ok"),
        ("evaluators", "ok"),
    }
    side.node.state.stopping = True
    assert ("stop", "failed") in {(check.name, check.level) for check in await side.node.ready()}
    side.node.state.stopping = False


async def test_metrics_hold_searches_views_and_documents(side: Side):
    """The page counts searches, and tells of each view how far it is and what it holds."""
    await side.write(wait="answered")
    await side.search(LOCAL)

    page = (await side.node.metrics(""))[0].decode()

    for sample in (
        'facetline_serve_search_duration_seconds_count{kind="search"}',
        'facetline_serve_view_built{collection="tickets"} 1.0',
        'facetline_serve_documents{collection="tickets",status="indexed"}',
        'facetline_worker_calls_in_flight{evaluator="tickets"}',
        'facetline_store_calls_total{collection="tickets",evaluator="tickets"}',
        "facetline_store_crashes_total 0.0",
    ):
        assert sample in page


async def test_views_that_nobody_keeps_are_not_searched(side: Side):
    """When what keeps the views has ended by a fault, no search passes for a new one, and health says so."""

    async def fault() -> None:
        raise RuntimeError

    node = PipelineNode(side.pipeline, side.node.views, None)  # type: ignore[arg-type]
    following = asyncio.create_task(fault())
    node.followed_by(following)
    await asyncio.wait({following})
    assert following.exception() is not None

    with pytest.raises(errors.NotCaughtUp, match="restart the server"):
        await node.search(side.caller, selection_of({"collection": "tickets"}))

    assert ("view", "failed") in {(check.name, check.level) for check in await node.ready()}
    assert ("parts", "failed") in {(check.name, check.level) for check in await node.alive()}
