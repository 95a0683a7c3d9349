"""What becomes of a chat evaluator's request for one model of each provider family, and of the provider's own reply.

Method: the real litellm sends to a server on loopback, which keeps what it gets and answers in the provider's form. For
families whose address cannot be moved there, litellm's own parameters are looked at. A row that changes with a new
litellm is a decision to be looked at, not a bug by itself.
"""

import json
import os
from typing import Any, NamedTuple

import model_replies
import model_server
import pytest
from model_replies import Reply
from model_server import VARIABLE

from facetline.evaluators import validation
from facetline.evaluators.chat import adapters, prompt, question_codes, request_modes
from facetline.evaluators.chat.evaluator import Chat
from facetline.evaluators.chat.request_modes import Mode
from facetline.evaluators.chat.settings import Settings
from facetline.evaluators.litellm_adapter import client, provider_requests
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets import errors, questions

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* using the `ReadOnly` qualifier:UserWarning"),
    pytest.mark.usefixtures("model_clients_closed"),
]
"""pydantic says so of some types of litellm's, which are loaded for some providers only."""

ASKED: dict[str, questions.Question] = {
    "topic": questions.choice(ask="About what?", options={"billing": "", "other": "", "outage": ""}),
    "urgent": questions.boolean(ask="Is it urgent?"),
}
CODES = ["A", "B", "C"]
LIMITS = ("max_tokens", "max_completion_tokens")
PATIENCE_S = 60.0


class Sent(NamedTuple):
    """What a family's model gets: the path; where the codes stand; whether logprobs and temperature are sent."""

    path: str
    codes_at: str
    logprobs: bool
    temperature: bool
    thinking: bool = False


OPENAI = "response_format.json_schema.schema.properties.q0.enum"
TOOL = "tools.0.function.parameters.properties.q0.enum"
PLAIN = Sent("/chat/completions", OPENAI, logprobs=True, temperature=True)
FAMILIES = {
    "openai/gpt-4.1-mini": PLAIN,
    "openai/gpt-5.4-mini": PLAIN._replace(thinking=True),
    "openai/gpt-5-mini": Sent("/chat/completions", OPENAI, logprobs=False, temperature=False, thinking=True),
    "azure/gpt-4o": PLAIN._replace(path="/openai/deployments/gpt-4o/chat/completions"),
    "gemini/gemini-2.5-flash": Sent(
        "/models/gemini-2.5-flash:generateContent",
        "generationConfig.response_json_schema.properties.q0.enum",
        logprobs=False,
        temperature=True,
        thinking=True,
    ),
    "anthropic/claude-haiku-4-5": Sent(
        "/v1/messages", "output_format.schema.properties.q0.enum", logprobs=False, temperature=True, thinking=True
    ),
    "anthropic/claude-3-5-haiku-20241022": Sent(
        "/v1/messages", "tools.0.input_schema.properties.q0.enum", logprobs=False, temperature=True
    ),
    "mistral/mistral-small-latest": Sent(
        "/v1/chat/completions", OPENAI, logprobs=False, temperature=True, thinking=True
    ),
    "groq/llama-3.3-70b-versatile": PLAIN._replace(codes_at=TOOL),
    "groq/openai/gpt-oss-20b": PLAIN._replace(thinking=True),
    "deepseek/deepseek-chat": PLAIN,
    "xai/grok-4": PLAIN,
    "openrouter/meta-llama/llama-3.3-70b-instruct": PLAIN,
    "together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo": PLAIN,
    "fireworks_ai/llama-v3p3-70b-instruct": PLAIN,
    "perplexity/sonar": PLAIN._replace(logprobs=False),
    "hosted_vllm/Qwen/Qwen3-8B": PLAIN,
    "lm_studio/local": PLAIN,
    "ollama_chat/llama3.1": Sent("/api/chat", "format.properties.q0.enum", logprobs=False, temperature=True),
    "cohere_chat/command-r-plus": Sent("/", TOOL, logprobs=False, temperature=True),
}


def chat(server: model_server.Server, model: str, **settings: Any) -> Chat:
    """An evaluator in front of the server."""
    return Chat(Connection(model, server.url, VARIABLE), Settings(**settings))


