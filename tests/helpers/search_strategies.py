"""Random documents, filters and selections for the properties of search."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import naive_search
import searched
from hypothesis import settings
from hypothesis import strategies as st

from facetline.facets.documents import Record

# An example here is several statements; a soak raises the profile's number, and so this one.
fewer = settings(max_examples=settings.default.max_examples // 3)

ALPHABET = "ab%_\\'é😀\n ("
_DEFINED = searched.definition()
_START = datetime(2026, 1, 1, tzinfo=UTC)
texts = st.text(ALPHABET, max_size=4)
integers = st.one_of(st.integers(-3, 3), st.sampled_from((2**63 - 1, -(2**63), 2**53 + 1)))
floats = st.one_of(st.sampled_from((0.0, -0.5, 1e300, 0.1)), st.floats(-10, 10, allow_nan=False))
moments = st.builds(
    lambda seconds, micro: _START + timedelta(seconds=seconds, microseconds=micro),
    st.integers(-2, 2),
    st.sampled_from((0, 1, 999_999)),
)


def _moment_text(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat() + "Z"


@dataclass(frozen=True)
class _Draw:
    """Draws from one seed: a record drawn part by part would take Hypothesis longer than the search takes."""

    random: Random

    def one(self, values: Sequence[Any]) -> Any:
        return self.random.choice(values)

    def confidence(self) -> float | None:
        return self.one((None, 0.0, 0.5, 0.8, 1.0, self.random.random()))

    def choice(self, options: Sequence[str]) -> dict[str, Any]:
        return searched.chosen(self.one((*options, "retired")), self.confidence())

    def yes(self) -> dict[str, Any]:
        return searched.yes(self.one((0.0, 0.5, 1.0, self.random.random())), self.confidence())

    def score(self) -> dict[str, Any]:
        levels = self.one((searched.LEVELS, searched.LEVELS, ("retired", "annoying", "gone")))
        return searched.scored(self.one((0.0, 0.5, 2.0, 2 * self.random.random())), self.confidence(), levels=levels)

    def text(self) -> str:
        return "".join(self.random.choices(ALPHABET, k=self.random.randrange(4)))

    def moment(self) -> datetime:
        return _START + timedelta(seconds=self.random.randint(-2, 2), microseconds=self.one((0, 1, 999_999)))

    def some(self, **parts: Callable[[], Any]) -> dict[str, Any]:
        return {name: make() for name, make in parts.items() if self.random.random() < 0.8}

    def facets(self) -> dict[str, Any]:
        return self.some(
            topic=self.one((partial(self.choice, searched.TOPICS),) * 5 + (self.yes,)),
            mood=partial(self.choice, searched.MOODS),
            urgent=self.one((self.yes,) * 5 + (partial(self.choice, searched.MOODS),)),
            severity=self.score,
        )

    def state(self) -> dict[str, Any]:
        return self.some(
            title=self.text,
            priority=partial(self.one, (-3, 0, 1, 2, 2**63 - 1, -(2**63), 2**53 + 1, 2**53)),
            ratio=lambda: self.one((0.0, -0.5, 1e300, 0.1, self.random.uniform(-10, 10))),
            flag=partial(self.one, (True, False)),
            due=lambda: _moment_text(self.moment()),
        )


def record_of(seed: int, *, number: int, key: str) -> Record:
    """Return one record, as the store could have made it."""
    draw = _Draw(Random(seed))  # noqa: S311 (no secret)
    status = draw.one(("indexed",) * 5 + ("pending", "failed", "empty", "deleted"))
    indexed = status == "indexed"
    return searched.record(
        number,
        defined=_DEFINED,
        key=key,
        scope=draw.one(("alice", "bob")),
        version=draw.random.randint(1, 5),
        status=status,
        reason=draw.one(("timeout", "refused")) if status == "failed" else None,
        facets=draw.facets() if indexed else None,
        fingerprint=draw.one((_DEFINED.fingerprint, "old")) if indexed else None,
        state=None if status == "deleted" else draw.one((None, draw.state(), draw.state())),
        written_at=draw.moment(),
        classified_at=draw.moment() if indexed else None,
    )


def feeds(keys: str = "abcdefghijklmnopqrst", *, size: int = 25) -> st.SearchStrategy[list[Record]]:
    """Return records, several of some uris; equal versions of one uri are the same record."""
    drawn = st.lists(st.tuples(st.sampled_from(keys), st.integers(0, 2**32)), max_size=size)
    return drawn.map(_feed)


def _feed(drawn: list[tuple[str, int]]) -> list[Record]:
    made = [record_of(seed, number=number + 1, key=key) for number, (key, seed) in enumerate(drawn)]
    return list({(record.uri, record.version): record for record in made}.values())


@dataclass(frozen=True)
class Filter:
    """A filter's text and what it means."""

    text: str
    holds: Callable[[Record], bool]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LITERALS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], str]]] = {
    "topic": (st.sampled_from(searched.TOPICS), _quoted),
    "mood": (st.sampled_from(searched.MOODS), _quoted),
    "severity_level": (st.sampled_from(searched.LEVELS), _quoted),
    "doc_status": (st.sampled_from(("indexed", "pending", "failed", "empty")), _quoted),
    "doc_scope": (st.sampled_from(("alice", "bob")), _quoted),
    "doc_key": (st.sampled_from("abc"), _quoted),
    "doc_reason": (st.sampled_from(("timeout", "refused", "x")), _quoted),
    "state_title": (texts, _quoted),
    "state_priority": (integers, str),
    "doc_version": (st.integers(1, 5), str),
    "state_ratio": (floats, repr),
    "severity": (st.floats(0, 2), repr),
    "topic_confidence": (st.sampled_from((0.0, 0.5, 0.8, 1.0)), repr),
    "urgent_probability": (st.floats(0, 1), repr),
    "state_due": (moments, lambda moment: _quoted(_moment_text(moment))),
    "doc_written_at": (moments, lambda moment: f"TIMESTAMP({_quoted(_moment_text(moment))})"),
    "doc_classified_at": (moments, lambda moment: _quoted(_moment_text(moment))),
}
_BOOLEANS = ("urgent", "state_flag", "doc_outdated")
_TEXTS = tuple(name for name, (_, write) in _LITERALS.items() if write is _quoted)


