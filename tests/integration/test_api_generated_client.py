"""A client generated from the served OpenAPI document writes, reads and searches: the document and the server agree.

Method: openapi-python-client reads `/openapi.json` of a real server; what it makes is imported and used on that server.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import small_api
from serving import ServeProcess

from facetline.facets.api.application import ROUTES

NO_HOOKS = "post_hooks: []\n"
"""Nothing formats what is generated: it is imported, and thrown away."""
NOT_READ = ["application/x-ndjson"]
"""The generator has no model for streams; their operations return bytes."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServeProcess, str]]:
    """A server whose searches have all of a small data set, and a token for everything."""
    with small_api.served(tmp_path_factory.mktemp("served"), rights="read,write,admin,sql") as (made, token):
        assert token is not None
        tokens = [
            made.request("GET", f"/v1/documents/tickets/t{number}", token=token).json()["token"] for number in (1, 2, 3)
        ]
        newest = "&".join(f"at_least={each}" for each in tokens)
        made.request("GET", f"/v1/collections/tickets/search?{newest}&wait_ms=30000", token=token).raise_for_status()
        yield made, token


@pytest.fixture(scope="module")
def generated(server: tuple[ServeProcess, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the generated package, which can be imported, and what the generator reported."""
    made, token = server
    folder = tmp_path_factory.mktemp("generated")
    document = httpx.get(f"{made.url}/openapi.json", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    (folder / "openapi.json").write_bytes(document.content)
    (folder / "config.yaml").write_text(NO_HOOKS)
    generator = Path(sys.executable).with_name("openapi-python-client")
    words = ["generate", "--path", "openapi.json", "--config", "config.yaml", "--output-path", "client"]
    done = subprocess.run([generator, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    (folder / "reported.txt").write_text(done.stdout + done.stderr)
    sys.path.insert(0, str(folder / "client"))
    yield folder
    sys.path.remove(str(folder / "client"))
    for name in [each for each in sys.modules if each.partition(".")[0] == "facetline_client"]:
        del sys.modules[name]


@pytest.fixture
def client(server: tuple[ServeProcess, str], generated: Path) -> Iterator[Any]:
    """The generated client of the server."""
    made, token = server
    made_client = importlib.import_module("facetline_client").AuthenticatedClient(base_url=made.url, token=token)
    with made_client:
        yield made_client


def operation(name: str) -> ModuleType:
    """Return an operation of the generated client by its path, such as `documents.get_document`."""
    return importlib.import_module(f"facetline_client.api.{name}")


def model(name: str) -> Any:
    """Return a model of the generated client."""
    return getattr(importlib.import_module("facetline_client.models"), name)


def test_every_operation_is_generated_under_a_plain_name(generated: Path):
    """Each route has an operation of its own name; the generator leaves out none, and only streams have no model."""
    names = [each.name for each in ROUTES]
    found = {path.stem for path in (generated / "client/facetline_client/api").rglob("[a-z]*.py")}
    reported = (generated / "reported.txt").read_text()

    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name == name.lower() for name in names)
    assert found == set(names)
    assert "Endpoint will not be generated" not in reported
    assert [each for each in NOT_READ if each in reported] == NOT_READ
    assert reported.count("WARNING") == len(NOT_READ)


def test_search_by_address(client: Any):
    """`f.topic=billing` as one value and as a list, and `mc.topic`, find what they should and count it as selected."""
    facets, least = model("FacetParameters"), model("ConfidenceParameters")
    search = operation("collections.search")

    one = search.sync("tickets", client=client, f=facets.from_dict({"f.topic": "billing"}), counts="topic")
    two = search.sync("tickets", client=client, f=facets.from_dict({"f.topic": ["billing", "outage"]}))
    both = search.sync("tickets", client=client, f=facets.from_dict({"f.topic": "billing", "f.urgent": "yes"}))
    sure = search.sync(
        "tickets",
        client=client,
        f=facets.from_dict({"f.topic": ["billing", "outage"]}),
        mc=least.from_dict({"mc.topic": 0.9}),
    )

    assert one.keys == ["t1"]
    assert [(each.value, each.selected) for each in one.facets[0].buckets if each.selected] == [("billing", True)]
    assert one.hits[0].facets["topic"].choice == "billing"
    assert sorted(two.keys) == ["t1", "t2"]
    assert both.keys == ["t1"]
    assert sure.keys == ["t1"]


def test_search_by_body(client: Any):
    """The same search as a JSON body finds the same."""
    facets = model("SearchFacets").from_dict({"topic": "billing", "urgent": True})
    body = model("Search")(facets=facets)

    assert operation("collections.search_by_body").sync("tickets", client=client, body=body).keys == ["t1"]


def test_search_as_rows(client: Any):
    """CSV and NDJSON have the rows of the same search."""
    facets = model("FacetParameters").from_dict({"f.topic": "billing"})
    csv = operation("collections.search_csv").sync_detailed("tickets", client=client, f=facets)
    ndjson = operation("collections.search_ndjson").sync_detailed("tickets", client=client, f=facets)

    assert csv.content.splitlines()[1].startswith(b"tickets/t1,t1,")
    assert [json.loads(line)["topic"] for line in ndjson.content.splitlines()] == ["billing"]


def test_document_is_written_read_and_deleted(client: Any):
    """A document with slashes in its uri is written, read back with its facets, and deleted; state is kept as sent."""
    put, get = operation("documents.put_document"), operation("documents.get_document")
    uri, wait = "@alice/notes/2026/friday", model("PutDocumentWait").ANSWERED
    state = model("WriteStateType0").from_dict({"title": "Kind", "priority": 3})

    written = put.sync(uri, client=client, body=model("Write")(body="Thanks!"), wait=wait)
    read = get.sync(uri, client=client, at_least=[written.token])
    deleted = operation("documents.delete_document").sync(uri, client=client)
    put.sync("tickets/kind", client=client, body=model("Write")(body="Thanks!", state=state), wait=wait)
    ticket = get.sync("tickets/kind", client=client)

    assert (written.uri, written.status) == (uri, "indexed")
    assert (read.body, read.facets["mood"].choice, read.key) == ("Thanks!", "good", "2026/friday")
    assert deleted.status == "deleted"
    assert ticket.state.to_dict() == {"title": "Kind", "priority": 3}


def test_refusal_is_a_problem(client: Any):
    """A misspelt option is the generated model of a problem, with what would have been right."""
    facets = model("FacetParameters").from_dict({"f.topic": "biling"})
    found = operation("collections.search").sync("tickets", client=client, f=facets)

    assert (found.type_, found.status, found.nearest) == ("/v1/problems/unknown-value", 400, "billing")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("collections.list_collections", []),
        ("collections.get_collection", ["tickets"]),
        ("jobs.list_jobs", []),
        ("health.livez", []),
        ("health.readyz", []),
        ("health.health", []),
        ("application.get_index", []),
        ("health.get_problem_kind", ["busy"]),
        ("application.get_openapi", []),
    ],
)
def test_what_only_reads_has_a_model(client: Any, name: str, words: list[str]):
    """Whatever has no input beside its address is answered with the operation's own model."""
    reply = operation(name).sync_detailed(*words, client=client)

    assert reply.status_code == 200
    assert type(reply.parsed).__name__ not in {"NoneType", "ProblemReply"}
