"""The rules of the house: who may import whom, what a package's first file holds, how long a function may be.

Method: import-linter with the contracts of pyproject.toml, once over the code and once over a tree that breaks each of
them; the rest by reading the syntax trees.
"""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("streams", "evaluators", "facets", "storage")
FUNCTION_LINES_MAX = 70

# One import that each contract refuses, by the start of the contract's name: the importing module, and the statement.
FORBIDDEN = {
    "streams → evaluators": ("facets/display", "import facetline.streams.wire.anything"),
    "inside streams": ("streams/wire", "import facetline.streams.kafka.anything"),
    "inside storage": ("storage/db", "import facetline.storage.queue.anything"),
    "inside facets": ("facets/table", "import facetline.facets.search.anything"),
    "inside evaluators": ("evaluators/chat", "import facetline.evaluators.decisions.anything"),
    "facets alone": ("streams/views", "import duckdb"),
    "evaluators alone": ("storage/db", "from onnxruntime import InferenceSession"),
    "storage alone": ("streams/kafka", "from sqlalchemy import text"),
    "streams alone": ("evaluators/chat", "import aiokafka"),
}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over a folder with its own pyproject.toml."""
    program = Path(sys.executable).parent / "lint-imports"
    return subprocess.run([program, "--no-cache"], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def sources() -> Iterator[Path]:
    """Every Python file of the four packages."""
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def test_code_keeps_the_import_rule() -> None:
    """The four packages import each other, and the heavy libraries, only where the design allows it."""
    done = lint_imports(ROOT)

    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def empty_house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four packages and the folders in them without code, under our contracts."""
    folder = tmp_path_factory.mktemp("house")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "facetline").mkdir()
    (folder / "facetline" / "__init__.py").touch()
    for package in PACKAGES:
        (folder / "facetline" / package).symlink_to(Path("..") / package)
        for place in (folder / package, *(folder / package / name for name in layers_inside(package))):
            place.mkdir()
            (place / "__init__.py").touch()
            if place.parent != folder:
                (place / "anything.py").touch()
    return folder


def layers_inside(package: str) -> list[str]:
    """The modules and folders that the layers contract of a package names."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == [f"facetline.{package}"])
    return [name for layer in layers for name in layer.split(" | ")]


@pytest.mark.parametrize("contract", FORBIDDEN)
def test_each_contract_catches_its_breach(empty_house: Path, contract: str) -> None:
    """One forbidden import breaks the contract that forbids it, and no other."""
    package, statement = FORBIDDEN[contract]
    file = empty_house / package / "anything.py"
    file.write_text(statement + "\n")
    done = lint_imports(empty_house)
    file.write_text("")

    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    assert done.returncode == 1
    assert [line.startswith(contract) for line in broken] == [True]


def test_siblings_never_import_each_other(empty_house: Path) -> None:
    """Evaluators and storage do not know each other, in either direction."""
    (empty_house / "evaluators" / "chat" / "anything.py").write_text("import facetline.storage.db.anything\n")
    one = lint_imports(empty_house)
    (empty_house / "evaluators" / "chat" / "anything.py").write_text("")
    (empty_house / "storage" / "db" / "anything.py").write_text("import facetline.evaluators.chat.anything\n")
    other = lint_imports(empty_house)
    (empty_house / "storage" / "db" / "anything.py").write_text("")

    assert (one.returncode, other.returncode) == (1, 1)


def test_every_contract_has_its_breach() -> None:
    """A contract added to pyproject.toml gets an example here that breaks it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

    assert [any(contract["name"].startswith(start) for start in FORBIDDEN) for contract in contracts] == [True] * 9


@pytest.mark.parametrize(
    "file", sorted(file for file in sources() if file.name == "__init__.py"), ids=lambda file: file.parent.name
)
def test_packages_open_with_a_docstring_only(file: Path) -> None:
    """An `__init__.py` says what the package is for and imports nothing, so importing a part costs only that part."""
    body = ast.parse(file.read_text()).body

    assert len(body) == 1
    assert isinstance(body[0], ast.Expr)
    assert isinstance(body[0].value, ast.Constant)


def test_no_program_imports_a_folder_by_its_bare_name() -> None:
    """Programs in strings and in documents import `facetline.…` too: by another name everything is loaded twice."""
    bare = re.compile(r"\b(?:from|import) (?:streams|storage|facets|evaluators)\b(?! samples)")
    files = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.py"), *sources()]
    theirs = {"test_packaging.py", "test_architecture.py"}  # a project with the same names, and this test

    assert [str(file) for file in files if file.name not in theirs and bare.search(file.read_text())] == []


def test_databases_are_opened_in_one_place() -> None:
    """No other file opens a DuckDB connection, so that what all of them are set to is set there."""
    openers = [str(file.relative_to(ROOT)) for file in sources() if "duckdb.connect(" in file.read_text()]

    assert openers == ["facets/duckdb_connection.py"]


def test_functions_are_short() -> None:
    """No function is longer than 70 lines, its docstring included."""
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for file in sources()
        if "versions" not in file.parts  # a migration is as long as its tables
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]

    assert long == []