def part(asked: Any, path: str) -> Any:
    """Return a part of a request, None where there is none."""
    for step in path.split("."):
        found = asked[int(step)] if isinstance(asked, list) else asked.get(step)
        if found is None:
            return None
        asked = found
    return asked


def has(asked: Any, *names: str) -> bool:
    """Say whether one of these keys stands anywhere in a request."""
    if isinstance(asked, list):
        return any(has(each, *names) for each in asked)
    if not isinstance(asked, dict):
        return False
    return any(name.lower() in names or has(value, *names) for name, value in asked.items())


@pytest.mark.parametrize("model", FAMILIES)
async def test_a_family_gets_what_it_takes(server: model_server.Server, model: str):
    """One request, in the provider's form: codes, token probabilities and temperature where litellm sends them."""
    server.plan = model_replies.error(400, "that is all")
    evaluator = chat(server, model)
    with pytest.raises(errors.EvaluationFailed, match="that is all"):
        await evaluator.evaluate("The site is down.", ASKED, key="t1", deadline_s=PATIENCE_S)
    (request,) = server.requests
    expected = FAMILIES[model]

    assert request.path == expected.path
    assert part(request.body, expected.codes_at) == CODES
    assert has(request.body, "logprobs", "responselogprobs") == expected.logprobs
    assert has(request.body, "temperature") == expected.temperature
    assert bool(evaluator.mode.thinking) == expected.thinking
    assert json.dumps(request.body).count("The site is down.") == 1


WAYS = {
    "cerebras/llama-3.3-70b": "adapter",
    "dashscope/qwen-max": "adapter",
    "deepinfra/meta-llama/Llama-3.3-70B-Instruct": "adapter",
    "github/gpt-4o": "adapter",
    "hyperbolic/x": "adapter",
    "litellm_proxy/x": "adapter",
    "llamafile/x": "adapter",
    "moonshot/kimi-k2": "adapter",
    "nebius/x": "adapter",
    "novita/x": "adapter",
    "nvidia_nim/meta/llama3-70b-instruct": "adapter",
    "sambanova/Meta-Llama-3.1-8B-Instruct": "adapter",
    "ollama/llama3.1": "adapter",
    "cohere/command-r-plus": "adapter",
    **dict.fromkeys(FAMILIES, "adapter"),
    "openai/gpt-5-pro": "acompletion",
    "openai/responses/gpt-4.1-mini": "acompletion",
    "huggingface/meta-llama/Llama-3.3-70B-Instruct": "acompletion",
    "databricks/databricks-claude-sonnet-4": "acompletion",
    "azure_ai/mistral-large": "acompletion",
}
"""Which way a model of each family is asked: by litellm's adapter over our own client, or by `acompletion`."""

OWN = {"host", "user-agent", "content-length", "accept", "accept-encoding", "connection", "content-type"}
"""Headers of whoever sends; they say nothing to a provider (`x-stainless-…` are those of OpenAI's library)."""


def told(request: model_server.Request) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Return what a request says: path, body, and the headers that are the provider's."""
    about = {
        name: value
        for name, value in request.headers.items()
        if name not in OWN and not name.startswith(("x-stainless-", "traceparent"))
    }
    return request.path, request.body, about


@pytest.mark.parametrize("model", WAYS)
async def test_an_adapter_sends_what_litellm_sends(server: model_server.Server, model: str):
    """Path, body and headers are those of litellm's own `acompletion`, and exactly one request each."""
    server.plan = model_replies.error(400, "that is all")
    evaluator = Chat(Connection(model, server.url, VARIABLE), Settings(), nonce=lambda: "0123456789abcdef")
    with pytest.raises(errors.PipelineError, match="that is all"):
        await evaluator.evaluate("The site is down.", ASKED, key="t1", deadline_s=PATIENCE_S)
    litellm = await client.load()
    mode = evaluator.mode
    asked = evaluator._request(mode, evaluator._prompt(ASKED, "t1", letters=mode.with_letters), "The site is down.")
    where = {"api_base": server.url, "api_key": os.environ[VARIABLE]}
    with pytest.raises(Exception, match="that is all"):
        await litellm.acompletion(model=model, max_retries=0, num_retries=0, **where, **asked)
    ours, theirs = server.requests

    assert told(ours) == told(theirs)
    assert ("facetline" in ours.headers["user-agent"]) == (WAYS[model] == "adapter")


