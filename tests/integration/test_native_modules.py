"""Native packages under threads: a view and the embedded model may start at the same moment of a fresh process.

Method: fresh processes, one for each seed, whose disk is slow where numpy is read (`import_race_child`).
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HELPERS = Path(__file__).parents[1] / "helpers"
PROCESSES = 6


def start(seed: int) -> str:
    """Return what failed in one fresh process."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(HELPERS), *sys.path))}
    ended = subprocess.run(
        [sys.executable, str(HELPERS / "import_race_child.py"), str(seed)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return (ended.stdout + ended.stderr).strip()


def test_a_view_and_the_model_start_at_once_in_every_fresh_process():
    """Whatever the moment, both can be used: none of many fresh processes sees a half imported package."""
    with ThreadPoolExecutor(2) as pool:
        failed = [found for found in pool.map(start, range(PROCESSES)) if found]

    assert failed == []


def test_the_commands_help_imports_no_native_package():
    """`facetline --help` stays quick: what threads need is imported by commands that have such threads alone."""
    code = (
        "import sys; from facetline.streams.cli import main\n"
        "try: main.app(['--help'])\n"
        "except SystemExit: pass\n"
        "print([each for each in ('numpy', 'duckdb', 'onnxruntime', 'tokenizers', 'litellm') if each in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert ended.stdout.splitlines()[-1] == "[]"
