"""Strict parsing of requests: URL parameters, JSON bodies and the Idempotency-Key.

Nothing is ignored: unknown names, repeated parameters and values of the wrong type are refused, with the valid ones.
"""

import re
import typing
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from facetline.facets import validation_messages
from facetline.facets.api import json_text, problems
from facetline.facets.api.problems import Problem

Model = TypeVar("Model", bound=BaseModel)
KEY_CHARS_MAX = 255
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s)", re.ASCII)


def parameters(model: type[Model], request: Request, *, count_max: int) -> Model:
    """Return the parameters of a request's URL; those with an empty value count as absent.

    A field of the model that is a mapping, such as `f`, is read from `f.NAME=VALUE`; its values are lists.

    Raises:
        Problem: `unknown-parameter` or `invalid-parameter`.
    """
    raw = request.scope.get("query_string", b"").decode("ascii", "replace")
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=count_max)
    except UnicodeDecodeError:
        raise Problem("invalid-parameter", "the parameters are not UTF-8, percent-encoded") from None
    except ValueError:
        raise Problem("invalid-parameter", f"more than {count_max} parameters; send fewer") from None
    return _checked(model, _gathered(model, pairs))


def _gathered(model: type[BaseModel], pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the values by field; for lists and mappings all values."""
    found: dict[str, Any] = {}
    shapes = {name: _shape(field.annotation) for name, field in model.model_fields.items()}
    for name, value in pairs:
        first, dot, rest = name.partition(".")
        if dot and rest and shapes.get(first) is dict:
            if value:
                found.setdefault(first, {}).setdefault(rest, []).append(value)
        elif shapes.get(name, dict) is dict:
            raise problems.unknown("parameter", name, names_of(model))
        elif shapes[name] is bool:
            found[name] = value or "true"
        elif value and shapes[name] is list:
            found.setdefault(name, []).append(value)
        elif value:
            if name in found:
                raise Problem("invalid-parameter", f"parameter '{name}' is given twice; send it once")
            found[name] = value
    return {name: _single(name, value, model.model_fields[name].annotation) for name, value in found.items()}


def _single(name: str, value: Any, annotation: Any) -> Any:
    """Return a mapping of lists as a mapping of single values if the field has single values."""
    if not isinstance(value, dict) or typing.get_origin(typing.get_args(annotation)[1]) is list:
        return value
    for key, values in value.items():
        if len(values) > 1:
            raise Problem("invalid-parameter", f"parameter '{name}.{key}' is given twice; send it once")
    return {key: values[0] for key, values in value.items()}


def names_of(model: type[BaseModel]) -> list[str]:
    """Return the parameters of a model, those of a mapping as `f.NAME`."""
    return [f"{name}.NAME" if _shape(field.annotation) is dict else name for name, field in model.model_fields.items()]


def _shape(annotation: Any) -> type:
    """Return `list`, `dict`, `bool`, or `str` for everything else."""
    for each in (annotation, *typing.get_args(annotation)):
        origin = typing.get_origin(each) or each
        if origin in {list, dict, bool}:
            return typing.cast("type", origin)
    return str


def _checked(model: type[Model], values: Mapping[str, Any]) -> Model:
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Problem("invalid-parameter", f"parameter '{place}': {validation_messages.message_of(first)}") from None


async def json_object(request: Request, *, needed: bool = True) -> dict[str, Any]:
    """Return a request's body, one JSON object; without `needed` an absent body is an empty object.

    Raises:
        Problem: `unsupported-media-type`, `invalid-json` or `invalid-request`; and those of the middleware.
    """
    body = await request.body()
    if not body and not needed:
        return {}
    _check_type(request.headers.get("content-type"))
    return await json_text.parsed_object(body)


def checked_body(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Return a JSON object as a model, without type conversion.

    Raises:
        Problem: `unknown-parameter` or `invalid-request`.
    """
    known = list(model.model_fields)
    for name in values:
        if name not in model.model_fields:
            raise problems.unknown("field", name, known)
    try:
        return model.model_validate(dict(values), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"][:1]) or "the body"
        raise Problem("invalid-request", f"{place}: {validation_messages.message_of(first)}") from None


def idempotency_key(request: Request) -> str | None:
    """Return the request's Idempotency-Key, which may be quoted (as in its draft standard).

    Raises:
        Problem: `invalid-parameter`.
    """
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    key = given[0].strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if len(given) > 1 or not 0 < len(key) <= KEY_CHARS_MAX or not (key.isascii() and key.isprintable()):
        raise Problem(
            "invalid-parameter", f"Idempotency-Key must be 1 to {KEY_CHARS_MAX} printable ASCII characters, sent once"
        )
    return key


def seconds(text: str, *, most_s: float) -> float:
    """Return a duration such as `10s` or `500ms` in seconds.

    Raises:
        ValueError: it is not a duration, or longer than `most_s`.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("send a duration such as 10s or 500ms")
    found = float(match[1]) / (1000 if match[2] == "ms" else 1)
    if found > most_s:
        raise ValueError(f"must be at most {most_s:g}s")
    return found


def _check_type(given: str | None) -> None:
    media, _, parameters_ = (given or "").partition(";")
    media = media.strip().lower()
    charset = parameters_.replace('"', "").replace(" ", "").lower()
    if media != "application/json" or charset not in {"", "charset=utf-8"}:
        raise Problem("unsupported-media-type", "send the body as JSON: content-type: application/json")
