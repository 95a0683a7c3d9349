"""The page over HTTP: what each address shows, as HTML, without a browser."""

import asyncio
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import explored
import httpx
import pytest
from explored import COUNTS, TOTAL, UNANSWERED, Explored
from html_page import Element, parse

from facetline.facets import errors
from facetline.streams.serve.node import PipelineNode

PART = {"HX-Request": "true"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explored]:
    """The support tickets and the probes, served."""
    folder = tmp_path_factory.mktemp("explored")
    given = {"support": explored.tickets(), "probes": explored.probes()}
    explored.define(folder, [each for listed in given.values() for each in listed], more=explored.PROBES)
    with explored.serving(folder, given) as served:
        yield served


@pytest.fixture(scope="module")
def client(page: Explored) -> Iterator[httpx.Client]:
    """A client that follows no redirect by itself."""
    with httpx.Client(base_url=page.url) as opened:
        yield opened


def _page(client: httpx.Client, address: str, status: int = 200) -> Element:
    reply = client.get(address)
    assert reply.status_code == status, reply.text
    return parse(reply.text)


def _counts(shown: Element, facet: str) -> dict[str, int]:
    boxes = shown.all("input", type="checkbox", name=f"f.{facet}")
    labels = {each.attributes["for"]: each for each in shown.all("label") if "for" in each.attributes}
    return {box.attributes["value"]: _number(labels[box.attributes["id"]]) for box in boxes}


def _number(option: Element) -> int:
    return int(option.one("span", class_="n").text.split()[0].replace(",", ""))


def _total(shown: Element) -> int:
    return int(shown.one("p", id="total").one("b").text.replace(",", ""))


def test_own_fields_have_boxes(client: httpx.Client):
    """An own field that is named or selected has its values with the API's counts, and stays when the form is sent."""
    address = "support?f.state_priority=1&f.topic=billing&counts=state_title"
    found = client.get(f"/v1/collections/support/search?{address[8:]},state_priority").json()
    expected = {
        facet["name"]: {str(each["value"]): each["count"] for each in facet["buckets"]}
        | {"__missing__": facet["missing"]["count"]}
        for facet in found["facets"]
    }

    shown = _page(client, f"/{address}")

    assert _total(shown) == found["total"]
    assert _counts(shown, "state_priority") == expected["state_priority"]
    assert sum(expected["state_priority"].values()) == COUNTS["billing"]
    titles = _counts(shown, "state_title")
    assert {name: titles[name] for name in expected["state_title"]} == expected["state_title"]
    assert [each.attributes["value"] for each in shown.all("input", checked="")] == ["billing", "1"]
    assert shown.one("input", type="hidden", name="counts").attributes["value"] == "state_title"
    refused = _page(client, "/support?counts=state_titel", 400)
    assert "did you mean 'state_title'?" in refused.text


def test_front_page_shows_every_collection(client: httpx.Client):
    """The front page names each collection with its documents by status and its questions."""
    shown = _page(client, "/")

    card = next(each for each in shown.all("li", class_="card") if "support" in each.one("h2").text)
    assert f"{TOTAL} documents" in card.text
    assert f"{TOTAL - UNANSWERED} answered" in card.text
    assert f"{UNANSWERED} failed" in card.text
    assert "What is this support ticket about?" in card.text
    assert "5 options" in card.text


def test_counts_of_the_user_story(client: httpx.Client):
    """With billing chosen every option keeps its own count, zero included, and the missing row says why."""
    shown = _page(client, "/support?f.topic=billing")

    assert _total(shown) == COUNTS["billing"]
    assert _counts(shown, "topic") == {**COUNTS, "__missing__": UNANSWERED}
    assert [each.attributes["value"] for each in shown.all("input", checked="")] == ["billing"]
    facet = next(each for each in shown.all("fieldset") if each.one("legend").text == "topic")
    assert f"{UNANSWERED} failed" in facet.text
    assert "zero" in next(each for each in facet.all("li") if "praise" in each.text).attributes["class"]


def test_two_options_are_either(client: httpx.Client):
    """Two ticked options of one question are joined by or."""
    shown = _page(client, "/support?f.topic=billing&f.topic=bug")

    assert _total(shown) == COUNTS["billing"] + COUNTS["bug"]


