"""Files as people have them, through `import` and `evaluate`: what is written, what is refused; nothing leaks."""

import json
from pathlib import Path

import pytest
from commands import Place
from served import ServedPlace, Server

CONFIG = """
[evaluators.fixed]
kind = "recorded"
path = "answers.ndjson"

[collections.tickets]
pattern = "tickets/*"
evaluator = "fixed"
state = { title = "string", priority = "integer", due = "datetime" }

[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Money", other = "Anything else" }
"""
JIRA = (
    "Issue key,Summary,Description,Priority,Labels,Labels,Comment,Comment\n"
    'PAY-1,Charged twice,"My card was charged.",2,billing,vip,"03/May/24;ana;check",\n'
)
KEYED = ("--collection", "tickets", "--key-column", "id", "--wait", "applied", "--json")


@pytest.fixture
def place(tmp_path: Path, server: Server) -> Place:
    """A folder with a collection whose answers are recorded."""
    made = ServedPlace(tmp_path, server)
    (made.folder / "facetline.toml").write_text(CONFIG)
    answers = {"topic": {"type": "choice", "choice": "billing", "confidence": 0.9}}
    (made.folder / "answers.ndjson").write_text(json.dumps({"body": "x", "answers": answers}) + "\n")
    return made


def put(place: Place, name: str, text: str | bytes) -> str:
    """Write a file beside the configuration."""
    (place.folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def keys(place: Place) -> list[str]:
    """Return the keys of all documents."""
    return sorted(place.run("search", "tickets", "--json", "--limit", "100").json["keys"])


def test_a_broken_record_writes_nothing_and_its_neighbours_are_written(place: Place):
    """Lines of a refused body become no documents; the lines that are lost are named, and the command ends with 1."""
    text = '"id","body"\n"1","Says \\"failed\\", and.\nOrder, 4711\nRegards, Anna"\n"2","ok"\n'
    done = place.run("import", put(place, "a.csv", text), *KEYED)
    words = place.run("import", "a.csv", *KEYED[:-1])

    assert (done.code, keys(place)) == (1, ["2"])
    assert [(each["line"], each["last_line"]) for each in done.json["refused"]] == [(2, 4)]
    assert done.json["lost"] == [{"line": 2, "last_line": 4, "lines": 3}]
    assert "lines 2 to 4 (3 lines) refused, not_csv" in words.err


def test_a_large_record_is_refused_once(place: Place):
    """A valid quoted field beyond a body's size, many lines of it or one, is one refusal and no document."""
    many, one = "line, with a comma\n" * 80_000, "y" * 5_300_000
    done = place.run("import", put(place, "a.csv", f'id,body\n1,"{many}"\n2,"{one}"\n3,ok\n'), *KEYED)

    assert [each["reason"].split(":")[0] for each in done.json["refused"]] == ["too_large", "too_large"]
    assert keys(place) == ["3"]


def test_refused_records_count_as_rows(place: Place):
    """With --key-row a record after a refused one has the number that it has in the file."""
    file = put(place, "a.csv", 'body\n"My \\"May order\\" had\nlamp"\n"Site down"\n')
    place.run("import", file, "--collection", "tickets", "--key-row", "--wait", "applied")

    assert keys(place) == ["2"]


def test_columns_that_no_option_names_stop_nothing(place: Place):
    """Repeated columns are left out with a note; naming one says that there are two; --only-columns drops the rest."""
    words = ("import", put(place, "jira.csv", JIRA), "--collection", "tickets", "--key-column", "Issue key")
    done = place.run(*words, "--body-column", "Description", "--wait", "applied")
    twice = place.run(*words, "--body-column", "Comment")
    only = place.run(
        *words, "--body-column", "Description", "--only-columns", "--state-column", "title=Summary", "--json"
    )

    assert (done.code, done.out) == (0, "1 written, 0 unchanged, 0 refused\n")
    assert "'Labels'" in done.err
    assert "--state-column priority=Priority" in done.err
    assert (twice.code, "'Comment' stands twice in the file (columns 7, 8)" in twice.err) == (2, True)
    assert only.json["written"] == 1
    assert place.run("get", "tickets/PAY-1", "--json").json["state"] == {"title": "Charged twice"}


@pytest.mark.parametrize(
    "text",
    [
        ",id,body\n0,T1,x\n",
        "id,body,Group \nT1,x,emea\n",
        'id;body;"Subject, short"\nT1;x;y\n',
        " id , body\nT1,x\n",
        "id,body,,\nT1,x,,\n,,,\n",
        "\ufeff\ufeffid,body\nT1,x\n",
    ],
)
def test_odd_columns_stop_nothing(place: Place, text: str):
    """Nameless columns, blanks around names, commas in them, doubled marks, rows of empty cells: the file is read."""
    done = place.run("import", put(place, "a.csv", text), *KEYED)

    assert (done.code, done.json["written"], keys(place)) == (0, 1, ["T1"])


def test_rows_of_empty_fields_are_reported_once(place: Place):
    """A sheet's empty rows are no documents, and their number is shown."""
    done = place.run("import", put(place, "a.csv", "id,body\n,\nT1,x\n,\n"), *KEYED)

    assert (done.code, done.json["written"]) == (0, 1)
    assert done.err.count("2 rows of empty fields passed over") == 1


@pytest.mark.parametrize("text", ["", "id,body\n", "\n\n"])
@pytest.mark.parametrize("how", [(), ("--dry-run",)])
def test_a_file_without_records_is_reported(place: Place, text: str, how: tuple[str, ...]):
    """An empty file, or one with a header alone, changes nothing and says so."""
    done = place.run("import", put(place, "a.csv", text), "--collection", "tickets", "--key-column", "id", *how)

    assert done.code == 0
    assert "the file has no records" in done.err


def test_a_record_without_a_key_names_the_column(place: Place):
    """An empty cell in the key's column is refused with the column's name; the rest goes on."""
    done = place.run("import", put(place, "a.csv", "id,body\n,x\nT2,y\n"), *KEYED)

    assert (done.json["written"], done.json["refused"][0]["line"]) == (1, 2)
    assert "the key column 'id' is empty" in done.json["refused"][0]["reason"]


def test_unknown_columns_are_left_out_and_the_proposed_option_takes_them(place: Place):
    """A column that is no field stops nothing; the option that the note proposes is taken as it is printed."""
    file = put(place, "a.csv", "id,body,colour,Priorty\nT1,x,red,2\n")
    done = place.run("import", file, *KEYED)
    proposed = done.err.strip().rpartition("as fields: ")[2].split()

    assert (done.code, done.json["written"]) == (0, 1)
    assert "columns left out: 'colour', 'Priorty'" in done.err
    assert proposed == ["--state-column", "priority=Priorty"]
    assert place.run("import", file, *KEYED, *proposed).json["written"] == 1
    assert place.run("get", "tickets/T1", "--json").json["state"]["priority"] == 2
    for quiet in (("--ignore-columns", "colour,Priorty"), ("--only-columns",)):
        assert "left out" not in place.run("import", file, *KEYED, *quiet).err


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.csv", b"id|body|priority\r\nT1|x|2\r\n", ()),
        ("a.csv", "id\tbody\tpriority\r\nT1\tx\t2\r\n".encode("utf-16"), ()),
        ("a.tsv", b"id\tbody\tpriority\nT1\tx\t2.0\n", ()),
        ("a.csv", "id,body,title\nT1,x,Größe\n".encode("cp1252"), ("--encoding", "cp1252")),
        ("a.csv", b"id:body\nT1:x\n", ("--delimiter", ":")),
    ],
)
def test_files_of_other_forms_are_read(place: Place, name: str, text: bytes, options: tuple[str, ...]):
    """Delimiters, encodings and endings of names as spreadsheets write them."""
    done = place.run("import", put(place, name, text), *KEYED, *options)

    assert (done.code, done.json["written"], done.json["refused"]) == (0, 1, [])


