"""`facetline serve` as people run it: one line when it is ready, one server for a folder, tokens, a graceful stop; and
every other command says the same beside it as without it.

Method: a server of a folder for the whole file, and a twin folder without one that every command is run in as well.
"""

import json
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import Ended, Place
from polling import eventually
from runtimes import Site
from served import ServedPlace, Server
from serving import ServeProcess, serve_process

from facetline.streams import local_server

CONFIG = """
[evaluators.fixed]
kind = "recorded"
path = "answers.ndjson"

[collections.tickets]
pattern = "tickets/*"
evaluator = "fixed"
state = { title = "string" }

[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Money", outage = "Down", other = "Anything else" }

[collections.own]
pattern = "own/*"
evaluator = "fixed"
scoped = true

[collections.own.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Money", other = "Anything else" }
"""
ANSWERS = {"I was charged twice": "billing", "Nothing works": "outage", "Thanks": "other"}
VOLATILE = re.compile(r'("(?:token|id|classified_at|written_at|took_ms|fingerprint|event_id)": )("[^"]*"|[0-9.]+)')
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T][0-9:.]+(Z|\+00:00| UTC)?|job [0-9a-f]{12}|\d+\.\d ms")
COMMANDS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("write", "tickets/w1", "--body", "Nothing works", "--state", '{"title": "x"}', "--json"), 0),
    (("write", "tickets/w2", "--body", "Nothing works"), 0),
    (("write", "tickets/w3", "--body", "Unheard of", "--json"), 0),
    (("write", "nowhere/w1", "--body", "Thanks", "--json"), 1),
    (("write", "tickets/w5", "--state", '{"title": "no body yet"}', "--json"), 1),
    (("get", "tickets/t1", "--json"), 0),
    (("get", "tickets/absent"), 1),
    (("search", "tickets", "topic=billing", "--counts", "topic", "--json"), 0),
    (("search", "tickets", "--sort", "-doc_uri", "--limit", "1", "--filter", "doc_status = 'indexed'", "--json"), 0),
    (("search", "own", "--scope", "alice", "--json"), 0),
    (("search", "tickets", "topic=bilingn"), 2),
    (("search", "tickts"), 2),
    (("search", "tickets", "--filter", "topic = "), 2),
    (("delete", "tickets/t2", "--json"), 0),
    (("delete", "tickets/absent", "--json"), 0),
    (("reindex", "own", "--force", "--json"), 0),
    (("reindex", "own", "--force", "--dry-run", "--json"), 0),
    (("reindex", "tickts"), 2),
    (("jobs", "show", "000000000000"), 1),
    (("import", "more.ndjson", "--collection", "tickets", "--json"), 1),
    (("sql", "SELECT doc_uri, topic FROM own ORDER BY 1", "--json"), 0),
    # Last: whoever classifies next answers it, and that is not the same command with a server as without.
    (("write", "tickets/w4", "--body", "Thanks", "--wait", "applied", "--id", "e1", "--json"), 0),
)


