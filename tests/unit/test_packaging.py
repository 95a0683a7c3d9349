"""What is installed: four packages that are ours alone, with their data, from locks that anybody can use.

Method: build the wheel and the sdist offline and look inside; read the locks; start the command in a new interpreter.
"""

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"streams", "evaluators", "facets", "storage"}
LOCKS = ("requirements.lock", "requirements-dev.lock")
# Libraries that take long to import and that printing help does not need.
HEAVY = (
    *("pydantic_settings", "structlog"),
    *("litellm", "onnxruntime", "tokenizers", "numpy", "faust", "aiokafka"),
    *("sqlalchemy", "alembic", "psycopg", "duckdb"),
)


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


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_import_names_are_ours_alone(package: str) -> None:
    """No other installed distribution brings a package of the same, rather generic, name."""
    owners = importlib.metadata.packages_distributions().get(package, [])

    assert set(owners) <= {"facetline"}


def test_wheel_holds_every_file_of_the_packages_and_nothing_else(built: Path) -> None:
    """The wheel has each source and data file of the four packages, and beside them only its own metadata."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert names == files
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_sdist_holds_no_tests_and_no_tools(built: Path) -> None:
    """The sdist has what a build needs: the packages, README, LICENSE and pyproject.toml."""
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        tops = {Path(name).parts[1] for name in sdist.getnames()}

    assert tops - {"PKG-INFO", ".gitignore"} == PACKAGES | {"README.md", "LICENSE", "pyproject.toml"}


def test_command_is_installed_as_a_script(built: Path) -> None:
    """`facetline` is a console script: `python -m` would put the working directory first on the path."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        entries = wheel.read(name).decode()

    assert entries.split("\n")[:2] == ["[console_scripts]", "facetline = streams.cli.main:main"]


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
        "import sys, streams.cli.main as cli\n"
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
