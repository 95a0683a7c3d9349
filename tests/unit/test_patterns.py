"""Patterns: what is refused and what to write instead, which paths match, which patterns overlap."""

import re

import pytest

from facetline.facets.schema import patterns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[topic]/notes", "no parameters such as '[topic]'"),
        ("notes/[topic]", "no parameters such as '[topic]'"),
        ("notes/{id}", "no parameters such as '{id}'"),
        ("notes/<id>", "no parameters such as '<id>'"),
        ("notes/:id", "no parameters such as ':id'"),
        ("tickets", "write 'tickets/*' for one segment or 'tickets/**'"),
        ("tickets/t1", "write 'tickets/t1/*'"),
        ("@alice/tickets/*", "does not start with '@'; leave the scope out and set scoped = true"),
        ("*/tickets", "the wildcard is the last segment"),
        ("docs/**/*", "the wildcard is the last segment"),
        ("tickets/t*", "'t*' is neither literal text nor a whole-segment wildcard"),
        ("tickets/***", "'***' is neither literal text"),
        ("tick?ts/*", "'tick?ts' is neither literal text"),
        ("tick[ae]ts/*", "'tick[ae]ts' is neither literal text"),
        ("/tickets/*", "an empty, '.' or '..' segment"),
        ("tickets//*", "an empty, '.' or '..' segment"),
        ("tickets/", "an empty, '.' or '..' segment"),
        ("", "an empty, '.' or '..' segment"),
        ("./tickets/*", "an empty, '.' or '..' segment"),
        ("tickets/../*", "an empty, '.' or '..' segment"),
        ("tick\x00ets/*", "control characters"),
        ("tick\x85ets/*", "control characters"),
        ("tick\ud800ets/*", "half surrogate pairs"),
        ("cafe\u0301/*", "write 'caf\u00e9'"),
        ("a" * 300 + "/*", "at most 256 bytes"),
        (None, "a pattern is text"),
        (7, "a pattern is text"),
    ],
)
def test_an_invalid_pattern_is_refused(text: str, expected: str) -> None:
    """A pattern that no uri could match, or that means something else than it says, is refused with the mend."""
    with pytest.raises(ValueError, match=re.escape(expected)):
        patterns.parse_pattern(text)


@pytest.mark.parametrize(
    ("pattern", "path", "key"),
    [
        ("tickets/*", "tickets/t1", "t1"),
        ("tickets/*", "tickets/*", "*"),
        ("tickets/*", "tickets", None),
        ("tickets/*", "tickets/", None),
        ("tickets/*", "tickets/2026/t1", None),
        ("tickets/*", "ticketsx/t1", None),
        ("tickets/*", "tickets2/t1", None),
        ("docs/**", "docs/a", "a"),
        ("docs/**", "docs/a/b/c", "a/b/c"),
        ("docs/**", "docs", None),
        ("docs/eng/*", "docs/eng/a", "a"),
        ("docs/eng/*", "docs/a", None),
        ("*", "t1", "t1"),
        ("*", "tickets/t1", None),
        ("**", "tickets/t1", "tickets/t1"),
        ("caf\u00e9/*", "caf\u00e9/1", "1"),
    ],
)
def test_wildcards_match_one_or_more_segments(pattern: str, path: str, key: str | None) -> None:
    """`*` matches exactly one segment and `**` one or more; the key is what the wildcard matched."""
    parsed = patterns.parse_pattern(pattern)

    assert parsed.match(path) == key


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("tickets/*", "tickets/*", True),
        ("tickets/*", "tickets/**", True),
        ("tickets/*", "notes/*", False),
        ("tickets/*", "tickets2/*", False),
        ("docs/**", "docs/eng/*", True),
        ("docs/**", "docs/eng/**", True),
        ("docs/*", "docs/eng/*", False),
        ("docs/*", "docs/eng/**", False),
        ("docs/**", "docs2/eng/*", False),
        ("*", "tickets/*", False),
        ("**", "tickets/*", True),
    ],
)
def test_patterns_overlap_when_one_path_matches_both(one: str, other: str, expected: bool) -> None:
    """Two patterns overlap exactly when one path matches both, whichever is named first."""
    a, b = patterns.parse_pattern(one), patterns.parse_pattern(other)

    assert patterns.overlap(a, b) is expected
    assert patterns.overlap(b, a) is expected
