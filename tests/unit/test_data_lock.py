"""The lock of a data folder: one holder, found by others while it holds, and by nobody afterwards."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from facetline.facets import errors
from facetline.streams import local_server

HOLDING = """
import sys
from pathlib import Path
from facetline.streams import local_server as data_lock
with data_lock.locked(Path(sys.argv[1])) as lock:
    lock.publish("http://127.0.0.1:1", "s")
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_holder_is_found_and_its_second_refused(tmp_path: Path):
    """While a folder is held its address and secret are found, and nobody else gets it."""
    with local_server.locked(tmp_path / "new") as lock:
        assert local_server.holder(tmp_path / "new") is None  # it has not told where it is yet
        lock.publish("http://127.0.0.1:8080", "store-1")

        found = local_server.holder(tmp_path / "new")

        assert found is not None
        assert (found.url, found.secret, found.store_id) == ("http://127.0.0.1:8080", lock.secret, "store-1")
        assert lock.secret not in repr(found)
        with pytest.raises(errors.Conflict, match=r"http://127\.0\.0\.1:8080"), local_server.locked(tmp_path / "new"):
            pass
    assert local_server.holder(tmp_path / "new") is None


def test_who_only_looks_is_no_server(tmp_path: Path):
    """A command that looks whether a folder is served has the lock for a moment; a server that starts then waits."""
    (tmp_path / local_server.NAME).touch()
    looking = (tmp_path / local_server.NAME).open()
    fcntl.flock(looking, fcntl.LOCK_SH)
    gone = threading.Timer(0.05, looking.close)
    gone.start()

    with local_server.locked(tmp_path) as lock:
        lock.publish("http://127.0.0.1:8080", "store-1")
        assert local_server.holder(tmp_path) is not None
    gone.join()


def test_each_run_has_a_secret_of_its_own(tmp_path: Path):
    """A secret opens one run of a server; and the file is its owner's alone."""
    with local_server.locked(tmp_path) as first:
        pass
    with local_server.locked(tmp_path) as second:
        assert first.secret != second.secret
        assert (tmp_path / local_server.NAME).stat().st_mode & 0o777 == 0o600


def test_a_killed_holder_holds_nothing(tmp_path: Path):
    """What a killed process left in the file is believed by nobody, and the folder can be held again."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        alive = local_server.holder(tmp_path)
        process.kill()
        process.wait()

    assert alive is not None
    assert alive.pid == process.pid
    assert "http" in (tmp_path / local_server.NAME).read_text()
    assert local_server.holder(tmp_path) is None
    with local_server.locked(tmp_path):
        assert (tmp_path / local_server.NAME).read_text() == ""


@pytest.mark.parametrize("content", ["", "{", "[]", '{"url": 1}', "\0\0"])
def test_a_file_that_says_nothing_sensible_is_no_holder(tmp_path: Path, content: str):
    """Whatever stands in the file, a held folder without an address has no holder that commands could ask."""
    with local_server.locked(tmp_path):
        (tmp_path / local_server.NAME).write_text(content)

        assert local_server.holder(tmp_path) is None


def test_no_folder_has_no_holder(tmp_path: Path):
    """A folder that is not there is held by nobody."""
    assert local_server.holder(tmp_path / "none") is None
