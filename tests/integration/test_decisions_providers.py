"""The request that goes out for one decision model of each provider family, without a network.

Method: `api_base` leads to a server on loopback; what arrives there is what litellm would send the provider.
"""

from collections.abc import Iterator
from typing import Any

import model_server
import pytest
from model_replies import Reply

from facetline.evaluators import validation
from facetline.evaluators.decisions import protocol
from facetline.evaluators.decisions.evaluator import PROVIDERS, Decisions
from facetline.evaluators.litellm_adapter import client
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets import questions

VARIABLE, KEY = "FACETLINE_TEST_MODEL_KEY", "sk-decide-0123456789"
BEARER = ("authorization", f"Bearer {KEY}")
ASKED: dict[str, questions.Question] = {
    "mood": questions.score(ask="How angry?", levels=["calm", "furious"]),
    "topic": questions.choice(ask="About what?", options={"billing": "Money", "outage": "Down"}),
    "urgent": questions.boolean(ask="Urgent?"),
}
MAPPED = {
    "mood": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "furious"]},
    "topic": {"type": "choice", "instructions": "About what?", "criteria": {"billing": "Money", "outage": "Down"}},
    "urgent": {"type": "noul", "instructions": "Urgent?"},
}
LISTED = [
    {
        "type": "score",
        "name": "mood",
        "instructions": "How angry?",
        "levels": [{"label": "calm"}, {"label": "furious"}],
    },
    {
        "type": "choice",
        "name": "topic",
        "instructions": "About what?",
        "choices": [{"value": "billing", "description": "Money"}, {"value": "outage", "description": "Down"}],
    },
    {"type": "predicate", "name": "urgent", "instructions": "Urgent?"},
]
BODY = "An outage."

# Model, the path it is asked at, what the request says of the model, where the key is.
FAMILIES: dict[str, tuple[str, dict[str, str], tuple[str, str]]] = {
    "typesafe/jev-1.14.0": ("/v1/systemone", {"model": "jev-1.14.0"}, BEARER),
    "eu_jev/jev-1": ("/v1/systemone", {"model": "jev-1"}, BEARER),
    "nace/decide": ("/v1/systemone", {"model": "decide"}, BEARER),
    "empiriolabs/decide": ("/v1/decisions", {"model": "decide"}, BEARER),
    "perplexity/decide": ("/v1/decisions", {"model": "decide"}, BEARER),
    "openrouter/typesafe/jev-1.14.0": ("/alpha/decisions", {"model": "typesafe/jev-1.14.0"}, BEARER),
    "fireworks_ai/accounts/fireworks/models/d": ("/v1/systemone", {"model": "accounts/fireworks/models/d"}, BEARER),
    "cloudflare/@cf/clef/clef-1": ("/ai/run/@cf/clef/clef-1", {"model": "clef-1"}, BEARER),
    "databricks/jev-4b": ("/jev-4b/invocations", {"model": "jev-4b"}, BEARER),
    "parallel_ai/decision": ("/v1/decisions", {"mode": "fast"}, ("x-api-key", KEY)),
    "azure_ai/Decision-1": ("/providers/microsoft/v1/systemone", {"model": "Decision-1"}, BEARER),
    "strands_decider/decider": ("/v1/systemone", {"model": "decider"}, BEARER),
    "hosted_vllm/jev-local": ("/v1/systemone", {"model": "jev-local"}, BEARER),
    "lm_studio/jev-local": ("/v1/systemone", {"model": "jev-local"}, BEARER),
    "ollama/jev-local": ("/v1/systemone", {"model": "jev-local"}, BEARER),
    "ollama_chat/jev-local": ("/v1/systemone", {"model": "jev-local"}, BEARER),
    "laya/english": ("/v1/systemone", {"model": "english"}, BEARER),
    "bespoke/nimble": ("/v1/systemone", {"model": "nimble"}, BEARER),
    "openai/decide-1": ("/v1/decisions", {"model": "decide-1"}, BEARER),
    "azure/my-deployment": ("/openai/v1/decisions", {"model": "my-deployment"}, ("api-key", KEY)),
}


@pytest.fixture(scope="module")
def server() -> Iterator[model_server.Server]:
    """One server for all families."""
    with model_server.serving() as made:
        yield made


@pytest.fixture(autouse=True)
async def _closed() -> Any:
    yield
    await client.close()


@pytest.mark.parametrize("model", FAMILIES)
async def test_each_family_gets_its_request(server: model_server.Server, model: str, monkeypatch: pytest.MonkeyPatch):
    """Path, model, key and questions as the provider's protocol has them, the body as it is, and valid answers back."""
    monkeypatch.setenv(VARIABLE, KEY)
    server.forget()
    server.plan = Reply(extra={"mode": "fast"})  # one family wants it in the reply

    said = await Decisions(Connection(model, server.url, VARIABLE)).evaluate(BODY, ASKED, key="k", deadline_s=60)
    (request,) = server.requests
    path, about, (header, value) = FAMILIES[model]
    assert request.path == path
    assert request.headers[header] == value
    if model.partition("/")[0] in protocol.OPENAI_FORM:
        assert request.body == {**about, "input": BODY, "questions": LISTED}
    else:
        assert request.body == {**about, "state": BODY, "questions": MAPPED}
    validation.check_evaluated(ASKED, said)
    assert said.confidence_source == f"{model.partition('/')[0]} confidence"


async def test_our_list_of_providers_is_litellms():
    """A definition is checked without loading litellm, by a list of ours: it names those that litellm can ask."""
    await client.load()
    from litellm.decisions import call

    assert set(call.supported_decisions_providers()) == PROVIDERS
    assert {model.partition("/")[0] for model in FAMILIES} == PROVIDERS
