"""State models: a pydantic model taken as the declaration of a state.

Only its JSON Schema is enforced, by Python code in every node and by anybody else who reads the definition. So whatever
the model checks or changes beyond its JSON Schema is refused rather than ignored.
"""

import importlib
import operator
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from facetline.facets.errors import InvalidDefinition
from facetline.facets.schema import states

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated"})
_EVERY_NODE = frozenset({"type", "metadata", "ref", "serialization", "strict"})
_BOUNDS = frozenset({"ge", "gt", "le", "lt", "multiple_of"})
# What pydantic may ask of a value of each kind, so far as its JSON Schema says it too (allow_inf_nan: numbers are
# always finite here; tz_constraint: a datetime always has its offset).
_ENFORCED: Mapping[str, frozenset[str]] = {
    "str": frozenset({"min_length", "max_length", "pattern"}),
    "int": _BOUNDS,
    "float": _BOUNDS | {"allow_inf_nan"},
    "bool": frozenset(),
    "datetime": frozenset({"microseconds_precision", "tz_constraint"}),
    "literal": frozenset({"expected"}),
    "enum": frozenset({"cls", "members", "sub_type"}),
}
_ADVICE = "say it with a type or a constraint such as max_length, ge or Literal, or check it before you write"


def load_model(path: object) -> type[BaseModel]:
    """Import the model that `module:Class` names.

    Raises:
        InvalidDefinition: there is none; the caller names the collection.
    """
    module_name, _, class_name = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not module_name or not class_name.isidentifier():
        raise InvalidDefinition([f"state_model {path!r:.80} is not of the form 'module:Class'"])
    try:
        module = importlib.import_module(module_name)
    except (ImportError, SyntaxError, NameError, AttributeError, TypeError, ValueError) as error:
        raise InvalidDefinition(
            [f"state_model {path!r:.80}: module {module_name} cannot be imported ({error}); is it on Python's path?"]
        ) from error
    model = getattr(module, class_name, None)
    if not _is_model(model):
        raise InvalidDefinition([f"state_model {path!r:.80}: {module_name} has no pydantic model {class_name}"])
    return model


