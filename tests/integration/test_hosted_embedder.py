"""Hosted embedding models through the real litellm against a server on loopback: what is sent, and every bad reply.

Method: the server's replies are scripted, in forms that OpenAI, vLLM, Ollama and text-embeddings-inference were seen to
send; it keeps the requests.
"""

import base64
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from model_replies import Reply
from model_server import KEY, VARIABLE, Request, Server

from facetline.evaluators.embedders import openai_protocol, quantiser
from facetline.evaluators.embedders.contract import Embedded, Embedder, Purpose, Vectors
from facetline.evaluators.embedders.hosted import HostedEmbedder, HostedSettings
from facetline.evaluators.litellm_adapter import client
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets import errors

pytestmark = pytest.mark.usefixtures("model_clients_closed")

TEXTS = ("The parcel is late.", "My card was charged twice.", "Hello")
PATIENCE_S = 60.0
"""The first call loads litellm, on a machine that may be busy."""
TABLE = "[embedders.big]"
MODELS = ["openai/loopback-e", "azure/loopback-e", "voyage/loopback-e"]
"""Asked by our own client, by OpenAI's library, and by litellm's client."""
Body = Callable[[dict[str, Any]], Any]


def vector(text: str) -> list[float]:
    """The server's vector of a text."""
    return [float(len(text)), float(sum(map(ord, text)) % 97), -1.5]


def stored(*vectors: Sequence[float]) -> Vectors:
    """Windows as they are stored."""
    return quantiser.vectors_of(np.array(vectors, dtype=np.float32))


