"""The OpenAPI document is right: what it allows is answered as it says, what it forbids is refused, nothing fails.

Method: schemathesis makes requests for each operation of a real server's own document, from the same seed each time; a
run of many examples has FACETLINE_LARGE=1.
"""

import os
from collections.abc import Iterator

import httpx
import hypothesis
import pytest
import schemathesis
import small_api
from hypothesis import strategies
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from serving import ServeProcess

from facetline.facets.api.application import ROUTES
from facetline.facets.api.routing import RouteSpec

EXAMPLES = 200 if os.environ.get("FACETLINE_LARGE") else 5


UNTOLD = [positive_data_acceptance]
"""What a filter, a sort, a token or a uri may be depends on what there is, which the document does not know."""
REAL = {
    "collection": ["tickets", "notes"],
    "uri": ["tickets/t1", "tickets/t4", "@alice/notes/2026/monday", "tickets/new"],
    "name": ["busy"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServeProcess, dict[str, str]]]:
    """A server with a small data set, and the headers of whoever may do everything."""
    with small_api.served(tmp_path_factory.mktemp("schema"), rights="read,write,admin,sql") as (made, token):
        yield made, {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def api_schema(server: tuple[ServeProcess, dict[str, str]]) -> schemathesis.BaseSchema:
    """What the server says about itself."""
    made, headers = server
    return schemathesis.openapi.from_url(f"{made.url}/openapi.json", headers=headers)


def ids(declared: RouteSpec) -> str:
    """Return how a route is called in the test's name."""
    return f"{declared.method}-{declared.path}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "forbidden"])
@pytest.mark.parametrize("declared", ROUTES, ids=ids)
def test_requests_are_answered_as_the_document_says(
    server: tuple[ServeProcess, dict[str, str]],
    api_schema: schemathesis.BaseSchema,
    declared: RouteSpec,
    mode: GenerationMode,
):
    """Status, type, headers and body of each reply are those that its operation declares; a token is needed.

    What is allowed is asked of documents and collections that there are, mostly.
    """
    operation = api_schema[declared.path.replace(":path", "")][declared.method]

    @hypothesis.settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None)
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode), place=strategies.integers(0, 11))
    def ask(case: Case, place: int) -> None:
        if mode is GenerationMode.POSITIVE and place:
            for name in set(case.path_parameters or ()) & set(REAL):
                case.path_parameters[name] = REAL[name][place % len(REAL[name])]
        case.call_and_validate(headers=server[1], excluded_checks=UNTOLD)

    ask()


def test_nothing_of_a_request_is_in_the_log(server: tuple[ServeProcess, dict[str, str]]):
    """At its most talkative the server logs which route was asked, and neither bodies, tokens nor parameters."""
    made, headers = server
    given = {"filter": "state_title = 'hidden words'", "at_least": "hidden-token"}
    asked = httpx.get(f"{made.url}/v1/collections/tickets/search", params=given, headers=headers)
    refused = httpx.get(f"{made.url}/v1/jobs", headers={"Authorization": "Bearer hidden-token"})

    assert (asked.status_code, refused.status_code) == (400, 401)
    said = made.log.read_text()
    assert "/v1/collections/{collection}/search" in said
    hidden = ["hidden", headers["Authorization"].removeprefix("Bearer "), *small_api.BODIES]
    assert [each for each in hidden if each in said] == []
