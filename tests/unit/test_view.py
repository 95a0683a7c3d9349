"""The view: guards, snapshots, rebuilding, and one reply as the design shows it."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import duckdb
import pytest
import searched

from facetline.facets import tokens
from facetline.facets.definitions import Definitions
from facetline.facets.documents import Record
from facetline.facets.errors import InvalidCursor, SearchTimeout, UnknownCollection
from facetline.facets.questions import boolean, choice, score
from facetline.facets.table import record_arrays
from facetline.facets.view.view import View

SOON_S = 20


@pytest.fixture
def view() -> Iterator[View]:
    """A view of the collection `notes`."""
    made = searched.view()
    yield made
    made.close()


def on(option: str, number: int = 1, **changes: Any) -> Record:
    """Return a record about the option."""
    return searched.record(number, facets={"topic": searched.chosen(option, 0.9)}, **changes)


def keys(view: View, **fields: Any) -> list[str]:
    """Return the keys that a search finds."""
    found: list[str] = view.search(searched.select(**fields))["keys"]
    return found


def position_of(reply: dict[str, Any]) -> int:
    """Return the feed's position that a reply is as new as."""
    token = tokens.decode(reply["as_of"]["token"])
    assert isinstance(token, tokens.FeedToken)
    return token.position


def test_a_reply_is_as_the_design_shows_it(view: View) -> None:
    """Every field of DESIGN §8's reply is there, in its order, and none besides."""
    state = {"title": "Charged twice"}
    view.apply(
        [
            on("billing", 1, version=4, revision=3, indexed_as=3, state=state),
            on("other", 2),
            searched.record(3, status="pending", facets=None, fingerprint=None),
            searched.record(4, status="failed", reason="timeout", facets=None, fingerprint=None),
            searched.record(5, status="empty", facets=None, fingerprint=None),
        ]
    )

    reply = view.search(searched.select(facets={"topic": "billing"}, min_confidence=0.8, counts="topic"))

    assert reply.pop("took_ms") >= 0
    assert reply == {
        "keys": ["n001"],
        "hits": [
            {
                "uri": "@alice/notes/n001",
                "key": "n001",
                "version": 4,
                "revision": 3,
                "indexed_as": 3,
                "status": "indexed",
                "facets": {"topic": {"type": "choice", "choice": "billing", "confidence": 0.9}},
                "state": {"title": "Charged twice"},
            }
        ],
        "total": 1,
        "facets": [
            {
                "name": "topic",
                "type": "choice",
                "mode": "disjunctive",
                "total": 5,
                "buckets": [
                    {"value": "other", "count": 1, "selected": False},
                    {"value": "billing", "count": 1, "selected": True},
                    {"value": 'it\'s "odd"', "count": 0, "selected": False},
                    {"value": "日本", "count": 0, "selected": False},
                ],
                "other_count": 0,
                "truncated": False,
                "missing": {"count": 3, "pending": 1, "failed": 1, "empty": 1, "low_confidence": 0, "outdated": 0},
            }
        ],
        "next_cursor": None,
        "as_of": {"token": tokens.encode(tokens.FeedToken("store", 5)), "pending": 1},
    }
    assert list(reply) == ["keys", "hits", "total", "facets", "next_cursor", "as_of"]


@pytest.mark.parametrize(("confidence", "found"), [(0.8, True), (0.7999999999999999, False), (None, False)])
def test_min_confidence_is_inclusive(view: View, confidence: float | None, found: bool) -> None:
    """An answer of just that confidence passes; the next lower double and an answer without one do not."""
    view.apply([searched.record(1, facets={"topic": searched.chosen("billing", confidence)})])

    assert bool(keys(view, facets={"topic": "billing"}, min_confidence=0.8)) is found


def test_an_answer_without_confidence_fails_even_zero(view: View) -> None:
    """`min_confidence` 0 asks for a confidence; without `min_confidence` none is needed."""
    view.apply([searched.record(1, facets={"topic": searched.chosen("billing")})])

    assert keys(view, facets={"topic": "billing"}, min_confidence=0) == []
    assert keys(view, facets={"topic": "__missing__"}, min_confidence=0) == ["n001"]
    assert keys(view, facets={"topic": "billing"}) == ["n001"]


def test_min_confidence_leaves_the_filter_alone(view: View) -> None:
    """A filter sees the answers as they are."""
    view.apply([searched.record(1, facets={"topic": searched.chosen("billing", 0.1)})])

    assert keys(view, filter="topic = 'billing'", min_confidence=0.8) == ["n001"]