@pytest.mark.parametrize("address", ["/support?min_confidence=0.7", "/support?filter=doc_version%20%3E%201"])
def test_every_count_is_the_total_of_its_box(client: httpx.Client, address: str):
    """Ticking a box finds as many documents as stand beside it: options, levels, yes and no, and no answer."""
    for option in _page(client, address).all("li", class_="option"):
        box = option.one("input", type="checkbox").attributes
        ticked = f"{address}&{urlencode({box['name']: box['value']})}"

        assert _total(_page(client, ticked)) == _number(option), (ticked, option.text)


@pytest.mark.parametrize("said", ["yes", "true", "Yes"])
def test_a_boolean_is_chosen_by_name(client: httpx.Client, said: str):
    """An address that a person writes ticks the box, and shows a chip in words."""
    shown = _page(client, f"/support?f.urgent={said}")

    assert shown.one("input", id="f-urgent-0").attributes["value"] == "true"
    assert "checked" in shown.one("input", id="f-urgent-0").attributes
    assert "urgent yes" in " ".join(shown.one("ul", class_="chosen").text.split())


def test_blank_fields_leave_the_address(client: httpx.Client):
    """A form sent with empty fields leads to the address without them: one search, one address."""
    sent = client.get("/support?min_confidence=0&f.topic=bug&filter=&sort=")

    assert sent.status_code == 303
    assert sent.headers["location"] == "/support?f.topic=bug"


def test_part_for_htmx_is_the_page_without_its_frame(client: httpx.Client):
    """What htmx asks for is the changing part alone, with the address to show; caches keep the two apart."""
    whole = client.get("/support?f.topic=bug")
    part = client.get("/support?min_confidence=0&f.topic=bug&filter=&sort=", headers=PART)
    restored = client.get("/support?f.topic=bug", headers={**PART, "HX-History-Restore-Request": "true"})

    assert "<html" not in part.text
    assert part.text.split('<div class="wrap">')[1].strip() in whole.text
    assert part.headers["hx-push-url"] == "/support?f.topic=bug"
    assert "HX-Request" in part.headers["vary"]
    assert "<html" in restored.text


def test_filter_problem_stands_at_the_filter(client: httpx.Client):
    """A filter that cannot be read is told where, with the nearest name, beside counts that stay."""
    shown = _page(client, "/support?f.topic=billing&filter=topic%20%3D%20%27biling%27", 400)

    problem = shown.one(id="filter-problem")
    assert "billing" in problem.text
    assert problem.one("mark").text
    field = shown.one("input", id="filter")
    assert field.attributes["value"] == "topic = 'biling'"
    assert field.attributes["aria-describedby"] == "filter-problem"
    assert _counts(shown, "topic")["billing"] == COUNTS["billing"]
    assert not shown.all("ol", class_="hits")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("f.topi=billing", "topic"),
        ("f.topic=biling", "billing"),
        ("sort=severty", "severity"),
        ("cursor=AAAA", "cursor"),
        ("min_confidence=2", "0 to 1"),
        ("min_confidence=x", "0 to 1"),
        ("min_confidence=nan", "0 to 1"),
        ("limt=3", "limt"),
        ("filter=a&filter=b", "twice"),
        ("scope=alice", "scope"),
    ],
)
def test_wrong_address_is_explained(client: httpx.Client, query: str, said: str):
    """What an address cannot ask for is named on a page that still shows the collection's facets."""
    shown = _page(client, f"/support?{query}", 400)

    assert said in shown.one(role="alert").text
    assert sum(_counts(shown, "topic").values()) == TOTAL


def test_pages_walk_every_document_once(client: httpx.Client):
    """Next leads through every document once, and previous back to the first page."""
    keys, address, addresses = [], "/support?sort=-severity", []
    while address:
        addresses.append(address)
        shown = _page(client, address)
        keys += [each.one("h2").one("a").attributes["href"] for each in shown.all("li", class_="hit")]
        following = shown.all("a", rel="next")
        address = following[0].attributes["href"] if following else ""
    back = [addresses[-1]]
    while links := _page(client, back[-1]).all("a", rel="prev"):
        back.append(links[0].attributes["href"])

    assert len(keys) == len(set(keys)) == TOTAL
    assert back == addresses[::-1]


