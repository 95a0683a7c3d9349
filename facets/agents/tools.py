"""Tools: what an agent can do, built from the collections' questions. Pure; how a tool is written down is `schemas`'.

Names and order depend on the definitions alone, so that clients may cache them. Only the definitions that are handed in
exist here: whoever calls leaves out the collections that are not `llm_readable`.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from facets.agents import wording
from facets.definitions import Definition
from facets.questions import Choice

Kind = Literal["string", "number", "integer", "boolean"]
Does = Literal[
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
"""What an agent can be allowed beside reading."""

NAME_CHARS_MAX = 64
"""OpenAI's bound for a function's name; Anthropic's and the MCP's are no smaller."""
LIMIT_DEFAULT, LIMIT_MAX = 10, 50
VALUES_DEFAULT, VALUES_MAX = 50, 256
ENUM_MAX = 50
"""Options of one choice that are listed in a schema; some models get worse at 64."""
ENUM_TOTAL_MAX = 1_000
ENUM_CHARS_MAX = 100_000
"""OpenAI takes 1,000 values in all, and 120,000 characters of names and values, in one schema."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument; `values` are the only ones it takes (empty: any), `least` and `most` bound a number.

    `many` says that several of the values may be given in a list; no schema says so, but models do it.
    """

    name: str
    kind: Kind
    description: str
    values: tuple[str, ...] = ()
    required: bool = False
    least: float | None = None
    most: float | None = None
    many: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool; `collection` is that of a search."""

    name: str
    does: Does
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


def tools_of(
    definitions: Iterable[Definition], *, allowed: Iterable[Extra] = (), scoped_caller: bool = False
) -> list[Tool]:
    """Return the tools, always in the same order; `allowed` are those beside reading.

    `scoped_caller`: the caller has a scope, so that none can be named.
    """
    shown = sorted(definitions, key=lambda definition: definition.name)
    names = tuple(definition.name for definition in shown)
    scope = any(definition.scoped for definition in shown) and not scoped_caller
    reading = [_list_collections(), _list_facets(names, scope=scope), _get_document()]
    searching = [search_tool(definition, scope=definition.scoped and not scoped_caller) for definition in shown]
    extras = set(allowed)
    return [*reading, *searching, *(_EXTRA[extra](names) for extra in EXTRAS if extra in extras)]


def search_name(collection: str) -> str:
    """Return the name of a collection's search tool; too long a name gets a hash at its end."""
    name = f"search_{collection}"
    if len(name) <= NAME_CHARS_MAX:
        return name
    tail = hashlib.sha256(collection.encode()).hexdigest()[:8]
    return f"{name[: NAME_CHARS_MAX - len(tail) - 1]}_{tail}"


def search_tool(definition: Definition, *, scope: bool = False) -> Tool:
    """Return the tool that searches one collection; `scope` adds an argument to name one."""
    listed = listed_choices(definition)
    choices = [
        Parameter(
            name,
            "string",
            wording.choice(name, question, definition.name, listed=name in listed),
            tuple(question.options) if name in listed else (),
            many=True,
        )
        for name, question in definition.questions.items()
        if isinstance(question, Choice)
    ]
    parameters = (
        *choices,
        _MIN_CONFIDENCE,
        Parameter("filter", "string", wording.filter_(definition)),
        Parameter("sort", "string", wording.sort(definition)),
        Parameter("limit", "integer", f"Hits on a page, {LIMIT_DEFAULT} unless told.", least=1, most=LIMIT_MAX),
        Parameter("cursor", "string", "next_cursor of the page before, with the other arguments as they were."),
        *([_SCOPE] if scope else []),
    )
    return Tool(
        search_name(definition.name),
        "search",
        f"Search {definition.name}",
        wording.search(definition),
        parameters,
        definition.name,
    )