@pytest.mark.parametrize("batches", [[[3], [2]], [[2], [3]], [[3, 2]], [[2, 3]]])
def test_an_older_version_changes_nothing(view: View, batches: list[list[int]]) -> None:
    """The newest version stays, whether the older one comes before it, after it or in the same batch."""
    records = {2: on("billing", 1, version=2), 3: on("other", 2, version=3, key="n001")}

    for batch in batches:
        view.apply([records[version] for version in batch])

    assert keys(view, facets={"topic": "other"}) == ["n001"]
    assert keys(view, facets={"topic": "billing"}) == []
    assert view.position == 2


def test_a_deleted_document_is_hidden_and_guards(view: View) -> None:
    """A deleted document is in no hit, total or count, and an older record does not bring it back."""
    view.apply([on("billing", 1)])
    view.apply([searched.record(2, key="n001", version=3, status="deleted", facets=None)])
    view.apply([on("billing", 1)])

    reply = view.search(searched.select(counts="topic"))

    assert (reply["hits"], reply["total"], reply["facets"][0]["total"]) == ([], 0, 0)
    assert keys(view, filter="doc_status = 'deleted' OR topic IS NULL") == []
    assert view.uris(searched.select()) == []


def test_a_document_without_answers_matches_no_value(view: View) -> None:
    """Facets that come with a document that is not indexed are not searched: it is cleared first."""
    view.apply([on("billing", 1, status="pending")])

    reply = view.search(searched.select())

    assert reply["hits"][0]["facets"] is None
    assert keys(view, facets={"topic": "billing"}) == []
    assert keys(view, filter="NOT topic = 'billing'") == ["n001"]


def test_outdated_answers_still_match(view: View) -> None:
    """A document answered under another fingerprint matches by its declared answers, and says that it is outdated."""
    view.apply([on("billing", 1, fingerprint="old"), on("retired", 2, fingerprint="old")])

    reply = view.search(searched.select(counts="topic"))

    assert [hit["outdated"] for hit in reply["hits"]] == [True, True]
    assert keys(view, facets={"topic": "billing"}) == ["n001"]
    assert reply["facets"][0]["missing"]["outdated"] == 1
    assert reply["hits"][1]["facets"]["topic"]["choice"] == "retired"


def test_a_batch_is_taken_whole_or_not_at_all(view: View) -> None:
    """When one record cannot be taken, nothing of its batch is, and the view goes on as before."""
    view.apply([on("billing", 1)])
    broken = searched.record(3, facets={"topic": searched.chosen("other", float("nan"))})

    with pytest.raises(ValueError, match="JSON"):
        view.apply([on("other", 2), broken])

    assert view.position == 1
    assert keys(view) == ["n001"]
    view.apply([on("other", 2)])
    assert keys(view) == ["n001", "n002"]


def test_a_batch_made_ready_before_a_new_definition_is_taken_by_the_new_one(view: View) -> None:
    """What a definition made anew between the two halves of `apply` says holds for the whole batch."""
    ready = view.ready([on("billing", 1)])
    reworded = searched.definition(questions={"topic": choice(ask="…", options={"money": "…", "billing": "…"})})
    view.define(Definitions([reworded]))

    view.take(ready)

    assert keys(view, facets={"topic": "billing"}) == ["n001"]
    assert view.search(searched.select())["hits"][0]["outdated"]


def test_no_records_are_no_batch(view: View) -> None:
    """An empty batch changes nothing."""
    view.apply([])

    assert view.position == 0


def test_what_is_remembered_is_of_this_moment(view: View) -> None:
    """A search that is asked again gives the same, until anything changes: a batch, or a definition."""
    wanted = searched.select(counts="topic", facets={"topic": "billing"})
    view.apply([on("billing", 1)])
    first = view.search(wanted)
    first["facets"].clear()  # what a caller does to a reply is its own affair
    again = view.search(wanted)

    view.apply([on("billing", 2, feed_seq=1)])  # late, so that the position stays
    later = view.search(wanted)
    view.define(Definitions([searched.definition(questions={"topic": searched.QUESTIONS["topic"]})]))

    assert (again["keys"], len(again["facets"])) == (["n001"], 1)
    assert (later["keys"], later["facets"][0]["total"]) == (["n001", "n002"], 2)
    assert view.search(wanted)["total"] == 0


