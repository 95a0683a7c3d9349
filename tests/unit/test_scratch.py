"""Scratch folders: private while their owner lives, gone afterwards."""

import subprocess
import sys
from pathlib import Path

import searched

from facetline.facets.definitions import Definitions
from facetline.facets.temp_folder import Scratch
from facetline.facets.view.view import View

OWNER = """
import os, sys
from pathlib import Path
from facetline.facets.temp_folder import Scratch
scratch = Scratch(Path(sys.argv[1]))
(scratch.folder / "data").write_text("x")
os._exit(1)
"""


def test_a_closed_folder_is_gone(tmp_path: Path) -> None:
    """Closing removes the folder with all that is in it, and may be done twice."""
    scratch = Scratch(tmp_path)
    (scratch.folder / "data").write_text("x")

    scratch.close()
    scratch.close()

    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_left_is_swept(tmp_path: Path) -> None:
    """The folder of an owner that died is removed by the next one."""
    subprocess.run([sys.executable, "-c", OWNER, str(tmp_path)], check=False, cwd=Path(__file__).parents[2])
    assert len(list(tmp_path.iterdir())) == 1

    scratch = Scratch(tmp_path)

    assert list(tmp_path.iterdir()) == [scratch.folder]
    scratch.close()


def test_a_living_folder_is_left_alone(tmp_path: Path) -> None:
    """Two owners share a parent without harm; a folder that is just being made is left alone too."""
    first = Scratch(tmp_path)
    made = tmp_path / "view-made"
    made.mkdir()

    second = Scratch(tmp_path)

    assert sorted(tmp_path.iterdir()) == sorted([first.folder, second.folder, made])
    first.close()
    second.close()


def test_a_view_in_a_folder_works_and_leaves_nothing(tmp_path: Path) -> None:
    """A view in a file answers as one in memory does, and its file is gone when it is closed."""
    view = View(folder=tmp_path / "deep" / "down")
    view.define(Definitions([searched.definition()]))
    view.apply([searched.record(n, facets={"topic": searched.chosen("billing")}) for n in range(1, 101)])

    reply = view.search(searched.select(facets={"topic": "billing"}, limit=1))

    assert (reply["total"], view.position) == (100, 100)
    assert len(list((tmp_path / "deep" / "down").glob("view-*/view.duckdb"))) == 1
    view.close()
    assert list((tmp_path / "deep" / "down").iterdir()) == []