def items(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The good reply's list."""
    return [
        {"object": "embedding", "index": index, "embedding": vector(text)} for index, text in enumerate(asked["input"])
    ]


def good(asked: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """A good reply, or one with other parts."""
    usage = {"prompt_tokens": 5 * len(asked["input"]), "total_tokens": 5 * len(asked["input"])}
    return {"object": "list", "model": "loopback-e", "data": items(asked), "usage": usage, **parts}


def listing(*vectors: Any) -> Body:
    """A reply with these vectors."""
    return lambda asked: good(asked, data=[{"index": index, "embedding": each} for index, each in enumerate(vectors)])


def hosted(server: Server, model: str = "openai/loopback-e", **settings: Any) -> HostedEmbedder:
    """An embedder in front of the server, which gives good replies until it is scripted otherwise."""
    if isinstance(server.plan, Reply) and server.plan == Reply():
        server.plan = Reply(body=good)
    connection = Connection(model, server.chat_url, VARIABLE, table=TABLE)
    return HostedEmbedder("big", connection, HostedSettings(**settings))


async def embed(
    embedder: Embedder, *texts: str, purpose: Purpose = "passage", deadline_s: float = PATIENCE_S
) -> Embedded:
    """Embed texts."""
    return await embedder.embed(texts or TEXTS, purpose=purpose, deadline_s=deadline_s)


async def refused(embedder: Embedder, *texts: str, deadline_s: float = PATIENCE_S) -> Any:
    """Return the error of a call."""
    with pytest.raises(errors.PipelineError) as caught:
        await embed(embedder, *texts, deadline_s=deadline_s)
    assert KEY not in str(caught.value)
    return caught.value


def inputs(server: Server) -> list[list[str]]:
    """What was sent, request by request."""
    return [request.body["input"] for request in server.requests]


async def test_texts_become_vectors_in_order(server: Server):
    """One request for all; as the provider reports, so are model and tokens; no price is known."""
    found = await embed(hosted(server))

    assert found.vectors == [stored(vector(text)) for text in TEXTS]
    assert (found.model, found.usage, found.cost_usd) == ("loopback-e", {"input_tokens": 15}, None)
    (request,) = server.requests
    assert (request.path, request.headers["authorization"]) == ("/v1/embeddings", f"Bearer {KEY}")
    assert request.body == {"model": "loopback-e", "input": list(TEXTS), "encoding_format": "float"}


async def test_a_text_alone_has_the_vectors_that_it_has_in_a_batch(server: Server):
    """Nothing of a neighbour enters a text's vectors."""
    embedder = hosted(server, window_chars=100)
    long = "A long letter about a late parcel. " * 20

    together = (await embed(embedder, TEXTS[0], long, TEXTS[1])).vectors
    alone = [(await embed(embedder, text)).vectors[0] for text in (TEXTS[0], long, TEXTS[1])]

    assert together == alone
    assert together[1].windows == 8


async def test_a_known_price_is_counted(server: Server):
    """Of a listed model, over all requests of the call."""
    embedder = hosted(server, "openai/text-embedding-3-small", max_batch=3, window_chars=100)
    found = await embed(embedder, "x" * 500, "y" * 10)

    assert len(server.requests) == 3
    assert found.usage == {"input_tokens": 35}
    assert found.cost_usd == pytest.approx(35 * 2e-8)


async def test_a_sum_of_unknown_parts_is_unknown(server: Server):
    """Where one of the replies of a call has no usage, the call has none."""

    def plan(request: Request) -> Reply:
        return Reply(body=lambda asked: good(asked, usage=None) if request.number == 2 else good(asked))

    server.plan = plan
    found = await embed(hosted(server, max_batch=1, window_chars=100), "x" * 150)

    assert (found.usage, found.cost_usd, found.vectors[0].windows) == (None, None, 2)


async def test_windows_overlap_and_end_with_the_eighth(server: Server):
    """Each shares a tenth with the one before; what is behind the eighth is counted."""
    text = "".join(chr(ord("a") + index % 26) for index in range(1000))
    found = await embed(hosted(server, window_chars=100, passage_prefix="passage: "), text, "short")

    sent = [f"passage: {text[start : start + 100]}" for start in range(0, 8 * 90, 90)]
    assert inputs(server) == [[*sent, "passage: short"]]
    assert [vectors.windows for vectors in found.vectors] == [8, 1]
    assert found.vectors[0] == stored(*map(vector, sent))
    assert found.dropped == {0: 1000 - 730}


async def test_of_a_query_the_first_window_is_sent(server: Server):
    """With the query's prefix."""
    embedder = hosted(server, window_chars=100, query_prefix="query: ", passage_prefix="passage: ")
    found = await embed(embedder, "q" * 500, purpose="query")

    assert inputs(server) == [["query: " + "q" * 100]]
    assert found.vectors[0].windows == 1


async def test_a_blank_window_is_not_sent(server: Server):
    """Providers refuse blank texts; a text that begins with blanks is found by what follows them."""
    embedder = hosted(server, window_chars=100)
    passage = await embed(embedder, " " * 300 + "late")
    query = await embed(embedder, " " * 300 + "late", purpose="query")

    assert [text.strip() for sent in inputs(server) for text in sent] == ["late", "late"]
    assert (passage.vectors[0].windows, query.vectors[0].windows) == (1, 1)


@pytest.mark.parametrize("text", ["", " \n", "a\ud800"])
async def test_a_text_without_content_is_refused_before_anything_is_sent(server: Server, text: str):
    """It names the text; the others of the call are not paid for."""
    error = await refused(hosted(server), TEXTS[0], text)

    assert type(error) is errors.EvaluationFailed
    assert str(error).startswith("embedder 'big': text 2 of 2 ")
    assert server.requests == []


async def test_vectors_in_another_order_are_put_right(server: Server):
    """By their index; a server that gives none answers in order."""
    server.plan = Reply(body=lambda asked: good(asked, data=items(asked)[::-1]))
    turned = await embed(hosted(server))
    server.plan = Reply(body=lambda asked: good(asked, data=[{"embedding": vector(text)} for text in asked["input"]]))
    plain = await embed(hosted(server))

    assert turned.vectors == plain.vectors == [stored(vector(text)) for text in TEXTS]


GOOD = [1.0, 2.0, 3.0]
BASE64 = base64.b64encode(struct.pack("<3f", *GOOD)).decode()


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (listing(GOOD, GOOD), errors.InvalidAnswer, "the reply has 2 vectors, for 3 texts"),
        (listing(GOOD, GOOD, GOOD, GOOD), errors.InvalidAnswer, "the reply has 4 vectors, for 3 texts"),
        (listing(), errors.InvalidAnswer, "the reply has no list of vectors, for 3 texts"),
        (lambda asked: good(asked, data={"0": GOOD}), errors.InvalidAnswer, "has no list of vectors"),
        (
            lambda asked: good(asked, data=[{**item, "index": 0} for item in items(asked)]),
            errors.InvalidAnswer,
            "two vectors have the index 0",
        ),
        (
            lambda asked: good(asked, data=[{**item, "index": item["index"] + 1} for item in items(asked)]),
            errors.InvalidAnswer,
            "a vector has the index 3, among 3",
        ),
        (listing(GOOD, [None, None, None], GOOD), errors.InvalidAnswer, "vector 2 of 3 holds what is no number"),
        (listing(GOOD, GOOD, ["1", "2", "3"]), errors.InvalidAnswer, "vector 3 of 3 holds what is no number"),
        (listing(GOOD, [GOOD, GOOD], GOOD), errors.InvalidAnswer, "vector 2 of 3 holds lists"),
        (listing(GOOD, [GOOD, [1.0]], GOOD), errors.InvalidAnswer, "vector 2 of 3 holds lists of several lengths"),
        (listing(GOOD, {"a": 1.0}, GOOD), errors.InvalidAnswer, "vector 2 of 3 is no list of numbers"),
        (listing(GOOD, [float("nan"), 1.0, 1.0], GOOD), errors.InvalidAnswer, "vector 2 of 3 has a number that is not"),
        (listing(GOOD, GOOD, [1.0, float("-inf"), 1.0]), errors.InvalidAnswer, "vector 3 of 3 has a number that is"),
        (listing([1e300, 1.0, 1.0], GOOD, GOOD), errors.InvalidAnswer, "vector 1 of 3 has a number that is not finite"),
        (listing(GOOD, GOOD, [0.0, 0, -0.0]), errors.InvalidAnswer, "vector 3 of 3 is all zeros"),
        (listing(GOOD, [1.0], GOOD), errors.InvalidAnswer, "the vectors of one reply have 1 and 3 dimensions"),
        (listing([], [], []), errors.InvalidAnswer, "the vectors have 0 dimensions"),
        (listing(*[[0.5] * 8193] * 3), errors.InvalidAnswer, "the vectors have 8193 dimensions; from 1 to 8192"),
        (listing(BASE64, BASE64, BASE64), errors.EvaluatorMisconfigured, "text (base64), and numbers were asked for"),
    ],
)
@pytest.mark.parametrize("model", MODELS)
async def test_a_malformed_reply_is_refused(
    server: Server, model: str, body: Body, kind: type[errors.PipelineError], words: str
):
    """By a message that names the embedder and its model; what the call used up is known all the same."""
    server.plan = Reply(body=body)
    error = await refused(hosted(server, model))

    assert type(error) is kind
    assert str(error).startswith(f"embedder 'big' ({model}): ")
    assert words in str(error)
    assert (error.spent.model, error.spent.usage["input_tokens"]) == ("loopback-e", 15)
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", ["<html>oops</html>", [[1.0, 2.0], [2.0, 1.0]], {"object": "list"}, "", "{"])
async def test_a_reply_that_is_none_of_embeddings_is_refused(server: Server, body: Any):
    """Such as a page of a proxy, or text-embeddings-inference's own protocol; never a fault of ours."""
    server.plan = Reply(body=body)
    error = await refused(hosted(server))

    assert isinstance(error, errors.EvaluatorUnavailable | errors.InvalidAnswer)


REFUSALS = [
    (
        Reply(status=413, body={"error": "batch size 3 > maximum allowed batch size 2", "error_type": "Validation"}),
        errors.EvaluatorMisconfigured,
        "batch size 3 > maximum allowed batch size 2",
        f"The server takes fewer than 3 texts in a request: lower max_batch in {TABLE}.",
    ),
    (
        Reply(status=422, body={"error": "batch size 3 > maximum allowed batch size 2", "error_type": "Validation"}),
        errors.EvaluatorMisconfigured,
        "batch size 3 > maximum allowed batch size 2",
        f"lower max_batch in {TABLE}.",
    ),
    (
        Reply(status=400, body={"message": "invalid request: too many texts in the request, at most 2 inputs"}),
        errors.EvaluatorMisconfigured,
        "too many texts",
        f"lower max_batch in {TABLE}.",
    ),
    (
        Reply(
            status=413, body={"error": "Input validation error: `inputs` must have less than 512 tokens. Given: 534"}
        ),
        errors.EvaluationFailed,
        "`inputs` must have less than 512 tokens",
        f"A window has 2000 characters: lower window_chars in {TABLE}.",
    ),
    (
        Reply(status=400, body={"error": {"message": "This model's maximum context length is 8192 tokens."}}),
        errors.EvaluationFailed,
        "maximum context length",
        f"lower window_chars in {TABLE}.",
    ),
    (
        Reply(status=400, body={"error": "the input length exceeds the context length"}),
        errors.EvaluationFailed,
        "exceeds the context length",
        f"lower window_chars in {TABLE}.",
    ),
    (
        Reply(status=400, body={"error": {"message": "'$.input' is invalid."}}),
        errors.EvaluationFailed,
        "'$.input' is invalid.",
        "",
    ),
    (Reply(status=401, body={"error": {"message": "no"}}), errors.EvaluatorMisconfigured, "no", f"key in {VARIABLE}."),
    (
        Reply(status=404, body={"error": {"message": "model 'x' not found"}}),
        errors.EvaluatorMisconfigured,
        "model 'x' not found",
        f"Look at model and api_base in {TABLE}.",
    ),
    (Reply(status=429, body={"error": {"message": "slow"}}), errors.EvaluatorUnavailable, "slow", ""),
    (Reply(status=503, body={"error": {"message": "loading"}}), errors.EvaluatorUnavailable, "loading", ""),
]


@pytest.mark.parametrize(("reply", "kind", "words", "way_out"), REFUSALS)
@pytest.mark.parametrize("model", MODELS)
async def test_a_refusal_shows_the_servers_words_and_the_way_out(
    server: Server, model: str, reply: Reply, kind: type[errors.PipelineError], words: str, way_out: str
):
    """A refusal is judged as a chat model's is, and by what an embedder can be set to; nothing is asked twice."""
    server.plan = replace(reply, headers={"retry-after": "7"})
    error = await refused(hosted(server, model))

    assert type(error) is kind
    assert words in str(error)
    assert str(error).endswith(way_out)
    assert len(server.requests) == 1
    if kind is errors.EvaluatorUnavailable:
        assert error.retry_after_s == 7


async def test_a_batch_refused_as_too_long_says_nothing_of_max_batch(server: Server):
    """The server's own limit of a request's bytes: a smaller batch may pass, and one text alone shows its fault."""
    server.plan = Reply(status=413, body="Failed to buffer the request body: length limit exceeded")
    error = await refused(hosted(server))

    assert (type(error), error.reason) == (errors.EvaluationFailed, "too_long")


async def test_dimensions_are_asked_for_and_checked(server: Server):
    """Also of models that litellm does not know; a server that ignores them is not believed."""
    found = await embed(hosted(server, dimensions=3))
    error = await refused(hosted(server, dimensions=4))

    assert [request.body["dimensions"] for request in server.requests] == [3, 4]
    assert found.vectors[0].dimensions == 3
    assert type(error) is errors.EvaluatorMisconfigured
    assert "the vectors have 3 dimensions, not 4 as asked for; write dimensions = 3 in [embedders.big]" in str(error)


async def test_dimensions_that_the_model_refuses(server: Server):
    """No text is at fault."""
    words = "Model does not support matryoshka representation, changing output dimensions will lead to poor results."
    server.plan = Reply(status=400, body={"error": {"message": words}})
    error = await refused(hosted(server, dimensions=2))

    assert type(error) is errors.EvaluatorMisconfigured
    assert str(error).endswith("Change or delete dimensions = 2 in [embedders.big].")


async def test_another_length_than_before_is_another_model(server: Server):
    """Vectors of one fingerprint are compared with each other: those of a swapped model must not get in."""
    embedder = hosted(server)
    await embed(embedder)
    server.plan = Reply(body=listing([1.0, 2.0], [1.0, 2.0], [1.0, 2.0]))
    error = await refused(embedder)

    assert type(error) is errors.EvaluatorMisconfigured
    assert "the vectors have 2 dimensions, and had 3 before: the server answers with another model" in str(error)


@pytest.mark.parametrize(
    ("model", "purpose", "sent"),
    [
        ("cohere/embed-v4.0", "passage", "search_document"),
        ("cohere/embed-v4.0", "query", "search_query"),
        ("voyage/voyage-3.5", "passage", "document"),
        ("voyage/voyage-3.5", "query", "query"),
        ("nvidia_nim/nvidia/nv-embedqa-e5-v5", "passage", "passage"),
        ("nvidia_nim/nvidia/nv-embedqa-e5-v5", "query", "query"),
    ],
)
async def test_providers_that_know_of_a_purpose_get_it(server: Server, model: str, purpose: Purpose, sent: str):
    """As `input_type`; without it a query is embedded as if it were a passage."""

    def body(asked: dict[str, Any]) -> Any:
        return {"embeddings": {"float": [GOOD]}, "meta": {}} if "texts" in asked else good(asked)

    server.plan = Reply(body=body)
    found = await embed(hosted(server, model), "late", purpose=purpose)

    assert len(found.vectors) == 1
    assert server.requests[0].body["input_type"] == sent


@pytest.mark.parametrize("provider", sorted(openai_protocol.PROVIDERS))
async def test_our_client_sends_what_litellm_sends(server: Server, provider: str):
    """Address, key and body are those of litellm's `aembedding`, for each provider that our client asks instead."""
    embedder = hosted(server, f"{provider}/loopback-e")
    await embed(embedder)
    ours = server.requests[-1]
    connection = Connection(f"{provider}/loopback-e", server.chat_url, VARIABLE)
    more = {name: part for name, part in ours.body.items() if name not in ("model", "input")}
    await client.call("aembedding", connection, deadline_s=PATIENCE_S, input=list(TEXTS), **more)
    theirs = server.requests[-1]

    assert len(server.requests) == 2
    assert (ours.headers["user-agent"], theirs.headers["user-agent"] == "facetline") == ("facetline", False)
    assert (ours.path, ours.body) == (theirs.path, theirs.body)
    assert ours.headers["authorization"] == theirs.headers["authorization"] == f"Bearer {KEY}"


async def test_the_providers_own_variables_are_looked_at(server: Server, monkeypatch: pytest.MonkeyPatch):
    """Where the table names neither address nor key; a server without a key is sent none."""
    hosted(server)
    monkeypatch.setenv("OPENAI_BASE_URL", server.chat_url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    await embed(HostedEmbedder("big", Connection("openai/loopback-e")))
    monkeypatch.delenv("OPENAI_API_KEY")
    await embed(HostedEmbedder("big", Connection("openai/loopback-e", server.chat_url)))

    assert [request.headers.get("authorization") for request in server.requests] == [f"Bearer {KEY}", None]
    assert {(request.path, request.headers["user-agent"]) for request in server.requests} == {
        ("/v1/embeddings", "facetline")
    }


async def test_ollama_is_asked_by_its_own_protocol(server: Server):
    """Its adapter refuses `encoding_format`, which is not sent."""
    server.plan = Reply(body={"model": "nomic", "embeddings": [GOOD, GOOD, GOOD], "prompt_eval_count": 9})
    found = await embed(hosted(server, "ollama/nomic-embed-text"))

    assert [vectors.dimensions for vectors in found.vectors] == [3, 3, 3]
    assert "encoding_format" not in server.requests[0].body


async def test_a_later_request_fails_with_what_the_earlier_ones_used_up(server: Server):
    """What was paid is on the error, whatever it is."""

    def plan(request: Request) -> Reply:
        return Reply(body=good) if request.number == 1 else Reply(status=429, body={"error": {"message": "slow"}})

    server.plan = plan
    error = await refused(hosted(server, max_batch=2, window_chars=100), "x" * 150, "y" * 150)

    assert len(server.requests) == 2
    assert error.spent == errors.Spent("loopback-e", {"input_tokens": 10}, None)


async def test_a_silent_server_is_given_up_at_the_deadline(server: Server):
    """And may be asked again."""
    embedder = hosted(server)
    await embed(embedder)  # litellm is loaded now
    server.plan = Reply(hang=True)
    error = await refused(embedder, deadline_s=0.3)

    assert (type(error), error.reason) == (errors.EvaluatorUnavailable, "timeout")


async def test_a_reply_is_read_up_to_its_bound(server: Server):
    """As a chat model's is; the connection is closed behind it."""
    server.plan = Reply(body=good, flood_bytes=3_000_000)
    connection = Connection("openai/loopback-e", server.chat_url, VARIABLE, 1_000_000, table=TABLE)
    error = await refused(HostedEmbedder("big", connection))

    assert type(error) is errors.InvalidAnswer
    assert "longer than 1000000 bytes, which is all that is read of one (reply_bytes_max)" in str(error)


def test_the_contract(server: Server):
    """It is an embedder, whose calls may cost something."""
    embedder = hosted(server)

    assert isinstance(embedder, Embedder)
    assert (embedder.kind, embedder.model, embedder.max_batch) == ("hosted", "openai/loopback-e", 96)
    assert not embedder.is_free
    assert embedder.key_env == VARIABLE


@pytest.mark.parametrize(
    "change",
    [{"dimensions": 3}, {"query_prefix": "q: "}, {"passage_prefix": "p: "}, {"window_chars": 500}],
)
def test_what_vectors_depend_on_is_in_the_fingerprint(server: Server, change: dict[str, Any]):
    """Each setting alone, and the model."""
    assert hosted(server, **change).fingerprint != hosted(server).fingerprint
    assert hosted(server, "openai/other").fingerprint != hosted(server).fingerprint


def test_names_addresses_and_limits_are_not_in_the_fingerprint(server: Server):
    """Moving a server, or another batch, pays for no vector again."""
    elsewhere = Connection("openai/loopback-e", "http://models.invalid/v1", "OTHER_KEY", 1_000_000)

    other = HostedEmbedder("other", elsewhere, HostedSettings(max_batch=7))
    assert other.fingerprint == hosted(server).fingerprint
