"""Texts of a batch of records as what DuckDB is handed: their fields folded and weighted, and their bodies. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic_core import from_json

from facetline.facets.documents import Record, Shown, Status
from facetline.facets.schema import columns
from facetline.facets.text import words
from facetline.facets.text_settings import BODY, TextSettings
from facetline.facets.view.text_tables import SEPARATOR

KEPT, NONE = -1, 0
"""In place of a text's number: the document keeps what it has; it has none."""
_DELETED = Status.DELETED.value


@dataclass(slots=True)
class TextBatch:
    """The texts of a batch; `places` are those of their records in it, `numbers` has one cell for each record.

    `parts` are fields of texts: place among the texts, weight, words as `FOLDED_WORD` finds them.
    """

    numbers: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    folded: list[str | None] = field(default_factory=list)
    parts: list[tuple[int, int, str]] = field(default_factory=list)


def text_batch(records: Sequence[Record | Shown], settings: TextSettings) -> TextBatch:
    """Return the texts of records; a record without its body leaves the document's text as it is."""
    batch = TextBatch()
    weights = settings.state_fields
    for place, record in enumerate(records):
        body = record.body if isinstance(record, Shown) else None
        if record.status == _DELETED:
            batch.numbers.append(NONE)
        elif body is None:
            batch.numbers.append(KEPT)
        else:
            batch.numbers.append(NONE)  # until it is given one
            batch.places.append(place)
            batch.scopes.append(record.scope)
            _take(batch, body, _state_texts(record.state_json, weights), settings)
    return batch


def state_texts(state_json: str | None, settings: TextSettings) -> dict[str, str]:
    """Return the state's texts that are searched, by the names of their columns."""
    return _state_texts(state_json, settings.state_fields)


def _state_texts(state_json: str | None, weights: dict[str, int]) -> dict[str, str]:
    if not weights or state_json is None:
        return {}
    state = from_json(state_json)
    found = {name: state.get(name.removeprefix(columns.state_column(""))) for name in weights}
    return {name: text for name, text in found.items() if isinstance(text, str)}


def _take(batch: TextBatch, body: str, texts: dict[str, str], settings: TextSettings) -> None:
    number = len(batch.bodies)
    folded_body = words.folded(body)
    parts = [(settings.fields[name], _part(text)) for name, text in texts.items()]
    if BODY in settings.fields:
        parts.append((settings.fields[BODY], body.lower() if folded_body is None else folded_body))
    batch.parts += [(number, weight, part) for weight, part in parts]
    batch.bodies.append(body)
    plain = folded_body is None and not texts and BODY in settings.fields
    batch.folded.append(None if plain else f" {SEPARATOR} ".join(part for _, part in parts))


def _part(text: str) -> str:
    found = words.folded(text)
    return text.lower() if found is None else found
