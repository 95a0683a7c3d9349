"""JSON Schemas of the events on the topics, made from the models that make the events; docs/schemas has them as files.

They say what a producer may send and what a consumer will find. What a schema cannot say (bytes of UTF-8, the state of
one collection, the pattern of a uri) is checked where events are decoded.
"""

from typing import Any

from pydantic import BaseModel

from facetline.facets import documents
from facetline.facets.answers import BooleanAnswer, ChoiceAnswer, ScoreAnswer
from facetline.facets.documents import DocumentReason, Evaluation, Record, SourceEvent, Status
from facetline.streams.wire import codec, imported_answers

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT_WITHOUT_NUL = "^[^\\u0000]*$"
TIME = {"type": "string", "format": "date-time"}
SCALAR = {"type": ["string", "number", "boolean", "null"]}
SHARES = {"type": "object", "additionalProperties": {"type": "number"}}
# What an answer's public form has beside the answer itself, or in another way; see `facets.answers.facet_value`.
DERIVED: dict[type[BaseModel], dict[str, Any]] = {
    ChoiceAnswer: {"probabilities": SHARES},
    BooleanAnswer: {"value": {"type": "boolean"}},
    ScoreAnswer: {"level": {"type": "string"}, "probabilities": SHARES},
}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of the data of each type of event that has data, by type; tombstones have none."""
    made = {codec.WRITTEN: _written(), codec.IMPORTED: _imported(), codec.FACETS: _facets()}
    return {kind: _named(kind, schema) for kind, schema in made.items()}


def _named(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": DIALECT, "$id": kind, "title": kind, **schema}


def _written() -> dict[str, Any]:
    return {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": {
            "body": {
                "type": "string",
                "pattern": TEXT_WITHOUT_NUL,
                "maxLength": documents.BODY_BYTES_MAX,
                "description": f"The text, at most {documents.BODY_BYTES_MAX} bytes of UTF-8. Absent: kept.",
            },
            "state": {
                "type": "object",
                "additionalProperties": SCALAR,
                "description": "The collection's own fields; replaces all of them. Absent: kept.",
            },
        },
    }


def _imported() -> dict[str, Any]:
    written = _written()
    text = {
        "type": "string",
        "minLength": 1,
        "maxLength": imported_answers.WORDS_CHARS_MAX,
        "pattern": TEXT_WITHOUT_NUL,
    }
    properties = {
        **written["properties"],
        "facets": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"oneOf": [_given(answer) for answer in DERIVED]},
            "description": "Answers of an earlier system by question: to all that the collection asks, or to some.",
        },
        "evaluation": {
            "type": "object",
            "additionalProperties": False,
            "properties": {**dict.fromkeys(imported_answers.EVALUATION_KEYS, text), "classified_at": TIME},
            "description": "Where the answers are from. Without classified_at: the time at which they are applied.",
        },
    }
    return {**written, "required": ["body", "facets"], "properties": properties}


def _given(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of an answer as it may be given: what follows from it, or is not known, may be absent."""
    found = {**_properties(answer), **DERIVED[answer]}
    made = _object(found, required={"type", *(set(found) & {"choice", "score"})})
    if answer is BooleanAnswer:
        made["anyOf"] = [{"required": ["probability"]}, {"required": ["value"]}]
    return made


def _facets() -> dict[str, Any]:
    model = Record.model_json_schema(mode="serialization")
    found = {name: _plain(model["properties"][name]) for name in model["properties"] if name in codec.RECORD_FIELDS}
    found["status"] = {"enum": [status.value for status in Status if status is not Status.DELETED]}
    found["reason"] = {"enum": [*(reason.value for reason in DocumentReason), None]}
    found["facets"] = _or_null({"type": "object", "additionalProperties": {"oneOf": [*map(_value, DERIVED)]}})
    found["state"] = _or_null({"type": "object", "additionalProperties": SCALAR})
    found["evaluation"] = _or_null(_evaluation())
    found["source_event"] = _or_null(_object(_properties(SourceEvent), required=SourceEvent.model_fields))
    return _object(found, required=codec.RECORD_FIELDS)


def _evaluation() -> dict[str, Any]:
    known = _properties(Evaluation)
    fields = {name: known[name] for name in ("evaluator", "model", "fingerprint")}
    return _object({**fields, "time": TIME}, required=(*fields, "time"))


def _value(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of the public form of one type of answer."""
    found = {**_properties(answer), **DERIVED[answer]}
    return _object(found, required=set(found) - {"probabilities"})


def _properties(model: type[BaseModel]) -> dict[str, Any]:
    found = model.model_json_schema(mode="serialization")["properties"]
    return {name: _plain(schema) for name, schema in found.items()}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without what pydantic adds for its own forms."""
    return {key: value for key, value in schema.items() if key not in {"title", "default"}}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(properties: dict[str, Any], *, required: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(required),
        "properties": dict(sorted(properties.items())),
    }
