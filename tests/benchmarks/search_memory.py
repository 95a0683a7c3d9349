"""Memory of a process that holds a view: megabytes after 1,000,000 documents have all been changed once more.

Baseline: the same process when the documents were new. `search_memory_file` is the view in a temporary file;
`search_memory_100k` the small one. `search_memory_held` is what a reader who holds a snapshot costs while every
document of 100,000 changes three times, against the same changes without that reader. Linux only: /proc tells it.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import Figure

HERE = Path(__file__).resolve().parent


async def measure() -> AsyncIterator[Figure]:
    """Measure each in a process of its own."""
    for name, count, words in (("100k", 100_000, ()), ("1m", 1_000_000, ()), ("file", 1_000_000, ("file",))):
        new, changed = _child(count, "1", *words)
        yield Figure(f"search_memory_{name}", changed, "MB", new)
    yield Figure("search_memory_held", _child(100_000, "3", "held")[1], "MB", _child(100_000, "3")[1])


def _child(count: int, *words: str) -> tuple[float, float]:
    said = subprocess.run(
        [sys.executable, str(HERE / "search_memory.py"), str(count), *words], check=True, capture_output=True, text=True
    )
    new, changed = json.loads(said.stdout)
    return new, changed


def _hold(count: int, times: int, words: list[str]) -> tuple[float, float]:
    """Fill a view, change everything so many times; return the memory before and after."""
    import searchable
    from memory import resident_mb

    from facetline.facets.definitions import Definitions
    from facetline.facets.view.view import View

    with TemporaryDirectory() as folder:
        view = View(folder=Path(folder) if "file" in words else None)
        view.define(Definitions([searchable.definition()]))
        for page in searchable.documents(count):
            view.apply(page)
        new = resident_mb(os.getpid())
        reader = view.reader(searchable.selection("chosen")) if "held" in words else None
        for version in range(3, 3 + times):
            for page in searchable.documents(count, version=version, seed=version):
                view.apply(page)
        changed = resident_mb(os.getpid())
        if reader is not None:
            reader.page()
        view.close()
    return new or 0.0, changed or 0.0


if __name__ == "__main__":
    sys.path[:0] = [*map(str, (HERE, HERE.parent / "helpers", HERE.parent / "services", HERE.parents[1]))]
    print(json.dumps(_hold(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])))  # noqa: T201 (what this is for)
