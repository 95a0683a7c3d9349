"""The database of one view: private to its process, in memory or in a temporary file, closed to everything outside."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from facetline.facets import duckdb_connection
from facetline.facets.errors import SearchTimeout
from facetline.facets.export import parquet_sql
from facetline.facets.table import ddl, tables
from facetline.facets.temp_folder import Scratch
from facetline.facets.view import text_tables

if TYPE_CHECKING:
    import duckdb

# Search shares the machine with the side chain and, in the local runtime, with the model.
THREADS_MAX = 4
SEARCH_S_MAX = 20.0
"""A filter may be as long as it likes within its bounds; a hundred expressions over a million texts take a minute."""


def open_private(scratch: Scratch | None, exports: Sequence[Path]) -> "duckdb.DuckDBPyConnection":
    """Return a connection to a new database, in memory or in the scratch folder; it can write to `exports` at most."""
    connection = duckdb_connection.connect(
        {
            "threads": _threads(),
            # Cells of Python objects are text, whatever a sample of them looks like (which would take pandas).
            "pandas_analyze_sample": "0",
            "temp_directory": "" if scratch is None else str(scratch.folder / "spill"),
        }
    )
    if scratch is None:
        connection.execute(f"ATTACH ':memory:' AS {tables.CATALOG}")
    else:
        connection.execute(
            f"ATTACH '{_quoted(scratch.folder / 'view.duckdb')}' AS {tables.CATALOG} (RECOVERY_MODE no_wal_writes)"
        )
    connection.execute(f"ATTACH ':memory:' AS {text_tables.CATALOG}")
    allowed = ", ".join(parquet_sql.quoted(folder.resolve()) for folder in exports)
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute(ddl.CREATE_POSITION)
    connection.execute(text_tables.CREATE_TOUCHED)
    return connection


@contextlib.contextmanager
def limited(cursor: "duckdb.DuckDBPyConnection", limit_s: float) -> Iterator[None]:
    """Stop what the cursor does inside when it takes longer.

    Raises:
        SearchTimeout: it was stopped.
    """
    import duckdb

    ended, late = threading.Event(), threading.Event()

    def watch() -> None:
        # More than once: what comes between two statements stops neither.
        while not ended.wait(_AGAIN_S if late.is_set() else limit_s):
            late.set()
            cursor.interrupt()

    watching = threading.Thread(target=watch, name="search: its limit", daemon=True)
    watching.start()
    try:
        yield
    except (duckdb.Error, RuntimeError):  # a RuntimeError where DuckDB had not begun yet
        if late.is_set():
            raise SearchTimeout from None
        raise
    finally:
        ended.set()
        watching.join()


_AGAIN_S = 0.1


def _threads() -> int:
    import os

    return min(THREADS_MAX, os.cpu_count() or 1)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
