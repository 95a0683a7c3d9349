"""The pytest plugin: a running pipeline, recorded calls, and a replayed topic whose facets are compared.

pytest finds it by itself where Facetline is installed. It imports nothing but pytest until a fixture is used. Paths in
a test's mark and calls are relative to the test's file, those of pytest's configuration to that file's folder.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from facetline.streams.files.expected_facets import Document
    from facetline.streams.project import Project
    from facetline.streams.settings import Settings
    from facetline.streams.testing.running_pipeline import RunningPipeline

MARK = "facetline"
CALLS_NAME = "calls.ndjson"
MARK_KEYS = ("config", "calls", "kafka")
REFUSED_SHOWN_MAX = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("facetline", "Facetline pipelines in tests")
    group.addoption(
        "--facetline-calls",
        choices=("replay", "record", "live"),
        default="replay",
        help="evaluator calls where a file of them is named: replay it (the default), record what it lacks (this may"
        " cost money), or call live evaluators and leave the file alone",
    )
    group.addoption("--facetline-update", action="store_true", help="rewrite the files of expected facets")
    group.addoption("--facetline-kafka", metavar="HOST:PORT", help="broker for tests marked with facetline(kafka=True)")
    parser.addini("facetline_config", "the facetline.toml of tests", default="facetline.toml")
    parser.addini("facetline_calls", "the file of recorded calls of tests", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    words = "config=PATH, calls=PATH, kafka=True: what facetline's fixtures run with"
    config.addinivalue_line("markers", f"{MARK}({words})")


@pytest.fixture
def facetline_recorded(request: pytest.FixtureRequest) -> Path:
    """Have this test's evaluators answer from recorded calls; the path of their file.

    The file that the mark or pytest's configuration names, else `calls.ndjson` beside facetline.toml.
    """
    return _calls(request) or _config(request).parent / CALLS_NAME


@pytest.fixture
def facetline_pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[RunningPipeline]":
    """A pipeline that runs until the end of the test, on data of its own."""
    from facetline.facets import errors
    from facetline.streams.testing import running_pipeline

    try:
        settings = running_pipeline.of_its_own(_settings(request), tmp_path / MARK, _bootstrap(request))
        settings.data_folder.mkdir(exist_ok=True)
        _refuse_costs(settings)
        running = running_pipeline.RunningPipeline(settings)
        running.__enter__()
    except errors.PipelineError as error:
        pytest.fail(f"facetline: {error.message}", pytrace=False)
    try:
        yield running
    finally:
        running.__exit__(None, None, None)


@pytest.fixture
def facetline_replay(
    request: pytest.FixtureRequest, facetline_pipeline: "RunningPipeline"
) -> "Callable[..., dict[str, Document]]":
    """Replay recorded events, and compare the facets: `facetline_replay("events.ndjson", expected="facets.ndjson")`.

    `expected` is a file that `pytest --facetline-update` writes. Returns status, reason and facets of every document by
    uri. Lines that are refused fail the test, unless `allow_refused`.
    """

    def replay(
        events: str | Path, *, expected: str | Path | None = None, allow_refused: bool = False
    ) -> "dict[str, Document]":
        from facetline.facets import errors

        __tracebackhide__ = True
        try:
            tally = facetline_pipeline.replay(_beside(request, events))
        except (errors.PipelineError, OSError) as error:  # a limit that was reached, too
            pytest.fail(f"facetline: {str(error) or 'not answered in time'}", pytrace=False)
        if tally.refused and not allow_refused:
            shown = "\n".join(f"  line {number}: {reason}" for number, reason in tally.refused[:REFUSED_SHOWN_MAX])
            pytest.fail(f"facetline: {tally.refused_count} lines of {events} were refused:\n{shown}", pytrace=False)
        found = facetline_pipeline.documents()
        if expected is not None:
            _compare(_beside(request, expected), found, update=request.config.getoption("--facetline-update"))
        return found

    return replay


def _compare(path: Path, found: "dict[str, Document]", *, update: bool) -> None:
    from facetline.streams.files import expected_facets

    __tracebackhide__ = True
    if update:
        path.write_text(expected_facets.encode(found), encoding="utf-8")
        return
    if not path.exists():
        pytest.fail(f"facetline: there is no {path}; pytest --facetline-update writes it", pytrace=False)
    try:
        expected = expected_facets.decode(path.read_text(encoding="utf-8"))
    except expected_facets.InvalidFacetsFile as error:
        pytest.fail(f"facetline: {path}: {error}", pytrace=False)
    lines = expected_facets.differences(expected, found)
    if lines:
        shown = [f"  {line}" for line in lines[: expected_facets.SHOWN_MAX]]
        shown += [f"  … and {len(lines) - len(shown)} more"] if len(lines) > len(shown) else []
        of = f"{len(lines)} of {len({*expected, *found})} documents differ from {path}"
        pytest.fail("\n".join([f"facetline: {of} (--facetline-update rewrites it):", *shown]), pytrace=False)


def _settings(request: pytest.FixtureRequest) -> "Settings":
    from facetline.streams.settings import load_settings

    given: dict[str, Any] = {"calls": "live"}
    file = _calls(request)
    if file is None and facetline_recorded.__name__ in request.fixturenames:
        file = request.getfixturevalue(facetline_recorded.__name__)
    if file is not None:
        given = {"calls": request.config.getoption("--facetline-calls"), "calls_file": file}
        if given["calls"] == "replay" and not file.exists():
            pytest.fail(f"facetline: there is no {file}; pytest --facetline-calls=record makes it", pytrace=False)
    return load_settings(config=_config(request), **given)


def _refuse_costs(settings: "Settings") -> None:
    """Let no test call a hosted model by accident.

    Raises:
        InvalidDefinition, InvalidSettings: the project is refused.
    """
    from facetline.streams import project

    loaded = project.load_project(settings)
    costly = _costly(loaded) if settings.calls == "live" else []
    if costly:
        pytest.fail(
            f"facetline: {costly[0]} may cost money, and this test names no file of recorded calls; use the"
            ' fixture facetline_recorded, or mark it with facetline(calls="calls.ndjson")',
            pytrace=False,
        )


def _costly(loaded: "Project") -> list[str]:
    from facetline.evaluators import factory

    evaluators = [
        f"evaluator '{name}'"
        for name, each in loaded.evaluators.items()
        if each.kind in factory.MAKERS and not each.limits.is_free
    ]
    return evaluators + [f"embedder '{name}'" for name, each in loaded.embedders.items() if not each.is_free]


def _bootstrap(request: pytest.FixtureRequest) -> str | None:
    if not _marked(request).get("kafka"):
        return None
    address: str | None = request.config.getoption("--facetline-kafka")
    if address is None:
        pytest.skip("needs a Kafka: pytest --facetline-kafka=127.0.0.1:9092")
    return address


def _config(request: pytest.FixtureRequest) -> Path:
    named = _marked(request).get("config")
    return _from_ini(request, "facetline_config") if named is None else _beside(request, named)


def _calls(request: pytest.FixtureRequest) -> Path | None:
    named = _marked(request).get("calls")
    if named is not None:
        return _beside(request, named)
    return _from_ini(request, "facetline_calls") if request.config.getini("facetline_calls") else None


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what the marks of the test say; the nearest counts."""
    found: dict[str, Any] = {}
    for mark in request.node.iter_markers(MARK):
        unknown = sorted(set(mark.kwargs) - set(MARK_KEYS))
        if unknown or mark.args:
            what = unknown[0] if unknown else repr(mark.args[0])
            pytest.fail(f"facetline: the mark takes {', '.join(MARK_KEYS)} by name, not {what}", pytrace=False)
        found = {**mark.kwargs, **found}
    return found


def _beside(request: pytest.FixtureRequest, path: str | Path) -> Path:
    return Path(request.path.parent / path)


def _from_ini(request: pytest.FixtureRequest, name: str) -> Path:
    folder = request.config.inipath.parent if request.config.inipath else request.config.rootpath
    return Path(folder / request.config.getini(name))
