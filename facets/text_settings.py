"""How a collection's texts are searched: the table `[collections.NAME.text]`, checked.

Nothing of it enters a fingerprint: after a change the view is built again, and no answer is paid for again.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from facetline.facets.errors import nearest

BODY = "body"
WEIGHT_MAX = 10
LANGUAGES = (
    *("arabic", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hindi"),
    *("hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese", "romanian"),
    *("russian", "serbian", "spanish", "swedish", "tamil", "turkish"),
)
"""Whose stems are known; "none": words are found as they are written."""
NO_LANGUAGE = "none"
Bodies = Literal["memory", "off"]
_KEYS = ("embedder", "fields", "k1", "b", "language", "bodies", "min_similarity")
_NUMBERS = {"k1": (0.0, 10.0), "b": (0.0, 1.0), "min_similarity": (0.0, 1.0)}


class TextSettings(BaseModel):
    """How the texts of a collection are searched; `fields` are weights of `body` and `state_NAME` columns.

    `embedder` names what computes vectors of the texts; `min_similarity` is the cosine from which one is near.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    embedder: str | None = None
    fields: dict[str, int] = {BODY: 1}
    k1: float = 1.5
    b: float = 0.75
    language: str = "english"
    bodies: Bodies = "memory"
    min_similarity: float | None = None

    @property
    def state_fields(self) -> dict[str, int]:
        """The weights of the state fields that are searched, by the names of their columns."""
        return {name: weight for name, weight in self.fields.items() if name != BODY}


def from_table(table: object, state_types: Mapping[str, str]) -> tuple[TextSettings, list[str]]:
    """Return the settings of a table, and what is wrong with it; `state_types` are the kinds of the state's fields."""
    if not isinstance(table, Mapping):
        return TextSettings(), [f"text takes a table, not {table!r:.80}; write [collections.NAME.text]"]
    problems = [
        f"text: {key!r:.80} is not taken{nearest(str(key), _KEYS)}; it has {', '.join(_KEYS)}"
        for key in table
        if key not in _KEYS
    ]
    for key, value in table.items():
        problems += [f"text: {problem}" for problem in _problems(key, value, state_types)]
    return (TextSettings() if problems else TextSettings.model_validate(dict(table))), problems


def _problems(key: str, value: Any, state_types: Mapping[str, str]) -> list[str]:
    match key:
        case "k1" | "b" | "min_similarity":
            return _number_problems(key, value)
        case "fields":
            return _field_problems(value, state_types)
    return _word_problems(key, value)


def _number_problems(key: str, value: Any) -> list[str]:
    low, high = _NUMBERS[key]
    fits = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    return [] if fits else [f"{key} is {value!r:.40}; it goes from {low:g} to {high:g}"]


def _word_problems(key: str, value: Any) -> list[str]:
    if key == "embedder" and not (isinstance(value, str) and value.strip()):
        return ["embedder is the name of an [embedders.NAME] table"]
    if key == "language" and value not in (*LANGUAGES, NO_LANGUAGE):
        known = ", ".join((*LANGUAGES, NO_LANGUAGE))
        return [f"language {value!r:.40} is not known{nearest(str(value), LANGUAGES)}; known: {known}"]
    if key == "bodies" and value not in {"memory", "off"}:
        return [f'bodies is {value!r:.40}; write "memory" or "off"']
    return []


def _field_problems(value: Any, state_types: Mapping[str, str]) -> list[str]:
    if not isinstance(value, Mapping) or not value:
        return ["fields takes weights, such as { state_title = 4, body = 1 }"]
    texts = [f"state_{name}" for name, kind in state_types.items() if kind == "string"]
    problems = []
    for name, weight in value.items():
        if name != BODY and name not in texts:
            known = ", ".join([BODY, *texts])
            problems.append(f"fields: there is no text field {name!r:.80}{nearest(str(name), texts)}; known: {known}")
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= WEIGHT_MAX:
            problems.append(f"fields: {name} is {weight!r:.40}; a weight is a whole number from 1 to {WEIGHT_MAX}")
    return problems