def _with_value(column: str, test: Callable[[Any], bool]) -> Callable[[Record], bool]:
    def holds(record: Record) -> bool:
        value = naive_search.value(record, column)
        return value is not None and test(value)

    return holds


@st.composite
def _compared(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(_LITERALS)))
    literals, write = _LITERALS[column]
    value, operator = draw(literals), draw(st.sampled_from(sorted(_OPERATORS)))
    holds = _with_value(column, lambda known: _OPERATORS[operator](known, value))
    if draw(st.booleans()):
        return Filter(f"{write(value)} {_FLIPPED[operator]} {column}", holds)
    return Filter(f"{column} {operator} {write(value)}", holds)


@st.composite
def _listed(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(_LITERALS)))
    literals, write = _LITERALS[column]
    values = draw(st.lists(literals, min_size=1, max_size=3))
    return Filter(f"{column} IN ({', '.join(map(write, values))})", _with_value(column, lambda known: known in values))


@st.composite
def _between(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(_LITERALS)))
    literals, write = _LITERALS[column]
    low, high = draw(literals), draw(literals)
    return Filter(
        f"{column} BETWEEN {write(low)} AND {write(high)}", _with_value(column, lambda known: low <= known <= high)
    )


@st.composite
def _like(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(_TEXTS))
    parts = draw(
        st.lists(st.sampled_from(("%", "_", "\\%", "\\_", "\\\\", *(set(ALPHABET) - set("%_\\")))), max_size=4)
    )
    meaning = {"%": ".*", "_": "."}
    expression = re.compile("".join(meaning.get(part) or re.escape(part[-1]) for part in parts), re.DOTALL)
    return Filter(
        f"{column} LIKE {_quoted(''.join(parts))}",
        _with_value(column, lambda known: expression.fullmatch(known) is not None),
    )


