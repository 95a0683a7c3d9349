"""Text search in a view: what is found, scored and counted, against plain counting; pages while documents change."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import searched
from text_oracle import Doc, Oracle

from facetline.facets.documents import Shown
from facetline.facets.errors import InvalidQuery
from facetline.facets.table import record_arrays

VOCABULARY = (
    *("card", "cards", "payment", "payments", "refund", "refunded", "refunding", "lost", "the", "my", "ORD-48213377"),
    *("Straße", "naïve", "日本語", "한국어", "config.yaml", "2001", "café", "x", "e-mail", "ไทยแลนด์"),
)
SCOPES = ("alice", "bob")
WEIGHTS = {"state_title": 4, "body": 1}
QUERIES = (
    *([["card"]], [["cards"], ["refund"]], [["ord", "48213377"]], [["the"], ["my"], ["lost"]], [["strasse"]]),
    *([["日本"], ["本語"]], [["config", "yaml"], ["payment"]], [["e", "mail"]], [["2001"]], [["nothing"]], [["naive"]]),
)


def typed(tokens: list[list[str]]) -> str:
    """Return tokens as someone types them."""
    return " ".join("-".join(token) for token in tokens)


class World:
    """A view, and what its documents are."""

    def __init__(self, seed: int, **text: Any) -> None:
        self.chance = random.Random(seed)  # noqa: S311 (repeatable on purpose)
        self.definition = searched.definition(text={"fields": WEIGHTS, **text})
        self.view = searched.view(self.definition)
        self.docs: dict[str, Doc] = {}
        self.topics: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._seq = 0

    def sentence(self, most: int = 12) -> str:
        """Return some words."""
        return " ".join(self.chance.choice(VOCABULARY) for _ in range(self.chance.randint(0, most)))

    def write(self, number: int, body: str | None = None, title: str | None = None, *, deleted: bool = False) -> None:
        """Write, or delete, a document; the view takes it in."""
        self.view.apply([self.record(number, body, title, deleted=deleted)])

    def record(self, number: int, body: str | None = None, title: str | None = None, *, deleted: bool = False) -> Shown:
        """Return the feed's next record of a document, and note what it is."""
        scope, topic = SCOPES[number % 2], self.chance.choice(("billing", "other"))
        body = self.sentence() if body is None else body
        title = self.sentence(3) if title is None else title
        self._seq += 1
        made = searched.record(
            self._seq,
            defined=self.definition,
            scope=scope,
            key=f"n{number:03}",
            version=self._seq,
            revision=self._seq,
            status="deleted" if deleted else "indexed",
            state={"title": title},
            facets=None if deleted else {"topic": searched.chosen(topic, 0.9)},
        )
        if deleted:
            self.docs.pop(made.uri, None)
            return record_arrays.shown(made)
        self.docs[made.uri] = Doc(made.uri, {"body": body, "state_title": title}, scope)
        self.topics[made.uri] = topic
        return record_arrays.shown(made)._replace(body=body)

    def oracle(self) -> Oracle:
        """Return the oracle of the documents as they are."""
        return Oracle(list(self.docs.values()), WEIGHTS)

    def found(self, **fields: Any) -> dict[str, Any]:
        """Return a search's reply, all of it on one page."""
        return self.view.search(searched.select(**{"limit": 200, **fields}))


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    """Some worlds, closed in the end."""
    made: list[World] = []
    yield made
    for world in made:
        world.view.close()


