"""`facetline sql` and `facetline export` as people and programs run them."""

import csv
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import documented
import duckdb
import httpx
import pytest
from commands import Place, finish
from polling import eventually
from served import ServedPlace, Server


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Place:
    """The project of docs/reference.md with eight tickets, answered."""
    folder = tmp_path_factory.mktemp("place")
    documented.project(folder)
    documented.files(folder)
    made = ServedPlace(folder, server)
    assert made.run("import", "tickets.ndjson", "--collection", "tickets").code == 0
    return made


def test_a_table_for_people(place: Place):
    """Aligned columns with a head on standard output, the number of rows beside it."""
    ended = place.run("sql", "SELECT topic, count(*) AS n FROM tickets GROUP BY topic")

    assert (ended.code, ended.out) == (0, "topic    n\nbilling  8\n")
    assert ended.err == "1 row\n"


def test_tables_round_numbers_and_programs_get_every_digit(place: Place):
    """What binary fractions cannot say exactly is not shown to people; programs get every digit."""
    text = "SELECT 0.1::DOUBLE + 0.2::DOUBLE AS sum, 1e300::DOUBLE AS large"

    shown, exact = place.run("sql", text), place.run("sql", text, "--format", "ndjson")

    assert shown.out.splitlines()[1].split() == ["0.3", "1e+300"]
    assert exact.lines == [{"sum": 0.30000000000000004, "large": 1e300}]


def test_texts_come_when_they_are_asked_for(place: Place, tmp_path: Path):
    """Search, SQL and Parquet have a document's text beside its answers with --fields body, and not without."""
    plain = place.run("search", "tickets", "topic=billing", "--json").json
    found = place.run("search", "tickets", "topic=billing", "--fields", "body", "--json").json
    table = place.run("search", "tickets", "topic=billing", "--fields", "body").out
    rows = place.run("sql", "SELECT doc_uri, doc_body FROM tickets ORDER BY 1", "--fields", "body", "--json").json
    refused = place.run("sql", "SELECT doc_body FROM tickets")
    export = place.run("export", "--parquet", str(tmp_path), "--fields", "body", "--json").json

    texts = {hit["uri"]: hit["body"] for hit in found["hits"]}
    assert all(texts.values())
    assert len(texts) == found["total"] == 8
    assert "body" not in plain["hits"][0]
    assert next(iter(texts.values()))[:30] in table
    assert dict(rows["rows"]) == texts
    assert refused.code != 0
    with duckdb.connect() as connection:
        written = f"SELECT doc_uri, doc_body FROM '{export['folder']}/tickets.parquet'"
        assert dict(connection.execute(written).fetchall()) == texts


def test_each_format_has_the_same_rows(place: Place):
    """CSV, NDJSON and JSON hold what was selected, with parameters, from standard input too."""
    wanted = "topic = $topic AND severity > $least ORDER BY ALL"
    text = f"FROM tickets SELECT doc_key, urgent, severity, doc_reason WHERE {wanted}"
    given = ("--param", "topic=billing", "--param", "least=1")

    whole = place.run("sql", text, *given, "--json").json
    lines = place.run("sql", "-", *given, "--format", "ndjson", stdin=text).lines
    sheet = list(csv.reader(io.StringIO(place.run("sql", text, *given, "--format", "csv").out)))

    names = [column["name"] for column in whole["columns"]]
    assert len(whole["rows"]) == 8
    assert lines == [dict(zip(names, row, strict=True)) for row in whole["rows"]]
    assert sheet == [names, *([row[0], "true", "1.4", ""] for row in whole["rows"])]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["SELECT topc FROM tickets"], 'Referenced column "topc" not found'),
        (["SELECT 1", "--limit", "0"], "limit is 0"),
        (
            ["SELECT count(*) FROM range(10000000) a, range(10000000) b", "--timeout", "300ms"],
            "took longer than it may",
        ),
    ],
)
def test_what_is_wrong_ends_with_2_and_a_sentence(place: Place, words: list[str], said: str):
    """Nothing is on standard output; the sentence names the thing."""
    ended = place.run("sql", *words)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_sql_neither_activates_nor_writes(tmp_path: Path, server: Server):
    """Without data there is nothing to ask, and the command makes none."""
    documented.project(tmp_path)

    ended = ServedPlace(tmp_path, server).run("sql", "SELECT 1")

    assert ended.code == 1
    assert "no data" in ended.err
    assert not (tmp_path / ".facetline").exists()