def test_records_of_other_collections_are_passed_over(view: View) -> None:
    """A view of one collection takes its position from the whole feed and its rows from its own."""
    view.apply([searched.record(7, defined=searched.definition("letters")), on("billing", 3)])

    assert view.position == 7
    assert keys(view) == ["n003"]


def test_an_unknown_collection_names_the_nearest(view: View) -> None:
    """A collection that the view does not have is refused with those that it has."""
    with pytest.raises(UnknownCollection, match=r"no collection 'note' \(did you mean 'notes'\?\); known: notes"):
        view.search(searched.select("note"))


def test_the_same_definitions_change_nothing(view: View) -> None:
    """Defining again what is defined keeps rows and position."""
    view.apply([on("billing", 1)])

    view.define(Definitions([searched.definition(llm_readable=True)]))

    assert view.position == 1
    assert keys(view) == ["n001"]


@pytest.mark.parametrize(
    "changes",
    [
        {"questions": {**searched.QUESTIONS, "topic": choice(ask="?", options={"billing": "…", "else": "…"})}},
        {"state": {"title": "string"}},
    ],
)
def test_a_changed_definition_starts_over(view: View, changes: dict[str, Any]) -> None:
    """After a change the view is empty and asks for the feed from the start; then it answers in the new terms."""
    view.apply([on("billing", 1), on("other", 2)])
    first = view.search(searched.select(limit=1))
    changed = searched.definition(**changes)

    view.define(Definitions([changed]))

    assert view.position == 0
    assert position_of(view.search(searched.select())) == 0
    with pytest.raises(InvalidCursor):
        view.search(searched.select(limit=1, cursor=first["next_cursor"]))
    view.apply([on("billing", 1, fingerprint="old"), on("other", 2, fingerprint="old")])
    declared = [option for option in changed.questions["topic"].model_dump()["options"] if option == "other"]
    assert keys(view, filter="topic IS NOT NULL") == ["n001", *(["n002"] if declared else [])]


def test_other_collections_keep_their_rows(view: View) -> None:
    """A new collection makes the feed start over and leaves the known rows; a dropped one is unknown."""
    view.apply([on("billing", 1)])
    letters = searched.definition("letters")

    view.define(Definitions([searched.definition(), letters]))

    assert view.position == 0
    assert keys(view) == ["n001"]
    view.define(Definitions([letters]))
    with pytest.raises(UnknownCollection):
        keys(view)


def test_text_is_ordered_by_its_characters(view: View) -> None:
    """Options sort as text, not as declared, and what has no answer comes last in both directions."""
    view.apply([on(option, number) for number, option in enumerate(searched.TOPICS)] + [searched.record(9)])

    assert keys(view, sort="topic") == ["n001", "n002", "n000", "n003", "n009"]
    assert keys(view, sort="-topic") == ["n003", "n000", "n002", "n001", "n009"]


def test_long_text_is_ordered_by_its_beginning(view: View) -> None:
    """Of a long state text 256 characters decide, so that a cursor stays short; pages stay whole."""
    titles = ["é" * 256 + end for end in "cab"]
    view.apply([searched.record(n, state={"title": title}) for n, title in enumerate(titles)])

    first = view.search(searched.select(sort="-state_title", limit=2))
    second = view.search(searched.select(sort="-state_title", limit=2, cursor=first["next_cursor"]))

    assert first["keys"] + second["keys"] == ["n000", "n001", "n002"]
    assert len(first["next_cursor"]) < 1000


def test_a_total_is_of_all_pages(view: View) -> None:
    """However short a page is, the total counts everything that matches."""
    view.apply([on(searched.TOPICS[0], number) for number in range(3)])

    assert view.search(searched.select(limit=1))["total"] == 3