@pytest.mark.parametrize("seed", range(4))
def test_hits_scores_and_counts_are_those_of_plain_counting(seed: int, worlds: list[World]) -> None:
    """After any writes and deletes each query finds, scores and counts what looking at each document does."""
    world = World(seed)
    worlds.append(world)
    for _ in range(4):
        world.view.apply([world.record(number) for number in world.chance.sample(range(60), 30)])
        for number in world.chance.sample(range(60), 4):
            world.write(number, deleted=True)
        oracle = world.oracle()
        for tokens in QUERIES:
            for scope in (None, *SCOPES):
                for exact in (False, True):
                    if tokens == [["nothing"]] and not exact:
                        continue
                    hits = oracle.search(tokens, exact=exact, scope=scope)
                    reply = world.found(q=typed(tokens), scope=scope, exact=exact, counts="topic", score_details=True)

                    assert [(hit["uri"], hit["score"]) for hit in reply["hits"]] == [
                        (hit.uri, hit.score / 1_000_000) for hit in hits
                    ]
                    assert [hit["score_details"]["words"][0] for hit in reply["hits"]] == [hit.matched for hit in hits]
                    assert reply["total"] == len(hits)
                    [facet] = reply["facets"]
                    counted = {bucket["value"]: bucket["count"] for bucket in facet["buckets"]}
                    for topic in ("billing", "other"):
                        assert counted[topic] == sum(world.topics[hit.uri] == topic for hit in hits)


@pytest.mark.parametrize("seed", range(3))
def test_a_facet_filter_changes_no_score_and_loses_no_hit(seed: int, worlds: list[World]) -> None:
    """Hits under a facet are those without it that have the facet, in the same order with the same scores."""
    world = World(100 + seed)
    worlds.append(world)
    world.view.apply([world.record(number) for number in range(60)])

    whole = world.found(q="card refund", counts="topic")
    under = world.found(q="card refund", counts="topic", facets={"topic": "billing"})

    expected = [hit for hit in whole["hits"] if world.topics[hit["uri"]] == "billing"]
    assert under["hits"] == expected
    assert under["total"] == len(expected)
    assert [b["count"] for b in under["facets"][0]["buckets"]] == [b["count"] for b in whole["facets"][0]["buckets"]]


