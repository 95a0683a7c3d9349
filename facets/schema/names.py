"""Names: what a collection, a question or a state field may be called, and why.

A name is a table or column that people type bare into filters and SQL, so the words that DuckDB keeps for itself are
refused here, together with the names that the search request, the web addresses and derived columns need.
"""

import re

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

# Words that cannot stand bare as a table or column: all of category `reserved` in duckdb_keywords() and those of
# `type_function` that its parser refuses there. Generated with DuckDB 1.5.6; a test compares it with the installed one.
DUCKDB_RESERVED = frozenset(
    """
    all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast check
    collate collation column concurrently constraint create cross default deferrable desc describe distinct do else end
    except false fetch for foreign freeze from full glob group having ilike in initially inner intersect into is isnull
    join lambda lateral leading left like limit natural not notnull null offset on only or order outer overlaps pivot
    pivot_longer pivot_wider placing positional primary qualify references returning right select semi show similar some
    summarize symmetric table tablesample then to trailing true union unique unpack unpivot using variadic verbose when
    where window with
    """.split()  # noqa: SIM905 (a list would take a line for each word)
)

# Beside /v1/collections/{name} and the SQL tables, these are addresses and tables of our own.
COLLECTION_RESERVED = frozenset(
    {"answers", "v1", "mcp", "livez", "readyz", "health", "metrics", "openapi", "docs", "static"}
)

# The fields of a search request (docs/search.md), and the object that holds the answers.
QUESTION_RESERVED = frozenset(
    {"min_confidence", "minConfidence", "limit", "cursor", "filter", "sort", "counts", "scope", "at_least", "facets"}
)
QUESTION_PREFIXES = ("doc_", "state_")
QUESTION_ENDINGS = ("_confidence", "_probability", "_level")

# What the pipeline itself adds to a document.
STATE_RESERVED = frozenset({"facets", "indexed_as"})


def collection_problem(name: object) -> str | None:
    """Return why a collection cannot have this name, or None."""
    if isinstance(name, str) and name in COLLECTION_RESERVED:
        return "the name is reserved for an address or a table of our own; choose another"
    return _name_problem(name)


def question_problem(name: object) -> str | None:
    """Return why a question cannot have this id, or None."""
    if not isinstance(name, str):
        return _name_problem(name)
    if name in QUESTION_RESERVED:
        return "the id is reserved, a search request has a field of that name; choose another"
    if name.startswith(QUESTION_PREFIXES):
        return f"an id must not start with {_either(QUESTION_PREFIXES)}, other columns do; choose another"
    if name.endswith(QUESTION_ENDINGS):
        return f"an id must not end with {_either(QUESTION_ENDINGS)}, the columns of answers do; choose another"
    return _name_problem(name)


def state_problem(name: object) -> str | None:
    """Return why a state field cannot have this name, or None."""
    if isinstance(name, str) and name in STATE_RESERVED:
        return "the name is reserved for what the pipeline adds to a document; choose another"
    return _name_problem(name)


def _name_problem(name: object) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "a name is a small letter, then up to 62 small letters, digits or '_'"
    if name in DUCKDB_RESERVED:
        return f"'{name}' is a reserved word of DuckDB, SQL could not use it; choose another, such as '{name}_1'"
    return None


def _either(words: tuple[str, ...]) -> str:
    *first, last = (f"'{word}'" for word in words)
    return f"{', '.join(first)} or {last}"