DEFAULT_PLACES = {
    "openai/gpt-4.1-mini": ("OPENAI_API_KEY", "https://api.openai.com/v1/chat/completions"),
    "anthropic/claude-haiku-4-5": ("ANTHROPIC_API_KEY", "https://api.anthropic.com/v1/messages"),
    "gemini/gemini-2.5-flash": (
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent",
    ),
    "mistral/mistral-small-latest": ("MISTRAL_API_KEY", "https://api.mistral.ai/v1/chat/completions"),
    "groq/llama-3.3-70b-versatile": ("GROQ_API_KEY", "https://api.groq.com/openai/v1/chat/completions"),
    "openrouter/x/y": ("OPENROUTER_API_KEY", "https://openrouter.ai/api/v1/chat/completions"),
    "ollama_chat/llama3.1": ("OLLAMA_API_KEY", "http://localhost:11434/api/chat"),
    "xai/grok-4": ("XAI_API_KEY", "https://api.x.ai/v1/chat/completions"),
    "deepseek/deepseek-chat": ("DEEPSEEK_API_KEY", "https://api.deepseek.com/beta/chat/completions"),
}


@pytest.mark.parametrize("model", DEFAULT_PLACES)
async def test_without_a_table_the_provider_is_asked_as_its_variable_says(model: str, monkeypatch: pytest.MonkeyPatch):
    """Without api_base and api_key_env the request goes to the provider, with the key of the provider's variable."""
    variable, url = DEFAULT_PLACES[model]
    for name in (variable, "OPENAI_API_KEY"):
        monkeypatch.setenv(name, f"sk-{variable}")
    litellm = await client.load()
    adapter = adapters.adapter_of(litellm, Connection(model))
    assert adapter is not None
    place = adapter._place(None)
    assert place is not None
    known = {"api_base": place.api_base, "api_key": place.api_key, "custom_llm_provider": place.provider}
    messages = [{"role": "user", "content": "x"}]
    to, headers, _ = provider_requests.request(adapters._config(place), place, messages, {}, known)

    assert to.partition("?")[0] == url
    assert any(f"sk-{variable}" in value for value in headers.values())


UNMOVED = {
    "vertex_ai/gemini-2.5-flash": ("schema", True),
    "bedrock/anthropic.claude-haiku-4-5-20251001-v1:0": ("schema", False),
    "bedrock/amazon.nova-lite-v1:0": ("schema", False),
    "cerebras/llama-3.3-70b": ("schema", False),
    "databricks/databricks-claude-sonnet-4": ("schema", False),
    "github/gpt-4o": ("schema", True),
    "huggingface/meta-llama/Llama-3.3-70B-Instruct": ("schema", True),
    "watsonx/meta-llama/llama-3-3-70b-instruct": ("schema", True),
    "replicate/meta/meta-llama-3-70b-instruct": ("tool", False),
}
"""Form and token probabilities of families that are asked at addresses of their own."""


@pytest.mark.parametrize("model", UNMOVED)
async def test_another_family_is_asked_in_its_form(model: str):
    """After what litellm refuses before sending is left out, the rest is what it would send."""
    litellm = await client.load()
    name, provider, *_ = litellm.get_llm_provider(model)
    mode = Mode()
    for _ in range(8):
        sheet = question_codes.sheet_of(ASKED, order=question_codes.fixed, letters=mode.with_letters, sure=False)
        made = request_modes.request(mode, prompt.prompt_of(sheet), body="b", nonce="n")
        try:
            sent = litellm.get_optional_params(model=name, custom_llm_provider=provider, **made)
        except litellm.UnsupportedParamsError as error:
            less = request_modes.without(mode, request_modes.refused_part(error, mode) or "")
            assert less is not None
            mode = less
        else:
            break

    assert (mode.shape, mode.with_logprobs) == UNMOVED[model]
    assert ("temperature" in sent, "A" in json.dumps(sent)) == (True, provider != "replicate")


