"""Which records of a page of the feed bring a text that the view does not have yet."""

# ruff: noqa: S608 (names come from a table's own columns)

from collections.abc import Sequence
from typing import TYPE_CHECKING

from facetline.facets.documents import Shown, Status
from facetline.facets.table import ddl
from facetline.facets.table.tables import Table

if TYPE_CHECKING:
    import duckdb

_RECORDS = "_records"
_WITHOUT = (Status.DELETED.value,)


def lacking_texts(cursor: "duckdb.DuckDBPyConnection", table: Table, records: Sequence[Shown]) -> set[str]:
    """Return the uris of the records whose texts the table has of another write, or not at all.

    Where fields of the state are searched, a text is also another one when the state is.
    """
    import numpy as np

    alive = [each for each in records if each.status not in _WITHOUT]
    if not alive:
        return set()
    given = {
        "uri": np.array([each.uri for each in alive], np.object_),
        "revision": np.array([each.revision for each in alive], np.int64),
    }
    another = ""
    if table.definition.text.state_fields:
        given["state"] = np.array([each.state_json for each in alive], np.object_)
        another = " OR d.doc_state IS DISTINCT FROM r.state"
    cursor.register(_RECORDS, given)
    found = cursor.execute(
        f"SELECT r.uri FROM temp.main.{_RECORDS} AS r LEFT JOIN {ddl.name_of(table)} AS d ON d.doc_uri = r.uri "
        f"WHERE d.doc_uri IS NULL OR d.doc_revision <> r.revision OR d.doc_text <= 0{another}"
    ).fetchall()
    cursor.unregister(_RECORDS)
    return {uri for (uri,) in found}
