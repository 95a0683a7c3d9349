"""The embedder of this package: what a text's vectors are, and that it holds nothing up.

Method: the real model where vectors matter; a stand-in with a gate where time does.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest

from facetline.evaluators.embedded import minilm, reading
from facetline.evaluators.embedders import contract, quantiser
from facetline.evaluators.embedders.contract import Embedded, Embedder, Vectors
from facetline.evaluators.embedders.local import LocalEmbedder
from facetline.facets.errors import EvaluationFailed, EvaluatorMisconfigured, EvaluatorUnavailable

SHORT = "You charged my card twice this month."
LONG = "The parcel went to a neighbour who was on holiday. " * 400
"""Some 4,400 tokens: more than eight windows."""


@pytest.fixture
async def embedder() -> AsyncIterator[LocalEmbedder]:
    """The real one."""
    made = LocalEmbedder("small")
    yield made
    await made.close()


async def embed(embedder: Embedder, *texts: str, deadline_s: float = 60.0) -> Embedded:
    """Embed texts as documents are."""
    return await embedder.embed(texts, purpose="passage", deadline_s=deadline_s)


async def test_a_texts_vectors_are_the_models(embedder: LocalEmbedder):
    """One window of a short text: the model's own vector, quantised."""
    found = await embed(embedder, SHORT)
    model = minilm.shared()

    assert found.vectors == [quantiser.vectors_of(np.stack([model.vector(model.tokens(SHORT))]))]
    assert (found.vectors[0].dimensions, found.vectors[0].windows) == (384, 1)
    assert found.usage == {"input_tokens": len(model.tokens(SHORT))}
    assert found.dropped == {}


async def test_neighbours_change_nothing(embedder: LocalEmbedder):
    """A text has the same vectors alone, between others and as a query."""
    (alone,) = (await embed(embedder, SHORT)).vectors
    between = (await embed(embedder, LONG[:2000], SHORT, "Hello")).vectors
    query = await embedder.embed([SHORT], purpose="query", deadline_s=60)

    assert between[1] == alone == query.vectors[0]
    assert len({vectors.data for vectors in between}) == 3


async def test_a_long_text_has_eight_windows(embedder: LocalEmbedder):
    """What is behind the eighth is counted; the first is the vector of the text's beginning alone."""
    found = await embed(embedder, LONG, SHORT)
    model = minilm.shared()
    tokens = model.tokens(LONG)

    assert [vectors.windows for vectors in found.vectors] == [8, 1]
    kept = 7 * (minilm.TOKENS_MAX - reading.OVERLAP) + minilm.TOKENS_MAX
    assert found.dropped == {0: len(tokens) - kept}
    first = quantiser.vectors_of(np.stack([model.vector(tokens[: minilm.TOKENS_MAX])]))
    assert found.vectors[0].first() == first


@pytest.mark.parametrize(
    ("text", "words"), [("", "text 2 of 2 is blank"), (" \n\t", "is blank"), ("a\ud800", "lone surrogate")]
)
async def test_a_text_without_content_is_refused(embedder: LocalEmbedder, text: str, words: str):
    """It names the embedder and the text; nothing is computed."""
    with pytest.raises(EvaluationFailed, match=f"embedder 'small'.*{words}") as caught:
        await embed(embedder, SHORT, text)

    assert caught.value.reason == "evaluator_error"


@pytest.mark.parametrize("count", [0, 17])
async def test_more_texts_than_a_call_takes(embedder: LocalEmbedder, count: int):
    """That is the caller's fault."""
    with pytest.raises(ValueError, match=f"takes 1 to 16 texts, not {count}"):
        await embed(embedder, *["a"] * count)


def test_the_contract(embedder: LocalEmbedder):
    """It is an embedder whose identity has no name."""
    assert isinstance(embedder, Embedder)
    assert embedder.fingerprint == LocalEmbedder("other").fingerprint
    assert (embedder.kind, embedder.model, embedder.is_free) == ("embedded", minilm.MODEL, True)


def test_the_fingerprint_stays_what_it_is(embedder: LocalEmbedder):
    """It is in stores: another one makes every stored vector outdated."""
    assert embedder.fingerprint == "a0056cd7fa45573cbb4bf9f88b837301384a2c7bbf8a607b5c8e668a4a01ec10"


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "hosted"},
        {"model": "other"},
        {"version": "2"},
        *({"parameters": {name: "other"}} for name in ("overlap_tokens", "vocabulary_sha256", "window_tokens")),
    ],
)
def test_what_vectors_depend_on_is_in_the_fingerprint(embedder: LocalEmbedder, change: dict[str, Any]):
    """Each part alone changes it."""
    parts = {name: getattr(embedder.identity, name) for name in ("kind", "model", "parameters", "version")}
    changed = parts | change | {"parameters": {**parts["parameters"], **change.get("parameters", {})}}

    assert contract.fingerprint_of(contract.EmbedderIdentity(**parts)) == embedder.fingerprint
    assert contract.fingerprint_of(contract.EmbedderIdentity(**changed)) != embedder.fingerprint


class Gated:
    """A model whose vectors wait for a gate; it counts what it was asked."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.asked = 0

    def tokens(self, text: str) -> list[int]:
        """One a character."""
        return [ord(character) for character in text]

    def vector(self, tokens: Sequence[int]) -> Any:
        """Wait, then return a vector."""
        self.asked += 1
        self.entered.set()
        assert self.gate.wait(30)
        return np.array([1.0, *tokens[:2]], dtype=np.float32)


async def test_a_deadline_ends_a_call():
    """At the deadline the caller goes on; the thread stops after the text that it is at."""
    model = Gated()
    embedder = LocalEmbedder("small", load=lambda: model)
    with pytest.raises(EvaluatorUnavailable, match=r"'small' did not answer within 0\.05 s") as caught:
        await embed(embedder, "a", "b", "c", deadline_s=0.05)
    model.gate.set()
    (vectors,) = (await embed(embedder, "d")).vectors

    assert caught.value.reason == "timeout"
    assert model.asked == 2
    assert isinstance(vectors, Vectors)
    await embedder.close()


async def test_a_closed_embedder_takes_no_calls():
    """Waiting calls end with an error that may be tried again, not as if they were cancelled."""
    model = Gated()
    embedder = LocalEmbedder("small", load=lambda: model)
    running = asyncio.create_task(embed(embedder, "a"))
    assert await asyncio.to_thread(model.entered.wait, 30)
    waiting = asyncio.create_task(embed(embedder, "b"))
    await asyncio.sleep(0)
    await embedder.close()
    model.gate.set()

    assert len((await running).vectors) == 1
    for call in (waiting, embed(embedder, "c")):
        with pytest.raises(EvaluatorUnavailable, match="embedder 'small' is closed"):
            await call


async def test_a_missing_model_is_a_matter_of_configuration():
    """The error is the evaluator's own."""

    def load() -> Any:
        raise EvaluatorMisconfigured("The embedded model's file model.onnx is missing; install Facetline again.")

    embedder = LocalEmbedder("small", load=load)
    with pytest.raises(EvaluatorMisconfigured, match="install Facetline again"):
        await embed(embedder, "a")
    await embedder.close()


async def test_a_vector_without_direction_fails_its_text():
    """The message names the text."""

    class Zero(Gated):
        def vector(self, tokens: Sequence[int]) -> Any:
            return np.zeros(3, dtype=np.float32)

    embedder = LocalEmbedder("small", load=Zero)
    with pytest.raises(EvaluationFailed, match="embedder 'small': the vector of text 1 is all zeros"):
        await embed(embedder, "a")
    await embedder.close()