def test_a_file_of_another_encoding_names_the_option(place: Place):
    """A record that is not UTF-8 says with which option to read the file."""
    done = place.run("import", put(place, "a.csv", "id,body\nT1,Größe\n".encode("cp1252")), *KEYED)

    assert done.code == 1
    assert "--encoding cp1252" in done.json["refused"][0]["reason"]


def test_a_json_array_is_its_elements(place: Place):
    """A `.json` file with an array is read element by element."""
    file = put(place, "a.json", json.dumps([{"key": "a", "body": "x"}, {"key": "b", "body": "y"}], indent=1))

    assert place.run("import", file, "--collection", "tickets", "--wait", "applied").code == 0
    assert keys(place) == ["a", "b"]


def test_dates_need_a_declared_format(place: Place):
    """An ISO date is midnight UTC; another one is refused with column and option, and read with the option."""
    file = put(place, "a.csv", "id,body,due\nT1,x,2026-06-02\nT2,x,04.06.2026\n")
    refused = place.run("import", file, *KEYED)
    put(place, "a.csv", "id,body,due\nT2,x,04.06.2026\n")
    done = place.run("import", file, *KEYED, "--date-format", "due=%d.%m.%Y")

    (reason,) = [each["reason"] for each in refused.json["refused"]]
    assert "column 'due'" in reason
    assert "--date-format due=FORMAT" in reason
    assert done.json["written"] == 1
    assert [place.run("get", f"tickets/{key}", "--json").json["state"]["due"] for key in ("T1", "T2")] == [
        "2026-06-02T00:00:00Z",
        "2026-06-04T00:00:00Z",
    ]


