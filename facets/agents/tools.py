"""Tools of an agent, built from the collections' questions. Pure; `schemas` formats them.

Names and order depend only on the definitions, so that clients may cache them. The caller passes only definitions of
collections that are `llm_readable`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from facetline.facets.agents import descriptions
from facetline.facets.definitions import Definition
from facetline.facets.questions import Choice

Kind = Literal["string", "number", "integer", "boolean"]
Action = Literal[
    "list_collections",
    "list_facets",
    "get_document",
    "search",
    "query_sql",
    "write_document",
    "delete_document",
    "reindex",
]
Extra = Literal["sql", "write", "delete", "reindex"]
EXTRAS: tuple[Extra, ...] = ("sql", "write", "delete", "reindex")
"""Optional tools, which must be allowed."""

NAME_CHARS_MAX = 64
"""OpenAI's limit for a function's name; those of Anthropic and MCP are not smaller."""
LIMIT_DEFAULT, LIMIT_MAX = 10, 50
VALUES_DEFAULT, VALUES_MAX = 50, 256
ENUM_MAX = 50
"""Options of one choice that are listed in a schema; some models degrade at 64."""
ENUM_TOTAL_MAX = 1_000
"""OpenAI's limit for all values of one schema."""
TOOL_BYTES_MAX = 16_384
"""Size of one tool in any format, as ASCII: clients truncate larger ones, or omit the server's tools."""
SEARCHES_BYTES_MAX = 98_304
"""Size of all search tools together, six of the largest: more of them share it equally."""
SEARCH_BYTES_MIN = 4_096
"""Minimum share of a search tool: enough to describe the questions, with options looked up."""
_FRAME_BYTES = 1_024
"""Size of a tool's name, title, annotations and JSON punctuation."""
_ASKS = (descriptions.ASK_CHARS_MAX, 120, 40, 0)
"""Characters per question, from the longest description to none; fewer if there are many questions."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument; `values` are the allowed ones (empty: any), `least` and `most` bound a number.

    `many`: a list of several values is accepted; schemas do not offer it, but models send it. `is_json`: the text is a
    JSON object, which is also accepted as an object. `is_listed` False: omitted from the schema for its size, but still
    accepted.
    """

    name: str
    kind: Kind
    description: str
    values: tuple[str, ...] = ()
    required: bool = False
    least: float | None = None
    most: float | None = None
    many: bool = False
    is_json: bool = False
    is_listed: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool; `collection` is set for search tools."""

    name: str
    action: Action
    title: str
    description: str
    parameters: tuple[Parameter, ...] = ()
    collection: str | None = None
    reads_only: bool = True
    destroys: bool = False

    @property
    def by_name(self) -> Mapping[str, Parameter]:
        """The parameters by name."""
        return {parameter.name: parameter for parameter in self.parameters}

    @property
    def listed(self) -> tuple[Parameter, ...]:
        """The parameters in schemas and signatures."""
        return tuple(parameter for parameter in self.parameters if parameter.is_listed)


def tools_of(
    definitions: Iterable[Definition], *, allowed: Iterable[Extra] = (), scoped_caller: bool = False
) -> list[Tool]:
    """Return the tools in a stable order; `allowed` are the optional ones.

    `scoped_caller`: the caller is limited to one scope, so that tools have no argument for it.
    """
    shown = sorted(definitions, key=lambda definition: definition.name)
    names = tuple(definition.name for definition in shown)
    scope = any(definition.scoped for definition in shown) and not scoped_caller
    reading = [_list_collections(), _list_facets(names, scope=scope), _get_document()]
    room = min(TOOL_BYTES_MAX, max(SEARCH_BYTES_MIN, SEARCHES_BYTES_MAX // max(1, len(shown))))
    searching = [
        search_tool(definition, scope=definition.scoped and not scoped_caller, bytes_max=room) for definition in shown
    ]
    extras = set(allowed)
    return [*reading, *searching, *(_EXTRA[extra](names) for extra in EXTRAS if extra in extras)]


def search_name(collection: str) -> str:
    """Return the name of a collection's search tool; a name that is too long ends with a hash."""
    name = f"search_{collection}"
    if len(name) <= NAME_CHARS_MAX:
        return name
    tail = hashlib.sha256(collection.encode()).hexdigest()[:8]
    return f"{name[: NAME_CHARS_MAX - len(tail) - 1]}_{tail}"


