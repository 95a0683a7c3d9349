"""Break the product on purpose, one fault at a time, and see tests go red; docs/guarantees.md gets the table.

    python tests/mutation/run.py [NAME ...] [--missing]

Each fault of `breaks.py` is put into a copy of the tree in a temporary folder. Its named tests run there until one is
red, and the simulation until a seed is. The table is written after each fault, so a run that was cut short goes on with
`--missing`. Exits with 1 when a fault survives: then the tests are what to mend.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import breaks
from breaks import BREAKS, PROMISES, Break

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"
BEGIN, END = "<!-- broken on purpose: begin -->\n", "<!-- broken on purpose: end -->\n"
HEAD = "| promise | broken on purpose | first test that goes red | seed |\n|---|---|---|---|\n"
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", ".facetline", "*.egg-info", "dist")
AT_ONCE = 2
TEST_S, SIMULATION_S = 600, 900
SEEDS = 500
SIMULATE = """
from simulation import runs, world
runs.quiet()
for seed in range({seeds}):
    if world.simulate(seed).failure:
        print("seed", seed)
        break
"""


@dataclass(frozen=True)
class Seen:
    """What noticed a fault: a test's name, a seed; None: nothing did."""

    test: str | None
    seed: int | None


def main(argv: Sequence[str]) -> int:
    """Run what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="faults to try; all by default")
    parser.add_argument("--missing", action="store_true", help="only those that have no row in the table")
    given = parser.parse_args(argv)
    unknown = set(given.names) - {each.name for each in BREAKS}
    if unknown:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; see tests/mutation/breaks.py")
    rows = table()
    chosen = [each for each in BREAKS if each.name in given.names or not given.names]
    chosen = [each for each in chosen if not (given.missing and is_complete(each, rows))]
    survived = []
    with ThreadPoolExecutor(AT_ONCE) as workers:
        for fault, seen in zip(chosen, workers.map(attempt, chosen), strict=True):
            if seen.test is None or (fault.simulated and seen.seed is None):
                survived.append(fault.name)
                rows.pop(fault.name, None)
            else:
                rows[fault.name] = row(fault, seen)
            print(f"{fault.name:24} {seen.test or 'NO TEST WENT RED'}, seed {seen.seed}", flush=True)  # noqa: T201
            write(rows)
    if survived:
        print(f"survived: {', '.join(survived)}")  # noqa: T201
    return 1 if survived else 0


def attempt(fault: Break) -> Seen:
    """Put a fault into a copy of the tree; return what noticed it."""
    with tempfile.TemporaryDirectory(prefix="facetline-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        path = tree / fault.path
        path.write_text(broken(fault, path.read_text()))
        return Seen(_red(fault, tree), _seed(tree) if fault.simulated else None)


def broken(fault: Break, source: str) -> str:
    """Return a source with the fault in it.

    Raises:
        ValueError: what it changes is not there, or there more than once.
    """
    if source.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {fault.path} has {source.count(fault.old)} times: {fault.old}")
    return source.replace(fault.old, fault.new)


def _red(fault: Break, tree: Path) -> str | None:
    for test in fault.tests:
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-m",
            "not kafka and not postgres",
        ]
        done = _run([*pytest, test], tree, TEST_S)
        found = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", done, re.MULTILINE)
        if found:
            return found[1]
    return None


def _seed(tree: Path) -> int | None:
    said = _run([sys.executable, "-c", SIMULATE.format(seeds=SEEDS)], tree, SIMULATION_S)
    found = re.search(r"^seed (\d+)$", said, re.MULTILINE)
    return int(found[1]) if found else None


def _run(command: Sequence[str], tree: Path, limit_s: float) -> str:
    path = os.pathsep.join(str(tree / each) for each in ("", "tests", "tests/helpers", "tests/services"))
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a copy has the bytecode of its original with it
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode()
    return done.stdout


def row(fault: Break, seen: Seen) -> str:
    """Return a row of the table."""
    seed = "" if seen.seed is None else str(seen.seed)
    return f"| {fault.promise}. {PROMISES[fault.promise]} | {fault.name}: {fault.says} | `{seen.test}` | {seed} |\n"


def table() -> dict[str, str]:
    """Return the rows that are in the page, by the names of their faults."""
    between = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [line for line in between.splitlines(keepends=True) if re.match(r"\| \d\. ", line)]
    return {line.split(" | ")[1].partition(":")[0]: line for line in rows}


def is_complete(fault: Break, rows: Mapping[str, str]) -> bool:
    """Say whether a row tells a test and, if the simulation can see the fault, a seed."""
    return fault.name in rows and bool(re.search(r"\d \|$" if fault.simulated else r"\|$", rows[fault.name].strip()))


def write(rows: dict[str, str]) -> None:
    """Put rows into the page, in the order of the faults."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    told = "".join(rows[each.name] for each in breaks.BREAKS if each.name in rows)
    PAGE.write_text(before + BEGIN + HEAD + told + END + rest.partition(END)[2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
