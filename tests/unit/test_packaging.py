"""What is installed: one package, `facetline`, with its data, from locks that work with any index.

Method: build the wheel and the sdist offline and look inside; read the locks; start the command in a new interpreter.
"""

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import facetline

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"streams", "evaluators", "facets", "storage"}
LOCKS = ("requirements.lock", "requirements-dev.lock")
# Libraries that take long to import and that printing help does not need.
HEAVY = (
    *("pydantic_settings", "structlog"),
    *("litellm", "onnxruntime", "tokenizers", "numpy", "faust", "aiokafka"),
    *("sqlalchemy", "alembic", "psycopg", "duckdb"),
)


PUBLIC = [
    *("AsyncClient", "AsyncTools", "Boolean", "BooleanAnswer", "Choice", "ChoiceAnswer", "Client", "Collection"),
    *("Evaluated", "Evaluator", "Identity", "Limits", "Pipeline", "Question", "Score", "ScoreAnswer", "Tools"),
    *("boolean", "choice", "define_collection", "errors", "open_local", "score"),
]
THEIRS = {
    "streams/__init__.py": "def flow(): return 'theirs'\n",
    "facets/__init__.py": "SIDES = 6\n",
    "storage.py": "SHELVES = 4\n",
    "conftest.py": "import storage\nassert storage.SHELVES == 4\n",
    "facetline.toml": """
[evaluators.embedded]
kind = "embedded"
[collections.tickets]
pattern = "tickets/*"
evaluator = "embedded"
[collections.tickets.questions.topic]
type = "choice"
ask = "What is it about?"
options = { billing = "Charges, invoices, refunds", login = "Passwords and signing in" }
""",
    "test_theirs.py": """
import facets
import storage
import streams
from facetline import open_local

def test_their_own_packages():
    assert (streams.flow(), storage.SHELVES, facets.SIDES) == ("theirs", 4, 6)

def test_a_story(tmp_path):
    with open_local(config="facetline.toml", folder=tmp_path) as pipeline:
        written = pipeline.write("tickets/1", body="I was charged twice on my invoice", wait="answered")
        assert written["facets"]["topic"]["choice"] == "billing"
        assert pipeline.search("tickets", {"topic": ["billing"]})["total"] == 1

def test_the_plugin_is_there(request):
    assert request.config.pluginmanager.has_plugin("facetline")
""",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    return folder


def locked(name: str) -> dict[str, set[str]]:
    """Versions by distribution name; more than one where platforms or Pythons differ."""
    pins: dict[str, set[str]] = {}
    for found, version in re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE):
        pins.setdefault(canonicalize_name(found), set()).add(version)
    return pins


def project() -> dict[str, Any]:
    """The project's table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def test_wheel_holds_every_file_of_the_packages_and_nothing_else(built: Path) -> None:
    """The wheel has each source and data file of the four folders below `facetline`, and beside them only metadata."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = {
        f"facetline/{path.relative_to(ROOT)}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert names == files | {"facetline/__init__.py", "facetline/py.typed"}


def test_sdist_holds_no_tests_and_no_tools(built: Path) -> None:
    """The sdist has what a build needs: the packages, README, LICENSE and pyproject.toml."""
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        tops = {Path(name).parts[1] for name in sdist.getnames()}

    assert tops - {"PKG-INFO", ".gitignore"} == {"facetline", "README.md", "LICENSE", "pyproject.toml"}


def test_a_project_with_the_same_names_works_beside_it(built: Path, tmp_path: Path) -> None:
    """A project with its own `streams`, `storage` and `facets` runs its tests and Facetline from the wheel."""
    python = installed(next(built.glob("*.whl")), tmp_path / "venv")
    project = tmp_path / "project"
    for path, text in THEIRS.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    for program in ([python.parent / "pytest"], [python, "-m", "pytest"]):
        done = subprocess.run(
            [*program, "-q", "-p", "no:cacheprovider"],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

        assert done.returncode == 0, done.stdout + done.stderr
        assert "3 passed" in done.stdout


def installed(wheel: Path, folder: Path) -> Path:
    """Install the wheel alone into a new environment that finds everything else where these tests find it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    install = [
        Path(sys.executable).parent / "uv",
        "pip",
        "install",
        "--offline",
        "--no-deps",
        "--python",
        python,
        wheel,
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=60)
    # A path that stands in a .pth file is searched, but .pth files there are not: our editable install stays out.
    (site / "rest.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = folder / "bin" / "pytest"
    program.write_text(f"#!{python}\nimport sys, pytest\nsys.exit(pytest.console_main())\n")
    program.chmod(0o755)
    return python


def test_public_names_are_these() -> None:
    """The list of public names changes on purpose only, and each of them can be had."""
    assert sorted(facetline.__all__) == dir(facetline) == PUBLIC
    assert [name for name in PUBLIC if getattr(facetline, name, None) is None] == []


def test_a_name_that_is_not_public_is_refused_with_the_list() -> None:
    """A wrong name says which ones there are."""
    with pytest.raises(AttributeError, match=r"no attribute 'open_locally'; it has AsyncClient, .*open_local"):
        _ = facetline.open_locally


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import facetline` and defining questions loads no model, database, broker or search library."""
    program = f"import sys, facetline; facetline.choice; print([n for n in {HEAVY[2:]!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout.strip() == "[]"


def test_command_is_installed_as_a_script(built: Path) -> None:
    """`facetline` is a console script: `python -m` would put the working directory first on the path."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        entries = wheel.read(name).decode()

    assert entries.split("\n")[:2] == ["[console_scripts]", "facetline = facetline.streams.cli.main:main"]


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_name_no_index(lock: str) -> None:
    """A lock works with whatever package index a machine uses: no address and no index option stands in it."""
    text = (ROOT / lock).read_text()

    assert "://" not in text
    assert re.findall(r"^\s*--?(?!hash=)[a-z]\S*", text, re.MULTILINE) == []


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_pin_everything_by_hash(lock: str) -> None:
    """Each entry of a lock is one exact version with at least one sha256."""
    entries = re.split(r"^(?=[\w])", (ROOT / lock).read_text(), flags=re.MULTILINE)[1:]

    assert len(entries) > 50
    assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []


def test_runtime_lock_satisfies_the_project() -> None:
    """Each runtime dependency is locked at a version that pyproject.toml allows."""
    pins = locked("requirements.lock")
    table = project()
    extras = [text for texts in table["optional-dependencies"].values() for text in texts]
    wanted = [each for each in map(Requirement, [*table["dependencies"], *extras]) if each.name != "facetline"]

    assert [
        str(requirement)
        for requirement in wanted
        if not pins.get(canonicalize_name(requirement.name))
        or not all(requirement.specifier.contains(version) for version in pins[canonicalize_name(requirement.name)])
    ] == []


def test_development_lock_agrees_with_the_runtime_lock() -> None:
    """What is tested is what is installed: the development lock holds the runtime lock's versions unchanged."""
    development = locked("requirements-dev.lock")

    assert {name: development.get(name) for name in locked("requirements.lock")} == locked("requirements.lock")


@pytest.mark.parametrize("arguments", [["--help"], ["search", "--help"]], ids=" ".join)
def test_help_is_quick(arguments: list[str]) -> None:
    """Printing help imports no model, database, broker or search library."""
    program = (
        "import sys, facetline.streams.cli.main as cli\n"
        f"sys.argv = ['facetline', *{arguments!r}]\n"
        "try:\n"
        "    cli.main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        f"print('HEAVY', *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].strip() == "HEAVY"
