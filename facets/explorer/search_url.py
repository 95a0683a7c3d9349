"""The URL of a search on the page: parsing, and the URLs of all changes that a click can make.

The URL is the whole state of the page. Parameters without a value are omitted, so that each search has one URL.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode

from facetline.facets.errors import InvalidQuery, likeliest, nearest
from facetline.facets.schema.columns import STATE_PREFIX
from facetline.facets.search.selection import ALL, FACET_SIZE_MAX, Selection, declared
from facetline.facets.table.tables import Table

PAGE_ROWS = 20
# Cursors of previous pages in the URL, for going back; some 8 x 200 bytes.
BACK_MAX = 8
FIRST = "first"
"""Placeholder for the first page, which has no cursor."""
# More than any URL of the page has; the server refuses a request head of more than 64 KiB anyway.
_PARAMETERS_MAX = 1_000
_TEXTS = ("q", "mode", "words", "exact", "grep", "ignore_case", "glob")
"""What is looked for in texts: each as in the API."""
_PLAIN = ("min_confidence", "filter", "sort", "scope", "cursor", "page", "counts", *_TEXTS)
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": ("keyword", "vector", "hybrid"),
    "words": ("any", "all"),
    "exact": ("true", "false"),
    "ignore_case": ("true", "false"),
}
"""The values of those that have only some."""
_FACET = "f."
# Parameters of the API that the page does not have: refused here, not ignored.
_OF_API = ("limit", "at_least", "wait_ms", "facet_size", "facet_sort", "facet_min_count", "facet_mode", "mc")
# Tracking parameters that other sites add to links, even if they look like a question's name.
_TRACKING = re.compile(r"utm_.*|mc_[ce]id|.*clid|source|ref", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class SearchUrl:
    """The search of a collection's page; texts are as given, `facets` in the given order."""

    collection: str
    facets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    min_confidence: float | None = None
    filter: str | None = None
    sort: str | None = None
    scope: str | None = None
    cursor: str | None = None
    page: int = 1
    back: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    """What is looked for in texts, by the parameters' names, in their order."""
    counts: tuple[str, ...] = ()
    """Own fields to count beside all questions."""

    @property
    def narrowed(self) -> bool:
        """Whether the search selects fewer documents than all."""
        return bool(self.facets or self.filter or self.scope or self.texts)

    def text(self, name: str) -> str:
        """Return a parameter of the text search, or ""."""
        return dict(self.texts).get(name, "")

    def with_text(self, **changes: str) -> "SearchUrl":
        """Return the search with other parameters of the text search; "" leaves one out."""
        given = {**dict(self.texts), **changes}
        return replace(self.first_page(), texts=tuple((name, given[name]) for name in _TEXTS if given.get(name)))

    def selection(self) -> Selection:
        """Return the `Selection`, with counts of all questions and of the own fields that are named or selected."""
        return Selection(
            collection=self.collection,
            facets=self.facets,
            min_confidence=self.min_confidence,
            filter=self.filter,
            sort=self.sort or (),
            scope=self.scope,
            cursor=self.cursor,
            counts=(ALL, *dict.fromkeys((*self.counts, *self._own_fields()))),
            facet_size=FACET_SIZE_MAX,
            limit=PAGE_ROWS,
            **self._text_fields(),
        )

    def _own_fields(self) -> list[str]:
        return [name for name in self.facets if name.startswith(STATE_PREFIX)]

    def _text_fields(self) -> dict[str, Any]:
        if not self.texts:
            return {}
        fields: dict[str, Any] = {
            name: value == "true" if name in {"exact", "ignore_case"} else value for name, value in self.texts
        }
        return {**fields, "highlight": True, "score_details": True}

    def declared(self, table: Table) -> "SearchUrl":
        """Return the same search with values as declared by the questions (one URL per search)."""
        return replace(self, facets=declared(self.facets, table))

    def first_page(self) -> "SearchUrl":
        """Return the same search on its first page."""
        return replace(self, cursor=None, page=1, back=())

    def with_values(self, name: str, values: Iterable[str]) -> "SearchUrl":
        """Return the search with these values (OR) of a facet; with none, without the facet."""
        wanted = tuple(values)
        others = {each: given for each, given in self.facets.items() if each != name}
        return replace(self.first_page(), facets={**others, name: wanted} if wanted else others)

    def toggled(self, name: str, value: str) -> "SearchUrl":
        """Return the search with a value added, or removed if it is selected."""
        given = self.facets.get(name, ())
        kept = [each for each in given if each != value]
        return self.with_values(name, kept if value in given else [*given, value])

    def with_filter(self, text: str | None) -> "SearchUrl":
        """Return the search with another filter."""
        return replace(self.first_page(), filter=text)

    def next_page(self, cursor: str) -> "SearchUrl":
        """Return the next page."""
        back = (*self.back, self.cursor or FIRST)[-BACK_MAX:]
        return replace(self, cursor=cursor, page=self.page + 1, back=back)

    def previous_page(self) -> "SearchUrl | None":
        """Return the previous page; the first page if it is unknown; None on the first page."""
        if self.cursor is None:
            return None
        if not self.back:
            return self.first_page()
        *earlier, last = self.back
        return replace(self, cursor=None if last == FIRST else last, page=max(1, self.page - 1), back=tuple(earlier))

    def pairs(self) -> list[tuple[str, str]]:
        """Return the URL parameters, without empty ones."""
        given = [(f"{_FACET}{name}", value) for name, values in self.facets.items() for value in values]
        least = "" if self.min_confidence is None else f"{self.min_confidence:g}"
        texts = (
            least,
            self.filter,
            self.sort,
            self.scope,
            self.cursor,
            str(self.page) if self.page > 1 else "",
            ",".join(self.counts),
        )
        given += [(name, text) for name, text in zip(_PLAIN, texts, strict=False) if text]
        given += self.texts
        return given + [("back", each) for each in self.back]

    def query(self, *, paged: bool = True) -> str:
        """Return the query string with its question mark, or an empty string."""
        pairs = (self if paged else self.first_page()).pairs()
        return "?" + urlencode(pairs, quote_via=quote) if pairs else ""

    def address(self) -> str:
        """Return the URL of the page."""
        return f"/{self.collection}{self.query()}"


