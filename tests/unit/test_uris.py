"""Uris: what is refused, with the mend, and how a scope is taken off."""

import pytest

from facetline.facets import documents
from facetline.facets.errors import InvalidEvent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "an empty, '.' or '..' segment"),
        ("/tickets/t1", "an empty, '.' or '..' segment"),
        ("tickets//t1", "an empty, '.' or '..' segment"),
        ("tickets/", "an empty, '.' or '..' segment"),
        ("tickets/./t1", "an empty, '.' or '..' segment"),
        ("tickets/../t1", "an empty, '.' or '..' segment"),
        ("tickets/t\x001", "control characters"),
        ("tickets/t\n1", "control characters"),
        ("tickets/t\x7f1", "control characters"),
        ("tickets/t\x851", "control characters"),
        ("tickets/t\x9f1", "control characters"),
        ("tickets/\ud83d", "half a surrogate pair"),
        ("tickets/cafe\u0301", "send 'tickets/caf\u00e9'"),
        ("tickets/" + "a" * 505, "513 bytes, at most 512"),
        ("tickets/" + "\u00e9" * 253, "514 bytes, at most 512"),
        ("@", "'@scope/path'"),
        ("@alice", "'@scope/path'"),
        ("@/tickets/t1", "'@scope/path'"),
        ("@alice/", "an empty, '.' or '..' segment"),
    ],
)
def test_an_invalid_uri_is_refused(text: str, expected: str) -> None:
    """What is not a uri is refused with a message that says what to change."""
    with pytest.raises(InvalidEvent) as refusal:
        documents.parse_uri(text)

    assert refusal.value.reason == documents.EventReason.INVALID_URI
    assert expected in refusal.value.message


@pytest.mark.parametrize(
    ("text", "scope", "path"),
    [
        ("tickets/t1", "", "tickets/t1"),
        ("@alice/tickets/t1", "alice", "tickets/t1"),
        ("@alice/t1", "alice", "t1"),
        ("tickets/@alice", "", "tickets/@alice"),
        ("tickets/a b%2Fc", "", "tickets/a b%2Fc"),
        ("tickets/...", "", "tickets/..."),
        ("tickets/\u200bx", "", "tickets/\u200bx"),
        ("tickets/" + "a" * 504, "", "tickets/" + "a" * 504),
    ],
)
def test_a_uri_is_parsed_into_scope_and_path(text: str, scope: str, path: str) -> None:
    """A uri keeps its spelling; only a leading '@' makes a scope, and nothing is decoded."""
    uri = documents.parse_uri(text)

    assert uri == documents.Uri(text, scope, path)


def test_uri_refusal_can_be_stored() -> None:
    """The message about a broken uri is valid Unicode without NUL, whatever the uri held."""
    with pytest.raises(InvalidEvent) as refusal:
        documents.parse_uri("tickets/\ud800\x00")

    assert "\0" not in refusal.value.message
    assert refusal.value.message.encode().decode() == refusal.value.message
