"""Failpoints: nothing without the variable, exactly what it says with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from facetline.facets import errors
from facetline.streams import failpoints


def _run(name: str, given: str | None) -> subprocess.CompletedProcess[str]:
    """Pass one failpoint in a process of its own."""
    code = f"from facetline.streams import failpoints; failpoints.failpoint({name!r}); print('passed')"
    environment = {key: value for key, value in os.environ.items() if key != failpoints.VARIABLE}
    if given is not None:
        environment[failpoints.VARIABLE] = given
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_without_the_variable_a_failpoint_does_nothing():
    """No environment variable, no effect."""
    done = _run("apply.before_commit", None)

    assert done.stdout == "passed\n"


def test_kill_ends_the_process_at_once():
    """`kill` is SIGKILL: no cleanup, no exit code of our own."""
    done = _run("apply.after_commit", "publish.after_send=raise|apply.after_commit=kill")

    assert done.returncode == -signal.SIGKILL
    assert done.stdout == ""


def test_another_point_is_passed():
    """Only the point that is named acts."""
    done = _run("apply.before_commit", "apply.after_commit=kill")

    assert done.stdout == "passed\n"


def test_raise_raises_an_error_that_names_the_point():
    """`raise` raises FailpointReached."""
    done = _run("apply.after_commit", "apply.after_commit=raise")

    assert "FailpointReached: apply.after_commit" in done.stderr


def test_a_path_arms_an_action_only_while_the_file_is_there(tmp_path: Path):
    """`kill:path` acts when the file exists and not before."""
    armed = tmp_path / "armed"
    before = _run("apply.after_commit", f"apply.after_commit=kill:{armed}")
    armed.touch()
    after = _run("apply.after_commit", f"apply.after_commit=kill:{armed}")

    assert before.stdout == "passed\n"
    assert after.returncode == -signal.SIGKILL


def test_pause_lasts_until_the_file_is_gone(tmp_path: Path):
    """`pause` stands still while the file is there, and goes on after."""
    held = tmp_path / "held"
    held.touch()
    code = (
        "from facetline.streams import failpoints; print('here', flush=True);"
        "failpoints.failpoint('apply.before_commit')"
    )
    environment = {**os.environ, failpoints.VARIABLE: f"apply.before_commit=pause:{held}"}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        held.unlink()
        started = time.monotonic()

        assert process.wait(10) == 0
        assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("apply.before_comit=kill", "apply.before_commit"),
        ("apply.before_commit=explode", "explode"),
        ("apply.before_commit=pause", "needs a file"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(given: str, said: str):
    """A misspelt variable never passes as "nothing to do"."""
    with pytest.raises(errors.InvalidSettings) as refused:
        failpoints.parse(given)

    assert said in refused.value.message


def test_every_point_in_the_code_is_listed():
    """No call of failpoint() names a point that the list does not have, and every listed part exists."""
    root = Path(failpoints.__file__).parent
    called = {
        line.split('failpoint("')[1].split('"')[0]
        for path in root.rglob("*.py")
        for line in path.read_text().splitlines()
        if 'failpoint("' in line and "def " not in line
    }

    assert called <= set(failpoints.NAMES)
