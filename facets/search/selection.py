"""What a caller asks a search for, and whether the collection can answer it.

A selection is a value: it names values of choice questions, a least confidence, a filter, an order and a page. The
filter's text is read in `facets.filter.parser`, the cursor's in `facets.search.cursors`.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from facetline.facets import validation_messages
from facetline.facets.definitions import Definition
from facetline.facets.errors import InvalidQuery, UnknownFacet, UnknownValue, nearest
from facetline.facets.filter import cql2_json, parser
from facetline.facets.filter.tree import Node
from facetline.facets.questions import Boolean, Choice, Question
from facetline.facets.search import own_fields
from facetline.facets.table import tables
from facetline.facets.table.tables import Column, Table
from facetline.facets.text import globs, lines, query

MISSING = "__missing__"
LIMIT_MAX = 200
# More would only make the cursor long: the uri decides what is left over anyway.
SORT_MAX = 8
# A choice has at most 255 options, and the missing ones.
VALUES_MAX = 256
# Buckets of one facet: what a page can show. No question that an evaluator takes has more than 255.
FACET_SIZE = 50
FACET_SIZE_MAX = 1_000
# More than the names of a collection's columns, all of them.
_LISTED_CHARS_MAX = 16 * 1024
ALL = "*"
"""Among `counts`: every question, no own field."""

Field = Literal["body"]
"""What hits carry only when it is asked for."""
FacetSort = Literal["declared", "count", "alpha"]
FacetMode = Literal["disjunctive", "conjunctive"]
TextMode = Literal["keyword", "vector", "hybrid"]
SCORE, MATCHED = "doc_score", "doc_matched"
FOUND_COLUMNS = {name: Column(name, "integer") for name in (SCORE, MATCHED)}
"""What a search by text can be sorted by beside the table's columns: score, and how many of the words a text has."""


def _one_or_many(value: Any) -> Any:
    """Return the wanted values as text: one alone is a list of one; JSON's true, false and whole numbers count, too."""
    listed = (value,) if isinstance(value, str | bool | int) else value
    if not isinstance(listed, list | tuple):
        return listed
    return tuple(_as_text(each) for each in listed)


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _comma_separated(value: Any) -> Any:
    if value is None:
        return ()
    if isinstance(value, str) and len(value) > _LISTED_CHARS_MAX:
        raise ValueError(f"it has {len(value)} characters; at most {_LISTED_CHARS_MAX} are taken")
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _filter_text(value: Any) -> Any:
    return cql2_json.text_of(value) if isinstance(value, Mapping) else value


def _not_blank(value: str | None) -> str | None:
    return None if value is None or not value.strip() else value