def test_hit_shows_answers_with_number_and_shape(client: httpx.Client):
    """A hit has its title, the text's beginning, and each answer with its confidence, marked where it is low."""
    shown = _page(client, "/support?f.topic=billing&sort=topic_confidence")

    hit = shown.all("li", class_="hit")[0]
    chip = hit.all("span", class_="chip")[0]
    assert chip.text == "topic billing confidence 0.43, low"
    assert "low" in chip.attributes["class"].split()
    assert chip.all("svg")
    assert hit.one("p", class_="excerpt").text


def test_csv_has_a_line_for_each_document(client: httpx.Client):
    """CSV of the search has as many lines as documents, and a head."""
    shown = _page(client, "/support?f.topic=billing&f.topic=bug")
    link = next(each for each in shown.all("a") if each.text == "CSV")

    reply = client.get(link.attributes["href"])

    assert reply.headers["content-type"].startswith("text/csv")
    assert len(reply.text.splitlines()) == _total(shown) + 1


def test_json_is_the_same_search(client: httpx.Client):
    """JSON of the search has the page's total."""
    shown = _page(client, "/support?f.topic=bug")
    link = next(each for each in shown.all("a") if each.text == "JSON")

    assert client.get(link.attributes["href"]).json()["total"] == _total(shown)


def test_words_are_looked_for_marked_and_kept_in_every_link(client: httpx.Client):
    """The box finds words in the texts, best first; marks, chip, counts and links go with them."""
    shown = _page(client, "/support?q=invoices&f.topic=billing")

    found = client.get("/v1/collections/support/search?q=invoices&f.topic=billing&counts=topic").json()
    assert 0 < _total(shown) == found["total"]
    assert shown.one("input", id="q").attributes["value"] == "invoices"
    marks = {each.text.lower() for each in shown.one("ol", class_="hits").all("mark")}
    assert marks
    assert marks <= {"invoice", "invoices"}
    counted = {bucket["value"]: bucket["count"] for bucket in found["facets"][0]["buckets"]}
    assert {name: _counts(shown, "topic")[name] for name in counted} == counted
    for box in shown.one("ul", class_="chosen").all("a"):
        assert ("q=invoices" in box.attributes["href"]) == ("billing" in box.text)


def test_a_correction_is_said_with_the_way_back(client: httpx.Client):
    """A word that no text has is looked for as the nearest one; a link looks for it as it is written."""
    shown = _page(client, "/support?q=invocie")

    notice = shown.one("p", class_="notice")
    assert "No document has “invocie”: showing “invoice”" in notice.text
    exact = _page(client, notice.one("a").attributes["href"])
    assert _total(exact) == 0
    assert "these words" in exact.one("section", class_="empty").text


def test_a_pattern_that_is_none_is_taken_as_text(client: httpx.Client):
    """The notice says why, and a wrong mode is refused with what there is."""
    assert "taken as plain text" in _page(client, "/support?grep=a(").one("p", class_="notice").text
    refused = _page(client, "/support?q=a&mode=best", 400)
    assert "mode is 'best'" in refused.one("div", class_="problem").text


def test_a_hostile_text_is_no_more_than_text_when_it_is_found(client: httpx.Client, page: Explored):
    """What a search marks in a text stays text."""
    reply = client.get("/probes?q=script+alert+img")

    assert reply.status_code == 200
    assert "<script>alert" not in reply.text
    assert "<img" not in reply.text


def test_sql_gives_the_same_total(client: httpx.Client):
    """The SQL that is shown, run as it is, gives the page's total."""
    shown = _page(client, "/support?f.topic=bug&min_confidence=0.5")
    link = next(each for each in shown.all("a") if each.text == "Show SQL")
    text = _page(client, link.attributes["href"]).one("pre", id="sql-text").text

    reply = client.post("/v1/sql", json={"sql": text}, timeout=30)

    assert reply.json()["rows"] == [[_total(shown)]]


def test_document_shows_all_that_is_known(client: httpx.Client):
    """A document's page has its text, state, answers with their distribution, and where they are from."""
    shown = _page(client, "/support/support/d-1")

    assert shown.one("h1").text == "Charged twice"
    assert shown.one(class_="text").text.startswith("My card was charged again")
    topic = next(each for each in shown.all("section", class_="answer") if each.one("h3").text == "topic")
    assert [each.one("span", class_="label").text for each in topic.all("li")] == list(COUNTS)
    assert topic.all("svg", class_="bar")
    facts = dict(zip((e.text for e in shown.all("dt")), (e.text for e in shown.all("dd")), strict=True))
    assert facts["Model"] == "recorded"
    assert facts["Calls"] == "1 call"
    assert facts["Questions"].startswith("current version")