def prepare(folder: Path) -> None:
    """Write the files of a project."""
    folder.mkdir(exist_ok=True)
    (folder / "facetline.toml").write_text(CONFIG)
    lines = [
        {"body": body, "answers": {"topic": {"type": "choice", "choice": each, "confidence": 0.9}}}
        for body, each in ANSWERS.items()
    ]
    (folder / "answers.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    more = [{"key": f"i{number}", "body": "Thanks"} for number in range(3)] + [{"key": "", "body": "refused"}]
    (folder / "more.ndjson").write_text("".join(json.dumps(line) + "\n" for line in more))


def fill(place: Place) -> None:
    """Write what the commands find."""
    for uri, body in (("tickets/t1", "I was charged twice"), ("tickets/t2", "Thanks"), ("@alice/own/a1", "Thanks")):
        assert place.run("write", uri, "--body", body).code == 0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Place:
    """A folder that nobody serves."""
    folder = tmp_path_factory.mktemp("alone")
    prepare(folder)
    place = ServedPlace(folder, server)
    fill(place)
    return place


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[tuple[Place, ServeProcess]]:
    """A folder that is served."""
    folder = tmp_path_factory.mktemp("beside")
    prepare(folder)
    place = ServedPlace(folder, server)
    with serve_process(place) as running:
        fill(place)
        yield place, running


def told(ended: Ended) -> tuple[int, str, str]:
    """How a command ended and what it said, without what differs from run to run."""
    out = VOLATILE.sub(r"\1…", ended.out)
    return ended.code, MOMENT.sub("…", out), MOMENT.sub("…", ended.err)


@pytest.mark.parametrize(
    ("words", "code"), COMMANDS, ids=lambda each: " ".join(each) if isinstance(each, tuple) else ""
)
def test_commands_say_the_same_beside_a_server(
    alone: Place, beside: tuple[Place, ServeProcess], words: tuple[str, ...], code: int
):
    """Standard output, standard error and exit code of a command do not depend on whether the folder is served."""
    without, with_ = alone.run(*words), beside[0].run(*words)

    assert told(with_) == told(without)
    assert with_.code == code


def test_a_command_searches_through_the_server(beside: tuple[Place, ServeProcess]):
    """A search beside a server is answered by its views."""
    place, running = beside
    before = running.log.read_text().count("/search")

    assert place.run("search", "tickets").code == 0
    assert running.log.read_text().count("/search") == before + 1


def test_a_command_on_another_store_has_nothing_to_do_with_the_server(
    beside: tuple[Place, ServeProcess], tmp_path: Path
):
    """A command with a store of its own in a served folder answers and searches by itself."""
    place, running = beside
    other = {"FACETLINE_STORE_URL": f"sqlite:///{tmp_path / 'other.db'}"}
    before = running.log.read_text().count("/search")

    written = place.run("write", "tickets/there", "--body", "Thanks", "--json", settings=other)
    found = place.run("search", "tickets", "--json", settings=other)

    assert written.json["status"] == "indexed"
    assert found.json["keys"] == ["there"]
    assert running.log.read_text().count("/search") == before


def test_answers_come_from_the_server(beside: tuple[Place, ServeProcess]):
    """A write by a command is asked about by the server's side chain, and by nobody else."""
    place, running = beside
    place.run("write", "tickets/asked", "--body", "I was charged twice")

    settled = [json.loads(line) for line in running.log.read_text().splitlines() if "document_settled" in line]
    assert "tickets/asked" in [line["uri"] for line in settled]


def test_a_second_server_says_who_serves(beside: tuple[Place, ServeProcess]):
    """A folder has one server; another one is told its address and process."""
    place, running = beside

    ended = place.run("serve", "--port", "0")

    assert ended.code == 1
    assert running.url in ended.err
    assert str(running.process.pid) in ended.err


def test_the_lock_file_is_its_owners_alone(beside: tuple[Place, ServeProcess]):
    """Nobody else on the machine can read the secret of commands."""
    path = beside[0].folder / ".facetline" / local_server.NAME

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_taken_port_is_named(alone: Place):
    """A port that something listens on is a clear error, and the folder is free again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        ended = alone.run("serve", "--port", str(port))

    assert ended.code == 1
    assert f"http://127.0.0.1:{port}" in ended.err
    assert "--port" in ended.err
    assert local_server.holder(alone.folder / ".facetline") is None


@pytest.mark.parametrize(
    ("words", "said"), [(("--host", "::"), "facetline token create"), (("--config", "none.toml"), "none.toml")]
)
def test_what_is_missing_is_named(alone: Place, words: tuple[str, ...], said: str):
    """A host open to others without a token, and a missing file, are refused with the way out."""
    ended = alone.run("serve", "--port", "0", *words)

    assert ended.code == 1
    assert said in ended.err


def test_tokens_open_what_they_say_until_revoked(tmp_path: Path, server: Server):
    """Once there is a token nobody is answered without, a scope sees itself alone, and revoking works in seconds."""
    prepare(tmp_path)
    place = ServedPlace(tmp_path, server)
    fill(place)
    with serve_process(place) as running:
        assert running.request("GET", "/v1/collections").status_code == 200
        all_ = place.run("token", "create", "--json").json
        alice = place.run(
            "token", "create", "--rights", "read,write", "--scope", "alice", "--name", "app", "--json"
        ).json

        def status(path: str, token: str | None) -> int:
            return running.request("GET", path, token=token).status_code

        _until(lambda: status("/v1/collections", None) == 401)
        assert status("/v1/documents/@alice/own/a1", alice["token"]) == 200
        assert status("/v1/documents/tickets/t1", alice["token"]) == 404
        assert status("/v1/documents/tickets/t1", all_["token"]) == 200
        assert status("/v1/documents/tickets/t1", "flt_" + "x" * 43) == 401
        assert place.run("search", "tickets", "--json").json["total"] == 2  # commands need none
        listed = place.run("token", "list", "--json").lines
        assert [each["scope"] for each in listed] == [None, "alice"]
        assert "token" not in listed[0]
        assert place.run("token", "revoke", alice["id"]).code == 0
        _until(lambda: status("/v1/documents/@alice/own/a1", alice["token"]) == 401)
        written = running.request("PUT", "/v1/documents/tickets/secret", token=all_["token"], body="My secret body")
        assert written.status_code == 403
        log = running.log.read_text()
    assert [word for word in (alice["token"], all_["token"], "My secret body", "tickets/secret") if word in log] == []
    stored = (tmp_path / ".facetline" / "facetline.db").read_bytes()
    assert alice["token"].encode() not in stored


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rights", "read,sql", "--scope", "alice"), "admin and sql see all scopes"),
        (("--rights", "reed"), "did you mean 'read'"),
        (("--scope", "a/b"), "it holds a '/'"),
        (("--rights", ""), "--rights is empty"),
    ],
)
def test_tokens_that_cannot_be_are_refused(alone: Place, words: tuple[str, ...], said: str):
    """Rights that a scope cannot have, rights that there are not, and scopes that are none are usage errors."""
    ended = alone.run("token", "create", *words)

    assert ended.code == 2
    assert said in " ".join(ended.err.split())


def test_a_stop_answers_what_runs_and_leaves_the_folder(tmp_path: Path, server: Server):
    """At SIGTERM a running request is answered, then the process ends with 0, and its lock is free."""
    prepare(tmp_path)
    (tmp_path / "facetline.toml").write_text(
        CONFIG.replace('kind = "recorded"', 'kind = "recorded"\nrequests_per_minute = 60')
    )
    place = ServedPlace(tmp_path, server)
    replies: list[httpx.Response] = []
    with serve_process(place) as running:
        running.request("PUT", "/v1/documents/tickets/t1?wait=answered", body="Thanks")

        def write() -> None:
            replies.append(running.request("PUT", "/v1/documents/tickets/t2?wait=answered", body="I was charged twice"))

        waiting = threading.Thread(target=write)
        waiting.start()
        _until(lambda: running.request("GET", "/v1/documents/tickets/t2").status_code == 200)
        running.process.send_signal(signal.SIGTERM)
        waiting.join(30)

        assert running.process.wait(30) == 0
    assert [reply.status_code for reply in replies] == [200]
    assert local_server.holder(tmp_path / ".facetline") is None


def test_a_second_signal_ends_calls_at_once(tmp_path: Path):
    """While a call has its grace period of five minutes, a second signal ends the process."""
    site = Site("local", tmp_path, {})
    site.define(grace_s=300.0, call_s=600.0)
    site.script.on("long")
    with serve_process(site.place) as running:
        running.request("PUT", "/v1/documents/notes/n1?wait=none", body="hold=long billing")
        _until(lambda: len(site.script.calls()) == 1)
        running.process.send_signal(signal.SIGTERM)
        _until(lambda: local_server.holder(tmp_path / ".facetline") is None)
        assert running.process.poll() is None
        running.process.send_signal(signal.SIGTERM)

        assert running.process.wait(30) == 130


def test_without_a_broker_searches_go_on(alone: Place):
    """In the Kafka runtime a server whose broker is away finds what is in the store, says so, and refuses writes."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        broker = f"127.0.0.1:{closed.getsockname()[1]}"
        with serve_process(alone, FACETLINE_KAFKA__BOOTSTRAP_SERVERS=broker, FACETLINE_WRITE_DEADLINE_S="1") as running:
            found = running.request("GET", "/v1/collections/own/search")
            written = running.request("PUT", "/v1/documents/tickets/k1", body="Thanks")
            _until(lambda: running.request("GET", "/readyz").json()["status"] == "degraded")
            ready = running.request("GET", "/readyz?verbose").json()

    assert (found.status_code, found.json()["total"]) == (200, 1)
    assert (written.status_code, written.json()["type"].rpartition("/")[2]) == (503, "broker-unavailable")
    assert broker in next(check["detail"] for check in ready["checks"] if check["name"] == "broker")


def test_a_killed_server_has_lost_nothing(tmp_path: Path, server: Server):
    """Every write that was answered before a SIGKILL is there afterwards, and the folder is free."""
    prepare(tmp_path)
    place = ServedPlace(tmp_path, server)
    answered: list[str] = []
    with serve_process(place) as running:

        def write() -> None:
            for number in range(10_000):
                uri = f"tickets/k{number}"
                try:
                    reply = running.request("PUT", f"/v1/documents/{uri}", body="Thanks")
                except httpx.TransportError:
                    return
                if reply.status_code == 200:
                    answered.append(uri)

        writing = threading.Thread(target=write)
        writing.start()
        _until(lambda: len(answered) >= 50)
        running.process.kill()
        writing.join(30)
    found: list[str] = []
    cursor: tuple[str, ...] = ()
    while not found or cursor:
        page = place.run("search", "tickets", "--limit", "200", "--json", *cursor).json
        found += [hit["uri"] for hit in page["hits"]]
        cursor = ("--cursor", page["next_cursor"]) if page["next_cursor"] else ()

    assert set(answered) <= set(found)
    assert local_server.holder(tmp_path / ".facetline") is None


def _until(condition: Any) -> None:
    """Poll a plain condition."""
    import asyncio

    asyncio.run(eventually(condition, deadline_s=30.0))
