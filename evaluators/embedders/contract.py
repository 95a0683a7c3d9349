"""What an embedder is: the one interface that computes vectors, for texts when they are written and for queries.

An embedder never retries, sleeps or remembers: those belong to the pipeline. Vectors come quantised
(`evaluators.embedders.quantiser`), in the order of the texts and as many, or the whole call fails.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from facetline.facets.errors import EvaluationFailed, Spent

Purpose = Literal["passage", "query"]
"""Why a text is embedded: to be found, or to find others. Some models want to know."""

WINDOWS_MAX = 8
"""Vectors of one text at most; what is behind its last window has none."""
DIMENSIONS_MAX = 8192
"""Of a vector: twice what the largest hosted models return."""
MIN_SIMILARITY = 0.5
"""The cosine from which a text matches a query, unless a collection sets another: measured for the embedded model."""
QUANTISER_VERSION = "1"
"""Raise it with any change of `quantiser`: each changes vectors."""
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What vectors depend on: no name, address, key or limit."""

    kind: str
    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    version: str = "1"


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of one text, one for each of its windows in order.

    `data` holds int8, `windows` rows of `dimensions`; `scales` holds a float32 (little endian) for each window, by
    which its numbers are multiplied to make a vector of length 1.

    Raises:
        ValueError: the parts do not fit together.
    """

    dimensions: int
    windows: int
    data: bytes
    scales: bytes

    def __post_init__(self) -> None:
        if not 1 <= self.windows <= WINDOWS_MAX or not 1 <= self.dimensions <= DIMENSIONS_MAX:
            raise ValueError(f"{self.windows} windows of {self.dimensions} dimensions are beyond what vectors may have")
        if len(self.data) != self.windows * self.dimensions or len(self.scales) != self.windows * FLOAT_BYTES:
            raise ValueError(f"{len(self.data)} and {len(self.scales)} bytes are not {self.windows} windows")

    def first(self) -> "Vectors":
        """Return the first window alone."""
        return Vectors(self.dimensions, 1, self.data[: self.dimensions], self.scales[:FLOAT_BYTES])


@dataclass(frozen=True, slots=True)
class Embedded:
    """One call's result: the vectors of each text, in the order of the texts.

    `model` is the id that the provider reported, `usage` holds token counts as reported. `dropped` counts, for each
    text that is longer than its windows, the characters or tokens behind them (by the text's index).
    """

    vectors: list[Vectors]
    model: str
    usage: Mapping[str, Any] | None = None
    cost_usd: float | None = None
    dropped: Mapping[int, int] = field(default_factory=dict)


def spent_of(embedded: Embedded) -> Spent:
    """Return what the call behind a result used up."""
    return Spent(embedded.model, embedded.usage, embedded.cost_usd)


@runtime_checkable
class Embedder(Protocol):
    """Computes vectors of texts."""

    @property
    def name(self) -> str:
        """The name in `[embedders.NAME]`."""

    @property
    def kind(self) -> str:
        """The kind's name, as in `kind = "embedded"`."""

    @property
    def model(self) -> str:
        """The model's id."""

    @property
    def identity(self) -> EmbedderIdentity:
        """What vectors depend on."""

    @property
    def fingerprint(self) -> str:
        """The hash of the identity; vectors of different fingerprints are never compared."""

    @property
    def max_batch(self) -> int:
        """How many texts one `embed` takes at most."""

    @property
    def min_similarity(self) -> float:
        """The cosine from which a text matches a query, for collections that set none."""

    @property
    def is_free(self) -> bool:
        """Whether its calls cost nothing, whatever they report (a model of this machine, a recording)."""

    async def embed(self, texts: Sequence[str], *, purpose: Purpose, deadline_s: float) -> Embedded:
        """Return the vectors of `texts`, from 1 to `max_batch` of them, within `deadline_s` seconds.

        Raises:
            EvaluatorUnavailable: try again later.
            EvaluatorMisconfigured: no text is at fault; stop calling until it is fixed.
            EvaluationFailed: one of the texts will not get vectors; alone in a call, it is known which.
        """

    async def close(self) -> None:
        """Release what was opened; safe to call twice."""


def fingerprint_of(identity: EmbedderIdentity) -> str:
    """Return the hash of everything that a vector depends on, in hexadecimal."""
    depends_on = {
        "kind": identity.kind,
        "model": identity.model,
        "parameters": dict(identity.parameters),
        "version": identity.version,
        "quantiser": QUANTISER_VERSION,
    }
    text = json.dumps(depends_on, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_texts(texts: Sequence[str], embedder: Embedder) -> None:
    """Refuse, before anything is sent, what no embedder can take.

    Raises:
        EvaluationFailed: a text is blank, so that its vector would mean nothing, or not Unicode.
        ValueError: there are none, or more than `max_batch`.
    """
    if not 1 <= len(texts) <= embedder.max_batch:
        raise ValueError(f"embedder '{embedder.name}' takes 1 to {embedder.max_batch} texts, not {len(texts)}")
    for number, text in enumerate(texts, 1):
        about = f"embedder '{embedder.name}': text {number} of {len(texts)}"
        if not text.strip():
            raise EvaluationFailed("evaluator_error", f"{about} is blank: there is nothing to embed.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise EvaluationFailed("evaluator_error", f"{about} has a lone surrogate, which is no text.") from error
