"""Stores full of answered documents, made by the database itself: a million of them in half a minute."""

import json

import sqlalchemy as sa
from sample import definition

from facetline.facets.questions import Choice, Score
from facetline.storage import definitions
from facetline.storage.db import engine

_FILL = """
INSERT INTO documents (uri, collection, scope, key, version, revision, indexed_as, status, body_hash, state, facets,
  evaluation, fingerprint, written_ms, cleared_ms, classified_ms, event_source, event_id, log_topic, log_incarnation,
  log_partition, log_offset, feed_seq, lane, attempt, calls_made, retries, crashes, tries, retry_wait_ms)
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
SELECT printf('tickets/t%07d', n), 'tickets', '', printf('t%07d', n), 2, 1, 1, 'indexed',
  printf('%064d', n), printf('{{"title":"Ticket %d","priority":%d}}', n, n % 5), {facets}, :evaluation, :fingerprint,
  1700000000000 + n, 1700000000000 + n, 1700000000500 + n, 'bench', printf('e%d', n), 'local', 1, 0, n,
  CASE WHEN :numbered THEN n END, 0, 1, 1, 0, 0, 0, 0
FROM numbers
"""


def fill(tx: engine.Tx, count: int, *, numbered: bool) -> None:
    """Make `tickets` active in SQLite, with `count` answered documents; `numbered`: they stand in the feed already."""
    own = definition()
    definitions.activate(tx, [own])
    evaluation = {
        "evaluator": own.evaluator,
        "kind": own.kind,
        "model": own.model,
        "fingerprint": own.fingerprint,
        "classified_at": "2026-01-01T00:00:00.500000Z",
        "confidence_source": "test",
        "cached": False,
        "usage": {"tokens": 120},
        "cost_usd": None,
        "notes": None,
    }
    given = {
        "count": count,
        "numbered": numbered,
        "evaluation": json.dumps(evaluation, separators=(",", ":")),
        "fingerprint": own.fingerprint,
    }
    tx.execute(sa.text(_FILL.format(facets=_facets()).replace("':", "'\\:").replace('":', '"\\:')), given)
    if numbered:
        tx.execute(sa.text("UPDATE store SET feed_seq = :count"), {"count": count})


def _facets() -> str:
    """SQL that gives each document answers of its own, as the store keeps them."""
    parts = []
    for name, question in sorted(definition().questions.items()):
        if isinstance(question, Choice):
            names = " ".join(f"WHEN {place} THEN '{each}'" for place, each in enumerate(question.options))
            said = f"CASE n % {len(question.options)} {names} END"
            parts.append(f"""'"{name}":{{"type":"choice","choice":"' || {said} || '","confidence":0.9}}'""")
        elif isinstance(question, Score):
            parts.append(
                f"""'"{name}":{{"type":"score","score":1.2,"level":"{question.levels[1]}","confidence":0.7}}'"""
            )
        else:
            parts.append(f"""'"{name}":{{"type":"boolean","value":true,"probability":0.8,"confidence":null}}'""")
    return "'{' || " + " || ',' || ".join(parts) + " || '}'"