@pytest.mark.parametrize(
    ("fields", "shown", "other", "truncated"),
    [
        ({}, {"other": 1, "billing": 3, 'it\'s "odd"': 0, "日本": 2}, 0, False),
        ({"facet_sort": "count"}, {"billing": 3, "日本": 2, "other": 1, 'it\'s "odd"': 0}, 0, False),
        ({"facet_sort": "alpha"}, {"billing": 3, 'it\'s "odd"': 0, "other": 1, "日本": 2}, 0, False),
        ({"facet_size": 2}, {"billing": 3, "日本": 2}, 1, True),
        ({"facet_size": 1, "facets": {"topic": 'it\'s "odd"'}}, {'it\'s "odd"': 0}, 6, True),
        ({"facet_min_count": 2}, {"billing": 3, "日本": 2}, 1, False),
        ({"facet_min_count": 1, "facets": {"topic": "other"}, "facet_mode": "conjunctive"}, {"other": 1}, 0, False),
    ],
)
def test_which_buckets_are_shown(
    view: View, fields: dict[str, Any], shown: dict[str, int], other: int, truncated: bool
) -> None:
    """Declared order unless told otherwise; what is cut off are the emptiest, never what is selected."""
    view.apply(
        [on(option, n) for n, option in enumerate(["other", "billing", "billing", "日本", "日本", "billing"], 1)]
    )

    [facet] = view.search(searched.select(counts="topic", **fields))["facets"]

    assert {bucket["value"]: bucket["count"] for bucket in facet["buckets"]} == shown
    assert [bucket["value"] for bucket in facet["buckets"]] == list(shown)
    assert (facet["other_count"], facet["truncated"]) == (other, truncated)


def test_all_questions_are_counted_by_a_star(view: View) -> None:
    """`*` counts every question, in the declared order."""
    facets = view.search(searched.select(counts="*"))["facets"]

    assert [facet["name"] for facet in facets] == list(searched.QUESTIONS)


def test_a_question_can_have_a_least_confidence_of_its_own(view: View) -> None:
    """`mc` goes before `min_confidence`, for that question alone."""
    answers = {"topic": searched.chosen("billing", 0.6), "mood": searched.chosen("calm", 0.6)}
    view.apply([searched.record(1, facets=answers)])
    wanted = {"topic": "billing", "mood": "calm"}

    assert keys(view, facets=wanted, min_confidence=0.9, mc={"topic": 0.6}) == []
    assert keys(view, facets=wanted, min_confidence=0.9, mc={"topic": 0.6, "mood": 0.5}) == ["n001"]
    assert keys(view, facets=wanted, mc={"mood": 0.7}) == []


def test_a_histogram_has_every_interval(view: View) -> None:
    """Scores are counted in intervals of one width; each count is that of its filter."""
    scores = (0.0, 0.249, 0.25, 1.5, 2.0, 2.0)
    view.apply([searched.record(n, facets={"severity": searched.scored(s, 0.9)}) for n, s in enumerate(scores, 1)])

    [facet] = view.search(searched.select(counts="severity"))["facets"]

    counts = {each["gte"]: each["count"] for each in facet["histogram"]}
    assert counts == {0.0: 2, 0.25: 1, 0.5: 0, 0.75: 0, 1.0: 0, 1.25: 0, 1.5: 1, 1.75: 0, 2.0: 2}
    assert (facet["min"], facet["max"]) == (0.0, 2.0)
    for each in facet["histogram"]:
        found = keys(view, filter=f"severity >= {each['gte']} AND severity < {each['lt']}")
        assert len(found) == each["count"]


def test_odd_options_and_many(view: View) -> None:
    """255 options, with quotes, SQL and any letters among them, are searched, counted and sorted as they are."""
    odd = ["'; DROP TABLE notes; --", 'a"b', "\\", "%", "_", "?", "🙂", "ﬁ", "null", "true", "a b"]
    options = [*odd, *(f"option {number}" for number in range(255 - len(odd)))]
    defined = searched.definition(questions={"q": choice(ask="?", options=dict.fromkeys(options, "…"))})
    view.define(Definitions([defined]))
    view.apply(
        [searched.record(n, defined=defined, facets={"q": searched.chosen(each)}) for n, each in enumerate(options)]
    )

    for number, option in enumerate(options[:20]):
        quoted = option.replace("'", "''")
        assert keys(view, facets={"q": (option,)}, filter=f"q = '{quoted}'") == [f"n{number:03}"]
    reply = view.search(searched.select(facets={"q": tuple(options)}, counts="q", sort="q", limit=200))
    assert reply["total"] == 255
    assert [bucket["value"] for bucket in reply["facets"][0]["buckets"]] == options
    assert reply["keys"] == [f"n{options.index(option):03}" for option in sorted(options)][:200]


def test_names_that_are_words_of_sql() -> None:
    """Questions and state may have names that SQL and CQL2 know as words."""
    names = ("timestamp", "date", "between", "value", "count", "interval", "true_1", "exists", "excluded", "known")
    questions = {name: boolean(ask="?") for name in names} | {"double": score(ask="?", levels=("low", "high"))}
    defined = searched.definition("batch", questions=questions, state={"cell": "string", "values": "string"})
    view = searched.view(defined)
    view.apply([searched.record(1, defined=defined, facets={name: searched.yes(1) for name in names})])

    found = [view.search(searched.select("batch", filter=f"{name} = true AND NOT {name} IS NULL")) for name in names]

    view.close()
    assert [reply["total"] for reply in found] == [1] * len(names)


