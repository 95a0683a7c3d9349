"""An embedding reply as a matrix: as many vectors as texts, in their order, of numbers and of one length. Pure.

Servers were seen to leave texts out, to return them in another order, and to send `null` for NaN.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from facetline.evaluators.embedders.contract import DIMENSIONS_MAX

if TYPE_CHECKING:
    from facetline.evaluators.embedders.quantiser import Floats


class Malformed(ValueError):
    """The reply is no list of the texts' vectors."""


class NotFloats(ValueError):
    """The reply's vectors are in another form than numbers, whatever the texts are."""


def matrix_of(response: Any, count: int) -> "Floats":
    """Return a reply's vectors, one row for each of `count` texts in their order.

    Raises:
        Malformed: too few or too many of them, none at all, without an order, or not of numbers.
        NotFloats: they are base64.
    """
    import numpy as np

    data = part_of(response, "data")
    if not isinstance(data, list) or not data:
        raise Malformed(f"the reply has no list of vectors, for {count} texts")
    if len(data) != count:
        raise Malformed(f"the reply has {len(data)} vectors, for {count} texts")
    rows = [_row(part_of(item, "embedding"), number, count) for number, item in enumerate(_ordered(data), 1)]
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise Malformed(f"the vectors of one reply have {' and '.join(map(str, sorted(lengths)))} dimensions")
    if not 1 <= len(rows[0]) <= DIMENSIONS_MAX:
        raise Malformed(f"the vectors have {len(rows[0])} dimensions; from 1 to {DIMENSIONS_MAX} can be kept")
    with np.errstate(over="ignore"):  # an infinity is refused as such
        return np.stack(rows).astype(np.float32)


def part_of(holder: Any, name: str) -> Any:
    """Return a member of a JSON object, or an attribute of litellm's; None without it."""
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _ordered(data: list[Any]) -> Sequence[Any]:
    """Return the reply's items in the order of the texts: by their `index`, or as they came where none has one."""
    places = [part_of(item, "index") for item in data]
    if all(place is None for place in places):
        return data
    found: list[Any] = [None] * len(data)
    for place, item in zip(places, data, strict=True):
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(data):
            raise Malformed(f"a vector has the index {place!r:.40}, among {len(data)}; its text is not known")
        if found[place] is not None:
            raise Malformed(f"two vectors have the index {place}; their texts are not known")
        found[place] = item
    return found


def _row(numbers: Any, number: int, count: int) -> Any:
    import numpy as np

    about = f"vector {number} of {count}"
    if isinstance(numbers, str):
        raise NotFloats(
            "the reply's vectors are text (base64), and numbers were asked for; set the server to"
            " encoding_format = 'float', or delete LITELLM_DEFAULT_EMBEDDING_ENCODING_FORMAT"
        )
    if not isinstance(numbers, list):
        raise Malformed(f"{about} is no list of numbers")
    try:
        row = np.array(numbers)
    except ValueError as error:
        raise Malformed(f"{about} holds lists of several lengths, not numbers") from error
    if row.ndim != 1:
        raise Malformed(f"{about} holds lists (vectors of tokens?), not numbers; the model is no text embedder")
    if row.dtype.kind not in "fiu" and len(row):
        raise Malformed(f"{about} holds what is no number (null, text), as a server sends for NaN")
    return row