class Selection(BaseModel):
    """One search.

    `facets` maps a question to the wanted values (OR inside a question, AND across them): options of a choice, levels
    of a score, `true` and `false` of a boolean; `__missing__` wants the documents without a usable answer. `mc` maps a
    question to the least confidence of its answers, in place of `min_confidence`. `filter` is CQL2 text; CQL2 JSON is
    taken too, and becomes text. `sort` names columns, `-` before a name means descending. `scope` None means all
    scopes.

    `counts` names the questions and own fields to count, `*` all questions. Of each facet at most `facet_size` buckets
    are shown, the fullest, in the order `facet_sort`; those under `facet_min_count` are left out, selected ones never.

    `fields` adds to hits what the view does not hold: `body`, the text, which is read from the store.

    `q` are words that are looked for (`words`: any or all of them; `exact`: as they are written), `grep` is a pattern
    that a line has, `glob` one of keys. With `q` the best come first; `min_score` leaves out what scores less.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    collection: str
    facets: dict[str, Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]] = {}
    min_confidence: float | None = None
    mc: dict[str, float] = {}
    filter: Annotated[str | None, BeforeValidator(_filter_text)] = None
    sort: Annotated[tuple[str, ...], BeforeValidator(_comma_separated)] = ()
    limit: int = 20
    cursor: str | None = None
    counts: Annotated[tuple[str, ...], BeforeValidator(_comma_separated)] = ()
    facet_size: int = FACET_SIZE
    facet_sort: FacetSort = "declared"
    facet_min_count: int = 0
    facet_mode: FacetMode = "disjunctive"
    scope: str | None = None
    fields: Annotated[tuple[Field, ...], BeforeValidator(_comma_separated)] = ()
    q: Annotated[str | None, AfterValidator(_not_blank)] = None
    mode: TextMode | None = None
    words: Literal["any", "all"] = "any"
    exact: bool = False
    min_score: float | None = None
    grep: str | None = None
    ignore_case: bool = False
    glob: str | None = None
    highlight: bool = False
    score_details: bool = False

    def least(self, question: str) -> float | None:
        """Return the least confidence that an answer to a question needs, None when any will do."""
        return self.mc.get(question, self.min_confidence)

    @property
    def by_text(self) -> bool:
        """Whether words or a pattern are looked for in texts."""
        return self.q is not None or self.grep is not None

    @property
    def of_texts(self) -> tuple[Any, ...]:
        """All that decides which texts match, and how well."""
        asked = (self.q, self.mode, self.words, self.exact, self.min_score, self.grep, self.ignore_case)
        return (self.collection, self.scope, *asked)


def selection_of(fields: Mapping[str, Any]) -> Selection:
    """Return the selection that a caller's fields describe.

    Raises:
        InvalidQuery: a field is unknown or has a value of another type; the message names it.
    """
    try:
        return Selection.model_validate(dict(fields))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the search"
        if first["type"] == "extra_forbidden":
            known = tuple(Selection.model_fields)
            hint = nearest(place, known)
            raise InvalidQuery(
                f"there is no search field '{place}'{hint}; known: {_list(known)}", allowed=known
            ) from None
        raise InvalidQuery(f"{place}: {validation_messages.message_of(first)}") from None


def values_of(question: Question) -> tuple[str, ...]:
    """Return the values that a question can be asked for, in the declared order."""
    match question:
        case Choice():
            return tuple(question.options)
        case Boolean():
            return ("true", "false")
    return tuple(dict.fromkeys(question.levels))


def declared(facets: Mapping[str, tuple[str, ...]], table: Table) -> dict[str, tuple[str, ...]]:
    """Return the wanted values in their one form: of booleans `yes` and `True` are `true`, of integers `+7` is `7`.

    So that one search has one cursor, one address and one place in the cache, however it is written.
    """
    known = table.columns
    return {
        name: tuple(dict.fromkeys(own_fields.canonical(known[name], value) for value in values))
        if name in known and known[name].kind != "text"
        else values
        for name, values in facets.items()
    }


def with_declared(selection: Selection, table: Table) -> Selection:
    """Return the selection with its wanted values as they are declared."""
    facets = declared(selection.facets, table)
    return selection if facets == selection.facets else selection.model_copy(update={"facets": facets})


def check_selection(selection: Selection, definition: Definition) -> None:
    """Refuse what the collection cannot answer.

    Raises:
        UnknownFacet: a question that the collection does not have.
        UnknownValue: an option that its question does not have.
        InvalidFilter: the filter cannot be read.
        InvalidQuery: anything else, each with a message that names what is allowed.
    """
    table = tables.table_of(definition)
    check_on_table(with_declared(selection, table), table)


def check_on_table(selection: Selection, table: Table) -> Node | None:
    """Check a selection of `declared` values and return the filter's tree, so that it is read once."""
    if not 1 <= selection.limit <= LIMIT_MAX:
        raise InvalidQuery(f"limit is {selection.limit}; it goes from 1 to {LIMIT_MAX}")
    _check_confidences(selection, table)
    for name, values in selection.facets.items():
        _check_facet(name, values, table)
    _check_counts(selection, table)
    _check_sort(selection, table)
    _check_texts(selection)
    _check_scope(selection.scope, table)
    return None if selection.filter is None else parser.parse(selection.filter, table)


def sorted_by(selection: Selection, table: Table) -> list[tuple[Column, bool]]:
    """Return the columns of a checked selection's order, and whether each is descending."""
    order = selection.sort or ((f"-{SCORE}",) if selection.q is not None else ())
    known = {**table.columns, **FOUND_COLUMNS}
    return [(known[item.removeprefix("-")], item.startswith("-")) for item in order]


def counted_by(selection: Selection, table: Table) -> tuple[str, ...]:
    """Return the questions and own fields that a checked selection counts; `*` stands for the questions."""
    return tuple(each for name in selection.counts for each in (table.questions if name == ALL else (name,)))


def _check_confidences(selection: Selection, table: Table) -> None:
    if selection.min_confidence is not None and not 0 <= selection.min_confidence <= 1:
        raise InvalidQuery(f"min_confidence is {selection.min_confidence}; it goes from 0 to 1")
    for name, least in selection.mc.items():
        if name not in table.questions:
            raise _unknown_facet(name, table.questions)
        if not 0 <= least <= 1:
            raise InvalidQuery(f"mc.{name} is {least}; it goes from 0 to 1")