def test_failed_document_says_why(client: httpx.Client):
    """A failed document's page and the list of the failed say the reason and the message."""
    listed = _page(client, "/-/failed/support")
    address = listed.one("tbody").all("a")[0].attributes["href"]

    shown = _page(client, address)

    assert len(listed.one("tbody").all("tr")) == UNANSWERED
    assert "evaluator error" in listed.text
    assert "answers.ndjson has no answers" in shown.one(class_="problem").text


@pytest.mark.parametrize(
    "address",
    [
        "/nothing",
        "/support/support/nothing",
        "/support/probes/x",
        "/probes/support/d-1",
        "/support/",
        "/-/job/none",
        "/x/y",
    ],
)
def test_what_is_not_there_is_a_page(client: httpx.Client, address: str):
    """An address without anything is answered 404 with a page that leads on."""
    reply = client.get(address, headers={"Accept": "text/html"})

    assert reply.status_code == 404
    assert parse(reply.text).one("main").all("a", href="/")


@pytest.mark.parametrize("address", ["/v2/x", "/v2", "/api/collections", "/nothing"])
@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_an_unknown_address_is_a_problem_for_a_program(client: httpx.Client, address: str, accept: str):
    """A client that takes no HTML reads the error as JSON, also beside the API."""
    reply = client.get(address, headers={"Accept": accept})

    assert reply.status_code == 404
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["instance"] == address


def test_pipeline_strip_has_counts_reasons_evaluator_and_money(client: httpx.Client):
    """The pipeline strip that the page asks for again has counts, reasons, evaluator and money."""
    strip = parse(client.get("/-/strip/support", headers=PART).text).one("section", id="strip")

    assert strip.attributes["hx-trigger"].startswith("every ")
    assert f"{UNANSWERED} failed : evaluator error" in strip.text.replace("failed:", "failed :")
    assert "triage is answering" in strip.text
    assert "$0.00 today" in strip.text


def test_nothing_is_more_than_text(client: httpx.Client, page: Explored):
    """Uris, texts, state, questions and options that look like HTML or templates are shown, never obeyed."""
    listed = _page(client, "/probes")
    links = [each.one("h2").one("a").attributes["href"] for each in listed.all("li", class_="hit")]
    shown = [listed, _page(client, "/"), *(_page(client, link) for link in links)]

    assert len(links) == len(explored.probes())
    for each in shown:
        assert not each.all("img")
        assert all("src" in script.attributes for script in each.all("script"))
        assert not any(name.startswith("on") for found in each.all() for name in found.attributes)
        assert not any("style" in found.attributes for found in each.all())
        assert "49007" not in each.text
    assert explored.SCRIPT in shown[2].text
    for value in (explored.SCRIPT, explored.IMAGE, "a & b 'c' %27"):
        found = next(each for each in listed.all("input") if each.attributes.get("value") == value)
        chosen = client.get("/probes", params={found.attributes["name"]: value})
        assert chosen.status_code == 200


@pytest.mark.parametrize("address", ["/", "/support", "/support/support/d-1", "/nothing", "/-/reindex/support"])
def test_headers_keep_the_page_to_itself(client: httpx.Client, address: str):
    """No page may load anything from elsewhere or run what stands in it, be framed, or be kept."""
    headers = client.get(address, headers={"Accept": "text/html"}).headers

    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


def test_static_files_are_kept_until_they_change(client: httpx.Client):
    """A page's files come from this server, with the type that they are, to be kept for ever under their stamp."""
    shown = _page(client, "/")
    addresses = [each.attributes["src"] for each in shown.all("script")]
    addresses += [each.attributes["href"] for each in shown.all("link")]

    replies = [client.get(address) for address in addresses]

    assert all(address.startswith("/static/") for address in addresses)
    assert {reply.headers["content-type"].split(";")[0] for reply in replies} == {
        "text/javascript",
        "text/css",
        "image/svg+xml",
    }
    assert all("immutable" in reply.headers["cache-control"] for reply in replies)
    assert client.get("/static/../site.py").status_code == 404
    assert client.get("/static/%2e%2e/site.py").status_code == 404


