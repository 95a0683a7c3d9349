"""What a word was probably meant to be, for the hints of errors."""

import pytest

from facetline.facets import errors
from facetline.facets.api import problems

COLUMNS = ("doc_status", "topic", "topic_confidence", "state_customer", "state_Note")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("topik", "topic"),
        ("TOPIC", "topic"),
        ("Customer", "state_customer"),
        ("status", "doc_status"),
        ("note", "state_Note"),
        ("confidence", "topic_confidence"),
        ("zzz", None),
        ("", None),
    ],
)
def test_a_word_is_found_in_another_case_without_its_prefix_or_nearly(word: str, meant: str | None) -> None:
    """The hint is the name in other letters, then the only one that ends in the word, then the most alike."""
    assert errors.likeliest(word, COLUMNS) == meant
    assert errors.nearest(word, COLUMNS) == (f" (did you mean '{meant}'?)" if meant else "")


def test_an_end_that_several_names_have_is_no_hint() -> None:
    """Between two names with the same end nothing is guessed by the end."""
    assert errors.likeliest("confidence", ("topic_confidence", "severity_confidence", "x")) != "x"
    assert errors.likeliest("id", ("doc_id", "meta_id")) is None


def test_a_question_as_a_parameter_is_told_how_it_is_written() -> None:
    """`?topic=billing` is answered with `f.topic`; a parameter that is nearly right, with that one."""
    known = ["f.NAME", "filter", "limit"]

    assert "Filter with f.topic=VALUE" in problems.unknown("parameter", "topic", known).detail
    assert "did you mean 'limit'" in problems.unknown("parameter", "limits", known).detail


def test_a_field_of_the_state_is_proposed_by_its_own_name() -> None:
    """Another column that ends with the name does not hide the state's."""
    columns = ("doc_status", "state_status", "statute")

    assert errors.nearest("status", columns) == " (did you mean 'state_status'?)"