def search_tool(definition: Definition, *, scope: bool = False, bytes_max: int = TOOL_BYTES_MAX) -> Tool:
    """Return the search tool of a collection, at most `bytes_max` bytes in size; `scope` adds that argument.

    If not everything fits, option lists are dropped, longest first: their options are looked up with list_facets and
    still checked at the call. Then questions are shortened, and finally omitted: filter has the same columns, and an
    omitted argument is still accepted.
    """
    description = descriptions.search(definition)
    beside = (
        _MIN_CONFIDENCE,
        Parameter("filter", "string", descriptions.filter_(definition, bytes_max // 4)),
        Parameter("sort", "string", descriptions.sort(definition)),
        Parameter("limit", "integer", f"Hits per page, default {LIMIT_DEFAULT}.", least=1, most=LIMIT_MAX),
        Parameter("cursor", "string", "next_cursor of the previous page; keep the other arguments unchanged."),
        *([_SCOPE] if scope else []),
    )
    room = bytes_max - _FRAME_BYTES - len(json.dumps(description)) - sum(map(_size, beside))
    return Tool(
        search_name(definition.name),
        "search",
        f"Search {definition.name}",
        description,
        (*_choices(definition, room), *beside),
        definition.name,
    )


def _choices(definition: Definition, room: int) -> list[Parameter]:
    """Return the arguments of the choice questions, described as far as the size allows."""
    asked = {name: question for name, question in definition.questions.items() if isinstance(question, Choice)}
    for ask_max in _ASKS:
        found = {name: _looked_up(name, question, definition.name, ask_max) for name, question in asked.items()}
        left = room - sum(map(_size, found.values()))
        if left >= 0:
            break
    else:
        for name in reversed(found):
            if left >= 0:
                break
            left += _size(found[name])
            found[name] = replace(found[name], is_listed=False)
    values = 0
    listable = [name for name in asked if len(asked[name].options) <= ENUM_MAX and found[name].is_listed]
    small_first = sorted(listable, key=lambda name: len(asked[name].options))
    for described in (False, True):  # listing options is worth more than their meanings
        for name in small_first:
            options = tuple(asked[name].options)
            text = descriptions.choice(asked[name], described=described, ask_max=ask_max)
            fuller = replace(found[name], description=text, values=options)
            cost = _size(fuller) - _size(found[name])
            new = 0 if found[name].values else len(options)
            if cost <= left and values + new <= ENUM_TOTAL_MAX:
                left, values, found[name] = left - cost, values + new, fuller
    return list(found.values())


def _looked_up(name: str, question: Choice, collection: str, ask_max: int) -> Parameter:
    return Parameter(name, "string", descriptions.many(name, question, collection, ask_max), many=True)


def _size(parameter: Parameter) -> int:
    """Return at least the bytes that an argument takes in any format, as ASCII."""
    if not parameter.is_listed:
        return 0
    strict = {"type": [parameter.kind, "null"], "description": parameter.description}
    values = {"enum": [*parameter.values, None]} if parameter.values else {}
    bounds = {"minimum": parameter.least, "maximum": parameter.most}
    return len(json.dumps({parameter.name: {**strict, **values, **bounds}})) + len(json.dumps(parameter.name)) + 4


_MIN_CONFIDENCE = Parameter(
    "min_confidence",
    "number",
    "Minimum confidence, 0 to 1, of the answers named as arguments; answers without a confidence fail it. It does not"
    " apply to filter.",
    least=0,
    most=1,
)
_SCOPE = Parameter("scope", "string", "Only this scope (user, customer, project) of a collection that has scopes.")
_URI = Parameter("uri", "string", "The document's uri, as a search gives it, such as tickets/t1.", required=True)


def _collection(names: tuple[str, ...], *, required: bool = True) -> Parameter:
    return Parameter("collection", "string", "The collection.", names if len(names) <= ENUM_MAX else (), required)


def _list_collections() -> Tool:
    return Tool("list_collections", "list_collections", "List collections", descriptions.LIST_COLLECTIONS)


def _list_facets(names: tuple[str, ...], *, scope: bool) -> Tool:
    parameters = (
        _collection(names),
        Parameter("facet", "string", "One question, such as topic; default: all."),
        Parameter("contains", "string", "Only values that contain this text (case-insensitive)."),
        Parameter("min_confidence", "number", "Answers below it, 0 to 1, count as no usable answer.", least=0, most=1),
        Parameter("filter", "string", "Count only documents that match this condition, as in search."),
        Parameter("limit", "integer", f"Values per question, default {VALUES_DEFAULT}.", least=1, most=VALUES_MAX),
        *([_SCOPE] if scope else []),
    )
    return Tool("list_facets", "list_facets", "Count answers", descriptions.LIST_FACETS, parameters)


def _get_document() -> Tool:
    offset = Parameter("offset", "integer", "Continue a long text at this character; default 0.", least=0)
    return Tool("get_document", "get_document", "Read a document", descriptions.GET_DOCUMENT, (_URI, offset))


def _query_sql(names: tuple[str, ...]) -> Tool:
    parameters = (
        Parameter("sql", "string", "One SELECT in DuckDB's SQL.", required=True),
        Parameter("limit", "integer", f"Maximum number of rows, default {VALUES_DEFAULT}.", least=1, most=VALUES_MAX),
    )
    return Tool("query_sql", "query_sql", "Query by SQL", descriptions.query_sql(names), parameters)


def _write_document(names: tuple[str, ...]) -> Tool:
    del names
    parameters = (
        _URI,
        Parameter("body", "string", "The complete new text; if omitted, the text is unchanged."),
        Parameter("state", "string", 'All state fields as a JSON object, such as {"title": "…"}.', is_json=True),
    )
    return Tool(
        "write_document",
        "write_document",
        "Write a document",
        descriptions.WRITE_DOCUMENT,
        parameters,
        reads_only=False,
        destroys=True,
    )


def _delete_document(names: tuple[str, ...]) -> Tool:
    del names
    return Tool(
        "delete_document",
        "delete_document",
        "Delete a document",
        descriptions.DELETE_DOCUMENT,
        (_URI,),
        reads_only=False,
        destroys=True,
    )


def _reindex(names: tuple[str, ...]) -> Tool:
    parameters = (
        _collection(names, required=False),
        Parameter("outdated", "boolean", "Also documents whose answers are to older questions or of an older model."),
        Parameter("force", "boolean", "All documents, including answered ones."),
        Parameter("filter", "string", "Only documents that match this condition, as in search."),
        Parameter("dry_run", "boolean", "Only estimate documents, calls and cost; start nothing."),
        Parameter("job", "string", "Id of a started job: return its progress, start nothing."),
    )
    return Tool("reindex", "reindex", "Ask again", descriptions.REINDEX, parameters, reads_only=False, destroys=True)


_EXTRA = {"sql": _query_sql, "write": _write_document, "delete": _delete_document, "reindex": _reindex}
