"""The page's pure parts: addresses, numbers, sessions."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from facetline.facets import errors
from facetline.facets.explorer import formatting, hits, pipeline_strip, search_url, sessions, sidebar
from facetline.facets.explorer.search_url import SearchUrl
from facetline.facets.questions import choice

TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n"), min_size=1).filter(str.strip)


@given(
    st.dictionaries(TEXT, st.lists(TEXT, min_size=1, unique=True).map(tuple), max_size=3),
    st.none() | TEXT.map(str.strip),
    st.none() | st.integers(1, 100).map(lambda each: each / 100),
    st.integers(1, 99),
    st.lists(TEXT, max_size=search_url.BACK_MAX).map(tuple),
    st.none() | TEXT.map(str.strip),
)
def test_address_says_all_of_the_search(
    facets: dict[str, tuple[str, ...]],
    text: str | None,
    least: float | None,
    page: int,
    back: tuple[str, ...],
    q: str | None,
):
    """Whatever is asked for comes back from its address as it was."""
    search = SearchUrl("tickets", facets, least, text, "-severity", None, "AAA", page, back)
    search = replace(search, texts=(("q", q), ("exact", "true")) if q else ())

    assert search_url.read("tickets", search.pairs()) == search


@pytest.mark.parametrize(
    ("given_", "said"),
    [(0.999, "0.99"), (1.0, "1.00"), (0.0, "0.00"), (0.29, "0.29"), (0.57, "0.57"), (None, "none")],
)
def test_confidence_is_never_rounded_up(given_: float | None, said: str):
    """A confidence is cut to two places: what is not certain never looks so."""
    assert formatting.confidence(given_) == said


@pytest.mark.parametrize(
    ("share", "said"), [(0, "0 %"), (0.001, "<1 %"), (0.5, "50 %"), (0.999, ">99 %"), (1, "100 %")]
)
def test_percentages_keep_something_from_nothing(share: float, said: str):
    """What is not nothing is not 0 %, what is not everything is not 100 %."""
    assert formatting.percent(share) == said


@pytest.mark.parametrize(
    ("usd", "said"),
    [(None, "unknown"), (0, "$0.00"), (0.00012, "$0.00012"), (1234.5, "$1,234.50"), (1e-9, "under $0.000001")],
)
def test_small_money_is_not_nothing(usd: float | None, said: str):
    """An amount below a cent is shown with the places it takes."""
    assert formatting.usd(usd) == said


@pytest.mark.parametrize(("span", "said"), [(0.2, "under 1 s"), (42, "42 s"), (600, "10 min"), (9_000, "2 h")])
def test_spans_are_said_in_their_unit(span: float, said: str):
    """A span of time has the unit that people would use."""
    assert formatting.seconds(span) == said


@pytest.mark.parametrize(
    ("address", "uri"), [("/c/a/b%20c%3Fd%23e%25", "a/b c?d#e%"), ("/c/@x/%E6%97%A5", "@x/日"), ("/c/a/%22%3E", 'a/">')]
)
def test_document_address_is_quoted_once(address: str, uri: str):
    """A document's address has its uri percent-encoded once."""
    assert hits.href_of("c", uri) == address


def test_excerpt_is_short_and_ends_at_a_word():
    """An excerpt is one line, cut at a word, however long the text is."""
    found = hits.excerpt("word " * 100_000)

    assert len(found) <= hits.EXCERPT_MAX
    assert found.endswith("word…")
    assert hits.excerpt(" a\n\n b ") == "a b"
    assert hits.excerpt(None) == ""


def test_many_options_are_folded_but_never_a_chosen_one():
    """Of many options the busiest are open and the rest is folded away; what is chosen is always in sight, first."""
    question = choice(ask="?", options={f"o{number}": "…" for number in range(100)})
    buckets = [{"value": f"o{number}", "count": number, "selected": number == 0} for number in range(100)]
    missing = {"count": 0, "pending": 0, "failed": 0, "empty": 0, "low_confidence": 0, "outdated": 0}
    reply = [{"name": "q", "type": "choice", "total": 1, "buckets": buckets, "missing": missing}]

    [facet] = sidebar.facets(SearchUrl("c", {"q": ("o0",)}), {"q": question}, reply)

    assert len(facet.shown) == sidebar.OPEN_MAX
    assert [option.value for option in facet.shown[:3]] == ["o0", "o99", "o98"]
    assert len(facet.shown) + len(facet.folded) == 100


