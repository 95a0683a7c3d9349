"""A text's vectors by the embedded model, window by window."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from facetline.evaluators.embedded import chunking, minilm
from facetline.facets.errors import EvaluationFailed

if TYPE_CHECKING:
    from facetline.evaluators.embedded.minilm import Vector

WINDOWS_MAX = 8
"""A window of 256 tokens costs about 0.1 s: a body costs no more than one second, and 1,808 of its tokens are read."""

OVERLAP = 32
"""Tokens, about two sentences: what a window's end cuts through is whole in the next one."""


class Model(Protocol):
    """Text to tokens, and at most `minilm.TOKENS_MAX` tokens to a vector of length 1."""

    def tokens(self, text: str) -> list[int]:
        """Return the text's tokens."""

    def vector(self, tokens: Sequence[int]) -> "Vector":
        """Return the vector of the tokens."""


@dataclass(frozen=True, slots=True)
class Read:
    """A text's vectors, how many of its tokens they are of, and how many are behind the last window."""

    vectors: "list[Vector]"
    tokens: int
    dropped: int


def read(model: Model, text: str) -> Read:
    """Return the vectors of a text's windows.

    Raises:
        EvaluationFailed: it is not Unicode text.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise EvaluationFailed("evaluator_error", "The body has a lone surrogate, which is no text.") from error
    tokens = model.tokens(text)
    cut = chunking.cut(tokens, size=minilm.TOKENS_MAX, overlap=OVERLAP, pieces_max=WINDOWS_MAX)
    return Read([model.vector(piece) for piece in cut.pieces], len(tokens) - cut.dropped, cut.dropped)
