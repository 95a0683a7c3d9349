"""Whatever the body: what a model is sent fits, begins and ends as the body does, and what is missing is counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facetline.evaluators.litellm_adapter import truncation
from facetline.facets.errors import EvaluationFailed

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4000)
ROOMS = st.integers(10, 500)


@given(TEXT, ROOMS)
def test_a_cut_body_fits_and_says_what_is_missing(body: str, room: int):
    """Within the room in bytes, head and tail are the body's own, and bytes kept and dropped add up."""
    fitted = truncation.fit(body, tokens_max=room, policy=truncation.HEAD_TAIL)

    assert len(fitted.text.encode()) <= room * truncation.BYTES_PER_TOKEN
    if fitted.notes is None:
        assert fitted.text == body
        return
    head, gap, tail = fitted.text.partition(truncation.GAP)
    assert gap
    assert body.startswith(head)
    assert body.endswith(tail)
    assert fitted.notes["bytes_kept"] == len((head + tail).encode())
    assert fitted.notes["bytes_kept"] + fitted.notes["bytes_dropped"] == len(body.encode())
    assert fitted.notes["bytes_dropped"] > 0


@given(TEXT, ROOMS)
def test_a_body_that_is_not_to_be_cut_passes_whole_or_not_at_all(body: str, room: int):
    """Under "fail" a body beyond the room is too long, and any other is sent as it is."""
    if len(body.encode()) <= room * truncation.BYTES_PER_TOKEN:
        assert truncation.fit(body, tokens_max=room, policy=truncation.FAIL) == truncation.Fitted(body)
        return

    with pytest.raises(EvaluationFailed) as caught:
        truncation.fit(body, tokens_max=room, policy=truncation.FAIL)
    assert caught.value.reason == "too_long"


def test_words_are_not_cut_in_two():
    """A cut goes back to the end of a word when there is one near, and cuts where there is none."""
    words = truncation.fit("lorem " * 500, tokens_max=100, policy=truncation.HEAD_TAIL).text
    wall = truncation.fit("x" * 3000, tokens_max=100, policy=truncation.HEAD_TAIL).text

    assert set(words.replace(truncation.GAP, " ").split()) == {"lorem"}
    assert len(wall) > 300
