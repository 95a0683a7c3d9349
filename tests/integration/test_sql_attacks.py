"""SQL that wants more than to read the tables: each is refused or harmless, with a clear error, and nothing happens.

Method: one box for all; a folder with a secret beside its snapshots, which no statement may read or change; the
statements that are refused are those that one finds in lists of tricks, in DuckDB's documentation and in its catalog.
"""

import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import boxed
import duckdb
import memory
import pytest
import pytest_asyncio

from facetline.facets import errors
from facetline.facets.sql_sandbox import statement
from facetline.facets.sql_sandbox.sandbox import SqlBox

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "nobody-may-read-this-7f3a"
TIMEOUT_MS = 20_000

REFUSED = [
    # Statements of other kinds, plainly and in disguise.
    "COPY notes TO '{outside}/stolen.csv'",
    "COPY (SELECT * FROM notes) TO '{outside}/stolen.parquet'",
    "COPY notes FROM '{secret}'",
    "WITH stolen AS (COPY notes TO '{outside}/stolen.csv') SELECT 1",
    "WITH added AS (INSERT INTO notes VALUES (1) RETURNING *) SELECT * FROM added",
    "WITH gone AS (DELETE FROM notes RETURNING *) SELECT * FROM gone",
    "INSERT INTO notes SELECT * FROM notes",
    "UPDATE notes SET topic = 'other'",
    "DELETE FROM notes",
    "MERGE INTO notes USING notes AS other ON true WHEN MATCHED THEN DELETE",
    "TRUNCATE notes",
    "DROP VIEW notes",
    "CREATE TABLE t AS SELECT 1",
    "CREATE OR REPLACE VIEW notes AS SELECT 1",
    "CREATE MACRO f() AS 1",
    "CREATE SECRET (TYPE s3)",
    "ALTER VIEW notes RENAME TO other",
    "SELECT * INTO t FROM notes",
    "ATTACH '{outside}/other.db'",
    "ATTACH 'https://127.0.0.1:1/other.db'",
    "DETACH memory",
    "USE memory",
    "INSTALL httpfs",
    "LOAD '{outside}/evil.duckdb_extension'",
    "UPDATE EXTENSIONS",
    "SET enable_external_access = true",
    "SET VARIABLE x = 1",
    "RESET memory_limit",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "EXPORT DATABASE '{outside}'",
    "IMPORT DATABASE '{outside}'",
    "BEGIN",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE INSERT INTO notes SELECT * FROM notes",
    "SELECT 1; DELETE FROM notes",
    "SELECT 1;\n--\nSELECT 2",
    "/* SELECT */ DROP VIEW notes",
    "SELECT 1 -- \n; DROP VIEW notes",
    "SEL\u200bECT 1; DROP VIEW notes",
    # Files, in every way in which a table can be one.
    "SELECT * FROM '{secret}'",
    'SELECT * FROM "{secret}"',
    "FROM '{outside}/*.csv'",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM 'notes.parquet'",
    "SELECT * FROM 'https://127.0.0.1:1/x.csv'",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_json_auto('{secret}')",
    "SELECT * FROM read_parquet('notes.parquet')",
    "SELECT * FROM parquet_metadata('notes.parquet')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM glob('{outside}/*')",
    "SELECT (SELECT content FROM read_text('{secret}'))",
    "SELECT * FROM notes WHERE doc_uri IN (SELECT content FROM read_text('{secret}'))",
    "SELECT * FROM notes ORDER BY (SELECT count(*) FROM glob('*'))",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r, glob('*')) SELECT * FROM r",
    "SELECT * FROM notes, LATERAL (SELECT * FROM read_text(doc_uri))",
    "SUMMARIZE SELECT * FROM read_text('{secret}')",
    "DESCRIBE SELECT * FROM read_text('{secret}')",
    "PIVOT read_csv('{secret}') ON word IN ('a') USING count(*)",
    # Functions that run text as SQL, look at the process, or change something.
    "SELECT * FROM query('SELECT * FROM notes')",
    "SELECT * FROM query_table('notes')",
    "SELECT * FROM json_execute_serialized_sql('{{}}')",
    "SELECT getenv('HOME')",
    "SELECT current_setting('memory_limit')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT setting FROM pg_settings WHERE name = 'allowed_paths'",
    'SUMMARIZE "PG_Settings"',
    "SELECT * FROM notes WHERE doc_uri IN (SELECT setting FROM pg_catalog.pg_settings)",
    "FROM system.pg_catalog.pg_settings",
    "SELECT * FROM duckdb_views",
    "SELECT * FROM duckdb_extensions()",
    "SELECT * FROM pragma_platform()",
    "SELECT * FROM pragma_storage_info('notes')",
    "SELECT nextval('s')",
    "SELECT currval('s')",
    "SELECT setseed(0.5)",
    "SELECT write_log('x')",
    "SELECT sleep_ms(100000)",
    "SELECT * FROM checkpoint()",
    "SELECT * FROM test_all_types()",
    "SELECT * FROM python_map_function(1)",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM system.main.duckdb_settings()",
    "SELECT main.nextval('s') FROM notes GROUP BY ALL HAVING max(main.nextval('s')) > 0",
    "SELECT list_transform([1], lambda x: nextval('s'))",
    "SELECT sum(nextval('s')) OVER (ORDER BY setseed(0.1)) FROM notes",
]
WRONG = [
    # Neither read-only nor anything else: errors that say where.
    "",
    ";",
    "SELECT",
    "SELECT nothing FROM notes",
    "SELECT * FROM nothing",
    "SELECT * FROM _tables",
    "SELECT * FROM boxed",
    "SELECT nothing(1)",
    "SELECT CAST('x' AS INTEGER)",
    "SELECT $given",
    "SELECT ?",
    "SELECT error('x')",
    "SELECT 1 \0; DROP VIEW notes",
    "SELECT '\ud800'",
    "/* never closed",
    "SELECT 'never closed",
    "ѕелест 1",
]
LARGE = [
    "SELECT repeat('x', 1500000000)",
    "SELECT list(i) FROM range(3000000000) AS r(i)",
    "SELECT repeat('x', 1100000)",
    "SELECT repeat('x', 1100000)::BLOB",
    "SELECT list(repeat('x', 1000)) FROM range(2000)",
    "SELECT string_agg(repeat('x', 1000)) FROM range(100000000)",
    "SELECT {columns}",
    "SELECT " + "(SELECT " * 300 + "1" + ")" * 300,
    "SELECT '" + "x" * (1 << 20) + "'",
    "SELECT 1 AS a" + " UNION ALL SELECT 1" * 5_000,
]
HARMLESS = [
    "SELECT 1;",
    "SELECT 1 -- ; DROP VIEW notes",
    "SELECT 'DROP VIEW notes; --'",
    "SELECT '/etc/passwd'",
    'SELECT "doc_uri" FROM notes LIMIT 1',
    "FROM notes SELECT count(*)",
    "VALUES (1), (2)",
    "TABLE notes",
    "SHOW TABLES",
    "DESCRIBE notes",
    "SUMMARIZE notes",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM sqlite_master",
    "SELECT now(), random(), uuid()",
    "PIVOT notes ON topic IN ('billing') USING count(*) GROUP BY doc_scope",
    "SELECT " + "(" * 500 + "1" + ")" * 500,
    "SELECT '\u02bc' || chr(0) || '日本'",
]


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a secret that no statement may reach."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret.csv").write_text(f"word\n{SECRET}\n")
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SqlBox]:
    """A box for all statements, with one process at a time."""
    async with boxed.boxed(tmp_path_factory.mktemp("box"), processes=1) as (made, _):
        yield made


