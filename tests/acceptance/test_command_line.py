"""The command line as a program among others: version, completion, help, exit codes, colours, and wrong addresses."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import commands
import documented
import pytest
from commands import Place
from served import ServedPlace, Server

FACETLINE = [sys.executable, "-c", "from facetline.streams.cli.main import main; main()"]
RUN_S = 60


@pytest.fixture
def place(tmp_path: Path, server: Server) -> Place:
    """A folder with the documentation's project; t1 has a recorded answer, other bodies have none."""
    documented.files(tmp_path)
    documented.project(tmp_path)
    return ServedPlace(tmp_path, server)


def on_terminal(words: list[str], folder: Path, **settings: str) -> bytes:
    """Run a command whose standard error is a terminal; return what it wrote there."""
    ours, theirs = pty.openpty()
    environment = commands.environment({"TERM": "xterm-256color", **settings})
    process = subprocess.Popen(
        [*FACETLINE, *words], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    process.wait(RUN_S)
    return said


def test_version_and_completion(place: Place):
    """The version is that of the distribution; a shell's completion can be shown."""
    version = place.run("--version")
    shown = place.run(
        "--show-completion", settings={"SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    )

    assert (version.code, version.out.split()[0]) == (0, "facetline")
    assert version.out.split()[1][0].isdigit()
    assert "Traceback" not in shown.err


def test_help_is_grouped_and_plain(place: Place):
    """Commands stand under start, search and operate, without colours, also where a service asks for them."""
    shown = place.run("--help", settings={"FORCE_COLOR": "1", "GITHUB_ACTIONS": "true"})

    assert shown.code == 0
    places = [shown.out.index(f"\n{group}:\n") for group in ("Start", "Search", "Operate")]
    assert places == sorted(places)
    assert places[0] < shown.out.index("\n  write ") < places[1] < shown.out.index("\n  sql ") < places[2]
    assert "\x1b" not in shown.out


def test_a_write_without_an_answer_in_time_ends_with_3(place: Place):
    """Out of time is 3, an answer that failed for good is 0, and so is a write that waits for none."""
    late = place.run("write", "tickets/t1", "--body", "late", "--timeout", "0", "--json")
    failed = place.run("write", "tickets/nothing-known", "--body", "no answer is recorded", "--json")
    applied = place.run("write", "tickets/t2", "--body", "later", "--wait", "applied", "--json")

    assert (late.code, late.json["status"]) == (3, "pending")
    assert (failed.code, failed.json["status"]) == (0, "failed")
    assert applied.code == 0


def test_a_job_that_only_failed_ends_as_failed(place: Place):
    """No answer and a failure is `failed` and exit code 1; with one answer beside it, `succeeded` and 0."""
    place.run("write", "tickets/nothing-known", "--body", "no answer is recorded", "--json")
    only = place.run("reindex", "tickets", "--json")
    shown = place.run("jobs", "show", only.json["id"], "--json")
    place.run("write", "tickets/t1", "--body", "known")
    mixed = place.run("reindex", "tickets", "--force", "--json")

    assert (only.code, only.json["state"], only.json["progress"]["failed"]) == (1, "failed", 1)
    assert (shown.code, shown.json["state"]) == (0, "failed")
    assert (mixed.code, mixed.json["state"]) == (0, "succeeded")


def test_collections_are_listed(place: Place):
    """Active ones with their documents, those of the file that are not active as such."""
    place.run("write", "tickets/t1", "--body", "known")
    listed = place.run("collections", "list", "--json")
    human = place.run("collections", "list")

    rows = {row["collection"]: row for row in listed.lines}
    assert (rows["tickets"]["active"], rows["tickets"]["documents"]) == (True, {"indexed": 1})
    assert "tickets/*" in human.out


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgres://me:hush@db/facets", "write postgresql+psycopg://"),
        ("postgresql://me:hush@db/facets", "write postgresql+psycopg://"),
        ("mysql://me:hush@db/facets", "write postgresql+psycopg://"),
        ("postgresql+asyncpg://me:hush@db/facets", "write postgresql+psycopg://"),
        ("postgresql+psycopg://me:hush@db:54x32/facets", "host and port cannot be read"),
        ("sqlite://hush.db", "three slashes"),
        ("sqlite://", "names no file"),
        ("hush.db", "it is no URL"),
        ("://hush", "it is no URL"),
    ],
)
def test_a_wrong_store_url_is_one_line(place: Place, url: str, says: str):
    """The line names the setting and the right form, and repeats nothing that may be a password."""
    refused = place.run("search", "tickets", settings={"FACETLINE_STORE_URL": url})

    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert "setting store_url: " in refused.err
    assert "FACETLINE_STORE_URL" in refused.err
    assert says in refused.err
    assert "hush" not in refused.err


@pytest.mark.parametrize("folder", ["facetline.toml", "facetline.toml/below", "/proc/none", "/dev/null"])
def test_a_folder_that_cannot_be_used_is_one_line(place: Place, folder: str):
    """A file in its place, a place below a file, one where nothing can be made: named in one line, with the option."""
    refused = place.run("write", "tickets/t1", "--body", "known", "--folder", folder)

    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert folder in refused.err
    assert "--folder" in refused.err


def test_colours_are_for_terminals_and_can_be_refused(place: Place):
    """A log on a terminal is coloured; with NO_COLOR, on a dumb one, or in a pipe it is not; an empty one is none."""
    words = ["write", "tickets/t1", "--body", "known"]
    debug = {"FACETLINE_LOG_LEVEL": "debug"}
    plain = on_terminal(words, place.folder, NO_COLOR="1", **debug)
    dumb = on_terminal(words, place.folder, **{**debug, "TERM": "dumb"})
    coloured = on_terminal(words, place.folder, NO_COLOR="", **debug)
    piped = place.run(*words, settings={**debug, "FACETLINE_LOG_FORMAT": "text"})

    assert b"document_settled" in plain
    assert b"document_settled" in coloured
    assert (b"\x1b[" in plain, b"\x1b[" in dumb, b"\x1b[" in coloured) == (False, False, True)
    assert "\x1b[" not in piped.err
