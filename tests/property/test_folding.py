"""Folding against a naive model, and the store against itself however its log is cut and delivered again."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import judged
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from facetline.storage.db import engine, models
from facetline.storage.log import apply, folding, positions
from facetline.storage.log.events import Event

URIS = ("tickets/t1", "tickets/t2", "tickets/t3")


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Return a log: events at their offsets, with retries, reused ids, redriven ones and rejected ones among them."""
    log: list[Event] = []
    for offset in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["body", "body", "state", "both", "equal", "delete", "refused", "again", "retry"]))
        log.append(draw(_event(kind, offset, log)))
    return log


def _event(kind: str, offset: int, log: Sequence[Event]) -> st.SearchStrategy[Event]:
    uri = st.sampled_from(URIS)
    body = st.sampled_from(["a", "b", " "])
    state = st.sampled_from([{}, {"n": 1}, {"n": 2, "s": "x"}])
    offsets = st.just(offset)
    # Now and then an id that an earlier event has already.
    ids = st.one_of(st.none(), st.none(), st.sampled_from(["e0", "e1", "e2"]))
    if kind == "again" and log:
        return st.sampled_from(list(log)).map(judged.again)
    if kind == "retry" and log:
        return st.sampled_from(list(log)).map(lambda event: _moved(event, offset))
    if kind == "delete":
        return st.builds(judged.delete, uri, offset=offsets, event_id=ids)
    if kind == "refused":
        return st.builds(judged.refused, st.one_of(st.none(), uri), offset=offsets, event_id=ids)
    parts = {"body": (body, st.none()), "state": (st.none(), state)}.get(kind, (body, state))
    unless_equal = st.booleans() if kind == "equal" else st.just(value=False)
    return st.builds(judged.write, uri, *parts, offset=offsets, event_id=ids, unless_equal=unless_equal)


def _moved(event: Event, offset: int) -> Event:
    """Return the same event as its producer sends it once more: a new record."""
    return replace(event, position=replace(event.position, offset=offset), redriven=False)


class Model:
    """What the rules say, one event at a time and with nothing but dictionaries."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.settled: dict[str, tuple[str, Any]] = {}

    def take(self, event: Event) -> tuple[Any, ...]:
        """Apply one event and return (outcome, reason, versions, duplicate)."""
        digest, settled = self.settled.get(event.id, (None, None))
        if digest == event.digest:
            return (*settled, True)
        if event.content is None:
            return "rejected", "not_json", None, False
        if digest is not None:
            return "rejected", "id_reused", None, False
        document = self.documents.get(event.uri)
        if event.redriven and document and document["at"] >= event.position.offset:
            return "rejected", "superseded", None, False
        if event.content.body is None and event.content.state is not None and (not document or document["gone"]):
            return "rejected", "no_document", None, False
        said = self._apply(event, document)
        self.settled[event.id] = event.digest, said
        return (*said, False)

    def _apply(self, event: Event, document: dict[str, Any] | None) -> tuple[Any, ...]:
        content = event.content
        if document is None:
            document = {"v": 0, "r": 0, "i": 0, "gone": True, "body": None, "state": None, "at": -1}
            self.documents[event.uri] = document
        document["at"] = max(document["at"], event.position.offset)
        same_body = content.body is None or content.body == document["body"]
        same_state = content.state is None or content.state == document["state"]
        if content.deleted and document["gone"]:
            numbers = (document["v"], document["r"], document["i"])
            return "unchanged", None, numbers if document["v"] else None
        if content.unless_equal and not document["gone"] and same_body and same_state:
            return "unchanged", None, (document["v"], document["r"], document["i"])
        document["v"] += 1
        if content.deleted:
            document.update(i=document["v"], gone=True, body=None, state=None)
        if content.body is not None:
            document.update(r=document["v"], i=document["v"], gone=False, body=content.body)
        if content.state is not None:
            document["state"] = content.state
        return "applied", None, (document["v"], document["r"], document["i"])


@given(logs())
def test_folding_agrees_with_a_naive_model(log: list[Event]):
    """Folding a log gives the outcomes and the documents that the rules give one event at a time."""
    model = Model()
    expected = [model.take(event) for event in log]

    folded = folding.fold({}, {}, log)

    versions = [None if o.version is None else (o.version, o.revision, o.indexed_as) for o in folded.outcomes]
    got = [(o.outcome, o.reason, v, o.duplicate) for o, v in zip(folded.outcomes, versions, strict=True)]
    assert got == expected
    assert {uri: _plain(change.after) for uri, change in folded.changes.items()} == {
        uri: (d["v"], d["r"], d["i"], d["gone"], d["state"], d["at"]) for uri, d in model.documents.items()
    }


def _plain(standing: folding.DocumentState) -> tuple[Any, ...]:
    gone = standing.status == "deleted"
    at = standing.position.offset
    return standing.version, standing.revision, standing.indexed_as, gone, standing.state, at


@given(log=logs(), cuts=st.sets(st.integers(1, 13)), steps_back=st.lists(st.integers(0, 14), max_size=8))
@settings(deadline=None, max_examples=50)
def test_any_cut_and_any_redelivery_give_the_same_store(
    template: Path, log: list[Event], cuts: set[int], steps_back: list[int]
):
    """A log applied in batches of any size, with any part of it delivered again, ends as event by event it does."""
    windows = _windows(len(log), cuts, steps_back)

    with _store(template) as single, _store(template) as batched:
        _deliver(single, log, [(start, start + 1) for start in range(len(log))])
        _deliver(batched, log, windows)

        assert _rows(batched) == _rows(single)


def _windows(length: int, cuts: set[int], steps_back: list[int]) -> list[tuple[int, int]]:
    """Return deliveries that together go through the log, each beginning at or before the position reached."""
    ends = [*sorted(cut for cut in cuts if cut < length), length]
    back = [*steps_back, *[0] * len(ends)]
    starts = [max(0, reached - step) for reached, step in zip([0, *ends], back, strict=False)]
    again = [(max(0, length - step), length) for step in steps_back]
    return [*zip(starts, ends, strict=False), *again]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store with one partition, to be copied."""
    path = tmp_path_factory.mktemp("template") / "store.sqlite"
    made = engine.make_engine(f"sqlite:///{path}")
    models.METADATA.create_all(made)
    with made.connect() as connection, connection.begin():
        positions.first_seen(engine.Tx(connection, engine.no_shift), judged.TOPIC, 0, 0)
    made.dispose()
    return path


@contextmanager
def _store(template: Path) -> Iterator[sa.Engine]:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(template, Path(folder) / "store.sqlite")
        opened = engine.make_engine(f"sqlite:///{folder}/store.sqlite")
        yield opened
        opened.dispose()


def _deliver(store: sa.Engine, log: list[Event], windows: list[tuple[int, int]]) -> None:
    with store.connect() as connection, connection.begin():  # one, to spare the disk
        tx = engine.Tx(connection, engine.no_shift)
        for start, end in windows:
            apply.apply(tx, [judged.batch(*log[start:end], start=start)])


def _rows(store: sa.Engine) -> dict[str, list[Any]]:
    """Return everything that is stored, without times and row numbers."""
    found = {}
    with store.connect() as connection:
        for table in ("documents", "bodies", "outcomes", "dead_letters", "positions"):
            rows = connection.exec_driver_sql(f"SELECT * FROM {table}").mappings().all()
            told = [{name: value for name, value in row.items() if not _is_time(name)} for row in rows]
            found[table] = sorted(told, key=repr)
    return found


def _is_time(column: str) -> bool:
    return column == "id" or (column.endswith("_ms") and column != "last_timestamp_ms")
