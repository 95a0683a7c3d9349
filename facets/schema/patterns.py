"""Patterns: which paths belong to a collection, and what their key is.

A pattern is literal segments and one final `*` (exactly one segment) or `**` (one or more). Patterns speak of a uri's
path, that is without its scope; `facets.documents` has judged the uri before anything here sees it.
"""

import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

# A uri has 512 bytes (documents.URI_BYTES_MAX): half of it is left for the scope and the key.
PATTERN_BYTES_MAX = 256
_NOT_LITERAL = frozenset("*?[]{}<>")


@dataclass(frozen=True)
class Pattern:
    """A pattern that `parse_pattern` has accepted."""

    text: str

    @cached_property
    def prefix(self) -> str:
        """The literal part, with its final `/`; empty when the pattern is a wildcard alone."""
        return self.text.rstrip("*")

    @cached_property
    def deep(self) -> bool:
        """Whether the wildcard takes several segments."""
        return self.text.endswith("**")

    def match(self, path: str) -> str | None:
        """Return the key, that is what the wildcard matched in the path of a valid uri; None without a match."""
        if not path.startswith(self.prefix):
            return None
        key = path[len(self.prefix) :]
        if not key or ("/" in key and not self.deep):
            return None
        return key


def parse_pattern(text: str) -> Pattern:
    """Accept a pattern.

    Raises:
        ValueError: with what is wrong and what to write instead; the caller names the collection.
    """
    problem = _problem(text)
    if problem:
        raise ValueError(problem)
    return Pattern(text)


def overlap(a: Pattern, b: Pattern) -> bool:
    """Return whether some path matches both patterns."""
    shorter, longer = sorted((a, b), key=lambda pattern: len(pattern.prefix))
    if shorter.prefix == longer.prefix:
        return True
    return shorter.deep and longer.prefix.startswith(shorter.prefix)


def problems_together(named: Sequence[tuple[str, Pattern]]) -> list[str]:
    """Return what is wrong between collections, given by name and pattern: one name twice, or a uri of two."""
    problems = []
    for (name, pattern), (other, its_pattern) in itertools.combinations(named, 2):
        if name == other:
            problems.append(f"collection '{name}': there are two of that name; rename or drop one")
        elif overlap(pattern, its_pattern):
            problems.append(
                f"collection '{other}': its pattern '{its_pattern.text}' overlaps '{pattern.text}' of collection"
                f" '{name}', and a uri belongs to one; change one of them"
            )
    return problems


def _problem(text: object) -> str | None:
    if not isinstance(text, str):
        return "a pattern is text, such as 'tickets/*'"
    if text.startswith("@"):
        return "a pattern does not start with '@'; leave the scope out and set scoped = true"
    *literal, last = text.split("/")
    for segment in literal:
        problem = _segment_problem(segment)
        if problem:
            return problem
    if last not in {"*", "**"}:
        return _last_problem(text, last)
    if len(text.encode(errors="replace")) > PATTERN_BYTES_MAX:
        return f"a pattern takes at most {PATTERN_BYTES_MAX} bytes, the rest of a uri is for scope and key; shorten it"
    return None


def _last_problem(text: str, last: str) -> str:
    problem = _segment_problem(last)
    if problem:
        return problem
    return f"a pattern ends with a wildcard segment; write '{text}/*' for one segment or '{text}/**' for several"


def _segment_problem(segment: str) -> str | None:
    if segment in {"", ".", ".."}:
        return "an empty, '.' or '..' segment is in no uri; take it out"
    if segment in {"*", "**"}:
        return "the wildcard is the last segment and the only one; move it to the end, such as 'docs/**'"
    if _is_parameter(segment):
        return f"a pattern has no parameters such as {segment!r}; write '*' as its last segment"
    if _NOT_LITERAL.intersection(segment):
        return f"{segment!r} is neither literal text nor a whole-segment wildcard; write '*' or '**' as the last one"
    return _text_problem(segment)


def _text_problem(segment: str) -> str | None:
    if any(unicodedata.category(letter) in {"Cc", "Cs"} for letter in segment):
        return "control characters and half surrogate pairs are in no uri; take them out"
    if not unicodedata.is_normalized("NFC", segment):
        return f"not in Unicode's NFC form, which uris have; write {unicodedata.normalize('NFC', segment)!r}"
    return None


def _is_parameter(segment: str) -> bool:
    return segment.startswith(":") or (segment[0] + segment[-1]) in {"[]", "{}", "<>"}
