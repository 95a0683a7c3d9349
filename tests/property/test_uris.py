"""Uris, whatever the text: taken apart without loss, or refused."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from facetline.facets import documents
from facetline.facets.errors import InvalidEvent

# Letters that matter to a uri, among all the others.
texts = st.text(st.sampled_from("@/.a\x00\x1f\x7f\x85\u0301\ud800\u00e9") | st.characters(), max_size=12)


def parsed(text: str) -> documents.Uri | InvalidEvent:
    """Return the uri, or why it was refused."""
    try:
        return documents.parse_uri(text)
    except InvalidEvent as refusal:
        return refusal


@given(texts)
def test_uri_is_kept_or_refused(text: str) -> None:
    """A uri is its scope and path put together again; everything else is `invalid_uri`."""
    uri = parsed(text)
    if isinstance(uri, InvalidEvent):
        assert uri.reason == documents.EventReason.INVALID_URI
        assert uri.message.encode()
        return

    assert text == uri.text == (f"@{uri.scope}/{uri.path}" if uri.scope else uri.path)
    assert text.startswith("@") == bool(uri.scope)


@given(texts)
def test_uri_accepted_exactly_by_the_rules(text: str) -> None:
    """The rules of the design, written out once more, accept the same texts."""
    segments = text.split("/")
    allowed = (
        not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)
        and not any(ord(letter) < 0x20 or 0x7F <= ord(letter) <= 0x9F for letter in text)
        and unicodedata.normalize("NFC", text) == text
        and not {"", ".", ".."} & set(segments)
        and (not text.startswith("@") or (len(segments) > 1 and segments[0] != "@"))
    )

    assert isinstance(parsed(text), documents.Uri) == allowed


@given(st.integers(480, 520), st.sampled_from(["a", "\u00e9", "\U0001f600"]))
def test_uri_bound_is_in_bytes(size: int, letter: str) -> None:
    """512 bytes of UTF-8 are taken, one more is not, whatever the letters."""
    text = "t/" + letter * ((size - 2) // len(letter.encode()))

    assert isinstance(parsed(text), documents.Uri) == (len(text.encode()) <= 512)
