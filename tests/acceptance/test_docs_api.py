"""docs/api.md says what is so: every route and kind of problem is on it, and every example gives the reply it shows.

Method: the page's shell blocks run in order with curl against a real `facetline serve` over the project of the
reference; after a write the next one waits until it can be found. What a JSON block shows has to be in the reply (`"…"`
is any value), what a text block shows begins its lines.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import documented
import httpx
import missing
import pytest
from commands import Place
from serving import serve_process

from facetline.facets.api.application import ROUTES
from facetline.facets.api.limits import Limits
from facetline.facets.api.problem_types import KINDS

PAGE = "docs/api.md"
TEXT = documented.text_of(PAGE)
ANY = "…"
ADDRESS = "http://127.0.0.1:8080"
EXAMPLE = re.compile(
    r"^```sh\n(?P<command>.*?)^```\n+```(?P<kind>json|text)\n(?P<shown>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Example:
    """A command and what it prints."""

    line: int
    command: str
    kind: str
    shown: str


EXAMPLES = [
    Example(TEXT.count("\n", 0, each.start()) + 1, each["command"], each["kind"], each["shown"])
    for each in EXAMPLE.finditer(TEXT)
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A folder with the project and its documents."""
    if shutil.which("curl") is None:
        missing.skip_or_fail("curl is not installed")
    return documented.imported(tmp_path_factory.mktemp("api"))


@pytest.fixture(scope="module")
def url(place: Place) -> Iterator[str]:
    """Where it is served."""
    with serve_process(place) as server:
        yield server.url


@pytest.mark.timeout(300)
def test_every_example_gives_the_reply_that_it_shows(place: Place, url: str):
    """Each command runs as it stands, and prints what stands below it."""
    for example in EXAMPLES:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", example.command.replace(ADDRESS, url)],
            cwd=place.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

        where = f"{PAGE}:{example.line}\n{done.stdout}"
        if example.kind == "json":
            reply = json.loads(done.stdout)
            assert differences(json.loads(example.shown), reply) == [], where
            if "token" in reply:
                given = {"at_least": reply["token"], "wait_ms": 30_000}
                httpx.get(f"{url}/v1/collections/tickets/search", params=given).raise_for_status()
        else:
            for shown, line in zip(example.shown.splitlines(), done.stdout.splitlines(), strict=False):
                assert line.startswith(shown), where


def differences(shown: Any, reply: Any, place: str = "") -> list[str]:
    """Return where a reply is not as shown; further members of an object are of no account."""
    if shown == ANY:
        return []
    if isinstance(shown, dict) and isinstance(reply, dict):
        absent = [f"{place}.{name} is not there" for name in shown if name not in reply]
        return absent + [
            each for name in shown if name in reply for each in differences(shown[name], reply[name], f"{place}.{name}")
        ]
    if isinstance(shown, list) and isinstance(reply, list) and len(shown) == len(reply):
        pairs = enumerate(zip(shown, reply, strict=True))
        return [each for number, (a, b) in pairs for each in differences(a, b, f"{place}[{number}]")]
    return [] if shown == reply else [f"{place}: {shown!r} is {reply!r}"]


def test_the_comparison_reports_other_missing_and_extra_values():
    """The comparison is no formality: another value, an absent member and a longer list are told."""
    assert differences({"a": 1}, {"a": 2}) == [".a: 1 is 2"]
    assert differences({"a": ANY}, {}) == [".a is not there"]
    assert differences([1], [1, 2]) != []
    assert differences({"a": [ANY, {"b": 1}]}, {"a": [0, {"b": 1, "c": 2}], "d": 3}) == []


def test_every_block_is_an_example():
    """No command on the page is left out of the test."""
    assert len(EXAMPLES) == len(documented.blocks(PAGE, "sh"))


@pytest.mark.parametrize("declared", ROUTES, ids=lambda each: f"{each.method}-{each.path}")
def test_every_route_is_told(declared: Any):
    """Each route's method and address stand on the page."""
    address = declared.path.replace(":path", "")
    told = re.findall(r"`(GET|PUT|POST|DELETE) (/[^`?]*)", TEXT)

    assert (declared.method, address) in told


def test_every_kind_of_problem_is_told():
    """The table has exactly the kinds that there are, each with its status, title and fix."""
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\d{3}) \| (.+?) \| (.+) \|$", TEXT, re.MULTILINE)

    assert rows == [(kind.name, str(kind.status), kind.title, kind.fix) for kind in KINDS.values()]


def test_the_limits_are_those_in_force():
    """What the page says is bounded is bounded so."""
    limits = Limits()
    told = TEXT.partition("## Limits")[2]

    assert f"{limits.request_s:g} s to come" in told
    assert "5 MiB" in told
    assert limits.body_bytes == 5 << 20
    assert f"all requests at once | {limits.bodies_bytes >> 20} MiB" in told
    assert f"| {limits.parameters}, 32 |" in told
    assert f"| connections | {limits.connections} |" in told
    slots = (limits.searches, limits.fresh, limits.streams, limits.statements, limits.agents)
    assert f"| {', '.join(map(str, slots))} | others wait for {limits.wait_s:g} s" in told
    assert f"{limits.waiting} of each" in told
    assert f"nothing of its reply | {limits.stall_s:g} s" in told
    assert f"in all | {limits.stream_s / 60:g} min" in told
