"""The shown SQL: run as it stands over the tables that people have, it counts what the search counts."""

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
import search_strategies
import searched
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets.definitions import Definitions
from facetline.facets.documents import Record
from facetline.facets.view.view import View


@pytest.fixture(scope="module")
def view() -> Iterator[View]:
    """A view that every example empties for itself."""
    made = View()
    yield made
    made.close()


@pytest.fixture(scope="module")
def people(view: View) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database of somebody who has the documents as a plain table: options are text in it, the deleted are not."""
    made = duckdb.connect()
    yield made
    made.close()


def fill(view: View, people: duckdb.DuckDBPyConnection, records: list[Record]) -> None:
    """Make both hold these records and nothing else."""
    view.define(Definitions([]))
    view.define(Definitions([searched.definition()]))
    view.apply(records)
    table = view._tables["notes"]
    cells = ", ".join(
        f"CAST({column.quoted} AS VARCHAR)" if column.domain else column.quoted for column in table.columns.values()
    )
    rows = view._connection.execute(f"SELECT {cells} FROM live.main.notes WHERE doc_status <> 'deleted'").fetchall()
    kinds = ", ".join(
        f"{column.quoted} {'VARCHAR' if column.domain else column.sql_type}" for column in table.columns.values()
    )
    people.execute(f"CREATE OR REPLACE TABLE notes ({kinds})")
    if rows:
        people.executemany(f"INSERT INTO notes VALUES ({', '.join('?' * len(table.columns))})", rows)


@search_strategies.fewer
@given(
    feed=search_strategies.feeds(),
    searches=st.lists(
        st.tuples(search_strategies.selections, st.one_of(st.none(), search_strategies.filters)), min_size=1, max_size=4
    ),
)
def test_the_shown_sql_gives_the_same_total(
    view: View,
    people: duckdb.DuckDBPyConnection,
    feed: list[Record],
    searches: list[tuple[dict[str, Any], search_strategies.Filter | None]],
) -> None:
    """Whatever is selected, the statement is one SELECT with the values inside, and its count is the total."""
    fill(view, people, feed)

    for fields, condition in searches:
        selection = searched.select(**fields, filter=condition.text if condition else None, limit=1)
        statement = view.sql_of(selection)

        assert people.execute(statement).fetchall() == [(view.search(selection)["total"],)], statement
        assert "?" not in statement
        assert "live" not in statement
