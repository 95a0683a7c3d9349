"""SQL and snapshots of a process that serves: statements see what was written, and a folder is kept up to date.

Method: a local pipeline with its side chain, served in this process, that exports every second.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from polling import eventually
from runtimes import Site

from facetline.facets.backend import LOCAL
from facetline.facets.search.selection import selection_of
from facetline.streams.serve.node import PipelineNode, open_node

NEW = {"state": None, "event_id": None, "wait": "answered", "timeout_s": 30.0}
FILTERS = [
    {},
    {"facets": {"topic": "billing"}},
    {"facets": {"topic": ["billing", "__missing__"]}, "min_confidence": 0.5},
    {"filter": "NOT (topic = 'billing') OR doc_key LIKE 't_'"},
    {"filter": "doc_written_at > TIMESTAMP('2026-01-01T00:00:00Z') AND topic IS NOT NULL"},
    {"scope": "bob"},
]


async def statement(node: PipelineNode, text: str) -> Any:
    """Return a statement's rows."""
    return (await node.sql(LOCAL, text, {}, limit=100, timeout_ms=30_000))["rows"]


ANSWERED = "SELECT count(*) FROM tickets WHERE doc_status <> 'pending'"


async def test_statements_and_exports_follow_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A write is in the tables soon, in the exported files too; a search's own SQL gives the search's total."""
    monkeypatch.syspath_prepend(str(tmp_path))
    snap = tmp_path / "snap"
    async with Site("local", tmp_path, {}).pipeline(classify=True) as pipeline:
        told = {"export_folder": snap, "export_every_s": 1.0}
        pipeline.settings = pipeline.settings.model_copy(update=told)
        async with open_node(pipeline) as node:
            for number in range(6):
                scope = "alice" if number % 2 else "bob"
                uri = f"@{scope}/tickets/t{number}"
                await node.write(LOCAL, uri, body=f"topic={('billing', 'outage')[number % 3 == 0]} {uri}", **NEW)

            async def seen() -> bool:
                return bool(await statement(node, ANSWERED) == [[6]])

            async def exported() -> bool:
                path = snap / "current" / "manifest.json"
                return path.exists() and json.loads(path.read_text())["collections"]["tickets"]["rows"] == 6

            await eventually(seen, deadline_s=30)
            await eventually(exported, deadline_s=30)
            for fields in FILTERS:
                selection = selection_of({"collection": "tickets", **fields})
                total = (await node.search(LOCAL, selection))["total"]
                assert await statement(node, await node.sql_of(LOCAL, selection)) == [[total]], fields

    assert [path.name for path in (tmp_path / ".facetline" / "sql").iterdir()] == []
    assert (snap / "current" / "tickets.parquet").exists()
