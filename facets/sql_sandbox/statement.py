"""Is a text one SELECT that can do nothing but read? Judged by DuckDB's own parser, in the process that runs it.

Everything is on lists of what is allowed: kinds of nodes, of table references, table functions. Of the other
functions those are refused that DuckDB calls volatile, apart from a few. This is the first of three fences, the one
with clear errors: the process also has no access to files, and the operating system's limits.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from facetline.facets.sql_sandbox import limits

if TYPE_CHECKING:
    import duckdb

NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
REFERENCES = frozenset(
    {
        *("BASE_TABLE", "CTE", "EMPTY", "EMPTY_FROM", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY"),
        *("TABLE_FUNCTION", "COLUMN_DATA", "DELIM_GET"),
    }
)
MODIFIERS = frozenset({"ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"})
ORDERS = frozenset({"ORDER_DEFAULT", "ASCENDING", "DESCENDING", "INVALID"})
TYPES = NODES | REFERENCES | MODIFIERS | ORDERS
EXPRESSIONS = frozenset(
    {
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "DEFAULT"),
        *("FUNCTION", "LAMBDA", "LAMBDA_REF", "OPERATOR", "PARAMETER", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY"),
        *("TYPE", "WINDOW"),
    }
)
TABLE_FUNCTIONS = frozenset(
    {
        *("generate_series", "histogram", "histogram_values", "json_each", "json_tree", "range", "repeat"),
        *("repeat_row", "unnest"),
    }
)
VOLATILE = frozenset({"error", "gen_random_uuid", "random", "uuid", "uuidv4", "uuidv7"})
"""Functions that DuckDB calls volatile, and that change nothing all the same."""
REFUSED = frozenset(
    {"current_setting", "getenv", "getvariable", "json_execute_serialized_sql", "json_serialize_plan", "query", "stats"}
)
"""Not volatile, but they look at what is no table, or run a text as SQL."""
CATALOG = frozenset({"sqlite_master"})
"""DuckDB's own tables that are taken, beside `information_schema`: they show our tables alone. Of the others one
shows settings, where a folder's path stands, and what those of the next version show is unknown."""
_CHANGES = ("A CTE needs a SELECT", "SELECT INTO")
"""How DuckDB's parser itself refuses what would change something inside of a SELECT."""
_PATH = frozenset("/\\*?:.~$")
"""No table of ours has such a letter in its name; a file that someone names has."""


class Refusal(Exception):
    """Why a statement is not run; `code` is the problem type."""

    def __init__(self, message: str, code: str = "sql-not-read-only", **more: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.more = more


@dataclass(frozen=True, slots=True)
class Refused:
    """Names in a connection that are not taken: functions, and tables that are not ours. `ours` are the tables."""

    functions: frozenset[str]
    tables: frozenset[str]
    ours: frozenset[str]


def check(connection: "duckdb.DuckDBPyConnection", text: str, params: Mapping[str, Any], refused: Refused) -> str:
    """Check one statement and the names of its parameters; return it without what stands around it.

    `refused` is what `refused_of` returned for this connection.

    Raises:
        Refusal: saying what is not taken, and what is.
        duckdb.Error: the text is no SQL.
    """
    import duckdb

    try:
        statements = connection.extract_statements(text)
    except duckdb.ParserException as error:
        if any(given in str(error) for given in _CHANGES):
            raise Refusal("only SELECT is taken, also within WITH and without INTO") from error
        raise
    if len(statements) != 1:
        raise Refusal(_number(len(statements), text))
    try:
        kind = statements[0].type
    except ValueError as error:  # one that the library has no name for
        raise Refusal("only SELECT is taken") from error
    if kind != duckdb.StatementType.SELECT:
        raise Refusal(f"{kind.name.replace('_', ' ')} is not taken: only SELECT is")
    _check_names(statements[0].named_parameters, params)
    _check_tree(_tree(connection, text), refused)
    return str(statements[0].query).strip().rstrip(";")


def _number(count: int, text: str) -> str:
    if not count:
        return "there is no statement"
    if re.search(r"\bPIVOT(_WIDER)?\b", text, re.IGNORECASE):  # without values DuckDB makes a type of them first
        return "a PIVOT names its values: PIVOT tickets ON topic IN ('billing', 'outage') USING count(*)"
    return f"{count} statements; give one SELECT"


def _check_names(wanted: set[str], params: Mapping[str, Any]) -> None:
    if any(name.isdigit() for name in wanted):
        raise Refusal("parameters have names: write $topic, and give topic", "sql-error")
    missing, spare = sorted(wanted - set(params)), sorted(set(params) - wanted)
    if missing:
        raise Refusal(f"parameter ${missing[0]} is not given", "sql-error", allowed=sorted(wanted))
    if spare:
        raise Refusal(f"parameter '{spare[0]}' is not in the statement", "sql-error", allowed=sorted(wanted))


def _tree(connection: "duckdb.DuckDBPyConnection", text: str) -> Any:
    [(found,)] = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
    try:
        tree = json.loads(found)
    except RecursionError as error:
        raise Refusal("the statement is nested too deeply", "sql-too-large") from error
    if tree.get("error") is not False:
        raise Refusal("only SELECT is taken: " + str(tree.get("error_message", ""))[:200])
    if len(tree["statements"]) != 1:
        raise Refusal("give one SELECT")
    return tree["statements"][0]


def refused_of(connection: "duckdb.DuckDBPyConnection") -> Refused:
    """Return what is not taken of all that this DuckDB has."""
    views = connection.execute("SELECT lower(view_name), internal, schema_name FROM duckdb_views()").fetchall()
    own = frozenset(name for name, internal, schema in views if internal and schema != "information_schema")
    ours = frozenset(name for name, internal, _ in views if not internal)
    return Refused(refused_functions(connection), own - CATALOG, ours)


def refused_functions(connection: "duckdb.DuckDBPyConnection") -> frozenset[str]:
    """Return the names of the functions that are not taken, of those that this DuckDB has."""
    volatile = connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability = 'VOLATILE' OR has_side_effects"
    ).fetchall()
    # What is a pragma's name and no function's.
    pragmas = connection.execute(
        "SELECT function_name FROM duckdb_functions() GROUP BY ALL HAVING bool_and(function_type = 'pragma')"
    ).fetchall()
    return (frozenset(name for (name,) in [*volatile, *pragmas]) - VOLATILE) | REFUSED


