"""What a collection holds at a glance, as bound SQL over the view: counts by status, failures, and how far it has come.

Pure text and parameters. A scope is "" for an unscoped collection's documents, None for all of them.
"""

# ruff: noqa: S608 (names come from a table's own columns)

from facetline.facets.documents import Status
from facetline.facets.search.conditions import Clause, parameter
from facetline.facets.table.ddl import name_of
from facetline.facets.table.tables import Table


def statuses(table: Table, scope: str | None) -> Clause:
    """Return the statement that counts: rows of (status, reason or null, documents, outdated ones)."""
    where, values = _of(scope)
    return Clause(
        f"SELECT CAST(doc_status AS VARCHAR), doc_reason, count(*), count(*) FILTER (WHERE doc_outdated) "
        f"FROM {name_of(table)} WHERE {where} GROUP BY doc_status, doc_reason",
        values,
    )


def failed(table: Table, scope: str | None, limit: int) -> Clause:
    """Return the statement of the failed documents written last: rows of (uri, reason)."""
    where, values = _of(scope)
    status = table.columns["doc_status"]
    return Clause(
        f"SELECT doc_uri, doc_reason FROM {name_of(table)} WHERE {where} AND doc_status = {parameter(status)} "
        "ORDER BY doc_written_at DESC, doc_uri LIMIT ?",
        (*values, Status.FAILED.value, limit),
    )


def version(table: Table, uri: str) -> Clause:
    """Return the statement of a document's version; no row where it is not known here. Deleted ones are."""
    return Clause(f"SELECT doc_version FROM {name_of(table)} WHERE doc_uri = ?", (uri,))


def changes(table: Table, scope: str) -> Clause:
    """Return the statement of how many changes of a scope are in here: versions, added up.

    It grows with every visible change of the scope alone; of two complete views the one with the
    higher sum is the newer one. Deleted documents keep counting.
    """
    return Clause(
        f"SELECT CAST(coalesce(sum(doc_version), 0) AS BIGINT) FROM {name_of(table)} WHERE doc_scope = ?", (scope,)
    )


def _of(scope: str | None) -> tuple[str, tuple[str, ...]]:
    return ("true", ()) if scope is None else ("doc_scope = ?", (scope,))