async def refusal(box: SqlBox, text: str) -> errors.InvalidQuery:
    """Run a statement that must not run; return the error."""
    with pytest.raises(errors.InvalidQuery) as caught:
        await box.run(text, timeout_ms=TIMEOUT_MS)
    return caught.value


@pytest.mark.parametrize("text", REFUSED)
async def test_what_does_more_than_read_is_refused(box: SqlBox, outside: Path, text: str):
    """The error is `sql-not-read-only` (or a syntax error, where DuckDB has no such words) and nothing is written."""
    filled = text.format(outside=outside, secret=outside / "secret.csv")

    error = await refusal(box, filled)

    assert error.code == "sql-not-read-only" or (error.code == "sql-error" and SYNTAX in error.message), error.message
    assert SECRET not in error.message
    assert os.listdir(outside) == ["secret.csv"]  # noqa: PTH208 (names)
    assert (await box.run("SELECT count(*) FROM notes"))["rows"] == [[boxed.ROWS]]


SYNTAX = "rror at or near"


@pytest.mark.parametrize("text", WRONG)
async def test_what_is_wrong_is_told(box: SqlBox, text: str):
    """The error is `sql-error` (an empty text is no SELECT) and has words."""
    error = await refusal(box, text)

    assert error.code in ({"sql-error"} if text.strip("; ") else {"sql-not-read-only"})
    assert error.message


