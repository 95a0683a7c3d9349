"""Sort orders that the page offers for a collection. Pure."""

from facetline.facets.definitions import Definition
from facetline.facets.questions import Score
from facetline.facets.schema.states import column_types

# Maximum length of the list; any other order can be given in the URL.
OFFERED_MAX = 40


def offered(definition: Definition, asked: str | None, *, by_words: bool = False) -> list[tuple[str, str]]:
    """Return (order, label) for each offered order, and for the requested one if it is another.

    `by_words`: words are looked for, and the best come first unless another order is requested.
    """
    found = [
        *([("", "best first"), ("doc_uri", "uri")] if by_words else [("", "uri")]),
        ("-doc_written_at", "newest first"),
        ("doc_written_at", "oldest first"),
        ("-doc_classified_at", "most recently answered"),
    ]
    for name, question in definition.questions.items():
        if isinstance(question, Score):
            found += [(f"-{name}", f"{name}, highest first"), (name, f"{name}, lowest first")]
        found.append((f"{name}_confidence", f"{name}, lowest confidence first"))
    for name in column_types(definition.state_schema):
        found += [(f"state_{name}", name), (f"-state_{name}", f"{name}, descending")]
    found = found[:OFFERED_MAX]
    if asked and asked not in {order for order, _ in found}:
        found.append((asked, asked))
    return found
