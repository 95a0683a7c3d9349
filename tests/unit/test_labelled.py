"""Labelled texts: what is taken, and how what is not is named."""

import io
import json
import re
from typing import Any

import pytest

from facetline.facets.documents import BODY_BYTES_MAX
from facetline.facets.questions import boolean, choice, score
from facetline.streams.files import labelled
from facetline.streams.files.documents import InvalidFile, Refusal
from facetline.streams.files.labelled import Columns, Labelled

QUESTIONS = {
    "topic": choice(ask="About?", options={"billing": "Money", "outage": "Down"}),
    "urgent": boolean(ask="Today?"),
    "severity": score(ask="How bad?", levels=["low", "high", "2"]),
}


def ndjson(*lines: Any, groups: Any = None) -> list[Labelled | Refusal]:
    """What lines are read as; text stands as it is."""
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return list(labelled.read(io.BytesIO(text.encode()), "ndjson", Columns("body", {}), QUESTIONS, groups or {}))


def sheet(text: str, groups: Any = None, **labels: str) -> list[Labelled | Refusal]:
    """What a CSV file is read as."""
    return list(labelled.read(io.BytesIO(text.encode()), "csv", Columns("text", labels), QUESTIONS, groups or {}))


def test_labels_of_each_type_are_taken():
    """An option, yes or no, a level by name or index (a name first); blank lines are passed, the key is kept."""
    rows = ndjson(
        {"body": "a", "labels": {"topic": "billing", "urgent": True, "severity": "high"}},
        "",
        {"body": "b", "labels": {"severity": 0}, "key": "t7"},
        {"body": "c", "labels": {"severity": "2"}},
    )

    assert rows == [
        Labelled(1, "line-1", "a", {"topic": "billing", "urgent": True, "severity": 1}),
        Labelled(3, "t7", "b", {"severity": 0}),
        Labelled(4, "line-4", "c", {"severity": 2}),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ([], "an object"),
        ({"body": "a", "label": {}}, "unknown member 'label' (did you mean 'labels'?)"),
        ({"body": "a"}, '"labels" is an object'),
        ({"body": "a", "labels": {}}, '"labels" is an object'),
        ({"body": "a", "labels": {"topik": "billing"}}, "question 'topik' is not asked (did you mean 'topic'?)"),
        ({"body": "a", "labels": {"topic": "biling"}}, "the label of 'topic': 'biling' is no option (did you mean"),
        ({"body": "a", "labels": {"topic": None}}, "None is no option"),
        ({"body": "a", "labels": {"urgent": "maybe"}}, "neither true nor false"),
        ({"body": "a", "labels": {"urgent": 2}}, "neither true nor false"),
        ({"body": "a", "labels": {"severity": 3}}, "3 is no level"),
        ({"body": "a", "labels": {"severity": True}}, "True is no level"),
        ({"body": "a", "labels": {"severity": "hihg"}}, "is no level (did you mean 'high'?)"),
        ({"body": " \n", "labels": {"topic": "billing"}}, "the body is blank"),
        ({"body": 7, "labels": {"topic": "billing"}}, '"body" is the text'),
        ({"body": "a\0", "labels": {"topic": "billing"}}, "NUL"),
        ({"body": "\ud800", "labels": {"topic": "billing"}}, "half a surrogate pair"),
        ({"body": "a" * (BODY_BYTES_MAX + 1), "labels": {"topic": "billing"}}, "documents have"),
        ({"body": "a", "labels": {"topic": "billing"}, "key": 1}, '"key" is text'),
    ],
)
def test_what_cannot_be_taken_is_named_with_its_line(line: Any, message: str):
    """A line is refused with its number and the mend; the nearest word is told."""
    good = {"body": "a", "labels": {"topic": "billing"}}
    first, second = ndjson(good, line)

    assert isinstance(first, Labelled)
    assert isinstance(second, Refusal)
    assert second.line == 2
    assert message in second.reason


