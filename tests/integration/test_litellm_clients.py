"""What is read of replies to requests that litellm sends by itself: as little as where our own client sends.

Method: the real litellm sends to a server on loopback, which answers with more than may be read. One row is one of the
ways by which litellm makes a client.
"""

import gzip

import model_server
import pytest
from model_replies import Reply
from model_server import VARIABLE
from polling import eventually

from facetline.evaluators.chat.evaluator import Chat
from facetline.evaluators.chat.settings import Settings
from facetline.evaluators.decisions.evaluator import Decisions
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets import errors, questions

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* using the `ReadOnly` qualifier:UserWarning"),
    pytest.mark.usefixtures("model_clients_closed"),
]
"""pydantic says so of some types of litellm's, which are loaded for some providers only."""

ASKED: dict[str, questions.Question] = {
    "topic": questions.choice(ask="About what?", options={"billing": "", "other": "", "outage": ""}),
}
PATIENCE_S = 60.0
BOUND = 64 * 1024
MANY = 256 * 1024 * 1024

AWS = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret-0123456789", "AWS_REGION_NAME": "eu-west-1"}
MODELS: dict[str, dict[str, str]] = {
    "bedrock/amazon.nova-lite-v1:0": AWS,
    "bedrock/invoke/anthropic.claude-3-haiku-20240307-v1:0": AWS,
    "azure_ai/mistral-large": {},
    "databricks/databricks-claude-sonnet-4": {},
    "huggingface/meta-llama/Llama-3.3-70B-Instruct": {},
    "watsonx/meta-llama/llama-3-3-70b-instruct": {"WATSONX_TOKEN": "t", "WATSONX_PROJECT_ID": "p"},
    "openai/gpt-5-pro": {},
    "petals/x": {},
    "oobabooga/x": {},
    "azure/my-deployment": {"AZURE_OPENAI_AD_TOKEN": "t", "AZURE_API_VERSION": "2024-10-21"},
}
"""Models that no adapter of ours asks, and the variables that litellm looks for. Replicate and Vertex AI are asked at
addresses of their own; their clients are made by the same function as the first ones'."""

KEYLESS = frozenset({"azure/my-deployment"})
"""Asked with a token instead of a key."""

TOO_MUCH = {
    "an answer": Reply(flood_bytes=MANY),
    "an error": Reply(400, {"error": "logprobs"}, flood_bytes=MANY),
    "an outage": Reply(503, {"error": "busy"}, flood_bytes=MANY),
    "a bomb": Reply(body=gzip.compress(b" " * MANY, 1), headers={"content-encoding": "gzip"}),
    "a redirect": Reply(302, "", {"location": "/elsewhere"}, flood_bytes=MANY),
    "a claim": Reply(body=b" " * (BOUND + 1)),
    "unreadable": Reply(body=b"x", headers={"content-encoding": "br"}),
}


async def refused(evaluator: Chat | Decisions) -> errors.PipelineError:
    """Return the error of an evaluation that gives no answer."""
    with pytest.raises(errors.PipelineError) as caught:
        await evaluator.evaluate("The site is down.", ASKED, key="t1", deadline_s=PATIENCE_S)
    return caught.value


@pytest.mark.parametrize("reply", TOO_MUCH.values(), ids=TOO_MUCH)
@pytest.mark.parametrize("model", MODELS)
async def test_no_more_than_the_bound_is_read(
    server: model_server.Server, model: str, reply: Reply, monkeypatch: pytest.MonkeyPatch
):
    """Beyond `reply_bytes_max` a reply is an invalid answer, whatever it was, and its connection is closed."""
    for name, value in MODELS[model].items():
        monkeypatch.setenv(name, value)
    server.plan = reply
    variable = None if model in KEYLESS else VARIABLE
    error = await refused(Chat(Connection(model, server.url, variable, BOUND), Settings(logprobs="off")))

    about = "compressed" if "br" in reply.headers.values() else "reply_bytes_max"
    assert (getattr(error, "reason", None), about in str(error)) == ("invalid_answer", True), error
    assert server.requests[-1].headers["accept-encoding"] == "identity"
    await eventually(lambda: server.running == 0 and (not reply.flood_bytes or server.connections == 0))
