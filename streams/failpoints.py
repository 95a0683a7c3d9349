"""Kill switches for tests at named points of the pipeline; live only by `FACETLINE_FAILPOINTS`.

The variable holds `name=action` or `name=action:path`, several with `|` between them. Actions: `kill` (SIGKILL, this
process), `raise` (`FailpointReached`), `pause` (wait while the file at `path` exists; `path.reached` is made
first, so that others know). A `path` given with `kill` or `raise` arms them: they act only while that file exists.
Without the variable a failpoint does nothing.
"""

import os
import signal
import time
from pathlib import Path

from facetline.facets import errors

VARIABLE = "FACETLINE_FAILPOINTS"

NAMES = (
    "apply.before_commit",  # write worker, local writer: batch applied, transaction still open
    "apply.after_commit",  # committed, not yet acknowledged to Kafka or (local) returned to the writer
    "chain.after_claim",  # side chain: claimed, evaluator not yet called
    "chain.before_store",  # side chain: answered, answer not yet stored
    "chain.after_store",  # side chain: answer stored
    "publish.before_send",  # publisher: feed rows read, nothing sent
    "publish.before_commit",  # publisher: all records of a transaction acknowledged, Kafka's commit not yet asked for
    "publish.after_send",  # publisher: transaction committed in Kafka, position not yet recorded
    "publish.after_mark",  # publisher: position recorded
    "reindex.before_turn",  # reindex: job taken, its next turn not yet made
    "reindex.after_turn",  # reindex: a turn committed
)
ACTIONS = ("kill", "pause", "raise")

PAUSE_LIMIT_S = 120.0
"""A pause that is not ended must not outlive the test that asked for it."""
PAUSE_STEP_S = 0.01


class FailpointReached(Exception):
    """A failpoint raised here, as configured."""


def failpoint(name: str) -> None:
    """Do what `FACETLINE_FAILPOINTS` says about this point; nothing without the variable.

    Raises:
        FailpointReached: when configured to.
        InvalidSettings: the variable names an unknown point or action.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return
    action, path = parse(given).get(name, (None, None))
    if name not in NAMES:
        raise errors.InvalidSettings(f"failpoint {name!r} is not listed in streams/failpoints.py")
    if action is None or (path is not None and not path.exists()):
        return
    _act(name, action, path)


def parse(given: str) -> dict[str, tuple[str, Path | None]]:
    """Return what the variable says: the action and the file for each point named.

    Raises:
        InvalidSettings: naming what is not understood.
    """
    found: dict[str, tuple[str, Path | None]] = {}
    for part in filter(None, (part.strip() for part in given.split("|"))):
        name, _, wanted = part.partition("=")
        action, _, path = wanted.partition(":")
        if name not in NAMES:
            raise errors.InvalidSettings(f"{VARIABLE}: no failpoint {name!r}{errors.nearest(name, NAMES)}")
        if action not in ACTIONS:
            raise errors.InvalidSettings(f"{VARIABLE}: {name} takes {', '.join(ACTIONS)}, not {action!r}")
        if action == "pause" and not path:
            raise errors.InvalidSettings(f"{VARIABLE}: {name}=pause needs a file, as in {name}=pause:/tmp/held")
        found[name] = (action, Path(path) if path else None)
    return found


def _act(name: str, action: str, path: Path | None) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "raise":
        raise FailpointReached(name)
    deadline = time.monotonic() + PAUSE_LIMIT_S
    if path is not None:
        path.with_name(f"{path.name}.reached").touch()
    while path is not None and path.exists() and time.monotonic() < deadline:
        time.sleep(PAUSE_STEP_S)
