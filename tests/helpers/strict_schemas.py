"""The rules of OpenAI's strict mode for a tool's parameters, as a checker: what it would answer 400 to."""

from collections.abc import Iterator
from typing import Any

NAME_CHARS_MAX = 64
PROPERTIES_MAX, DEPTH_MAX = 5_000, 10
VALUES_MAX, MANY_VALUES, MANY_VALUES_CHARS_MAX = 1_000, 250, 15_000
CHARS_MAX = 120_000
TYPES = {"string", "number", "integer", "boolean", "object", "array", "null"}
KEYWORDS = {"type", "description", "enum", "properties", "required", "additionalProperties", "minimum", "maximum",
            "items", "anyOf"}  # fmt: skip


def problems(tool: dict[str, Any]) -> list[str]:
    """Return what is wrong with a tool in the form of the chat completions."""
    function = tool.get("function", {})
    parameters = function.get("parameters", {})
    found = [] if tool.get("type") == "function" and function.get("strict") is True else ["no strict function"]
    name = function.get("name", "")
    if not name or len(name) > NAME_CHARS_MAX or not name.replace("_", "").replace("-", "").isalnum():
        found.append(f"name {name!r}")
    if len(function.get("description", "")) > 1_024:
        found.append("long description")
    if parameters.get("type") != "object" or "anyOf" in parameters:
        found.append("the root is no object")
    return [*found, *_nodes(parameters, 1), *_sizes(parameters)]


def _nodes(schema: dict[str, Any], depth: int) -> Iterator[str]:
    if depth > DEPTH_MAX:
        yield "too deep"
    for keyword in schema.keys() - KEYWORDS:
        yield f"keyword {keyword}"
    types = schema.get("type")
    listed = types if isinstance(types, list) else [types]
    if not set(listed) <= TYPES:
        yield f"type {types}"
    if "enum" in schema and ("null" in listed) != (None in schema["enum"]):
        yield "null in type and enum differ"
    if "object" in listed:
        if schema.get("additionalProperties") is not False:
            yield "additionalProperties"
        if sorted(schema.get("required", [])) != sorted(schema.get("properties", {})):
            yield "not every property is required"
    for part in schema.get("properties", {}).values():
        yield from _nodes(part, depth + 1)


def _sizes(parameters: dict[str, Any]) -> Iterator[str]:
    properties = parameters.get("properties", {})
    enums = [[value for value in part.get("enum", []) if value is not None] for part in properties.values()]
    if len(properties) > PROPERTIES_MAX:
        yield "too many properties"
    if sum(map(len, enums)) > VALUES_MAX:
        yield "too many values"
    if any(len(enum) > MANY_VALUES and sum(map(len, enum)) > MANY_VALUES_CHARS_MAX for enum in enums):
        yield "too long an enum"
    if sum(map(len, properties)) + sum(len(value) for enum in enums for value in enum) > CHARS_MAX:
        yield "too many characters"