def test_job_from_estimate_to_its_end(client: httpx.Client, page: Explored):
    """The dialog estimates, its form starts a job once, and the job's page shows it until its end."""
    dialog = _page(client, "/-/reindex/support?mode=force&filter=topic%20%3D%20%27bug%27")
    form = next(each for each in dialog.all("form") if each.attributes["method"] == "post")
    fields = {each.attributes["name"]: each.attributes["value"] for each in form.all("input")}
    origin = {"Origin": page.url}
    address = form.attributes["action"]

    unmarked = client.post(address, data={**fields, "mark": "0" * 64}, headers=origin)
    without_origin = client.post(address, data=fields)
    foreign = client.post(address, data=fields, headers={"Origin": "http://other.example"})
    started = client.post(address, data=fields, headers=origin)
    job = _ended(client, started.headers["location"])

    assert f"{COUNTS['bug']} documents" in form.text
    assert [each.status_code for each in (unmarked, without_origin, foreign)] == [403, 403, 403]
    assert started.status_code == 303
    assert "Asked again" in job.one("h1").text
    assert f"{COUNTS['bug']} of {COUNTS['bug']} documents" in job.text
    assert "Recent jobs" in _page(client, "/-/reindex/support").text


def _ended(client: httpx.Client, address: str) -> Element:
    for _ in range(200):
        shown = _page(client, address)
        if not any("hx-get" in each.attributes for each in shown.all("div")):
            return shown
    raise AssertionError(shown.text)


def test_forms_of_another_kind_or_size_are_refused(client: httpx.Client, page: Explored):
    """A form that is no form, or a huge one, is refused before it is looked at."""
    origin = {"Origin": page.url}
    as_json = client.post("/-/reindex/support", json={}, headers=origin)
    huge = client.post("/-/reindex/support", data={"mark": "x" * 20_000}, headers=origin)

    assert as_json.status_code == 415
    assert huge.status_code == 413


class _WithoutStore:
    """A node whose store is away: what needs it fails, at once or never."""

    def __init__(self, node: PipelineNode, *, silent: bool) -> None:
        self._node = node
        self._silent = silent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def _away(self, *_: object, **__: object) -> Any:
        if self._silent:
            await asyncio.sleep(60)
        raise errors.StoreUnavailable

    beginnings = strip = _away


class _WrittenSince:
    """A node whose store has another revision of one document than its view."""

    def __init__(self, node: PipelineNode) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def beginnings(self, *given: Any, **more: Any) -> dict[str, tuple[int, str]]:
        found = await self._node.beginnings(*given, **more)
        return {**found, "support/d-1": (99, "A newer text")}


def test_no_hit_mixes_two_revisions(tmp_path: Path):
    """A text that was written after the answers beside it is not shown with them."""
    explored.define(tmp_path, explored.tickets())
    with explored.serving(tmp_path, around=_WrittenSince) as served:
        hits = parse(httpx.get(f"{served.url}/support").text).all("li", class_="hit")

    assert hits[0].one("h2").text == "Charged twice"
    assert not hits[0].all("p", class_="excerpt")
    assert all(hit.all("p", class_="excerpt") for hit in hits[1:])


@pytest.mark.parametrize("silent", [False, True])
def test_search_goes_on_without_the_store(tmp_path: Path, silent: bool):
    """While the store is away, refusing or silent, the page still searches, counts and says so, within seconds."""
    explored.define(tmp_path, explored.tickets())
    with explored.serving(tmp_path, around=lambda node: _WithoutStore(node, silent=silent)) as served:
        shown = parse(httpx.get(f"{served.url}/support?f.topic=billing", timeout=8).text)

    assert _total(shown) == COUNTS["billing"]
    assert _counts(shown, "topic")["bug"] == COUNTS["bug"]
    assert len(shown.all("li", class_="hit")) == 20
    assert "The store cannot be reached" in shown.one("section", id="strip").text


def test_nothing_yet_says_how_to_begin(tmp_path: Path):
    """A collection without documents says how to write one."""
    explored.define(tmp_path, [])
    with explored.serving(tmp_path, {}) as served, httpx.Client(base_url=served.url) as client:
        shown = parse(client.get("/support").text)

    assert "No documents yet" in shown.one("section", class_="empty").text
    assert "facetline write support/first" in shown.text


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explored]:
    """Three tickets that nobody asks about."""
    folder = tmp_path_factory.mktemp("waiting")
    explored.define(folder, [])
    with explored.serving(folder, {"support": explored.tickets()[:3]}, classify=False) as served:
        yield served