def read(collection: str, pairs: Sequence[tuple[str, str]], *, questions: Collection[str] | None = None) -> SearchUrl:
    """Return the search of URL parameters.

    With the names of the collection's `questions`, tracking parameters (`utm_source`, `fbclid`) are ignored; without,
    as for URLs that the page generates, every unknown parameter is refused.

    Raises:
        InvalidQuery: a parameter is unknown, given twice, or not a number where one is required.
    """
    if len(pairs) > _PARAMETERS_MAX:
        raise InvalidQuery(f"the URL has {len(pairs)} parameters; at most {_PARAMETERS_MAX} are allowed")
    facets: dict[str, list[str]] = {}
    plain: dict[str, str] = {}
    back: list[str] = []
    for name, value in pairs:
        if name == "back":
            back.append(value)
        elif name in plain:
            raise InvalidQuery(f"{name} is given twice; send it once")
        elif name in _PLAIN:
            plain[name] = value
        elif not name.startswith(_FACET) or name == _FACET:
            if questions is None or _likely_intended(name, questions):
                raise _unknown(name)
        elif value and value not in facets.setdefault(name.removeprefix(_FACET), []):
            facets[name.removeprefix(_FACET)].append(value)
    return SearchUrl(
        collection=collection,
        facets={name: tuple(values) for name, values in facets.items() if values},
        min_confidence=_confidence(plain.get("min_confidence", "")),
        filter=plain.get("filter", "").strip() or None,
        sort=plain.get("sort", "").strip() or None,
        scope=plain.get("scope") or None,
        cursor=plain.get("cursor") or None,
        counts=tuple(name.strip() for name in plain.get("counts", "").split(",") if name.strip()),
        page=_page(plain.get("page", "")),
        texts=_texts(plain),
        back=tuple(back[-BACK_MAX:]),
    )


def _texts(plain: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = tuple((name, value) for name in _TEXTS if (value := plain.get(name, "").strip()))
    for name, value in found:
        if name in _CHOICES and value not in _CHOICES[name]:
            allowed = _CHOICES[name]
            raise InvalidQuery(f"{name} is {value[:20]!r}; it must be {' or '.join(allowed)}", allowed=allowed)
    return found


def _likely_intended(name: str, questions: Collection[str]) -> bool:
    """Return whether an unknown parameter was probably meant as a filter, so that ignoring it would mislead."""
    ours = (*_PLAIN, "back", *_OF_API, *questions)
    if name.casefold() in ours or name.casefold().startswith((_FACET, "mc.", "facets")):
        return True
    return _TRACKING.fullmatch(name[:80]) is None and likeliest(name[:80], ours) is not None


def _unknown(name: str) -> InvalidQuery:
    shown = name[:80]
    known = ("f.QUESTION", *_PLAIN, "back")
    hint = nearest(shown, known)
    return InvalidQuery(
        f"Unknown parameter {shown!r}. Filter with f.QUESTION=VALUE{hint}; known: {', '.join(known)}", allowed=known
    )


def _confidence(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        raise InvalidQuery(f"min_confidence is {text[:20]!r}; it must be a number from 0 to 1") from None
    # The slider's left end means no minimum.
    return value or None


def _page(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 10 else 1  # noqa: PLR2004 (a billion pages)
