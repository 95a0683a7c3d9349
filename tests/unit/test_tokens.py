"""Consistency tokens: what goes out comes back, and nothing else is taken."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets import errors, tokens

NUMBERS = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
TOKENS = st.one_of(
    st.builds(tokens.WriteToken, store_id=TEXT, uri=TEXT, version=NUMBERS),
    st.builds(tokens.FeedToken, store_id=TEXT, position=NUMBERS),
    st.builds(tokens.EventToken, store_id=TEXT, source=TEXT, event_id=TEXT),
)


@given(token=TOKENS)
def test_token_survives_its_text(token: tokens.Token) -> None:
    """Every token comes back as it was, and its text needs no escape in a URL."""
    text = tokens.encode(token)

    assert tokens.decode(text) == token
    assert all(letter.isalnum() or letter in "-_" for letter in text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "!!!", "bnVsbA", "WzFd", "W10", "WyJhIiwiYiIsImMiLCJkIl0", "é"),
        pytest.param(base64.urlsafe_b64encode(b"[" * 3_000 + b"]" * 3_000).decode(), id="deep"),
        pytest.param("W" * 10_000_000, id="long"),
    ],
)
def test_damaged_token_is_refused(text: str) -> None:
    """Anything else is refused with the way out."""
    with pytest.raises(errors.InvalidCursor, match="token"):
        tokens.decode(text)