def listed_choices(definition: Definition) -> frozenset[str]:
    """Return the choice questions whose options are listed in the schema: the small ones, while there is room."""
    choices = [(name, asked.options) for name, asked in definition.questions.items() if isinstance(asked, Choice)]
    values = chars = 0
    listed = set()
    for name, options in sorted(choices, key=lambda each: len(each[1])):
        values += len(options)
        chars += sum(len(option) for option in options)
        if len(options) <= ENUM_MAX and values <= ENUM_TOTAL_MAX and chars <= ENUM_CHARS_MAX:
            listed.add(name)
    return frozenset(listed)


_MIN_CONFIDENCE = Parameter(
    "min_confidence",
    "number",
    "Least confidence, 0 to 1, of the answers named as arguments; answers without a confidence fail it. It does not"
    " apply to filter.",
    least=0,
    most=1,
)
_SCOPE = Parameter("scope", "string", "Only this scope (user, customer, project) of a collection that has scopes.")
_URI = Parameter("uri", "string", "The document's uri, as a search gives it, such as tickets/t1.", required=True)


def _collection(names: tuple[str, ...], *, required: bool = True) -> Parameter:
    return Parameter("collection", "string", "The collection.", names if len(names) <= ENUM_MAX else (), required)


def _list_collections() -> Tool:
    return Tool("list_collections", "list_collections", "List collections", wording.LIST_COLLECTIONS)


def _list_facets(names: tuple[str, ...], *, scope: bool) -> Tool:
    parameters = (
        _collection(names),
        Parameter("facet", "string", "One question, such as topic; all of them unless told."),
        Parameter("contains", "string", "Only values that contain this text, in any case."),
        Parameter("min_confidence", "number", "Answers below it, 0 to 1, count as no usable answer.", least=0, most=1),
        Parameter("filter", "string", "Count only documents that fulfil this condition, as in search."),
        Parameter("limit", "integer", f"Values of a question, {VALUES_DEFAULT} unless told.", least=1, most=VALUES_MAX),
        *([_SCOPE] if scope else []),
    )
    return Tool("list_facets", "list_facets", "Count answers", wording.LIST_FACETS, parameters)


def _get_document() -> Tool:
    offset = Parameter("offset", "integer", "Go on in a long text at this character; 0 unless told.", least=0)
    return Tool("get_document", "get_document", "Read a document", wording.GET_DOCUMENT, (_URI, offset))


def _query_sql(names: tuple[str, ...]) -> Tool:
    parameters = (
        Parameter("sql", "string", "One SELECT in DuckDB's SQL.", required=True),
        Parameter("limit", "integer", f"Rows, {VALUES_DEFAULT} unless told.", least=1, most=VALUES_MAX),
    )
    return Tool("query_sql", "query_sql", "Query by SQL", wording.query_sql(names), parameters)


def _write_document(names: tuple[str, ...]) -> Tool:
    del names
    parameters = (
        _URI,
        Parameter("body", "string", "The whole new text; the old one stays unless told."),
        Parameter("state", "string", 'Its own fields as a JSON object, such as {"title": "…"}; all of them.'),
    )
    return Tool(
        "write_document",
        "write_document",
        "Write a document",
        wording.WRITE_DOCUMENT,
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
        wording.DELETE_DOCUMENT,
        (_URI,),
        reads_only=False,
        destroys=True,
    )


def _reindex(names: tuple[str, ...]) -> Tool:
    parameters = (
        _collection(names, required=False),
        Parameter("outdated", "boolean", "Ask again also where answers are of an earlier set of questions or model."),
        Parameter("force", "boolean", "Ask again about all documents."),
        Parameter("filter", "string", "Only documents that fulfil this condition, as in search."),
        Parameter("dry_run", "boolean", "Start nothing; say how many documents and calls it would be, and the cost."),
        Parameter("job", "string", "Id of a job that was started: say how far it is, start nothing."),
    )
    return Tool("reindex", "reindex", "Ask again", wording.REINDEX, parameters, reads_only=False, destroys=True)


_EXTRA = {"sql": _query_sql, "write": _write_document, "delete": _delete_document, "reindex": _reindex}