@pytest.mark.parametrize("text", LARGE, ids=lambda text: text[:40])
async def test_what_is_too_large_is_stopped(box: SqlBox, text: str):
    """The error is `sql-too-large`, and the next statement gets its answer."""
    columns = ", ".join(f"repeat('x', 900000) AS c{number}" for number in range(6))

    error = await refusal(box, text.replace("{columns}", columns))

    assert error.code == "sql-too-large"
    assert (await box.run("SELECT 1"))["rows"] == [[1]]


@pytest.mark.parametrize("text", HARMLESS, ids=lambda text: text[:40])
async def test_what_only_reads_is_run(box: SqlBox, outside: Path, text: str):
    """What merely looks dangerous is answered, and knows no path of this machine."""
    reply = await box.run(text, timeout_ms=TIMEOUT_MS)

    assert reply["rows"]
    assert str(outside.parent) not in json.dumps(reply)


async def test_an_error_says_where_and_what_would_be_right(box: SqlBox):
    """A misspelt column: line, column, and the nearest names."""
    error = await refusal(box, "SELECT doc_uri,\n  topci FROM notes")

    assert isinstance(error, errors.SqlFailed)
    assert (error.line, error.column) == (2, 3)
    assert "topic" in error.allowed


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('SELECT 1 FROM notes WHERE topic = "bug"', "Text stands in single quotes"),
        ("SELECT body FROM notes", "Bodies are not in these tables"),
    ],
)
async def test_a_column_that_cannot_be_has_a_hint(box: SqlBox, text: str, hint: str):
    """Text in double quotes, and a document's body, are taken for columns; the error says what they are."""
    error = await refusal(box, text)

    assert hint in error.message


@pytest.mark.parametrize(
    "text",
    [
        "PIVOT notes ON topic USING count(*)",
        "WITH few AS (FROM notes LIMIT 5) PIVOT few ON topic USING count(*)",
        "SELECT * FROM (PIVOT notes ON topic USING count(*))",
    ],
)
async def test_a_pivot_without_values_is_told_how_to_name_them(box: SqlBox, text: str):
    """DuckDB makes two statements of it; the error says what to write, and not that there are two."""
    error = await refusal(box, text)

    assert error.code == "sql-not-read-only"
    assert "ON topic IN ('billing', 'outage')" in error.message


async def test_no_table_of_duckdb_shows_a_path(box: SqlBox, outside: Path):
    """Of DuckDB's own tables and views none that is taken knows a path of this machine."""
    with duckdb.connect() as connection:
        own = connection.execute(
            "SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE internal"
            " UNION ALL SELECT view_name FROM duckdb_views() WHERE internal"
        ).fetchall()
    taken = []
    for (name,) in own:
        with contextlib.suppress(errors.InvalidQuery):
            taken.append((name, await box.run(f"SELECT * FROM {name}")))

    assert {"information_schema.tables", "sqlite_master"} <= {name for name, _ in taken}
    assert [name for name, reply in taken if str(outside.parent) in json.dumps(reply)] == []


async def test_every_function_with_effects_is_refused_or_known_to_be_harmless():
    """Of this DuckDB's functions none that it calls volatile is taken but those we looked at."""
    with duckdb.connect() as connection:
        refused = statement.refused_functions(connection)
        volatile = {
            name
            for (name,) in connection.execute(
                "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability = 'VOLATILE'"
            ).fetchall()
        }

    assert volatile
    assert volatile - refused == statement.VOLATILE & volatile


async def test_table_functions_that_are_taken_touch_no_file(box: SqlBox):
    """Each table function on the list makes rows out of its arguments; one that is not on it is named in the error."""
    touching = [
        name for name in statement.TABLE_FUNCTIONS if name.startswith(("read_", "parquet_", "duckdb_", "pragma_"))
    ]

    error = await refusal(box, "SELECT * FROM read_text('x')")

    assert touching == []
    assert set(error.allowed) == statement.TABLE_FUNCTIONS


@pytest.mark.skipif(not memory.PAGES, reason="the system does not tell a process's memory")
async def test_the_parents_memory_stays_flat(box: SqlBox):
    """After statements with huge results, cells and errors this process holds no more than before."""
    huge: list[Any] = [
        "SELECT repeat('x', 500000) FROM range(100)",
        "SELECT repeat('x', 1500000000)",
        "SELECT * FROM range(100000000)",
        "SELECT error(repeat('x', 10000000))",
    ]
    await box.run(huge[0], timeout_ms=TIMEOUT_MS)
    before = memory.resident_mb(os.getpid())

    for text in huge * 3:
        with contextlib.suppress(errors.InvalidQuery):
            await box.run(text, limit=10_000, timeout_ms=TIMEOUT_MS)
    after = memory.resident_mb(os.getpid())

    assert before is not None
    assert after is not None
    assert after - before < 64