def test_like_is_not_slow(view: View) -> None:
    """A pattern that would keep DuckDB's own LIKE busy for years is answered at once."""
    view.apply([searched.record(1, state={"title": "a" * 60_000})])

    assert keys(view, filter=f"state_title LIKE '{'%a' * 100}%b'") == []


def test_a_search_that_takes_too_long_is_stopped() -> None:
    """It ends with an error of its own, and the next search is answered."""
    with contextlib.closing(View(search_s=0.3)) as view:  # many times what the last one takes
        view.define(Definitions([searched.definition()]))
        like = record_arrays.shown(searched.record(1, state={"title": "ab" * 300}))
        view.apply([like._replace(feed_seq=n, uri=f"@alice/notes/n{n}", key=f"n{n}") for n in range(1, 8_001)])
        endless = " OR ".join(f"state_title LIKE '%{'_a%' * 40}{n}'" for n in range(32))

        for ask in (view.search, view.reader):
            with pytest.raises(SearchTimeout, match="took longer"):
                ask(searched.select(filter=endless))

        assert view.search(searched.select(limit=1))["total"] == 8_000


def test_nothing_is_read_from_outside(view: View) -> None:
    """The database can read no file and load no extension."""
    for statement in ("SELECT * FROM read_csv('/etc/hosts')", "ATTACH '/tmp/x.duckdb' AS x", "INSTALL httpfs"):
        with pytest.raises(duckdb.Error):
            view._connection.execute(statement)


def test_closing_twice_is_safe() -> None:
    """A closed view may be closed again."""
    view = searched.view()

    view.close()
    view.close()


class _Until:
    """Runs a function on a thread, over and over until it is stopped; raises what it raised."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self.rounds = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._work(self.rounds)
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 (raised again by the test)
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(SOON_S)
        if self._error is not None:
            raise self._error


def test_a_search_sees_one_moment(view: View) -> None:
    """While batches turn every document from one option to another, no reply mixes two of them or goes back."""
    view.apply([on("billing", n) for n in range(1, 51)])

    def turn(number: int) -> None:
        option = searched.TOPICS[number % 2]
        batch = [on(option, 50 * (number + 2) + n, key=f"n{n:03}", version=number + 3) for n in range(1, 51)]
        view.apply(batch)

    positions = []
    deadline = time.monotonic() + SOON_S
    with _Until(turn) as turning:
        while len(set(positions)) < 10 and time.monotonic() < deadline:
            reply = view.search(searched.select(facets={"topic": "billing"}, counts="topic", limit=200))
            counts = {bucket["value"]: bucket["count"] for bucket in reply["facets"][0]["buckets"]}
            assert reply["total"] == counts["billing"] == len(reply["hits"])
            assert sorted(counts.values()) == [0, 0, 0, 50]
            position = position_of(reply)
            assert reply["total"] == (0 if position > 50 and (position // 50 - 3) % 2 == 0 else 50)
            positions.append(position)

    assert len(set(positions)) > 3
    assert positions == sorted(positions)
    assert turning.rounds > 3


def test_definitions_change_between_searches(view: View) -> None:
    """While a collection is made anew over and over, every search is of one definition, old or new."""
    other = searched.definition(questions={"topic": choice(ask="?", options={"new": "…", "newer": "…"})})
    both = (searched.definition(), other)

    def change(number: int) -> None:
        view.define(Definitions([both[number % 2]]))
        view.apply([on("billing" if number % 2 == 0 else "new", 1)])

    seen = set()
    deadline = time.monotonic() + SOON_S
    with _Until(change):
        while (len(seen) < 4 or time.monotonic() < deadline - SOON_S + 1) and time.monotonic() < deadline:
            reply = view.search(searched.select(counts="topic", sort="topic"))
            buckets = tuple((bucket["value"], bucket["count"]) for bucket in reply["facets"][0]["buckets"])
            seen.add(buckets)

    old, new = ("other", "billing", 'it\'s "odd"', "日本"), ("new", "newer")
    assert {tuple(value for value, _ in buckets) for buckets in seen} == {old, new}
    for buckets in seen:
        assert [value for value, count in buckets if count] in ([], ["billing"], ["new"])