def test_sheets_have_columns_called_like_questions():
    """Without being told, labels are in the columns with a question's name; an empty field is no label."""
    rows = sheet('text,topic,urgent,other\n"a, b",billing,yes,x\nc,,no,x\nd,,,x\n')

    assert rows[:2] == [
        Labelled(2, "line-2", "a, b", {"topic": "billing", "urgent": True}),
        Labelled(3, "line-3", "c", {"urgent": False}),
    ]
    assert rows[2] == Refusal(4, "the line has no label")


def test_finer_labels_are_grouped():
    """A label stands for the option whose group it is in; one in no group is refused."""
    groups = {"topic": labelled.grouped(QUESTIONS["topic"], {"billing": ["refund", "invoice"], "outage": ["down"]})}
    rows = sheet("text,intent\na,refund\nb,dwon\n", groups, topic="intent")

    assert rows[0] == Labelled(2, "line-2", "a", {"topic": "billing"})
    assert rows[1] == Refusal(
        3, "the label of 'topic': label 'dwon' is in no group (did you mean 'down'?); name it in the groups"
    )


@pytest.mark.parametrize(
    ("question", "groups", "message"),
    [
        ("topic", {"billling": ["x"]}, "none of the options (did you mean 'billing'?)"),
        ("topic", {"billing": ["x"], "outage": ["x"]}, "label 'x' twice"),
        ("topic", {"billing": "x"}, "no list of labels"),
        ("topic", [], "an object"),
        ("urgent", {}, "only labels of a choice"),
    ],
)
def test_groups_are_checked(question: str, groups: Any, message: str):
    """Groups name options of a choice, and each label once."""
    with pytest.raises(ValueError, match=re.escape(message)):
        labelled.grouped(QUESTIONS[question], groups)


@pytest.mark.parametrize(
    ("text", "labels", "message"),
    [
        ("txt,topic\n", {}, "no column 'text' (did you mean 'txt'?)"),
        ("text,tpc\n", {"topic": "topic"}, "no column 'topic'"),
        ("text,tpc\n", {}, "--label-column QUESTION=COLUMN"),
        ("text,text\n", {}, "twice"),
    ],
)
def test_columns_are_checked(text: str, labels: dict[str, str], message: str):
    """A column that is missing or doubtful stops the whole file, with what there is."""
    with pytest.raises(InvalidFile) as caught:
        sheet(text + "a,b\n", **labels)

    assert message in caught.value.message


def test_rows_of_another_length_are_refused():
    """A field too many or too few is told, and the next row is read."""
    rows = sheet("text,topic\na\nb,billing,x\nc,outage\n")

    assert rows[0] == Refusal(2, "1 fields too few")
    assert rows[1] == Refusal(3, "1 fields too many")
    assert rows[2] == Labelled(4, "line-4", "c", {"topic": "outage"})


def test_only_so_many_lines_are_taken():
    """A limit counts lines, refused ones too."""
    lines = [{"body": "a", "labels": {"topic": "billing"}}, "{", {"body": "b", "labels": {"topic": "billing"}}]
    found, refused = labelled.collect(iter(ndjson(*lines)), 2)

    assert ([row.line for row in found], [row.line for row in refused]) == ([1], [2])


def test_only_named_columns_are_taken_when_asked():
    """With `only`, columns called like questions are left alone: those that are named stand, others stop nothing."""
    file = io.BytesIO(b"text,intent,topic,topic,\na,billing,x,y,z\n")
    named = Columns("text", {"topic": "intent"}, only=True)

    assert list(labelled.read(file, "csv", named, QUESTIONS, {})) == [Labelled(2, "line-2", "a", {"topic": "billing"})]
    with pytest.raises(InvalidFile, match=r"--only-columns takes no column by itself .* name one with --label-column"):
        list(
            labelled.read(io.BytesIO(b"text,topic\na,billing\n"), "csv", Columns("text", {}, only=True), QUESTIONS, {})
        )