def schema_of_model(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema that is enforced for a pydantic model.

    Fields with a default of None are optional and take null; the others are required.

    Raises:
        InvalidDefinition: with all problems; the caller names the collection.
    """
    if not _is_model(model):
        raise InvalidDefinition([f"a state model is a pydantic model (a class), got {model!r:.80}"])
    try:
        core = model.__pydantic_core_schema__
        found = list(_model_problems(model, core))
    except PydanticUserError as error:
        first_line = str(error).split("\n", 1)[0]
        raise InvalidDefinition([f"state model {model.__name__} is not complete: {first_line}"]) from error
    if found:
        raise InvalidDefinition(f"state model {model.__name__}: {problem}" for problem in found)
    return _schema(model)


def _is_model(model: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(model, type) and issubclass(model, BaseModel)


def _model_problems(model: type[BaseModel], core: Mapping[str, Any]) -> Iterator[str]:
    shared = {node["ref"]: node for node in core.get("definitions", ())}
    chain = list(_chain(core, shared))
    if any(node.get("root_model") for node in chain):
        yield "it has a root type instead of fields; write a BaseModel with fields"
        return
    if any(node["type"].startswith("function-") for node in chain):
        yield f"a validator of the whole model is not enforced; {_ADVICE}"
    if _has_own_code(model, chain):
        yield f"its own __init__ or model_post_init is not enforced; {_ADVICE}"
    for key, value in _config(chain).items():
        if key.startswith("str_") or value == "allow":
            yield f"the setting {key.replace('_fields_behavior', '')} of its model_config is not enforced; take it out"
    for name, field in chain[-1].get("fields", {}).items():
        problem = _field_problem(field, shared)
        if problem:
            yield f"field '{name}': {problem}"


def _chain(node: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    # From the outermost wrapper to the node that has the fields.
    while node:
        yield node
        node = shared[node["schema_ref"]] if node["type"] == "definition-ref" else node.get("schema", {})


def _has_own_code(model: type[BaseModel], chain: list[Mapping[str, Any]]) -> bool:
    # Private attributes bring a model_post_init of pydantic's own.
    own = model.model_post_init is not BaseModel.model_post_init
    return any(node.get("custom_init") for node in chain) or (
        own and model.model_post_init.__name__ != "init_private_attributes"
    )


def _config(chain: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for node in chain for key, value in node.get("config", {}).items()}


def _field_problem(field: Mapping[str, Any], shared: Mapping[str, Any]) -> str | None:
    if "validation_alias" in field:
        return "an alias is not taken; call the field what the state calls it"
    node = field["schema"]
    if node["type"] == "default" and ("default_factory" in node or node.get("default") is not None):
        return "a default is not filled in; write None, or leave it out for a required field"
    return _value_problem(_innermost(node, shared))


def _innermost(node: Mapping[str, Any], shared: Mapping[str, Any]) -> Mapping[str, Any]:
    if node["type"] == "definition-ref":
        return _innermost(shared[node["schema_ref"]], shared)
    return (
        _innermost(node["schema"], shared) if node["type"] in {"default", "nullable"} or _is_enum_value(node) else node
    )


def _value_problem(node: Mapping[str, Any]) -> str | None:
    kind = node["type"]
    if kind.startswith("function-"):
        return f"a validator in Python is not enforced; {_ADVICE}"
    if kind not in _ENFORCED:
        return (
            f"its type ({kind}) fits no column; write str, int, float, bool, datetime, a Literal or an Enum of one type"
        )
    beyond = sorted(set(node) - _EVERY_NODE - _ENFORCED[kind])
    if node.get("tz_constraint") not in {None, "aware"}:
        beyond.append("tz_constraint")
    if beyond:
        return f"{', '.join(beyond)} is not part of its JSON Schema and not enforced; {_ADVICE}"
    return None


def _is_enum_value(node: Mapping[str, Any]) -> bool:
    # What use_enum_values adds: it changes what Python gets, not what is taken.
    return node["type"] == "function-after" and isinstance(node["function"]["function"], operator.attrgetter)


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    raw = model.model_json_schema()
    found = states.field_problems(raw.get("properties", {}))
    properties, required = {}, []
    for name, given in raw.get("properties", {}).items():
        keywords, nullable = _flat(given, raw.get("$defs", {}))
        problem = _keyword_problem(keywords)
        if problem:
            found.append(f"field '{name}': {problem}")
            continue
        if name in raw.get("required", ()) and not nullable:
            required.append(name)
        properties[name] = _property(keywords, nullable=name not in required)
    if found:
        raise InvalidDefinition(f"state model {model.__name__}: {problem}" for problem in found)
    return states.object_schema(properties, tuple(required))


def _flat(given: Mapping[str, Any], shared: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a field's keywords without references and unions, and whether it takes null."""
    keywords = dict(given)
    nullable = False
    if "anyOf" in keywords:
        branches = keywords.pop("anyOf")
        nullable = {"type": "null"} in branches
        for branch in branches:
            if branch != {"type": "null"}:
                keywords = {**branch, **keywords}
    if "$ref" in keywords:
        keywords = {**shared[keywords.pop("$ref").rpartition("/")[2]], **keywords}
    return keywords, nullable


def _keyword_problem(keywords: Mapping[str, Any]) -> str | None:
    unknown = sorted(set(keywords) - _ANNOTATIONS - states.CONSTRAINTS - {"type", "format"})
    if unknown:
        return f"{', '.join(unknown)} of its JSON Schema cannot be enforced; take it out"
    if keywords.get("type") not in {"string", "integer", "number", "boolean"}:
        return "its values are not of one type; write a Literal or an Enum of texts or of integers"
    if keywords.get("format") not in {None, "date-time"}:
        return f"its format {keywords['format']!r} cannot be enforced; write str or datetime"
    try:
        re.compile(keywords.get("pattern", ""))
    except re.error as error:
        return f"its pattern cannot be read ({error}); write a regular expression that Python's re takes"
    return None


def _property(keywords: Mapping[str, Any], *, nullable: bool) -> dict[str, Any]:
    is_datetime = keywords.get("format") == "date-time"
    field = states.json_type("datetime" if is_datetime else keywords["type"], nullable=nullable)
    field |= {key: value for key, value in keywords.items() if key in states.CONSTRAINTS or key == "description"}
    if nullable and ("enum" in field or "const" in field):
        # A list of values rules null out unless it is one of them.
        field["enum"] = [*(field.pop("enum", None) or [field.pop("const")]), None]
    return field
