"""What tools say, for documents of any content: one line a hit, bounded, nothing forged, cut at whole characters.

Method: Hypothesis makes fields, answers and texts; the properties are those that a model relies on.
"""

from typing import Any

from hostile import harmful
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets.agents import rendering

FIELDS = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True),
    st.none() | st.text() | st.integers() | st.booleans() | st.floats(allow_nan=False),
    max_size=6,
)
ANSWERS = st.dictionaries(
    st.from_regex(r"[a-z]{1,12}", fullmatch=True),
    st.builds(lambda choice, confidence: {"type": "choice", "choice": choice, "confidence": confidence},
              st.text(st.characters(categories=["L", "N"]), min_size=1), st.none() | st.floats(0, 1)),
    max_size=6,
)  # fmt: skip


def line_of(uri: str, facets: dict[str, Any], state: dict[str, Any]) -> str:
    """The line of a hit."""
    return rendering.hit_line(rendering.hit({"uri": uri, "status": "indexed", "facets": facets, "state": state}))


@given(facets=ANSWERS, state=FIELDS, key=st.text(st.characters(categories=["L"]), min_size=1, max_size=300))
def test_a_hit_is_one_short_line(facets: dict[str, Any], state: dict[str, Any], key: str):
    """Whatever a document holds, its hit is one line that begins with the whole uri and keeps within its bound."""
    line = line_of(f"t/{key}", facets, state)

    assert len(line.splitlines()) == 1
    assert line.startswith(f"t/{key}")
    assert len(line) <= max(rendering.LINE_CHARS_MAX, len(key) + 4)


@given(state=FIELDS)
def test_fields_take_a_bounded_room(state: dict[str, Any]):
    """A document's fields take at most their room, each text at most its length, in the order in which they are."""
    small = rendering.small_state(state)

    assert rendering.size_of(small) <= rendering.STATE_BYTES_MAX + 2 + len(small) * 2
    assert list(small) == list(state)[: len(small)]
    assert all(len(value) <= rendering.STATE_TEXT_CHARS_MAX for value in small.values() if isinstance(value, str))


@given(text=st.text())
def test_quoted_text_cannot_end_its_quotes(text: str):
    """Text in quotes is one line whose only unescaped quotes are its first and last character."""
    shown = rendering.quoted(text)

    assert len(shown.splitlines()) == 1
    assert harmful(shown) == []
    assert len(shown) <= 2 * rendering.STATE_TEXT_CHARS_MAX + 2
    inner = shown[1:-1].replace("\\\\", "").replace('\\"', "")
    assert shown[0] == shown[-1] == '"'
    assert '"' not in inner


@given(text=st.text(max_size=50), bytes_max=st.integers(0, 60))
def test_a_cut_keeps_whole_characters(text: str, bytes_max: int):
    """A cut text is a beginning of the text, the longest that fits."""
    part = rendering.cut(text, bytes_max)

    assert text.startswith(part)
    assert len(part.encode()) <= bytes_max
    following = text[len(part) : len(part) + 1]
    assert not following or len((part + following).encode()) > bytes_max


@given(one=st.text(), other=st.text())
def test_fences_are_of_their_text(one: str, other: str):
    """Two texts have the same fences only if they are the same; none holds its own."""
    fences = [rendering.fenced(each).splitlines()[1] for each in (one, other)]

    assert (fences[0] == fences[1]) == (one == other)
    assert fences[0].strip("<>") not in one


def test_numbers_are_rounded_down():
    """A confidence is never shown higher than it is."""
    said = rendering.answer({"type": "choice", "choice": "a", "confidence": 0.999})

    assert rendering.answer_text("q", said) == "q=a 0.99"


def test_a_long_result_says_what_makes_it_shorter():
    """A result beyond its bound is cut there, and its last line names the way out."""
    long = rendering.bounded("ü" * rendering.RESULT_BYTES_MAX, "name more options")

    assert len(long.encode()) <= rendering.RESULT_BYTES_MAX
    assert long.endswith("name more options")
