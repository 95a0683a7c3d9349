"""A snapshot as files: `<collection>.parquet`, `answers.parquet`, and `manifest.json`, which is written last.

Writes one folder that no reader opens yet; `facets.export.snapshots` shows it to readers.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from facetline.facets import duckdb_connection, errors, tokens
from facetline.facets.export import parquet_sql
from facetline.facets.table.tables import Table

if TYPE_CHECKING:
    import duckdb

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1
"""Of files and manifest: raised when a column of `answers` or a key of the manifest changes its meaning."""
MEMORY = "512MB"
"""What DuckDB may use to write the answers; it needs about 100 MB for a million documents."""
_READ_BYTES = 1 << 20


BODY = "doc_body"
"""The column of a document's text, where that was asked for."""
SPILL = ".spill"


class Text(NamedTuple):
    """The text of a document as of one revision."""

    collection: str
    uri: str
    revision: int
    body: str


@dataclass(frozen=True, slots=True)
class Wide:
    """A collection's file that a view wrote: `rows` documents as of `position` in the feed of `store_id`.

    `texts`: it has the column `doc_body`.
    """

    table: Table
    store_id: str
    position: int
    rows: int
    texts: bool = False

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.table.definition.name}.parquet"


def with_texts(folder: Path, wide: Sequence[Wide], texts: Iterable[Text]) -> list[Wide]:
    """Add the column `doc_body` to the files of a folder, and return what they are then.

    A text belongs to a row of the same revision; rows without one have null.

    Raises:
        ExportFailed: the files cannot be written.
    """
    with writing(folder):
        files = {each.table.definition.name: folder / f"{each.table.definition.name}.ndjson" for each in wide}
        with contextlib.ExitStack() as stack:
            opened = {name: stack.enter_context(path.open("w", encoding="utf-8")) for name, path in files.items()}
            for text in texts:
                line = json.dumps({"uri": text.uri, "revision": text.revision, "body": text.body})
                opened[text.collection].write(line + "\n")
        for each in wide:
            _join(folder, folder / each.file, files[each.table.definition.name])
    return [replace(each, texts=True) for each in wide]


def _join(folder: Path, file: Path, texts: Path) -> None:
    made = file.with_suffix(".joined")
    with _private(folder) as connection:
        connection.execute(parquet_sql.joined(file, texts, made))
    made.replace(file)
    texts.unlink()


def complete(
    folder: Path, wide: Sequence[Wide], made_at: datetime, *, reached: int, durable: bool = True
) -> dict[str, Any]:
    """Add the answers and the manifest to a folder that holds these files; return the manifest.

    `reached` is the place in the feed that all the views had reached: what the manifest's token says.
    `durable`: everything is on the disk when this returns, and the manifest has each file's sha256.

    Raises:
        ExportFailed: the files cannot be written.
    """
    with writing(folder):
        answers = _write_answers(folder, [each.table for each in wide])
        store_id = next((each.store_id for each in wide), "")
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "made_at": made_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "store_id": store_id,
            "token": tokens.encode(tokens.FeedToken(store_id, reached)),
            "collections": {each.table.definition.name: _of_wide(folder, each, durable=durable) for each in wide},
            "answers": {
                **_of_file(folder / f"{parquet_sql.ANSWERS}.parquet", answers, durable=durable),
                "columns": dict(parquet_sql.ANSWER_COLUMNS),
            },
        }
        path = folder / MANIFEST
        path.write_text(json.dumps(manifest, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        if durable:
            _sync(path)
            _sync(folder)
    return manifest


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Translate what can go wrong when files are written."""
    import duckdb

    try:
        yield
    except OSError as error:
        raise errors.ExportFailed(f"{folder} cannot be written: {error.strerror or error}") from error
    except duckdb.Error as error:
        # DuckDB names the file and the system's reason, in its first line.
        raise errors.ExportFailed(f"{folder} cannot be written: {str(error).splitlines()[0]}") from error


def _write_answers(folder: Path, tables: Sequence[Table]) -> int:
    path = folder / f"{parquet_sql.ANSWERS}.parquet"
    with _private(folder) as connection:
        [(rows,)] = connection.execute(parquet_sql.answers(tables, folder, path)).fetchall()
    return int(rows)


@contextlib.contextmanager
def _private(folder: Path) -> "Iterator[duckdb.DuckDBPyConnection]":
    """Yield a DuckDB that reads and writes in this folder alone, and spills what is large into it."""
    spill = folder / SPILL
    config: dict[str, str | int] = {
        "threads": 2,
        "memory_limit": MEMORY,
        "temp_directory": str(spill),
        "preserve_insertion_order": "false",
    }
    try:
        with duckdb_connection.connect(config) as connection:
            connection.execute(f"SET allowed_directories = [{parquet_sql.quoted(folder)}]")
            connection.execute("SET enable_external_access = false")
            yield connection
    finally:
        shutil.rmtree(spill, ignore_errors=True)


def _of_wide(folder: Path, wide: Wide, *, durable: bool) -> dict[str, Any]:
    columns = {column.name: "VARCHAR" if column.domain else column.sql_type for column in wide.table.columns.values()}
    if wide.texts:
        columns[BODY] = "VARCHAR"
    return {
        **_of_file(folder / wide.file, wide.rows, durable=durable),
        "position": wide.position,
        "fingerprint": wide.table.definition.fingerprint,
        "columns": columns,
    }


def _of_file(path: Path, rows: int, *, durable: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"file": path.name, "rows": rows, "bytes": path.stat().st_size}
    if durable:
        _sync(path)
        found["sha256"] = _sha256(path)
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
