"""docs/failures.md: each of the 42 failures has its row, and each row names tests that are there."""

import ast
import functools
import re

import documented
import pytest

ROWS = re.findall(
    r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", documented.text_of("docs/failures.md"), re.MULTILINE
)


@functools.cache
def functions_of(name: str) -> frozenset[str]:
    """The test functions of a file under `tests/`."""
    path = documented.ROOT / "tests" / name
    if not path.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_all_failures_have_a_row():
    """Forty-two, in order, each with a failure, what happens, and where it is tested."""
    assert [int(row[0]) for row in ROWS] == list(range(1, 43))
    assert all(cell.strip() for row in ROWS for cell in row)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_functions_of_a_row_are_there(row: tuple[str, str, str, str]):
    """Every test that a row names is a function of the file that it names, and there is one at least."""
    named = [tuple(name.split("::")) for name in re.findall(r"`([^`]+)`", row[3])]

    assert named
    assert [name for name in named if len(name) != 2 or name[1] not in functions_of(name[0])] == []
