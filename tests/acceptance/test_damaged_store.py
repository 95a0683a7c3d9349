"""A store that cannot be used: each command ends with one line that says what is wrong and what to do, and with 1."""

import ctypes
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from commands import Ended, Place
from served import ServedPlace, Server
from serving import serve_process

COMMANDS = (
    ("get", "tickets/t1"),
    ("search", "tickets"),
    ("write", "tickets/t2", "--body", "x"),
    ("token", "list"),
    ("cost",),
    ("jobs", "list"),
    ("serve", "--port", "0"),
    ("backup", "copy.db"),
)
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
PAGE = 4_096


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Path:
    """A project with answered documents, to be copied and damaged."""
    place = ServedPlace(tmp_path_factory.mktemp("made"), server)
    assert place.run("init", "--samples").code == 0
    assert place.run("import", "samples.ndjson", "--collection", "tickets").code == 0
    return place.folder


@pytest.fixture
def place(made: Path, tmp_path: Path, server: Server) -> Place:
    """A copy of it."""
    return ServedPlace(Path(shutil.copytree(made, tmp_path / "project")), server)


def database(place: Place) -> Path:
    """Return the database's file."""
    return place.folder / ".facetline" / "facetline.db"


def one_line(ended: Ended, *words: str) -> None:
    """Check how a command ended: 1, one line, and all of these words in it."""
    assert ended.code == 1, ended
    assert len(ended.err.splitlines()) == 1, ended.err
    assert all(word in ended.err for word in words), ended.err


def obey_rights() -> None:
    """Take from the user root (in a child, before it begins) what makes it pass over the rights of files."""
    if os.geteuid() == 0:
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def damage(path: Path, first: int) -> None:
    """Overwrite everything from a page on."""
    pages = path.stat().st_size // PAGE
    with path.open("r+b") as file:
        file.seek(first * PAGE)
        file.write(b"\xff" * (pages - first) * PAGE)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_damaged_store_is_one_line(place: Place, words: tuple[str, ...]):
    """Where pages are overwritten no command has a traceback, and each names the file and the restore."""
    damage(database(place), 1)

    one_line(place.run(*words), "facetline.db", "damaged", "facetline restore")


def test_doctor_finds_damage_that_no_command_has_met(place: Place):
    """Damage in pages that nobody reads now is found by the doctor, which fails."""
    with sqlite3.connect(database(place)) as connection:
        [(root,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'memo'")
    with database(place).open("r+b") as file:
        file.seek((root - 1) * PAGE)
        file.write(b"\xff" * PAGE)

    ended = place.run("doctor", "--json")

    assert ended.code == 1
    [said] = [each for each in ended.lines if each["check"] == "store"]
    assert not said["ok"]
    assert "damaged" in said["detail"]
    assert "facetline restore" in said["detail"]
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_cannot_be_written_is_one_line(place: Place, what: str):
    """A file or folder of another user (a volume's usual fault) is named, and the doctor fails."""
    target = database(place) if what == "file" else database(place).parent
    target.chmod(0o500 if what == "folder" else 0o400)
    for words in (("write", "tickets/t2", "--body", "x"), ("doctor", "--json")):
        with place.start(*words, preexec_fn=obey_rights) as process:
            out, err = process.communicate(timeout=60)

        assert process.returncode == 1
        assert "Traceback" not in err
        said = out if words[0] == "doctor" else err
        assert "may not write" in said, said
        assert words[0] == "doctor" or len([line for line in err.splitlines() if line.startswith("facetline:")]) == 1


def test_the_whole_way_back(place: Place):
    """Backup, writes, a server that refuses the restore, then the restore: what was is back, tokens are revoked."""
    before = place.run("backup", "copy.db", "--json")
    token = place.run("token", "create", "--json").json
    again = place.run("backup", "with-token.db", "--json")
    place.run("token", "revoke", token["id"])
    place.run("write", "tickets/later", "--body", "x")
    with serve_process(place, "--port", "0"):
        one_line(place.run("restore", "copy.db"), "open in another process")
    plain = place.run("restore", "with-token.db")
    revoking = place.run("restore", "with-token.db", "--revoke-tokens", "--json")

    assert (before.code, before.json["tokens"], again.json["tokens"]) == (0, 0, 1)
    assert "facetline token revoke --all" in plain.err
    assert (revoking.code, revoking.json["revoked"], revoking.json["documents"]) == (0, 1, again.json["documents"])
    assert place.run("get", "tickets/later").code == 1
    assert place.run("token", "list").out == ""
    assert place.run("token", "revoke", "--all", "--json").json == {"revoked": 0}
    assert place.run("token", "revoke").code == 2


@pytest.mark.parametrize("words", [("backup", "copy.db"), ("restore", "copy.db")], ids=" ".join)
def test_postgresql_has_tools_of_its_own(tmp_path: Path, words: tuple[str, ...]):
    """With PostgreSQL both commands name its tools and the page that has the steps, in one line, asking no server."""
    place = Place(tmp_path, {"FACETLINE_STORE_URL": "postgresql+psycopg://me@nowhere.invalid/facetline"})

    one_line(place.run(*words), "pg_dump", "pg_restore", "docs/operate.md")