def test_pages_repeat_and_hide_nothing_while_documents_change(worlds: list[World]) -> None:
    """Documents that stay as they are come once each, with the scores of the first page, whatever is written."""
    world = World(7)
    worlds.append(world)
    world.view.apply([world.record(number) for number in range(80)])
    whole = {hit["uri"]: hit["score"] for hit in world.found(q="card payment")["hits"]}
    changed: set[str] = set()
    seen: list[tuple[str, float]] = []
    cursor = None
    while True:
        page = world.found(q="card payment", limit=5, cursor=cursor)
        seen += [(hit["uri"], hit["score"]) for hit in page["hits"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        number = world.chance.randrange(100)
        changed.add(f"@{SCOPES[number % 2]}/notes/n{number:03}")
        world.write(number)

    same = [(uri, score) for uri, score in seen if uri not in changed]
    assert same == [(uri, score) for uri, score in whole.items() if uri not in changed]


def test_a_view_that_is_sorted_and_cleaned_finds_the_same(worlds: list[World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting the words and dropping dead texts changes nothing that is found."""
    from facetline.facets.view import text_index

    monkeypatch.setattr(text_index, "DEAD_MIN", 20)
    monkeypatch.setattr(text_index, "TAIL_MIN", 50)
    world = World(11)
    worlds.append(world)
    for _ in range(12):
        world.view.apply([world.record(number) for number in world.chance.sample(range(40), 25)])
    world.view.settle()

    hits = world.oracle().search([["card"], ["refund"]])

    found = world.found(q="card refund")["hits"]
    assert [(hit["uri"], hit["score"]) for hit in found] == [(hit.uri, hit.score / 1_000_000) for hit in hits]
    index = world.view._texts["notes"]
    assert index._dead < 40


def test_a_document_keeps_its_text_when_only_its_answers_change(worlds: list[World]) -> None:
    """A record without a body leaves the text as it is; one of another write without a body has none."""
    world = World(3)
    worlds.append(world)
    first = world.record(0, "a lost card", "")
    world.view.apply([first])

    world.view.apply([first._replace(version=90, facets_json="{}", body=None)])
    assert world.found(q="lost")["total"] == 1
    assert world.view.lacking([first._replace(version=90)]) == set()

    world.view.apply([first._replace(version=91, revision=91, body=None)])
    assert world.found(q="lost")["total"] == 0
    assert world.view.lacking([first._replace(version=91, revision=91)]) == {first.uri}
    world.view.apply([first._replace(version=91, revision=91)])
    assert world.found(q="lost")["total"] == 1


def test_a_text_is_another_one_when_a_searched_field_is(worlds: list[World]) -> None:
    """A state that changes alone is searched by its new words."""
    world = World(3)
    worlds.append(world)
    record = world.record(0, "body", "old title")
    world.view.apply([record])

    newer = record._replace(version=80, state_json='{"title":"new heading"}', body=None)

    assert world.view.lacking([newer]) == {record.uri}
    world.view.apply([newer._replace(body="body")])
    assert world.found(q="heading")["total"] == 1
    assert world.found(q="old")["total"] == 0


PHRASES = {
    '"card payment"': {"a"},
    '"payment card"': {"b"},
    'payment -"card payment"': {"b", "c"},
    "payment -card": {"c"},
    "-card": {"c", "d"},
    "pay*": {"a", "b", "c"},
    '"日本語テスト"': {"d"},
    '"日本語 テスト"': set(),
    "本": {"d"},
    "ト": {"d"},
    '"c payment"': set(),
    "C++ OR": {"c"},
    "don't \" - * ( [ {": set(),
    "!!! -": set(),
    "🔘": {"c"},
    "🔘 payment": {"a", "b", "c"},
}


@pytest.mark.parametrize("q", PHRASES)
def test_phrases_exclusions_and_prefixes(q: str, worlds: list[World]) -> None:
    """A phrase stands in one field, in order; excluded words and phrases leave out; nothing typed is an error."""
    world = World(5)
    worlds.append(world)
    texts = {
        0: ("My card   payment: failed", ""),
        2: ("payment, card", ""),
        4: ("payment 🔘", "or c"),
        6: ("日本語のテスト 日本語テスト", ""),
    }
    world.view.apply([world.record(number, body, title) for number, (body, title) in texts.items()])

    found = {"abcd"[int(hit["key"][1:]) // 2] for hit in world.found(q=q)["hits"]}

    assert found == PHRASES[q]


def test_a_typo_is_corrected_and_said_and_never_in_an_identifier(worlds: list[World]) -> None:
    """A word that no text of the reader has stands for the nearest one, and the reply says so."""
    world = World(5)
    worlds.append(world)
    world.view.apply(
        [world.record(0, "refund of order XYZ-123 in 2001 declined", ""), world.record(1, "secretword", "")]
    )

    assert world.found(q="refnud")["search"] == {"mode": "keyword", "corrected": {"refnud": "refund"}}
    assert world.found(q="refnud")["total"] == 1
    assert world.found(q="declinde")["total"] == 1
    assert world.found(q="refnud", exact=True)["total"] == 0
    assert world.found(q="XYZ-124")["total"] == 0
    assert world.found(q="2000")["total"] == 0
    assert world.found(q="secretwork")["search"]["corrected"] == {"secretwork": "secretword"}
    other = world.found(q="secretwork", scope="alice")
    assert (other["total"], other["search"]) == (0, {"mode": "keyword"})


GREPS = {
    r"ORD-48\d{6}": {"a": (2, "  order ORD-48213377 lost".strip())},
    "a(": {"b": (1, "f = a(b")},
    "^order": {},
    r"^\s+order": {"a": (2, "order ORD-48213377 lost")},
    "lost$": {"a": (2, "order ORD-48213377 lost")},
    "Refund": {"a": (1, "Refund")},
    r"d\s+o": {},
    r"(a+)+$": {},
    "": {},
}


@pytest.mark.parametrize("pattern", [each for each in GREPS if each])
def test_lines_with_a_pattern(pattern: str, worlds: list[World]) -> None:
    """A pattern is looked for in lines, with their numbers; what is no regular expression is taken literally."""
    world = World(5)
    worlds.append(world)
    texts = {0: "Refund\n  order ORD-48213377 lost\r\nend.", 2: "f = a(b\n" + "b" * 300}
    world.view.apply([world.record(number, body, "") for number, body in texts.items()])

    reply = world.found(grep=pattern, highlight=True)

    found = {"ab"[int(hit["key"][1:]) // 2]: (hit["line_range"]["start"], hit["snippet"]) for hit in reply["hits"]}
    assert found == GREPS[pattern]
    assert (reply["search"].get("taken_as") == "literal") == (pattern == "a(")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"q": "x" * 1001}, "q has 1001 characters"),
        ({"q": " ".join(f"w{n}" for n in range(33))}, "q has 33 words"),
        ({"grep": ""}, "grep is empty"),
        ({"grep": "x" * 1001}, "grep has 1001 characters"),
        ({"glob": "x" * 513}, "glob has 513 characters"),
        ({"q": "a", "min_score": 2}, "min_score is 2"),
        ({"q": "a", "mode": "vector"}, "searches go by words so far"),
        ({"sort": "-doc_score"}, "send q"),
        ({"q": "a", "words": "most"}, "words"),
    ],
)
def test_what_cannot_be_looked_for_is_refused(fields: dict[str, Any], said: str, worlds: list[World]) -> None:
    """Bounds and values are named, with the way out."""
    world = World(5)
    worlds.append(world)

    with pytest.raises(InvalidQuery, match=said):
        world.found(**fields)


def test_without_bodies_words_are_found_and_patterns_refused(worlds: list[World]) -> None:
    """A collection with bodies = "off" is searched by words; what needs the texts is refused by name."""
    world = World(5, bodies="off")
    worlds.append(world)
    world.write(0, "a lost card", "")

    assert world.found(q="lost", highlight=True)["total"] == 1
    with pytest.raises(InvalidQuery, match='bodies = "off"'):
        world.found(grep="lost")
    with pytest.raises(InvalidQuery, match="a phrase needs the texts"):
        world.found(q='"lost card"')


def test_a_reply_is_of_one_moment_while_documents_change(worlds: list[World]) -> None:
    """Batches move a word between documents, so that there are always as many; no reader ever counts another number."""
    world = World(5)
    worlds.append(world)
    held, moved = 20, threading.Event()
    world.view.apply([world.record(number, "card token" if number < held else "card", "") for number in range(60)])
    wrong: list[Any] = []

    def read() -> None:
        while not moved.is_set():
            reply = world.found(q="token", counts="topic")
            counted = sum(bucket["count"] for bucket in reply["facets"][0]["buckets"])
            lines = world.found(grep="token$")["total"]
            if (reply["total"], counted, len(reply["hits"]), lines) != (held, held, held, held):
                wrong.append(reply)
            if len({hit["score"] for hit in reply["hits"]}) != 1:
                wrong.append(reply)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    having = set(range(held))
    for _ in range(60):
        gone, come = min(having), sorted(set(range(60)) - having)[world.chance.randrange(40)]
        having = having - {gone} | {come}
        world.view.apply([world.record(gone, "card", ""), world.record(come, "card token", "")])
    moved.set()
    for reader in readers:
        reader.join()

    assert wrong == []


def test_the_best_are_the_best_of_all_however_many_match(worlds: list[World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at the best matches first gives the pages that looking at all gives, under a filter and with ties."""
    from facetline.facets.view import view as views

    world = World(23)
    worlds.append(world)
    world.view.apply([world.record(number) for number in range(100)])
    searches: list[dict[str, Any]] = [{}, {"facets": {"topic": "billing"}}, {"filter": "doc_key LIKE 'n00%'"}]
    for fields in searches:
        whole = [hit["uri"] for hit in world.found(q="card the", **fields)["hits"]]
        monkeypatch.setattr(views, "BEST_LOOKED_AT", 6)
        pages: list[str] = []
        cursor = None
        while True:
            page = world.found(q="card the", limit=4, cursor=cursor, **fields)
            pages += [hit["uri"] for hit in page["hits"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        monkeypatch.undo()

        assert pages == whole
