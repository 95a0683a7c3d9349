"""How near a text is to each option of a question.

An option is represented by three kinds of text: `key: description` whole, each clause of the description, and each
clause behind the key. A text's score for the option is the mean of three cosines: to the whole, to the nearest clause
and to the nearest clause with its key. Naming what belongs to an option ("a lost card, a blocked PIN, …") then works as
a list of examples. Measured against the other ways in docs/evaluators.md.

A body in several windows scores an option by the window that is nearest to it: what a letter is about is often one
sentence between pleasantries, and a mean drowns it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

CLAUSES_MAX = 32
"""Per option; each costs two runs of the model when a question is first asked. What follows belongs to the last."""

_CLAUSE_END = re.compile(r"[,;.]\s+")


@dataclass(frozen=True, slots=True)
class Texts:
    """What stands for one option."""

    whole: str
    clauses: tuple[str, ...]
    keyed: tuple[str, ...]


def texts_of(key: str, description: str) -> Texts:
    """Return what stands for an option; without a key (a level of a scale) the description stands alone."""
    name = re.sub(r"[_\-\s]+", " ", key).strip()
    clauses = tuple(part for part in (piece.strip(" .") for piece in _clauses(description)) if part)
    if not clauses:
        return Texts(name, (name,), (name,))
    if not name:
        return Texts(description, clauses, clauses)
    return Texts(f"{name}: {description}", clauses, tuple(f"{name}: {clause}" for clause in clauses))


def _clauses(description: str) -> list[str]:
    return _CLAUSE_END.split(description, maxsplit=CLAUSES_MAX - 1)


@dataclass(frozen=True, slots=True)
class Options:
    """The options' vectors: one row an option in `whole`, and from `starts[i]` on its rows in `clauses` and `keyed`."""

    whole: "Vectors"
    clauses: "Vectors"
    keyed: "Vectors"
    starts: tuple[int, ...]


def embed(options: Iterable[Texts], vector: Callable[[str], "Vectors"]) -> Options:
    """Return the vectors of the options' texts; each different text is embedded once."""
    import numpy as np

    options = tuple(options)
    different = dict.fromkeys(text for each in options for text in (each.whole, *each.clauses, *each.keyed))
    known = {text: vector(text) for text in different}
    starts, rows = [], 0
    for each in options:
        starts.append(rows)
        rows += len(each.clauses)
    return Options(
        np.stack([known[each.whole] for each in options]),
        np.stack([known[clause] for each in options for clause in each.clauses]),
        np.stack([known[clause] for each in options for clause in each.keyed]),
        tuple(starts),
    )


def similarities(options: Options, windows: Sequence["Vectors"]) -> list[float]:
    """Return for each option, in order, how near the nearest window is to it (-1 to 1)."""
    import numpy as np

    texts = np.stack(windows).T
    whole = options.whole @ texts
    clauses = np.maximum.reduceat(options.clauses @ texts, options.starts, axis=0)
    keyed = np.maximum.reduceat(options.keyed @ texts, options.starts, axis=0)
    best = ((whole + clauses + keyed) / 3).max(axis=1)
    return [float(value) for value in best]
