"""A definition and a claim for tests that need no store."""

import stored

from facetline.facets.definitions import Definition
from facetline.facets.schema.states import schema_of_types
from facetline.storage.queue.queue import Claim

DEFINITION = Definition(
    name="tickets",
    pattern="tickets/*",
    scoped=False,
    llm_readable=False,
    state_schema=schema_of_types({}),
    questions=stored.QUESTIONS,
    evaluator="fake",
    kind="fake",
    model="fake-1",
    fingerprint="f1",
)
CLAIM = Claim(
    uri="tickets/t1",
    collection="tickets",
    scope="",
    key="t1",
    body="words",
    body_hash="h",
    indexed_as=1,
    attempt=1,
    fingerprint="f1",
    lane=0,
    lease_until_ms=0,
    tries=0,
    retry_wait_ms=0,
    retries=0,
    crashes=0,
    asked_ms=0,
)