def test_an_export_is_read_by_plain_duckdb(place: Place):
    """The files that the manifest names have the rows that it says, one collection only where one is asked for."""
    done = place.run("export", "--parquet", "snap", "--collection", "tickets", "--json").json

    assert list(done["collections"]) == ["tickets"]
    assert done["answers"]["rows"] == 32
    with duckdb.connect() as connection:
        [(rows, topics)] = connection.execute(
            f"SELECT count(*), list(DISTINCT topic) FROM '{place.folder}/snap/current/tickets.parquet'"
        ).fetchall()
    assert (rows, topics) == (8, ["billing"])


def test_the_examples_of_the_page_run_on_an_export(place: Place):
    """Each Python block of docs/sql.md, as a notebook or a script: it finds the tables and counts the topics."""
    assert place.run("export", "--parquet", "snap").code == 0
    found = [block.text for block in documented.blocks("docs/sql.md", "py")]

    done = subprocess.run(
        [sys.executable, "-c", "import sys\nfor block in sys.argv[1:]:\n    exec(block, {})", *found],
        cwd=place.folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("billing") == len(found) == 3


async def test_an_export_on_a_timer_goes_on_until_it_is_interrupted(place: Place):
    """Snapshot follows snapshot; a signal ends it with 130, and the last one stays whole."""
    folder = place.folder / "timed"
    process = place.start("export", "--parquet", folder, "--every", "1s", "--json")
    current = folder / "current"
    first = await eventually(lambda: current.exists() and current.resolve(), deadline_s=60)
    await eventually(lambda: current.resolve() != first, deadline_s=60)

    process.send_signal(signal.SIGTERM)
    ended = finish(process)

    assert ended.code == 130
    assert ended.lines
    assert json.loads((current / "manifest.json").read_text())["collections"]["tickets"]["rows"] == 8


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--parquet", "tickets.ndjson"], 1, "is not a folder"),
        (["--parquet", "snap", "--collection", "ticket"], 2, "did you mean 'tickets'"),
        (["--parquet", "snap", "--every", "10ms"], 2, "less than 1 s"),
    ],
)
def test_an_export_that_cannot_be_made_says_why(place: Place, words: list[str], code: int, said: str):
    """The error names the folder, the collection or the time, and the way out."""
    ended = place.run("export", *words)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err


def test_a_server_runs_the_statements_of_its_folder(place: Place):
    """Beside `facetline serve` the command asks it, and prints what it prints without one, errors too."""
    texts = ["FROM tickets SELECT doc_uri, severity ORDER BY 1", "SELECT topc FROM tickets"]
    alone = [place.run("sql", text) for text in texts]
    server = place.start("serve", "--port", "0")
    try:
        said = server.stdout.readline()
        beside = [place.run("sql", text) for text in texts]
        url = re.search(r"http://[\d.:]+", said)
        assert url is not None, said
        metrics = httpx.get(f"{url[0]}/metrics", trust_env=False, timeout=30).text
    finally:
        server.send_signal(signal.SIGTERM)
        finish(server)

    assert beside[0] == alone[0]
    assert (beside[1].code, beside[1].err.splitlines()[0]) == (2, alone[1].err.splitlines()[0])
    assert 'facetline_serve_search_duration_seconds_count{kind="sql"} 2' in metrics
