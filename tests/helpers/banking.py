"""The questions of Banking77 as documents, through a runtime with the example's own configuration."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import runtimes
from runtimes import Site

from facetline.streams.pipeline import Pipeline

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "banking77"
QUESTIONS = ROOT.parent / "shared" / "data" / "banking77.csv"
IMPORT = ("--collection", "banking", "--key-row", "--body-column", "text", "--json")
PAGE = 200


def rows() -> list[dict[str, str]]:
    """All questions with their intents, in the file's order."""
    with QUESTIONS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_sheet(path: Path, chosen: Sequence[Mapping[str, str]]) -> Path:
    """Write rows as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        sheet = csv.DictWriter(file, list(chosen[0]))
        sheet.writeheader()
        sheet.writerows(chosen)
    return path


def topics() -> dict[str, str]:
    """The example's topic of each intent."""
    groups = json.loads((EXAMPLE / "intents.json").read_text(encoding="utf-8"))
    return {intent: topic for topic, intents in groups.items() for intent in intents}


@contextmanager
def made(name: str, folder: Path, fixture: Callable[[str], Any]) -> Iterator[Site]:
    """Make a site of a runtime with the example's configuration."""
    with runtimes.made(name, folder, fixture) as site:
        text = (EXAMPLE / "facetline.toml").read_text(encoding="utf-8")
        (folder / "facetline.toml").write_text(text, encoding="utf-8")
        yield site


async def stored(pipeline: Pipeline) -> dict[str, tuple[Any, Any]]:
    """Facets and state of every document, by key."""
    found: dict[str, tuple[Any, Any]] = {}
    cursor = None
    while True:
        page = await pipeline.search("banking", limit=PAGE, cursor=cursor)
        found |= {hit["key"]: (hit["facets"], hit["state"]) for hit in page["hits"]}
        cursor = page["next_cursor"]
        if cursor is None:
            return found
