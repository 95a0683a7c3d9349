"""Real questions through both runtimes with the embedded model: the same answers, whatever carried them."""

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import banking
import pytest
from runtimes import Site

SAMPLE = 300
AGREEMENT_MIN = 0.8
"""On all rows 89 to 90 % agree; a sample of 300 differs from that by less than six points in every draw but few."""

pytestmark = [
    pytest.mark.skipif(not banking.QUESTIONS.exists(), reason="needs Banking77's questions in ../shared/data"),
    pytest.mark.kafka,
    pytest.mark.postgres,
]


def test_both_runtimes_give_identical_facets(request: pytest.FixtureRequest, tmp_path: Path):
    """A sample of the questions, imported as people would: equal facets and states, right as often as measured."""
    sample = random.Random(77).sample(banking.rows(), SAMPLE)  # noqa: S311 (a repeatable draw, no secret)
    sheet = banking.write_sheet(tmp_path / "sample.csv", sample)
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    with ExitStack() as stack:
        for name in ("local", "kafka"):
            (tmp_path / name).mkdir()
            site = stack.enter_context(banking.made(name, tmp_path / name, request.getfixturevalue))
            if site.is_kafka:
                stack.enter_context(site.worker())
            ended = site.place.run("import", sheet, *banking.IMPORT)
            assert (ended.code, ended.json["written"], ended.json["refused"]) == (0, SAMPLE, []), ended.err
            found[name] = asyncio.run(_stored(site))
    topics = banking.topics()
    said = {key: facets["topic"]["choice"] for key, (facets, _) in found["local"].items()}
    agreed = sum(said[str(row)] == topics[each["category"]] for row, each in enumerate(sample, 1))

    assert found["local"] == found["kafka"]
    assert len(found["local"]) == SAMPLE
    assert agreed >= AGREEMENT_MIN * SAMPLE


async def _stored(site: Site) -> dict[str, tuple[Any, Any]]:
    async with site.pipeline() as pipeline:
        return await banking.stored(pipeline)
