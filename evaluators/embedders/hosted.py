"""Any embedding model that litellm reaches: texts in windows, windows in requests, requests one after another.

How much of a text a model takes is not looked up: `window_chars` says it. A request holds `max_batch` windows at most,
which providers limit (Cohere 96, OpenAI 2,048, text-embeddings-inference 32).
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from facetline.evaluators.embedded import chunking
from facetline.evaluators.embedders import contract, openai_protocol, quantiser, reply
from facetline.evaluators.embedders.contract import Embedded, EmbedderIdentity, Purpose, Vectors
from facetline.evaluators.litellm_adapter import client
from facetline.evaluators.litellm_adapter.client import Connection
from facetline.facets import native_modules
from facetline.facets.errors import (
    EvaluationFailed,
    EvaluatorMisconfigured,
    EvaluatorUnavailable,
    InvalidAnswer,
    PipelineError,
    Spent,
)

if TYPE_CHECKING:
    from facetline.evaluators.embedders.quantiser import Floats

KIND = "hosted"

VERSION = "1"
"""Raise it with any change of what is sent for a text: each changes vectors."""

MAX_BATCH = 96
"""Windows a request: what the strictest of the large providers takes."""
WINDOW_CHARS = 2000
"""Some 450 tokens of English, 550 of German: what models of 512 tokens take."""
OVERLAP_SHARE = 10
"""A tenth of a window is in the next one too: what a window's end cuts through is whole there."""

SPEAKS_FLOAT = frozenset({"azure", "hosted_vllm", "mistral", "openai", "voyage"})
"""Providers of litellm that take `encoding_format`. Some of their servers refuse a request without it, and libraries
below litellm ask for base64 where nothing is set."""

INPUT_TYPES = {
    "cohere": {"passage": "search_document", "query": "search_query"},
    "nvidia_nim": {"passage": "passage", "query": "query"},
    "voyage": {"passage": "document", "query": "query"},
}
"""Providers that take a text's purpose as `input_type`, instead of a prefix."""

