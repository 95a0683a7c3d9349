"""What an installation without the optional dependencies can do: the local runtime; the rest names what it lacks.

Method: the installed command in an interpreter in which the modules of the extras cannot be imported.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import commands
import pytest
from packaging.requirements import Requirement

from facetline.streams.cli.extras import EXTRA_OF, advice

ROOT = Path(__file__).resolve().parents[2]
# litellm brings jinja2: it is in any installation.
BLOCKED = sorted({*EXTRA_OF} - {"jinja2"})
PROGRAM = (
    f"import sys; sys.modules.update(dict.fromkeys({BLOCKED!r}));"
    " from facetline.streams.cli.main import main; sys.argv[0] = 'facetline'; main()"
)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command without the extras."""
    command = [sys.executable, "-c", PROGRAM, *words]
    given = commands.environment({})
    return subprocess.run(
        command, cwd=folder, env=given, capture_output=True, text=True, timeout=commands.LIMIT_S, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a document that the embedded model has answered."""
    made = tmp_path_factory.mktemp("core")
    for words in (["init"], ["write", "tickets/t1", "--body", "My card was charged twice."]):
        ended = run(made, *words)
        assert ended.returncode == 0, ended.stderr
    return made


@pytest.mark.parametrize(
    "words",
    [
        ["search", "tickets", "topic=billing"],
        ["get", "tickets/t1"],
        ["sql", "SELECT count(*) FROM tickets"],
        ["export", "--parquet", "out"],
        ["reindex", "tickets", "--force"],
        ["doctor"],
        ["token", "list"],
        ["dlq", "list"],
    ],
    ids=lambda words: words[0],
)
def test_the_local_runtime_needs_no_extra(folder: Path, words: list[str]):
    """Writing, answering, searching, SQL and exports work in an installation without servers and Kafka."""
    ended = run(folder, *words)

    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve", "--port", "0"], "serve"),
        (["mcp"], "agents"),
        (["topics", "check"], "kafka"),
        (["demo", "--kafka"], "kafka"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else given,
)
def test_a_command_that_lacks_an_extra_names_it(folder: Path, words: list[str], extra: str):
    """What cannot run without an optional dependency says in one line what to install."""
    settings = {"FACETLINE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9"} if extra == "kafka" else {}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        env=commands.environment(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=commands.LIMIT_S,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert f"pip install 'facetline[{extra}]'" in ended.stderr


def test_every_extra_is_known_to_the_advice():
    """Each dependency of an extra is one whose absence names that extra, and no other dependency is."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    modules = {"faust-streaming": "faust", "mode-streaming": "mode", "prometheus-client": "prometheus_client"}
    extras = {
        modules.get(name, name)
        for extra, texts in table["optional-dependencies"].items()
        if extra != "all"
        for name in (Requirement(text).name for text in texts)
    }

    assert extras <= {*EXTRA_OF}
    assert set(EXTRA_OF.values()) == {*table["optional-dependencies"]} - {"all"}
    assert advice(ModuleNotFoundError(name="facets")) is None