def _check_tree(tree: Any, refused: Refused) -> None:
    for node, depth in _nodes(tree):
        if depth > limits.NESTING_MAX:
            raise Refusal("the statement is nested too deeply", "sql-too-large")
        kind = node.get("type")
        if "class" in node:
            _check_expression(node, refused.functions)
        elif isinstance(kind, str) and kind not in TYPES and not kind.endswith("_TYPE_INFO"):
            raise Refusal(f"{kind.replace('_', ' ')} is not taken: only SELECT is")
        elif kind == "TABLE_FUNCTION":
            _check_table_function(node)
        elif kind == "BASE_TABLE":
            _check_table(node, refused)


def _check_expression(node: Mapping[str, Any], refused: frozenset[str]) -> None:
    if node["class"] not in EXPRESSIONS:
        raise Refusal(f"an expression of the kind {node['class']} is not taken")
    name = str(node.get("function_name", "")).lower()
    if name in refused:
        raise Refusal(f"the function {name}() is not taken: it does more than look at its arguments")


def _check_table_function(node: Mapping[str, Any]) -> None:
    name = str(node.get("function", {}).get("function_name", "")).lower()
    if name not in TABLE_FUNCTIONS:
        raise Refusal(
            f"the table function {name[:80]}() is not taken; there are {', '.join(sorted(TABLE_FUNCTIONS))}",
            allowed=sorted(TABLE_FUNCTIONS),
        )


def _check_table(node: Mapping[str, Any], refused: Refused) -> None:
    name = str(node.get("table_name", ""))
    if _PATH & set(name):
        raise Refusal(f"{name[:80]!r} is no table; files are not read")
    lowered, elsewhere = name.lower(), node.get("schema_name") or node.get("catalog_name")
    if lowered in refused.tables and (elsewhere or lowered not in refused.ours):
        raise Refusal(
            f"DuckDB's own table {lowered} is not taken; information_schema.columns and SHOW TABLES list what there is"
        )


def _nodes(tree: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """Return every object of a tree with the number of nodes it is inside of; without recursion, which is bounded."""
    waiting: list[tuple[Any, int]] = [(tree, 0)]
    while waiting:
        value, depth = waiting.pop()
        if isinstance(value, dict):
            yield value, depth
            kind = value.get("type")  # of a constant it is an object
            deeper = depth + (isinstance(kind, str) and kind in NODES)
            waiting.extend((each, deeper) for each in value.values())
        elif isinstance(value, list):
            waiting.extend((each, depth) for each in value)