def _check_facet(name: str, values: tuple[str, ...], table: Table) -> None:
    question = table.questions.get(name)
    column = None if question is not None else table.own_fields.get(name)
    if question is None and column is None:
        raise _unknown_facet(name, (*table.questions, *table.own_fields))
    if not values:
        raise InvalidQuery(f"'{name}' is given without a value; name one or leave it out")
    if len(values) > VALUES_MAX:
        raise InvalidQuery(f"'{name}' is given {len(values)} values; at most {VALUES_MAX} are taken")
    if column is not None:
        own_fields.check_values(column, values)
    if question is None:
        return
    allowed = (*values_of(question), MISSING)
    for value in values:
        if value not in allowed:
            hint = nearest(value[:80], allowed)
            what = {"choice": "option", "score": "level"}.get(question.type, "value")
            raise UnknownValue(
                f"question '{name}' has no {what} {value[:80]!r}{hint}; allowed: {_list(allowed)}", allowed=allowed
            )


def _check_counts(selection: Selection, table: Table) -> None:
    if not 1 <= selection.facet_size <= FACET_SIZE_MAX:
        raise InvalidQuery(f"facet_size is {selection.facet_size}; it goes from 1 to {FACET_SIZE_MAX}")
    if selection.facet_min_count < 0:
        raise InvalidQuery(f"facet_min_count is {selection.facet_min_count}; it begins at 0")
    own = table.own_fields
    for name in selection.counts:
        if name in own:
            own_fields.check_countable(own[name])
        elif name != ALL and name not in table.questions:
            raise _unknown_facet(name, (*table.questions, *own, ALL))
    _refuse_twice("counts", counted_by(selection, table))


def _check_texts(selection: Selection) -> None:
    if selection.min_score is not None and not 0 <= selection.min_score <= 1:
        raise InvalidQuery(f"min_score is {selection.min_score}; it goes from 0 to 1")
    if selection.mode in {"vector", "hybrid"}:
        raise InvalidQuery(f"mode is {selection.mode}; searches go by words so far: use mode=keyword, or leave it out")
    if selection.q is not None:
        query.parse(selection.q)
    if selection.grep is not None:
        lines.checked(selection.grep)
    if selection.glob is not None:
        globs.expression(selection.glob)


def _check_sort(selection: Selection, table: Table) -> None:
    names = tuple(item.removeprefix("-") for item in selection.sort)
    if len(names) > SORT_MAX:
        raise InvalidQuery(f"sort names {len(names)} columns; at most {SORT_MAX} are taken")
    for name in names:
        if name in FOUND_COLUMNS and selection.q is None:
            raise InvalidQuery(f"sort: {name} is of searches with words; send q or leave {name} out")
        if name not in table.columns and name not in FOUND_COLUMNS:
            hint = nearest(name[:80], table.columns)
            raise InvalidQuery(
                f"sort: there is no column {name[:80]!r}{hint}; known: {_list(table.columns)}", allowed=table.columns
            )
    _refuse_twice("sort", names)


def _check_scope(scope: str | None, table: Table) -> None:
    if scope is None:
        return
    if not table.definition.scoped:
        raise InvalidQuery(f"collection '{table.definition.name}' has no scopes; leave scope out")
    if not scope:
        raise InvalidQuery("scope is empty; name one or leave it out")
    try:
        scope.encode()
    except UnicodeEncodeError:
        raise InvalidQuery("scope holds half a surrogate pair; send valid Unicode") from None


def _refuse_twice(field: str, names: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidQuery(f"{field} names '{name}' twice; once is enough")
        seen.add(name)


def _unknown_facet(name: str, known: Iterable[str]) -> UnknownFacet:
    allowed = tuple(known)
    return UnknownFacet(
        f"there is no facet {name[:80]!r}{nearest(name[:80], allowed)}; known: {_list(allowed)}", allowed=allowed
    )


def _list(names: Iterable[str]) -> str:
    shown = tuple(names)
    more = f" and {len(shown) - _LISTED_MAX} more" if len(shown) > _LISTED_MAX else ""
    return ", ".join(shown[:_LISTED_MAX]) + more


_LISTED_MAX = 30
"""Names in one message; `allowed` holds them all."""
