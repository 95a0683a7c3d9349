"""OpenAPI operations and schemas, generated from route declarations: parameters, body, replies and problems."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from facetline.facets.api import problems, reply_models
from facetline.facets.api.problem_types import KINDS
from facetline.facets.api.routing import RouteSpec

_REF = "#/components/schemas/{model}"
_ALWAYS = ("foreign-host", "foreign-origin", "internal-error")
_WITH_TOKEN = ("unauthorized", "forbidden", "store-unavailable", "busy")
_WITH_PARAMETERS = ("invalid-parameter", "unknown-parameter")
_WITH_BODY = ("too-large", "request-timeout")
_PATH_TEXTS = {
    "uri": "the document's uri, percent-encoded; slashes may stay unencoded",
    "event_id": "the event's id: the `Idempotency-Key` of its write, or the `event_id` of its reply",
    "collection": "the collection's name",
    "job_id": "the job's id",
    "id": "the dead letter's id",
    "name": "the last part of the problem's `type`",
}
_HEADER_TEXTS = {
    "Idempotency-Key": "repeating the request with the same key has no further effect",
    "If-None-Match": "the `ETag` of an earlier reply; 304 if nothing changed",
}
_REPLY_HEADERS = {
    "Facetline-As-Of": "the reply's freshness, a token for `at_least`",
    "ETag": "changes if and only if the content of the reply changes",
    "Link": "the next page, and the same rows as CSV",
    "Location": "URL of the event or job",
    "Retry-After": "seconds to wait before the next request",
}


def operation(declared: RouteSpec) -> dict[str, Any]:
    """Return a route's `openapi_extra` for FastAPI."""
    found: dict[str, Any] = {
        "operationId": declared.name,
        "parameters": [*_path(declared), *_query(declared), *_headers(declared)],
        "responses": {**_replies(declared), **_problems(declared)},
        "security": [] if declared.right is None else [{"token": []}],
    }
    if declared.body is not None:
        content = {"application/json": {"schema": _reference(declared.body)}}
        found["requestBody"] = {"required": declared.body_needed, "content": content}
    return found


def components(routes: Iterable[RouteSpec]) -> dict[str, Any]:
    """Return the schemas of all models that the routes use."""
    found: dict[type[BaseModel], str] = {reply_models.ProblemReply: "serialization"}
    for declared in routes:
        if declared.body is not None:
            found[declared.body] = "validation"
        for replies in declared.replies.values():
            found.update(dict.fromkeys((each for each in replies.values() if each is not None), "validation"))
    _, schema = models_json_schema([(each, "validation") for each in found], ref_template=_REF)
    taken = [declared.parameters for declared in routes if declared.parameters is not None]
    return {**schema["$defs"], **{title: each for model in taken for title, each in _families(model)}}


def _families(model: type[BaseModel]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return schemas of parameter families such as `f.NAME`, which OpenAPI can only describe as an exploded object.

    Exploded, each member is a parameter: `{"f.topic": "billing"}` is `f.topic=billing`.
    """
    for name, schema in model.model_json_schema().get("properties", {}).items():
        if schema.get("type") != "object":
            continue
        value = schema["additionalProperties"]
        yield (
            schema["title"],
            {
                "type": "object",
                "description": schema["description"],
                "propertyNames": {"pattern": f"^{re.escape(name)}[.]."},
                "additionalProperties": {"anyOf": [value["items"], value]} if value["type"] == "array" else value,
            },
        )


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _path(declared: RouteSpec) -> Iterable[dict[str, Any]]:
    for part in declared.path.split("{")[1:]:
        name = part.partition("}")[0].partition(":")[0]
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_TEXTS[name],
            "schema": {"type": "string", "minLength": 1},
        }


def _query(declared: RouteSpec) -> Iterable[dict[str, Any]]:
    if declared.parameters is None:
        return
    for name, schema in declared.parameters.model_json_schema().get("properties", {}).items():
        shown = {key: value for key, value in schema.items() if key not in {"title", "description"}}
        described = {"name": name, "in": "query", "required": False, "description": schema.get("description", "")}
        if shown.get("type") == "object":
            yield {
                **described,
                "style": "form",
                "explode": True,
                "schema": {"$ref": _REF.format(model=schema["title"])},
            }
        else:
            yield {**described, "schema": _without_null(shown)}


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter's schema without null: in a URL a value can only be absent."""
    found = dict(schema)
    options = [each for each in found.pop("anyOf", []) if each.get("type") != "null"]
    if len(options) == 1:
        found = {**options[0], **found}
    if found.get("default", 0) is None:
        del found["default"]
    return found


def _headers(declared: RouteSpec) -> Iterable[dict[str, Any]]:
    for name in declared.request_headers:
        yield {
            "name": name,
            "in": "header",
            "required": False,
            "description": _HEADER_TEXTS[name],
            "schema": {"type": "string"},
        }


def _replies(declared: RouteSpec) -> dict[str, Any]:
    return {str(status): _reply(status, by_media) for status, by_media in declared.replies.items()}


_REPLY_TEXTS = {200: "OK", 202: "Accepted; not finished yet", 304: "Not modified: same ETag"}


def _reply(status: int, by_media: Mapping[str, type[BaseModel] | None]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": _REPLY_TEXTS[status],
        "headers": {name: _header(text) for name, text in _REPLY_HEADERS.items()},
    }
    if by_media:
        found["content"] = {
            media: {"schema": _plain(media) if model is None else _reference(model)}
            for media, model in by_media.items()
        }
    return found


def _plain(media: str) -> dict[str, str]:
    return {"type": "object" if media == "application/json" else "string"}


def _header(text: str) -> dict[str, Any]:
    return {"description": text, "schema": {"type": "string"}}


def kinds_of(declared: RouteSpec) -> list[str]:
    """Return the kinds of problem that a route can return, in the order of `KINDS`."""
    named = {*declared.problems, *_ALWAYS}
    if declared.right is not None:
        named |= set(_WITH_TOKEN)
    if declared.parameters is not None:
        named |= set(_WITH_PARAMETERS)
    named |= set(_WITH_BODY)
    return [name for name in KINDS if name in named]


def _problems(declared: RouteSpec) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for name in kinds_of(declared):
        by_status.setdefault(KINDS[name].status, []).append(name)
    return {
        str(status): {
            "description": ", ".join(f"`{name}`" for name in names),
            "content": {problems.MEDIA_TYPE: {"schema": _reference(reply_models.ProblemReply)}},
        }
        for status, names in sorted(by_status.items())
    }
