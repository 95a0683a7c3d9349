"""A backup made under load and restored: what it had is back, and nothing that is acknowledged afterwards is lost."""

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import seeds
from commands import HELPERS, Place, environment

ROUNDS = 2
ROUNDS_SOAK = 4
WRITES_MAX = 25


@contextlib.contextmanager
def writer(place: Place, first: int) -> Iterator[Any]:
    """A process that writes documents from this number on; it is killed at the end."""
    words = [sys.executable, HELPERS / "writing_child.py", place.folder, str(first)]
    with subprocess.Popen(words, env=environment({}), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged(process: Any, count: int) -> int:
    """Wait for so many more acknowledgements; return the last one's number."""
    number = -1
    for _ in range(count):
        number = int(process.stdout.readline())
    return number


def documents(place: Place) -> dict[int, str]:
    """Return the status of the store's documents, by number."""
    path = place.folder / ".facetline" / "facetline.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT uri, status FROM documents").fetchall()
    return {int(uri.removeprefix("tickets/n")): status for uri, status in rows}


@pytest.mark.timeout(300)
def test_a_restored_backup_goes_on(tmp_path: Path):
    """Backed up while documents are written, written on, killed, restored, written on and killed again: the store has
    what was acknowledged before the backup and everything after the restore, without gaps, and all of it is answered.
    """
    source = seeds.chance("restored")
    place = Place(tmp_path)
    assert place.run("init").code == 0
    first = 0
    for turn in range(ROUNDS if seeds.given() is None else ROUNDS_SOAK):
        copy = tmp_path / f"copy-{turn}.db"
        with writer(place, first) as writing:
            before = acknowledged(writing, source.randint(1, WRITES_MAX))
            assert place.run("backup", copy).code == 0
            after = acknowledged(writing, source.randint(1, WRITES_MAX))
        restored = place.run("restore", copy, "--json")
        assert restored.code == 0, restored.err
        kept = documents(place)
        last = max(kept)
        with writer(place, last + 1) as writing:
            acknowledged_last = acknowledged(writing, source.randint(1, WRITES_MAX))

        assert set(kept) == set(range(last + 1))
        assert before <= last
        assert after > before
        assert restored.json["documents"] == len(kept)
        assert set(range(acknowledged_last + 1)) <= set(documents(place))
        first = max(documents(place)) + 1
    assert place.run("reindex", "tickets").code == 0
    assert set(documents(place).values()) == {"indexed"}
    assert place.run("doctor").code == 0
