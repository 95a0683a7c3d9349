"""Files that hold documents: their owner's alone, never through a link, and no pipe is waited for."""

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from facetline.evaluators.recorded import evaluator, recordings
from facetline.facets import errors, private_files
from facetline.facets.errors import InvalidDefinition
from facetline.facets.export import snapshots
from facetline.streams import local_server


def mode(path: Path) -> int:
    """Return a file's rights."""
    return path.stat().st_mode & 0o777


def test_a_folder_is_made_private_and_an_existing_one_is_restricted_once(tmp_path: Path):
    """A new folder is its owner's alone; an open one loses other users' rights, which is reported the first time."""
    (tmp_path / "old").mkdir(mode=0o755)

    assert [private_files.make_folder(tmp_path / name) for name in ("a/new", "old", "old")] == [False, True, False]
    assert [mode(tmp_path / name) for name in ("a/new", "old")] == [0o700, 0o700]


def test_a_folder_that_belongs_to_more_than_the_store_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither a folder like `/tmp` nor the working directory is closed to others."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "here").mkdir()
    (tmp_path / "here").chmod(0o755)
    monkeypatch.chdir(tmp_path / "here")

    assert not private_files.make_folder(tmp_path / "shared")
    assert not private_files.make_folder(Path())
    assert (mode(tmp_path / "shared"), mode(tmp_path / "here")) == (0o777, 0o755)


@pytest.mark.parametrize("kind", ["link", "dangling", "hard link", "fifo", "folder"])
def test_what_stands_in_place_of_a_lock_is_not_followed(tmp_path: Path, kind: str):
    """A lock's file that is a link, a second name, a FIFO or a folder is refused at once, and its target stays."""
    (tmp_path / "data").mkdir()
    target, place = tmp_path / "precious.txt", tmp_path / "data" / local_server.NAME
    if kind != "dangling":
        target.write_text("precious")
    match kind:
        case "link" | "dangling":
            place.symlink_to(target)
        case "hard link":
            place.hardlink_to(target)
        case "fifo":
            os.mkfifo(place)
        case _:
            place.mkdir()

    with pytest.raises(errors.StoreUnavailable, match="move it away"), local_server.locked(tmp_path / "data"):
        pass

    assert local_server.holder(tmp_path / "data") is None
    assert target.exists() is (kind != "dangling")
    assert kind == "dangling" or target.read_text() == "precious"


@pytest.mark.parametrize("kind", ["FIFO", "device", "folder"])
def test_answers_are_read_from_regular_files_alone(tmp_path: Path, kind: str):
    """Recorded answers and recorded calls in a FIFO, device or folder are refused at once, with what it is."""
    path = tmp_path / "answers.ndjson"
    match kind:
        case "FIFO":
            os.mkfifo(path)
        case "device":
            path = Path("/dev/zero")
        case _:
            path.mkdir()

    with pytest.raises(InvalidDefinition, match=rf"answers\.ndjson .*a {kind}|/dev/zero .*a device"):
        evaluator.Recorded(path)
    with pytest.raises(OSError, match=f"a {kind}"):
        recordings.read(path)
    with pytest.raises(OSError, match=f"a {kind}"), recordings.Writer(path):
        pass


def test_a_socket_is_named(tmp_path: Path):
    """A socket in place of a file is refused like anything that is no file."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))

        with pytest.raises(OSError, match="a socket"):
            private_files.check_plain(tmp_path / "s")


def test_what_a_shell_passes_as_a_file_is_read():
    """The pipe of `<(…)` has a writer and is taken where that is allowed, and only there."""
    read = "import sys; from pathlib import Path; from facetline.facets import private_files as p"
    command = f"{read}; print(p.open_regular(Path(sys.argv[1]), pipes=len(sys.argv) > 2).read())"
    line = f'"{sys.executable}" -c "{command}" <(echo hello)'
    root = Path(__file__).resolve().parents[2]
    taken = subprocess.run(["bash", "-c", f"{line} pipes"], capture_output=True, text=True, cwd=root, check=False)
    refused = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=root, check=False)

    assert taken.stdout == "b'hello\\n'\n", taken.stderr
    assert "it is a FIFO" in refused.stderr


def test_a_new_recording_is_its_owners_alone(tmp_path: Path):
    """A file of recorded calls has bodies in it: it is made for its owner; an existing one keeps its mode."""
    (tmp_path / "there.ndjson").touch(mode=0o644)
    for name in ("new.ndjson", "there.ndjson"):
        with recordings.Writer(tmp_path / name):
            pass

    assert (mode(tmp_path / "new.ndjson"), mode(tmp_path / "there.ndjson")) == (0o600, 0o644)


@pytest.mark.parametrize(
    ("folder", "inside", "file"),
    [(0o755, 0o755, 0o644), (0o750, 0o750, 0o640), (0o777, 0o755, 0o644), (None, 0o700, 0o600)],
)
def test_an_export_has_the_mode_of_its_folder(tmp_path: Path, folder: int | None, inside: int, file: int):
    """A snapshot may be read by those who may read its folder, whatever the umask; one that is made is private."""
    place = tmp_path / "exports"
    if folder is not None:
        place.mkdir()
        place.chmod(folder)
    before = os.umask(0o077)
    try:
        with snapshots.making(place, datetime.now(UTC)) as making:
            (making / "manifest.json").write_text("{}")
    finally:
        os.umask(before)

    current = (place / snapshots.CURRENT).resolve()
    assert (mode(current), mode(current / "manifest.json")) == (inside, file)
