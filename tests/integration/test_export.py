"""Snapshots as Parquet: what is in them, and that a reader finds a whole one whenever it looks.

Method: real views written into real folders, read with plain DuckDB as anybody would.
"""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boxed
import commands
import duckdb
import pytest
import searched

from facetline.facets import errors, tokens
from facetline.facets.definitions import Definitions
from facetline.facets.export import parquet, snapshots
from facetline.facets.view.view import View

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    """A view of `notes` and `other`, a hundred documents in the first, which may write into the test's folder."""
    made = View(store_id="store", exports=[tmp_path])
    made.define(Definitions([searched.definition(), searched.definition("other", scoped=False)]))
    made.apply([boxed.record(number) for number in range(1, 101)])
    yield made
    made.close()


def export(view: View, folder: Path, now: datetime | None = None) -> dict[str, Any]:
    """Write a snapshot; return its manifest."""
    now = now or datetime.now(UTC)
    with snapshots.making(folder, now) as new:
        return parquet.complete(new, view.export(new), now, reached=view.position)


def names(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def query(text: str) -> list[tuple[Any, ...]]:
    """Run a statement as a reader would."""
    with duckdb.connect() as connection:
        return connection.execute(text).fetchall()


def test_the_wide_file_has_the_columns_and_types_of_the_table(view: View, tmp_path: Path):
    """Every column that people may name, in order, as DuckDB has it; the hidden ones are not there."""
    manifest = export(view, tmp_path)

    described = query(f"DESCRIBE FROM '{tmp_path}/current/notes.parquet'")
    columns = {name: kind for name, kind, *_ in described}
    assert list(columns) == list(view.tables["notes"].columns)
    assert columns == manifest["collections"]["notes"]["columns"]
    assert columns["topic"] == "VARCHAR"
    assert columns["state_due"] == "TIMESTAMP"
    assert columns["urgent"] == "BOOLEAN"


def test_deleted_documents_are_in_no_file(view: View, tmp_path: Path):
    """What was deleted is neither in the wide file nor in the answers."""
    view.apply([searched.record(7, version=9, status="deleted", facets=None, fingerprint=None)])

    manifest = export(view, tmp_path)

    assert manifest["collections"]["notes"]["rows"] == 99
    assert query(f"SELECT count(*) FROM '{tmp_path}/current/notes.parquet' WHERE doc_key = 'n007'") == [(0,)]
    assert query(f"SELECT count(*) FROM '{tmp_path}/current/answers.parquet' WHERE doc_uri LIKE '%n007'") == [(0,)]


def test_each_answer_is_a_row_of_the_long_file(view: View, tmp_path: Path):
    """Each kind has its value, confidence, probability or score; documents without answers have no row."""
    facets = {
        "topic": searched.chosen("billing", 0.9),
        "urgent": searched.yes(0.2),
        "severity": searched.scored(1.4, 0.5),
    }
    old = {"facets": {"topic": searched.chosen("other")}, "fingerprint": "earlier"}
    view.apply([searched.record(201, facets=facets, classified_at=searched.NOON), searched.record(202, **old)])
    view.apply([searched.record(203, status="pending", facets=None, fingerprint=None)])

    export(view, tmp_path)

    found = query(
        "SELECT question, type, value, confidence, probability, score, fingerprint, doc_outdated, doc_classified_at"
        f" FROM '{tmp_path}/current/answers.parquet' WHERE doc_uri >= '@alice/notes/n201' ORDER BY doc_uri, question"
    )
    active, noon = searched.definition().fingerprint, searched.NOON.replace(tzinfo=None)
    assert found == [
        ("severity", "score", "annoying", 0.5, None, 1.4, active, False, noon),
        ("topic", "choice", "billing", 0.9, None, None, active, False, noon),
        ("urgent", "boolean", "false", 0.8, 0.2, None, active, False, noon),
        ("topic", "choice", "other", None, None, None, None, True, None),
    ]


def test_the_manifest_tells_what_the_files_are(view: View, tmp_path: Path):
    """Store, place in the feed, fingerprints, rows, sizes and hashes are those of the files."""
    manifest = export(view, tmp_path, NOW)

    folder = tmp_path / "current"
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    assert (manifest["schema_version"], manifest["store_id"], manifest["made_at"]) == (
        1,
        "store",
        "2026-01-02T03:04:05Z",
    )
    assert tokens.decode(manifest["token"]) == tokens.FeedToken("store", 100)
    assert manifest["collections"]["notes"]["fingerprint"] == searched.definition().fingerprint
    assert manifest["collections"]["notes"]["position"] == 100
    for each in (*manifest["collections"].values(), manifest["answers"]):
        data = (folder / each["file"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (each["bytes"], each["sha256"])
        assert query(f"SELECT count(*) FROM '{folder / each['file']}'") == [(each["rows"],)]
    assert names(folder) == ["answers.parquet", "manifest.json", "notes.parquet", "other.parquet"]


def test_without_questions_or_documents_there_are_files_all_the_same(tmp_path: Path):
    """An empty collection gives empty files with their columns; no collection at all gives empty answers."""
    with_none = View(store_id="store", exports=[tmp_path])

    export(with_none, tmp_path)
    with_none.close()

    assert query(f"SELECT count(*) FROM '{tmp_path}/current/answers.parquet'") == [(0,)]


def test_a_reader_always_finds_a_whole_snapshot(view: View, tmp_path: Path):
    """While snapshots replace each other as fast as they can, every read gives all rows of one of them."""
    export(view, tmp_path)
    stop, found, failures = threading.Event(), [], []

    def read() -> None:
        while not stop.is_set():
            try:
                [(rows, least, most)] = query(
                    f"SELECT count(*), min(doc_version), max(doc_version) FROM '{tmp_path}/current/notes.parquet'"
                )
                manifest = json.loads((tmp_path / "current" / "manifest.json").read_text())
                found.append((rows, least == most, manifest["collections"]["notes"]["rows"]))
            except (duckdb.Error, OSError, ValueError) as error:
                failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for version in range(10, 18):
        view.apply([boxed.record(number).model_copy(update={"version": version}) for number in range(1, 101)])
        export(view, tmp_path)
    stop.set()
    reader.join()

    assert failures == []
    assert set(found) == {(100, True, 100)}


def test_current_is_there_at_every_moment(tmp_path: Path):
    """Another process looks as fast as it can while the link is exchanged hundreds of times; it never misses it."""
    with snapshots.making(tmp_path, datetime.now(UTC)) as new:
        (new / "n").write_text("")
    looking = subprocess.Popen(
        [sys.executable, "-c", LOOK, str(tmp_path / "current")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert looking.stdout is not None
    assert looking.stdout.readline() == b"looking\n"

    for _ in range(200):
        with snapshots.making(tmp_path, datetime.now(UTC)) as new:
            (new / "n").write_text("")
    found, _ = looking.communicate()

    looks, missed = map(int, found.split())
    assert looks > 100
    assert missed == 0


LOOK = """
import os, select, sys
print("looking", flush=True)
looks = missed = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100):
        looks += 1
        try:
            os.lstat(sys.argv[1])
        except OSError:
            missed += 1
print(looks, missed)
"""


def test_who_has_a_snapshot_open_keeps_it_for_one_more(view: View, tmp_path: Path):
    """The one before stays for readers that resolved `current`; older ones go."""
    folders = []
    for _ in range(3):
        export(view, tmp_path)
        folders.append((tmp_path / "current").resolve())

    assert [folder.exists() for folder in folders] == [False, True, True]
    assert query(f"SELECT count(*) FROM '{folders[1]}/notes.parquet'") == [(100,)]


def test_what_a_killed_export_left_behind_is_removed(view: View, tmp_path: Path):
    """Half a snapshot is never `current`, and the next export takes it away."""
    export(view, tmp_path)
    before = (tmp_path / "current").resolve()
    half = tmp_path / ".making-killed"
    half.mkdir()
    (half / "notes.parquet").write_bytes(b"PAR1")
    (tmp_path / ".making-link").symlink_to("nowhere")

    assert (tmp_path / "current").resolve() == before
    export(view, tmp_path)
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".making")] == []


def test_a_failure_leaves_the_snapshot_before_and_nothing_else(view: View, tmp_path: Path):
    """An export that fails on its way changes nothing for readers."""
    export(view, tmp_path)
    before = names(tmp_path)

    with pytest.raises(errors.ExportFailed), snapshots.making(tmp_path, NOW) as new:
        parquet.complete(new / "gone", view.export(new), NOW, reached=0)

    assert names(tmp_path) == before


def test_two_exports_into_one_folder_do_not_mix(view: View, tmp_path: Path):
    """The second is told that the first is at work, and the first is not disturbed."""
    with snapshots.making(tmp_path, NOW) as new:
        with pytest.raises(errors.ExportFailed, match="another export"):
            export(view, tmp_path)
        parquet.complete(new, view.export(new), NOW, reached=0)

    assert query(f"SELECT count(*) FROM '{tmp_path}/current/notes.parquet'") == [(100,)]


def test_places_that_cannot_be_written_are_named(view: View, tmp_path: Path):
    """A file in the place of the folder, or above it, and a folder that the view may not write into."""
    file = tmp_path / "file"
    file.write_text("")

    with pytest.raises(errors.ExportFailed, match="not a folder"):
        export(view, file)
    with pytest.raises(errors.ExportFailed, match="not a folder"):
        export(view, file / "below")
    with pytest.raises(errors.ExportFailed, match="cannot be written"):
        view.export(tmp_path.parent)


def test_a_view_can_write_nowhere_but_where_it_was_told(tmp_path: Path):
    """Without `exports` no statement of a view's connection gets at the disk."""
    made = View(store_id="store")
    made.define(Definitions([searched.definition()]))

    with pytest.raises(errors.ExportFailed, match="cannot be written"):
        made.export(tmp_path)
    made.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_and_the_snapshot_before_stays(tmp_path: Path):
    """Files cannot grow beyond a few kilobytes, as on a full disk: a clear error, no half snapshot, no leftovers."""
    done = subprocess.run(
        [sys.executable, "-c", NO_ROOM, str(tmp_path)],
        env=commands.environment({}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "cannot be written" in done.stdout
    assert len(names(tmp_path)) == 3  # `current`, where it leads to, and the lock
    assert query(f"SELECT count(*) FROM '{tmp_path}/current/notes.parquet'") == [(3,)]


NO_ROOM = """
import resource, sys
from datetime import UTC, datetime
from pathlib import Path
import boxed, searched
from facetline.facets import errors
from facetline.facets.export import parquet, snapshots
from facetline.facets.definitions import Definitions
from facetline.facets.view.view import View

folder = Path(sys.argv[1])
view = View(store_id="store", exports=[folder])
view.define(Definitions([searched.definition()]))

def export():
    with snapshots.making(folder, datetime.now(UTC)) as new:
        parquet.complete(new, view.export(new), datetime.now(UTC), reached=0)

view.apply([boxed.record(number) for number in range(3)])
export()
view.apply([boxed.record(number) for number in range(3, 4_000)])
resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))
try:
    export()
except errors.ExportFailed as error:
    print(error.message)
"""