def test_a_key_that_stands_twice_is_reported(place: Place):
    """Lines of a repeated key are listed, and the last one is the document."""
    done = place.run("import", put(place, "a.csv", "id,body\na,x\nb,x\na,y\n"), *KEYED)

    assert done.json["duplicates"] == [{"key": "a", "lines": [2, 4]}]
    assert place.run("get", "tickets/a", "--json").json["body"] == "y"


def test_a_dry_run_writes_and_asks_nothing(place: Place):
    """It shows what would become of each record, and what it would cost, also where there is no data folder yet."""
    file = put(place, "a.csv", "id,body,priority\na,x,1\nb,x,high\nc,x,3\n")
    first = place.run("import", file, *KEYED, "--dry-run")
    made = (place.folder / ".facetline" / "facetline.db").exists()
    place.run("import", file, *KEYED)
    put(place, "a.csv", "id,body,priority\na,x,1\nc,other,3\nd,x,4\n")
    again = place.run("import", file, *KEYED, "--dry-run")
    words = place.run("import", file, *KEYED[:-1], "--dry-run")

    assert (first.code, made) == (1, False)
    counts = ("written", "unchanged", "asked", "calls")
    assert [first.json[name] for name in counts] == [2, 0, 2, 1]
    assert [again.json[name] for name in counts] == [2, 1, 2, 2]
    assert (again.json["dry_run"], again.code) == (True, 0)
    assert words.out.startswith(
        "2 would be written, 1 are unchanged, 0 would be refused\n2 documents would be classified"
    )
    assert keys(place) == ["a", "c"]


def test_a_file_most_of_whose_head_is_refused_writes_nothing(place: Place):
    """Nothing is written when most of the first records would be refused; the option writes the others."""
    file = put(place, "a.csv", "id,body,priority\n" + "".join(f"t{n},x,{n if n < 5 else 'high'}\n" for n in range(30)))
    refused = place.run("import", file, *KEYED)
    before = keys(place) if (place.folder / ".facetline" / "facetline.db").exists() else []
    forced = place.run("import", file, *KEYED, "--allow-refused")

    assert (refused.code, refused.json["written"], len(refused.json["refused"]), before) == (1, 0, 25, [])
    assert "25 of the first 30 records would be refused" in refused.err
    assert forced.json["written"] == 5


def test_evaluate_reads_the_same_files(place: Place):
    """Columns that it does not need stop nothing there either; delimiter and encoding are found."""
    text = "Labels;body;Labels;;topic\na;x;b;;billing\n"
    done = place.run("evaluate", put(place, "a.csv", text.encode("utf-16")), "--collection", "tickets", "--json")
    twice = place.run("evaluate", "a.csv", "--collection", "tickets", "--body-column", "Labels")

    assert done.code == 0, done.err
    assert (twice.code, "'Labels' stands twice" in twice.err) == (2, True)
