"""The faults that are put into the code on purpose: they still fit the source, and the table in the docs fits them.

`make mutants` runs them; here is only looked at what can be seen without running anything.
"""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "mutation"))

import breaks  # noqa: E402 (a folder of scripts, not on the path of tests)
import run  # noqa: E402

ROWS = run.table()


@pytest.mark.parametrize("fault", breaks.BREAKS, ids=[each.name for each in breaks.BREAKS])
def test_a_fault_fits_the_source(fault: breaks.Break):
    """What a fault changes is there exactly once, the result is still Python, and the named tests exist."""
    source = (ROOT / fault.path).read_text()

    compile(run.broken(fault, source), fault.path, "exec")

    for test in fault.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists()
        assert not name or re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_a_line_that_is_gone_is_an_error():
    """A fault that no longer fits is refused by name, never passed over."""
    with pytest.raises(ValueError, match="clear-keeps-answers"):
        run.broken(breaks.BREAKS[0], "x = 1\n")


def test_each_promise_is_broken_in_more_than_one_way():
    """Every promise has at least two faults."""
    assert all(sum(each.promise == promise for each in breaks.BREAKS) >= 2 for promise in breaks.PROMISES)


def test_the_table_has_each_fault_with_a_test_that_went_red():
    """The rows of docs/guarantees.md are the faults in their order, as they are told, each with a test."""
    said = {name: line.split(" | ") for name, line in ROWS.items()}

    assert list(said) == [each.name for each in breaks.BREAKS]
    for fault in breaks.BREAKS:
        promise, told, test, seed = said[fault.name]
        assert promise == f"| {fault.promise}. {breaks.PROMISES[fault.promise]}"
        assert told == f"{fault.name}: {fault.says}"
        assert any(test.strip("`").startswith(each) for each in fault.tests)
        assert re.match(r"\d* *\|" if fault.simulated else r"\|", seed.strip())