def test_nothing_matches_while_documents_wait(waiting: Explored):
    """An empty result says how many documents have no answers yet."""
    shown = parse(httpx.get(f"{waiting.url}/support?f.topic=billing").text)
    first = parse(httpx.get(f"{waiting.url}/support").text)

    assert "3 documents wait for answers" in shown.one("section", class_="empty").text
    assert "3 not asked yet" in shown.text
    assert "being asked" in first.all("li", class_="hit")[0].text


def test_a_running_job_has_one_button_that_stops_it(waiting: Explored):
    """A job that has not ended has a button that stops it, once."""
    with httpx.Client(base_url=waiting.url, headers={"Origin": waiting.url}) as client:
        started = _send(client, "/-/reindex/support", "/-/reindex/support")
        address = started.headers["location"]
        before = _page(client, address)
        _send(client, address, f"{address}/cancel")
        after = _page(client, address)

    assert "Waiting to ask again" in before.one("h1").text
    assert before.one("div", id="job").attributes["hx-get"] == address
    assert "Stopped" in after.one("h1").text
    assert "hx-get" not in after.one("div", id="job").attributes


def _send(client: httpx.Client, page: str, address: str) -> httpx.Response:
    form = next(each for each in _page(client, page).all("form", action=address) if each.attributes["method"] == "post")
    fields = {each.attributes["name"]: each.attributes["value"] for each in form.all("input")}
    sent = client.post(address, data=fields)
    assert sent.status_code == 303, sent.text
    return sent


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/html,application/xhtml+xml"])
def test_addresses_of_programs_are_json(client: httpx.Client, accept: str):
    """`/v1` and `/health` are JSON whatever is accepted, and so are their problems; no page takes their names."""
    headers = {"Accept": accept}
    index, health = client.get("/v1", headers=headers), client.get("/health", headers=headers)
    problems = [client.get(address, headers=headers) for address in ("/v1?x=y", "/health?x=y", "/v1/", "/v1/nothing")]

    assert index.json()["links"]["search"] == "/v1/collections/{collection}/search"
    assert index.json()["version"] == importlib.metadata.version("facetline")
    assert health.json() == client.get("/readyz", headers=headers).json()
    assert {each.headers["content-type"] for each in problems} == {"application/problem+json"}
    assert [each.status_code for each in problems] == [400, 400, 404, 404]


def test_links_of_the_index_lead_somewhere(client: httpx.Client):
    """Each link of `/v1` that is no template and no POST is answered."""
    links = client.get("/v1").json()["links"]
    read = {name: link for name, link in links.items() if "{" not in link and name not in {"sql", "agents"}}

    assert {name: client.get(link).status_code for name, link in read.items()} == dict.fromkeys(read, 200)
    assert client.get(links["sql"]).status_code == 405


def test_the_page_of_the_api_runs_its_own_files_alone(client: httpx.Client):
    """`/docs` allows scripts and styles of this server alone; its files are there, with a licence and without maps."""
    shown = client.get("/docs")
    policy = shown.headers["content-security-policy"]
    files = [each.attributes["src"] for each in parse(shown.text).all("script")]
    files += [each.attributes["href"] for each in parse(shown.text).all("link")]
    replies = [client.get(each) for each in files]

    assert "script-src 'self'; style-src 'self'; img-src 'self' data:;" in policy
    assert "unsafe" not in policy
    assert all(each.startswith("/static/") for each in files)
    assert {each.status_code for each in replies} == {200}
    assert [each for each in replies if "sourceMappingURL" in each.text] == []
    assert "Apache License" in client.get("/static/swagger-ui.LICENSE.txt").text


def test_page_ignores_parameters_of_other_sites(client: httpx.Client):
    """`utm_source` and `fbclid` change nothing on the page; a question without `f.` is refused with the way out."""
    plain = _page(client, "/support?f.topic=billing")
    tracked = _page(client, "/support?utm_source=mail&f.topic=billing&fbclid=x")
    refused = _page(client, "/support?topic=billing&utm_source=mail", 400)

    assert _total(tracked) == _total(plain) == COUNTS["billing"]
    assert "Unknown parameter 'topic'. Filter with f.QUESTION=VALUE" in refused.one(role="alert").text
    assert client.get("/v1/collections/support/search?utm_source=mail").status_code == 400
