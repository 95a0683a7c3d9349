"""A pipeline in a thread of its own: plain calls, data of its own, and no silence when it ends by itself."""

import asyncio
from pathlib import Path
from typing import Any

import documented
import pytest

from facetline.facets.errors import InvalidDefinition, InvalidEvent, StoreUnavailable
from facetline.streams.settings import Settings, load_settings
from facetline.streams.testing.running_pipeline import RunningPipeline, of_its_own


def settings(folder: Path, **given: Any) -> Settings:
    """The reference's project, with data in the folder."""
    documented.project(folder)
    data = folder / "data"
    data.mkdir()
    return of_its_own(load_settings(config=folder / "facetline.toml", **given), data, None)


def test_calls_are_plain_and_data_is_its_own(tmp_path: Path):
    """Writing waits for answers, errors come as they are; store and broker that the settings name are not touched."""
    given = {"store_url": "sqlite:////nobodys/store.db", "kafka": {"bootstrap_servers": "127.0.0.1:1"}}
    with RunningPipeline(settings(tmp_path, **given)) as running:
        written = running.write("tickets/t1", body="I was charged twice.")
        found = running.documents()
        counted = running.run(lambda pipeline: pipeline.definitions())
        with pytest.raises(InvalidEvent, match="no collection has a pattern"):
            running.write("nobodys/t1", body="x")

    assert written["status"] == "indexed"
    assert found == {"tickets/t1": {"status": "indexed", "reason": None, "facets": written["facets"]}}
    assert sorted(counted.by_name) == ["notes", "tickets"]
    assert (tmp_path / "data" / "facetline.db").exists()


def test_what_refuses_the_project_is_raised_at_the_start(tmp_path: Path):
    """A wrong facetline.toml ends the start with its own error."""
    given = settings(tmp_path)
    (tmp_path / "facetline.toml").write_text("[collections.tickets]\n")

    with pytest.raises(InvalidDefinition), RunningPipeline(given):
        pass


def test_a_pipeline_that_ended_by_itself_says_so(tmp_path: Path):
    """What ended it is told by the next call, and at the end; nobody waits for an answer that never comes."""

    async def fail(_pipeline: Any) -> None:
        (main,) = [task for task in asyncio.all_tasks() if "._main" in repr(task.get_coro())]
        main.cancel("broken")
        await asyncio.Event().wait()

    running = RunningPipeline(settings(tmp_path)).__enter__()
    for call in (
        lambda: running.run(fail),
        lambda: running.get("tickets/t1"),
        lambda: running.__exit__(None, None, None),
    ):
        with pytest.raises(StoreUnavailable, match="ended"):
            call()
