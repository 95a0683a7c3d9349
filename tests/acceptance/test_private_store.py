"""The store on disk, as commands make it: nobody but its owner reads it, and nothing is reached through a link."""

import os
import signal
from pathlib import Path

import pytest
from commands import Place

OPEN = 0o022


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A project with one document."""
    made = Place(tmp_path)
    before = os.umask(OPEN)
    try:
        assert made.run("init").code == 0
        assert made.run("write", "tickets/t1", "--body", "I was charged twice").code == 0
    finally:
        os.umask(before)
    return made


def rights(folder: Path) -> dict[str, str]:
    """Return the rights of a folder and everything in it."""
    return {
        str(each.relative_to(folder.parent)): oct(each.lstat().st_mode & 0o777) for each in (folder, *folder.rglob("*"))
    }


def test_a_new_store_is_its_owners_alone(place: Place):
    """Under the usual umask the data folder is 0700 and every file in it 0600."""
    found = rights(place.folder / ".facetline")

    assert found.pop(".facetline") == "0o700"
    assert "facetline.db" in str(found)
    assert set(found.values()) == {"0o600"}


def test_a_readable_store_is_made_private_and_that_is_reported_once(place: Place):
    """What an earlier version left readable loses other users' rights at the next opening, with a warning."""
    data = place.folder / ".facetline"
    data.chmod(0o755)
    for each in data.iterdir():
        each.chmod(0o644)
    (data / "facetline.db-wal").touch(mode=0o644)

    first, second = place.run("get", "tickets/t1"), place.run("get", "tickets/t1")

    assert first.code == second.code == 0
    assert "store_made_private" in first.err
    assert "data_folder_made_private" in first.err
    assert "made_private" not in second.err
    assert rights(data).pop(".facetline/facetline.db") == "0o600"
    assert oct(data.stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("name", ["facetline.db", "facetline.db-wal", "facetline.db-shm"])
def test_a_link_in_place_of_a_data_file_is_not_followed(place: Place, name: str):
    """A database or a WAL that is a link is refused in one line, and what it leads to is left alone."""
    path, target = place.folder / ".facetline" / name, place.folder / "precious"
    target.write_text("precious")
    path.unlink(missing_ok=True)
    path.symlink_to(target)

    ended = place.run("get", "tickets/t1")

    assert ended.code == 1
    assert len(ended.err.splitlines()) == 1
    assert "is a link" in ended.err
    assert target.read_text() == "precious"


def test_a_fifo_is_refused_where_a_file_is_read(place: Place):
    """An import, labels, a body and recorded answers from a FIFO end at once with a line, and stop at no signal."""
    fifo = place.folder / "f.ndjson"
    os.mkfifo(fifo)
    config = place.folder / "facetline.toml"
    for words in (("import", fifo, "--collection", "tickets"), ("write", "tickets/t2", "--file", fifo)):
        ended = place.run(*words)

        assert ended.code == 2
        assert "it is a FIFO" in ended.err
    config.write_text(config.read_text().replace('kind = "embedded"', f'kind = "recorded"\npath = "{fifo}"'))
    with place.start("collections", "check") as process:
        try:
            _, said = process.communicate(timeout=20)
        finally:
            process.send_signal(signal.SIGKILL)

    assert process.returncode == 1
    assert "it is a FIFO" in said
