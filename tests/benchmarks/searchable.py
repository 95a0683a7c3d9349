"""What searches are measured on: documents with four choice questions in a view, and the same searches written by hand.

A twentieth of the documents has no answers. Options are unevenly common, confidences evenly spread.
"""

import functools
import random
from collections.abc import Iterator
from typing import Any

import builders

from facetline.facets.definitions import Definition, Definitions
from facetline.facets.documents import Shown
from facetline.facets.questions import choice
from facetline.facets.search.selection import Selection, selection_of
from facetline.facets.table import ddl, tables
from facetline.facets.view.view import View

PAGE = 5_000
OPTIONS = {"topic": 5, "team": 8, "tone": 4, "product": 12}
"""Questions, and how many options each has."""
KINDS = ("everything", "chosen", "confident", "filtered")
"""The searches: without a condition; two questions chosen; those with a least confidence; by a filter, sorted."""
_CHOSEN = {"topic": ["topic1"], "team": ["team0", "team2"]}
_EASY = 0.94, 0.97, 0.99


def definition() -> Definition:
    """The collection `tickets`."""
    asked = {name: choice(ask="?", options={f"{name}{n}": "…" for n in range(n)}) for name, n in OPTIONS.items()}
    return builders.definition(questions=asked)


def documents(count: int, *, version: int = 2, seed: int = 1) -> Iterator[list[Shown]]:
    """Yield the documents as the feed shows them, a page at a time; another seed gives them other answers."""
    drawn = random.Random(seed)  # noqa: S311 (no secret)
    fingerprint = definition().fingerprint
    for start in range(0, count, PAGE):
        yield [_document(n, drawn, fingerprint, version) for n in range(start + 1, min(start + PAGE, count) + 1)]


def _document(number: int, drawn: random.Random, fingerprint: str, version: int) -> Shown:
    lot = drawn.random()
    status = ("indexed", "pending", "failed", "empty")[sum(lot >= end for end in _EASY)]
    indexed = status == "indexed"
    answers = (
        f'"{name}":{{"type":"choice","choice":"{name}{min(int(drawn.expovariate(0.5)), options - 1)}",'
        f'"confidence":{drawn.random():.3f}}}'
        for name, options in OPTIONS.items()
    )
    return Shown(
        feed_seq=number + (version - 2) * 10_000_000,
        uri=f"tickets/t{number:07}",
        collection="tickets",
        scope="",
        key=f"t{number:07}",
        version=version,
        revision=1,
        indexed_as=1,
        status=status,
        reason="timeout" if status == "failed" else None,
        facets_json=f"{{{','.join(answers)}}}" if indexed else None,
        state_json=f'{{"title":"Ticket {number}","priority":{number % 5}}}',
        fingerprint=fingerprint if indexed else None,
        written_us=1_700_000_000_000_000 + number,
        classified_us=1_700_000_000_500_000 + number if indexed else None,
    )


@functools.cache
def view(count: int) -> View:
    """A view of so many documents, which remembers no search; made once in a process."""
    made = View(store_id="bench", remembered_bytes=0)
    made.define(Definitions([definition()]))
    for page in documents(count):
        made.apply(page)
    return made


def selection(kind: str) -> Selection:
    """One of the searches, every question counted."""
    given: dict[str, dict[str, Any]] = {
        "everything": {},
        "chosen": {"facets": _CHOSEN},
        "confident": {"facets": _CHOSEN, "min_confidence": 0.5},
        "filtered": {"filter": "state_priority >= 3", "sort": "-state_priority"},
    }
    return selection_of({"collection": "tickets", "counts": "*", **given[kind]})


def by_hand(kind: str) -> list[str]:
    """The same search as somebody would write it for just this table: page, total, counts, pending."""
    table = ddl.name_of(tables.table_of(definition()))
    sure = {name: f" AND {name}_confidence >= 0.5" if kind == "confident" else "" for name in OPTIONS}
    chosen = {"topic": f"topic = 'topic1'{sure['topic']}", "team": f"team IN ('team0', 'team2'){sure['team']}"}
    if kind not in {"chosen", "confident"}:
        chosen = {"": "state_priority >= 3" if kind == "filtered" else "doc_status <> 'deleted'"}
    everything = " AND ".join(chosen.values())
    order = "state_priority DESC, doc_uri" if kind == "filtered" else "doc_uri"
    counts = []
    for name in OPTIONS:
        others = " AND ".join(part for own, part in chosen.items() if own != name) or "doc_status <> 'deleted'"
        enough = f"count(*) FILTER (WHERE {name}_confidence >= 0.5)" if kind == "confident" else "count(*)"
        counts.append(
            f"SELECT '{name}', CAST({name} AS VARCHAR), CAST(doc_status AS VARCHAR), count(*), {enough} "
            f"FROM {table} WHERE {others} GROUP BY {name}, doc_status"
        )
    hit = "doc_uri, doc_key, doc_version, doc_revision, doc_indexed_as, CAST(doc_status AS VARCHAR), doc_outdated"
    return [
        f"SELECT {hit}, doc_facets, doc_state FROM {table} WHERE {everything} ORDER BY {order} LIMIT 21",
        f"SELECT count(*) FROM {table} WHERE {everything}",
        " UNION ALL ".join(counts),
        f"SELECT count(*) FROM {table} WHERE doc_status = 'pending'",
    ]