GOOD = {"q0": "C", "q1": 0.75}
USAGE = {"input_tokens": 120, "output_tokens": 7}


def claude(*content: dict[str, Any], stop_reason: str = "end_turn") -> Reply:
    """A reply in Anthropic's form."""
    return Reply(
        body={
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-loopback",
            "content": list(content),
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": USAGE,
        }
    )


def gemini(text: str, **candidate: Any) -> Reply:
    """A reply in Gemini's form."""
    content = {"role": "model", "parts": [{"text": text}]}
    usage = {"promptTokenCount": 120, "candidatesTokenCount": 7, "totalTokenCount": 127}
    made = {"content": content, "finishReason": "STOP", "index": 0, **candidate}
    return Reply(body={"candidates": [made], "usageMetadata": usage, "modelVersion": "gemini-loopback"})


def ollama(text: str) -> Reply:
    """A reply in Ollama's form."""
    message = {"role": "assistant", "content": text}
    counts = {"prompt_eval_count": 120, "eval_count": 7}
    return Reply(
        body={"model": "llama3.1", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": True, **counts}
    )


def groq(text: str) -> Reply:
    """A reply of Groq's to the tool that litellm forces in the place of a schema."""

    def body(asked: dict[str, Any]) -> dict[str, Any]:
        return {**model_replies.tool_call(text).body(asked), "service_tier": "on_demand"}

    return Reply(body=body)


TEXT = json.dumps(GOOD)
FORCED = {"type": "tool_use", "id": "toolu_1", "name": "json_tool_call", "input": GOOD}


@pytest.mark.parametrize(
    ("model", "reply"),
    [
        ("anthropic/claude-haiku-4-5", claude({"type": "text", "text": TEXT})),
        ("anthropic/claude-3-5-haiku-20241022", claude(FORCED, stop_reason="tool_use")),
        ("gemini/gemini-2.5-flash", gemini(TEXT)),
        ("ollama_chat/llama3.1", ollama(TEXT)),
        ("groq/llama-3.3-70b-versatile", groq(TEXT)),
    ],
)
async def test_a_familys_own_reply_is_read(server: model_server.Server, model: str, reply: Reply):
    """What litellm makes of a reply in the provider's form, forced tool calls too, answers."""
    server.plan = reply
    said = await chat(server, model, logprobs="off").evaluate("It is down.", ASKED, key="t1", deadline_s=PATIENCE_S)

    validation.check_evaluated(ASKED, said)
    assert said.answers["topic"].model_dump()["choice"] == "outage"
    assert said.answers["urgent"].model_dump()["probability"] == 0.75
    assert (said.usage, said.confidence_source, len(server.requests)) == (USAGE, None, 1)


@pytest.mark.parametrize(
    ("model", "reply", "reason"),
    [
        ("anthropic/claude-haiku-4-5", claude({"type": "text", "text": TEXT}, stop_reason="refusal"), "content_filter"),
        (
            "anthropic/claude-haiku-4-5",
            claude({"type": "text", "text": TEXT}, stop_reason="max_tokens"),
            "invalid_answer",
        ),
        ("gemini/gemini-2.5-flash", gemini(TEXT, finishReason="SAFETY"), "content_filter"),
        ("gemini/gemini-2.5-flash", gemini(TEXT, finishReason="MAX_TOKENS"), "invalid_answer"),
        ("gemini/gemini-2.5-flash", Reply(body={"candidates": [], "usageMetadata": {}}), "invalid_answer"),
    ],
)
async def test_a_familys_own_no_is_understood(server: model_server.Server, model: str, reply: Reply, reason: str):
    """Refusals, filters and replies that were cut off have their reasons, though each carries a whole answer."""
    server.plan = reply
    evaluator = chat(server, model, logprobs="off", max_output_tokens=500)
    with pytest.raises(errors.EvaluationFailed) as caught:
        await evaluator.evaluate("It is down.", ASKED, key="t1", deadline_s=PATIENCE_S)

    assert (caught.value.reason, len(server.requests)) == (reason, 1)
