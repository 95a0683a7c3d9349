"""The embedder that needs no key and no network: the model of the embedded evaluator.

One text is one run of the model for each of its windows, whatever is in the same call: neighbours would change a text's
vectors. It runs in a thread of its own, outside the event loop, and is loaded by the first call.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from facetline.evaluators.embedded import minilm, reading
from facetline.evaluators.embedded.reading import Model
from facetline.evaluators.embedders import contract, quantiser
from facetline.evaluators.embedders.contract import Embedded, EmbedderIdentity, Purpose, Vectors
from facetline.facets.errors import EvaluationFailed, EvaluatorUnavailable

KIND = "embedded"
KEYS = ("kind", "model")
MODEL = minilm.MODEL

VERSION = "1"
"""Raise it with any change of windows or of how the model is run: each changes vectors."""

MAX_BATCH = 16
"""Texts a call: they gain nothing from each other, and the longest ones take a second each."""

IDENTITY = EmbedderIdentity(
    KIND,
    MODEL,
    {
        "overlap_tokens": reading.OVERLAP,
        "vocabulary_sha256": minilm.VOCABULARY_SHA256,
        "weights_sha256": minilm.WEIGHTS_SHA256,
        "window_tokens": minilm.TOKENS_MAX,
        "windows_max": reading.WINDOWS_MAX,
    },
    VERSION,
)


class LocalEmbedder:
    """Embed with the model of this package.

    Args:
        name: The name in `[embedders.NAME]`.
        load: Returns the model; called in the embedder's thread at every call, so it keeps what it loaded.
    """

    def __init__(self, name: str, *, load: Callable[[], Model] = minilm.shared) -> None:
        self._name = name
        self._load = load
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")
        self._closed = False

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
        """The model's id."""
        return MODEL

    @property
    def identity(self) -> EmbedderIdentity:
        """The pinned files, and how texts are cut."""
        return IDENTITY

    @property
    def fingerprint(self) -> str:
        """The hash of the identity."""
        return contract.fingerprint_of(IDENTITY)

    @property
    def max_batch(self) -> int:
        """How many texts one call takes."""
        return MAX_BATCH

    @property
    def min_similarity(self) -> float:
        """The cosine from which a text matches."""
        return contract.MIN_SIMILARITY

    @property
    def is_free(self) -> bool:
        """Its calls cost nothing."""
        return True

    async def embed(self, texts: Sequence[str], *, purpose: Purpose, deadline_s: float) -> Embedded:
        """Return the vectors of `texts`; `purpose` changes nothing, the model has no prefixes.

        A call that was still waiting for the model at its deadline costs nothing; one that was running ends after the
        text that it is at.

        Raises:
            EvaluatorUnavailable: not done within `deadline_s` seconds, or closed.
            EvaluatorMisconfigured: the model's files are missing or not the pinned ones.
            EvaluationFailed: a text is blank or not Unicode.
        """
        del purpose
        contract.check_texts(texts, self)
        if self._closed:
            raise EvaluatorUnavailable(self._closed_message())
        given_up = threading.Event()
        try:
            async with asyncio.timeout(deadline_s):
                return await self._in_thread(list(texts), given_up)
        except TimeoutError as error:
            message = f"embedder '{self._name}' did not answer within {deadline_s:g} s."
            raise EvaluatorUnavailable(message, reason="timeout") from error
        finally:
            given_up.set()

    async def _in_thread(self, texts: list[str], given_up: threading.Event) -> Embedded:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, self._embed, texts, given_up)
        except asyncio.CancelledError as error:
            if self._closed and task is not None and not task.cancelling():
                # `close` took the call from the queue, not its caller
                raise EvaluatorUnavailable(self._closed_message()) from error
            raise

    def _embed(self, texts: list[str], given_up: threading.Event) -> Embedded:
        model = self._load()
        vectors: list[Vectors] = []
        tokens, dropped = 0, {}
        for index, text in enumerate(texts):
            if given_up.is_set():
                break  # the result goes nowhere
            read = reading.read(model, text)
            vectors.append(self._vectors(index, read))
            tokens += read.tokens
            if read.dropped:
                dropped[index] = read.dropped
        return Embedded(vectors, MODEL, usage={"input_tokens": tokens}, cost_usd=0.0, dropped=dropped)

    def _vectors(self, index: int, read: reading.Read) -> Vectors:
        import numpy as np

        try:
            return quantiser.vectors_of(np.stack(read.vectors))
        except quantiser.NoDirection as error:
            message = f"embedder '{self._name}': the vector of text {index + 1} {error}."
            raise EvaluationFailed("evaluator_error", message) from error

    def _closed_message(self) -> str:
        return f"embedder '{self._name}' is closed."

    async def close(self) -> None:
        """Take no more calls; a running one ends by itself, waiting ones are cancelled."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)