@st.composite
def _nothing(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from((*sorted(_LITERALS), *_BOOLEANS)))
    return Filter(f"{column} IS NULL", lambda record: naive_search.value(record, column) is None)


@st.composite
def _truth(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(_BOOLEANS))
    wanted = draw(st.booleans())
    text = column if wanted and draw(st.booleans()) else f"{column} = {str(wanted).lower()}"
    return Filter(text, _with_value(column, lambda known: known is wanted))


_leaves = st.one_of(_compared(), _listed(), _between(), _like(), _nothing(), _truth())


def _negated(filter_: Filter) -> Filter:
    return Filter(f"NOT ({filter_.text})", lambda record: not filter_.holds(record))


def _joined(word: str, test: Callable[[Any], bool]) -> Callable[[list[Filter]], Filter]:
    def join(parts: list[Filter]) -> Filter:
        text = f" {word} ".join(f"({part.text})" for part in parts)
        return Filter(text, lambda record: test(part.holds(record) for part in parts))

    return join


def _grown(inner: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(inner.map(_negated), several.map(_joined("AND", all)), several.map(_joined("OR", any)))


filters = st.recursive(_leaves, _grown, max_leaves=6)

# The forms with a NOT inside, which the parser turns into NOT around.
complements = st.sampled_from(
    (
        ("topic = 'billing'", "topic <> 'billing'"),
        ("topic IN ('billing', 'other')", "topic NOT IN ('billing', 'other')"),
        ("state_title LIKE 'a%'", "state_title NOT LIKE 'a%'"),
        ("state_priority BETWEEN -1 AND 2", "state_priority NOT BETWEEN -1 AND 2"),
        ("severity IS NULL", "severity IS NOT NULL"),
        ("state_ratio < 0.1", "NOT state_ratio < 0.1"),
        ("urgent", "NOT urgent"),
    )
)

wanted = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.lists(st.sampled_from((*searched.TOPICS, "__missing__")), min_size=1, max_size=3).map(tuple),
        "mood": st.lists(st.sampled_from((*searched.MOODS, "__missing__")), min_size=1, max_size=3).map(tuple),
        "urgent": st.lists(st.sampled_from(("true", "false", "__missing__")), min_size=1, max_size=2).map(tuple),
        "severity": st.lists(st.sampled_from((*searched.LEVELS, "__missing__")), min_size=1, max_size=2).map(tuple),
    },
)
columns = sorted((*_LITERALS, *_BOOLEANS, "mood_confidence", "doc_uri"))
sorts = st.lists(st.sampled_from(columns), max_size=3, unique=True).flatmap(
    lambda names: st.tuples(*(st.sampled_from((name, f"-{name}")) for name in names))
)
selections = st.fixed_dictionaries(
    {"facets": wanted, "counts": st.permutations(tuple(searched.QUESTIONS)).map(tuple)},
    optional={
        "min_confidence": st.one_of(st.sampled_from((0.0, 0.5, 1.0)), st.floats(0, 1)),
        "mc": st.dictionaries(
            st.sampled_from(sorted(searched.QUESTIONS)), st.sampled_from((0.0, 0.5, 0.8)), max_size=2
        ),
        "scope": st.sampled_from(("alice", "bob", "nobody")),
        "facet_mode": st.sampled_from(("disjunctive", "conjunctive")),
        "facet_size": st.integers(1, 5),
        "facet_sort": st.sampled_from(("declared", "count", "alpha")),
        "facet_min_count": st.integers(0, 3),
    },
)