BATCH_TOO_LARGE = re.compile(
    r"batch[ _]size|max_client_batch|array too long|"
    r"(?:too many|maximum (?:number )?of|at most \d+).{0,40}(?:inputs|texts|items|documents|elements)",
    re.IGNORECASE,
)
"""Words of a refusal that is about the number of texts in the request."""
DIMENSIONS_REFUSED = re.compile(r"dimension|matryoshka", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HostedSettings:
    """What is sent for a text; all but `max_batch` belongs to the fingerprint.

    `dimensions` None leaves the vector's length to the model.
    """

    dimensions: int | None = None
    max_batch: int = MAX_BATCH
    query_prefix: str = ""
    passage_prefix: str = ""
    window_chars: int = WINDOW_CHARS


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply in OpenAI's form, as JSON or as litellm's object, and its price if that is known."""

    body: Any
    cost_usd: float | None


class HostedEmbedder:
    """Embed with one hosted model.

    Args:
        name: The name in `[embedders.NAME]`.
        connection: The model, and where and as whom it is asked.
        settings: What is sent.
    """

    def __init__(self, name: str, connection: Connection, settings: HostedSettings | None = None) -> None:
        self._name = name
        self._connection = connection
        self._settings = settings or HostedSettings()
        self._provider = connection.model.partition("/")[0]
        self._dimensions = self._settings.dimensions

    @property
    def name(self) -> str:
        """The name in `[embedders.NAME]`."""
        return self._name

    @property
    def kind(self) -> str:
        """The kind's name."""
        return KIND

    @property
    def model(self) -> str:
        """The model's id, with its provider."""
        return self._connection.model

    @property
    def key_env(self) -> str | None:
        """The name of the variable that holds the key; None where the provider's own is taken."""
        return self._connection.api_key_env

    @property
    def reply_bytes_max(self) -> int:
        """How much is read of a reply."""
        return self._connection.reply_bytes_max

    @property
    def identity(self) -> EmbedderIdentity:
        """The model and what is sent for a text."""
        settings = self._settings
        parameters: dict[str, Any] = {
            "overlap_chars": settings.window_chars // OVERLAP_SHARE,
            "passage_prefix": settings.passage_prefix,
            "query_prefix": settings.query_prefix,
            "window_chars": settings.window_chars,
            "windows_max": contract.WINDOWS_MAX,
        }
        if settings.dimensions is not None:
            parameters["dimensions"] = settings.dimensions
        return EmbedderIdentity(KIND, self.model, parameters, VERSION)

    @property
    def fingerprint(self) -> str:
        """The hash of the identity."""
        return contract.fingerprint_of(self.identity)

    @property
    def max_batch(self) -> int:
        """How many texts one call takes, and how many windows one request has."""
        return self._settings.max_batch

    @property
    def min_similarity(self) -> float:
        """The cosine from which a text matches."""
        return contract.MIN_SIMILARITY

    @property
    def is_free(self) -> bool:
        """Its calls may cost something."""
        return False

    async def embed(self, texts: Sequence[str], *, purpose: Purpose, deadline_s: float) -> Embedded:
        """Return the vectors of `texts`: one request, or several where their windows are more than one takes.

        Of a query its first window alone is embedded. An error's `spent` is what the requests before it used up.

        Raises:
            EvaluatorUnavailable: try again.
            EvaluatorMisconfigured: key, model, address, `max_batch` or `dimensions` are refused, or not kept to.
            EvaluationFailed: a text is refused, or the reply is no list of its vectors.
        """
        contract.check_texts(texts, self)
        cut = [self._cut(text, purpose) for text in texts]
        prefix = self._settings.query_prefix if purpose == "query" else self._settings.passage_prefix
        inputs = [prefix + piece for pieces, _ in cut for piece in pieces]
        call = _Call(self.model)
        clock = asyncio.get_running_loop().time
        until_s = clock() + deadline_s
        for start in range(0, len(inputs), self.max_batch):
            group = inputs[start : start + self.max_batch]
            try:
                found = await self._request(group, purpose, until_s - clock())
                call.add(found)
                call.matrices.append(await asyncio.to_thread(self._matrix, found.body, len(group)))
            except (EvaluatorUnavailable, EvaluatorMisconfigured, EvaluationFailed) as error:
                error.spent = call.spent_with(error.spent)
                raise
        vectors = await asyncio.to_thread(_split, call.matrices, [len(pieces) for pieces, _ in cut])
        dropped = {index: count for index, (_, count) in enumerate(cut) if count}
        return Embedded(vectors, call.reported, call.usage, call.cost_usd, dropped)

    async def close(self) -> None:
        """Close the connections; safe to call twice."""
        await client.close()

    def _cut(self, text: str, purpose: Purpose) -> tuple[list[str], int]:
        """Return a text's windows, and how many of its characters are behind them."""
        size = self._settings.window_chars
        count = 1 if purpose == "query" else contract.WINDOWS_MAX
        cut = chunking.cut(text, size=size, overlap=size // OVERLAP_SHARE, pieces_max=count)
        # A blank window has nothing to embed, and providers refuse it.
        return [piece for piece in cut.pieces if piece.strip()] or [text.strip()[:size]], cut.dropped

    async def _request(self, inputs: list[str], purpose: Purpose, deadline_s: float) -> _Reply:
        """Make one request, by OpenAI's protocol or else by litellm's `aembedding`."""

        async def ask(litellm: ModuleType, key: str | None) -> _Reply:
            arguments = {"input": inputs, **self._arguments(purpose)}
            found = await openai_protocol.ask(litellm, self._connection, key, arguments)
            if found is not None:
                return _Reply(*found)
            response = await client.called(
                litellm.aembedding, self._connection, key, deadline_s=deadline_s, **arguments
            )
            return _Reply(response, client.cost_of(response, self._connection))

        if deadline_s <= 0:
            raise EvaluatorUnavailable(f"{self._about()} did not answer in time.", reason="timeout")
        try:
            return await client.run(self._connection, ask, deadline_s=deadline_s)
        except EvaluationFailed as error:
            raise self._refused(error, len(inputs)) from error

    def _arguments(self, purpose: Purpose) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if self._provider in SPEAKS_FLOAT:
            arguments["encoding_format"] = "float"
        if self._provider in INPUT_TYPES:
            arguments["input_type"] = INPUT_TYPES[self._provider][purpose]
        if self._settings.dimensions is not None:
            arguments["dimensions"] = self._settings.dimensions
        return arguments

    def _refused(self, error: EvaluationFailed, count: int) -> PipelineError:
        """Return what a refused request comes to: it may be the configuration that does not fit the server."""
        table, settings = self._connection.table, self._settings
        if count > 1 and BATCH_TOO_LARGE.search(error.message):
            fix = f"The server takes fewer than {count} texts in a request: lower max_batch in {table}."
            return EvaluatorMisconfigured(f"{self._about()}: {error.message} {fix}", spent=error.spent)
        if settings.dimensions is not None and DIMENSIONS_REFUSED.search(error.message):
            fix = f"Change or delete dimensions = {settings.dimensions} in {table}."
            return EvaluatorMisconfigured(f"{self._about()}: {error.message} {fix}", spent=error.spent)
        fix = ""
        if error.reason == "too_long":
            fix = f" A window has {settings.window_chars} characters: lower window_chars in {table}."
        message = f"{self._about()}: {error.message}{fix}"
        if isinstance(error, InvalidAnswer):
            return InvalidAnswer(message, spent=error.spent)
        return EvaluationFailed(error.reason, message, spent=error.spent)

    def _matrix(self, response: Any, count: int) -> "Floats":
        """Return the vectors of one reply in the order of the request; in a thread, as there may be many numbers."""
        native_modules.load("numpy")
        try:
            matrix = reply.matrix_of(response, count)
            quantiser.normalised(matrix)
        except reply.NotFloats as error:
            raise EvaluatorMisconfigured(f"{self._about()}: {error}") from error
        except reply.Malformed as error:
            fix = f"the server of {self._connection.table} must answer as OpenAI's /v1/embeddings does"
            raise InvalidAnswer(f"{self._about()}: {error}; {fix}.") from error
        except quantiser.NoDirection as error:
            fix = "If it stays so, send the server fewer texts at once (max_batch) or shorter ones (window_chars)."
            message = f"{self._about()}: vector {error.row + 1} of {count} {error}. {fix}"
            raise InvalidAnswer(message) from error
        self._check_dimensions(matrix.shape[1])
        return matrix

    def _check_dimensions(self, found: int) -> None:
        table, declared = self._connection.table, self._settings.dimensions
        if declared is not None and found != declared:
            fix = f"write dimensions = {found} in {table}, or delete it there"
            message = f"{self._about()}: the vectors have {found} dimensions, not {declared} as asked for; {fix}."
            raise EvaluatorMisconfigured(message)
        if found != (self._dimensions or found):
            fix = "the server answers with another model; restart it with the one before, or restart this process"
            message = f"{self._about()}: the vectors have {found} dimensions, and had {self._dimensions} before: {fix}."
            raise EvaluatorMisconfigured(message)
        self._dimensions = found

    def _about(self) -> str:
        return f"embedder '{self._name}' ({self.model})"


class _Call:
    """The requests of one call so far: what they returned and used up."""

    def __init__(self, model: str) -> None:
        self.reported = model
        self.usage: dict[str, int] | None = None
        self.cost_usd: float | None = None
        self.matrices: list[Floats] = []
        self._count = 0

    def add(self, found: _Reply) -> None:
        """Take a reply; a sum of which a part is not known is not known."""
        usage, cost_usd = client.usage_of(found.body), found.cost_usd
        self.reported = str(reply.part_of(found.body, "model") or self.reported)
        if self._count == 0:
            self.usage, self.cost_usd = usage, cost_usd
        else:
            self.usage = _sum(self.usage, usage)
            self.cost_usd = None if self.cost_usd is None or cost_usd is None else self.cost_usd + cost_usd
        self._count += 1

    def spent_with(self, more: Spent | None) -> Spent | None:
        """Return what the call used up, with what its last request did."""
        return more if self._count == 0 else Spent(self.reported, self.usage, self.cost_usd)


def _sum(one: dict[str, int] | None, other: dict[str, int] | None) -> dict[str, int] | None:
    if one is None or other is None:
        return None
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _split(matrices: "list[Floats]", counts: list[int]) -> list[Vectors]:
    """Return the texts' vectors; `counts` are the windows of each."""
    import numpy as np

    rows = np.concatenate(matrices)
    return [quantiser.vectors_of(rows[start : start + count]) for start, count in _spans(counts)]


def _spans(counts: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for count in counts:
        yield start, count
        start += count