def test_sessions_end_and_are_bounded():
    """A session ends after its time, when it is closed, and when its token has signed in many times since.

    No number of sign-ins with one token ends a session of another.
    """
    now = [0.0]
    kept = sessions.Sessions(lambda: now[0])
    first = kept.open("token")
    closed = kept.open("token")
    kept.close(closed)
    known = [kept.token(first), kept.token(closed), kept.token("other"), kept.token(None)]
    now[0] = sessions.LIFE_S
    late = kept.token(first)
    other = kept.open("other")
    oldest = kept.open("token")
    newer = [kept.open("token") for _ in range(5_000)][-sessions.SESSIONS_EACH_MAX :]

    assert known == ["token", None, None, None]
    assert late is None
    assert kept.token(oldest) is None
    assert kept.token(other) == "other"
    assert {kept.token(name) for name in newer} == {"token"}


def test_status_line_is_filled_exactly():
    """The pieces of the status line follow each other from 0 to 100."""
    parts = pipeline_strip.parts({"indexed": 2, "pending": 1, "failed": 0, "empty": 3})

    assert [part.start for part in parts] == [0.0, 33.33, 50.0, 50.0]
    assert parts[-1].start + parts[-1].share == 100.0


@pytest.mark.parametrize(
    ("pending", "oldest_s", "way_out", "warning"),
    [
        (1, 42.0, "start it", "No worker is running: 1 document waits for an answer, the oldest for 42 s; start it."),
        (1_200, 9_000, None, "No worker is running: 1,200 documents wait for an answer, the oldest for 2 h."),
        (3, None, None, "No worker is running: 3 documents wait for an answer."),
    ],
)
def test_a_missing_worker_is_a_warning_in_words(
    pending: int, oldest_s: float | None, way_out: str | None, warning: str
):
    """Where documents wait and no process asks about them the strip says so, and calls them waiting."""
    given = _standing("absent", pending) | {"oldest_pending_s": oldest_s}
    given["evaluator"] = {**given["evaluator"], "message": way_out}
    strip = pipeline_strip.strip(given)

    assert (strip.warning, strip.state_label, strip.why) == (warning, "not asked", "")
    assert [part.label for part in strip.parts] == ["answered", "waiting", "failed", "blank"]


@pytest.mark.parametrize("state", ["ok", "paused", "stopped", "unknown"])
def test_no_other_state_is_a_missing_worker(state: str):
    """An evaluator that is away, or that nobody needs, is no warning about workers."""
    strip = pipeline_strip.strip(_standing(state, 2))

    assert strip.warning == ""
    assert strip.parts[1].label == "being asked"


def _standing(state: str, pending: int) -> dict[str, Any]:
    """Return what the node says of a collection."""
    return {
        "counts": {"indexed": 1, "pending": pending, "failed": 0, "empty": 0},
        "failed": {},
        "outdated": 0,
        "lag": {"events": 0, "seconds": 0.0},
        "oldest_pending_s": 1.0,
        "evaluator": {"name": "triage", "kind": "chat", "model": "m", "state": state, "message": None},
        "spend": {"calls": 0, "tokens": 0, "usd": None, "usd_max": None},
    }


_OURS = ["f.", "facets", "limit", "F.topic", "topic", "Topic", "fliter", "min_conf", "mc.topic", "facet_size", "source"]


@pytest.mark.parametrize("name", _OURS)
def test_unknown_parameter_is_named(name: str):
    """A parameter that looks like one of ours, and one of the API that the page does not have, is refused by name."""
    with pytest.raises(errors.InvalidQuery) as refused:
        search_url.read("c", [(name, "x")], questions={"topic", "source"})

    assert f"Unknown parameter '{name}'. Filter with f.QUESTION=VALUE" in refused.value.message


_FOREIGN = (
    *("utm_source", "utm_campaign", "utm_id", "fbclid", "gclid", "gbraid", "msclkid", "mc_cid", "mc_eid", "_ga", "_gl"),
    *("ref", "source", "igshid", "_hsenc", "yclid", "li_fat_id", "trk", "v", "cache", "", "foo", "x" * 10_000),
)


@pytest.mark.parametrize("name", _FOREIGN, ids=lambda name: name[:20])
def test_foreign_parameter_is_passed_over(name: str):
    """What mail, adverts and other sites put behind a link changes nothing, also twice or like a question's name."""
    questions = {"topic", "campaign", "click"}
    read = search_url.read("c", [("f.topic", "a"), (name, "1"), (name, "2")], questions=questions)

    assert read == search_url.read("c", [("f.topic", "a")])
    assert read.address() == "/c?f.topic=a"


def test_the_pages_own_addresses_are_read_strictly():
    """Where only the page makes addresses, an unknown parameter is refused, whatever its name."""
    with pytest.raises(errors.InvalidQuery, match="Unknown parameter 'utm_source'"):
        search_url.read("c", [("utm_source", "x")])
