"""The documentation says what is so: every name of the code is in it, what is generated is up to date, links lead on.

Method: names are taken from the code (commands, settings, reasons, errors, keys), pages from the files.
"""

import importlib.util
import inspect
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import documented
import jsonschema
import pytest
from documented import PAGES, ROOT, Block

from facetline.evaluators import factory
from facetline.evaluators.embedders import factory as embedder_factory
from facetline.facets import collections, errors
from facetline.facets.documents import DocumentReason, EventReason, Status
from facetline.facets.schema import names, question_sets, states
from facetline.storage.jobs.decisions import ItemState
from facetline.streams import failpoints, limit_keys, project
from facetline.streams.classify import call
from facetline.streams.kafka import topics
from facetline.streams.settings import KafkaSettings, load_settings
from facetline.streams.wire import codec

REFERENCE = documented.text_of("docs/reference.md")


def generator() -> ModuleType:
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


GENERATE = generator()


def error_names() -> list[str]:
    """Every error class."""
    found = vars(errors).values()
    return sorted(each.__name__ for each in found if inspect.isclass(each) and issubclass(each, errors.PipelineError))


def header_names() -> list[str]:
    """Every header that the wire reads or writes."""
    source = inspect.getsource(codec)
    read = set(re.findall(r'"(ce_\w+)"', source)) | {codec.ORIGIN_HEADER, codec.DEADLINE_HEADER, "traceparent"}
    said = re.findall(r'^        "(\w+)": letter\.', inspect.getsource(codec.encode_dead_letter), re.MULTILINE)
    return sorted(read | {codec.ERROR_HEADER + name for name in said})


def keys() -> list[str]:
    """Every key of facetline.toml below its tables."""
    makers = (*factory.MAKERS.values(), *embedder_factory.MAKERS.values())
    of_kinds = {key for kind_keys, _ in makers for key in kind_keys}
    of_questions = {key for kind_keys in question_sets._KEYS.values() for key in kind_keys}
    return sorted({*of_kinds, *limit_keys.LIMITS, *collections._TABLE_KEYS, *of_questions})


def test_what_is_generated_is_up_to_date():
    """docs/generate.py would change nothing; the message names what it would change."""
    differing = [path.name for path, text in GENERATE.wanted().items() if path.read_text(encoding="utf-8") != text]

    assert differing == [], "run: python docs/generate.py"


def test_every_generated_part_is_on_the_page():
    """No command is left out: each has its mark in docs/reference.md, once."""
    assert sorted(GENERATE.MARK.findall(REFERENCE)) != []
    assert sorted(found["name"] for found in GENERATE.MARK.finditer(REFERENCE)) == sorted(GENERATE.parts())


@pytest.mark.parametrize("name", GENERATE.commands())
def test_every_command_has_an_example(name: str):
    """Each command is run by an example of the page, apart from the demo, which a target of the Makefile runs."""
    shown = "".join(block.text for page in PAGES for block in documented.blocks(page, "sh"))

    assert re.search(rf"\bfacetline {name}\b", shown) or name == "demo"


@pytest.mark.parametrize("name", GENERATE.commands())
def test_every_option_has_words(name: str):
    """No option or argument that is not plain from its name goes without an explanation."""
    plain = {"ID", "COLLECTION", "[ID …]"}
    rows = [line for line in GENERATE.parts()[f"command {name}"].splitlines() if line.startswith("| `")]
    unexplained = [row.split("`")[1] for row in rows if not row.split("|")[-2].strip()]

    assert [option for option in unexplained if option not in plain] == []


@pytest.mark.parametrize("reason", [*EventReason, *DocumentReason])
def test_every_reason_has_a_cause_and_a_mend(reason: str):
    """Each reason has a row of its own in docs/reference.md, with three cells that say something."""
    row = re.search(rf"^\| `{reason}` \| ([^|]+) \| ([^|]+) \|$", REFERENCE, re.MULTILINE)

    assert row is not None
    assert all(cell.strip() for cell in row.groups())


@pytest.mark.parametrize("name", error_names())
def test_every_error_is_explained(name: str):
    """Each error class has a row in docs/reference.md that says when it comes."""
    assert re.search(rf"^\| `{name}` \| [^|]+ \|", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("key", keys())
def test_every_key_is_explained(key: str):
    """Each key that a table of facetline.toml takes has a row in docs/reference.md."""
    assert re.search(rf"^\| `{key}` \| .*\w.* \|$", REFERENCE, re.MULTILINE)


@pytest.mark.parametrize("kind", factory.MAKERS)
def test_every_kind_is_named(kind: str):
    """Each kind of evaluator is named."""
    assert f"`{kind}`" in REFERENCE


@pytest.mark.parametrize("header", header_names())
def test_every_header_is_explained(header: str):
    """Each header that is read or written is named in docs/reference.md."""
    assert f"`{header}`" in REFERENCE


@pytest.mark.parametrize("kind", [codec.WRITTEN, codec.DELETED, codec.FACETS])
def test_every_type_of_event_is_explained(kind: str):
    """Each `ce_type` is named in docs/reference.md."""
    assert f"`{kind}`" in REFERENCE


@pytest.mark.parametrize("status", Status)
def test_every_status_is_explained(status: str):
    """Each status is explained where people look for words, and where they read records."""
    assert f"`{status}`" in documented.prose("docs/concepts.md")
    assert f"`{status}`" in REFERENCE


@pytest.mark.parametrize("state", ItemState.__args__)
def test_every_state_of_a_job_item_is_named(state: str):
    """What a job's progress counts can be looked up."""
    assert f"`{state}`" in REFERENCE


def test_topics_are_as_they_are_made():
    """Each topic's row holds exactly the configuration that `topics create` gives it."""
    names_ = topics.topic_names(KafkaSettings().topic_prefix)

    for name, configuration in topics.configurations(names_).items():
        (row,) = re.findall(rf"^\| `{re.escape(name)}` \|.*$", REFERENCE, re.MULTILINE)
        assert dict(re.findall(r"`([a-z.]+)=([^`]+)`", row)) == configuration


def test_reserved_names_are_listed():
    """Every name that is refused for a reason of ours is on the page."""
    reserved = {*names.COLLECTION_RESERVED, *names.QUESTION_RESERVED, *names.QUESTION_PREFIXES}
    reserved |= {*names.QUESTION_ENDINGS, *names.STATE_RESERVED}

    assert [name for name in sorted(reserved) if not re.search(rf"[` \n]{name}[`\s]", REFERENCE)] == []


def test_state_types_are_listed():
    """Every type of a state field is on the page."""
    assert [kind for kind in states.STATE_TYPES if f"`{kind}`" not in REFERENCE] == []


def test_limits_have_the_meaning_that_the_code_gives_them():
    """The documented lease margin and defaults are the code's."""
    limits = call.CallLimits()

    assert f"| `call_s` | `{limits.call_s:g}` |" in REFERENCE
    assert set(GENERATE.MEANINGS) == set(limit_keys.LIMITS)


def test_the_record_on_the_page_fits_its_schema():
    """The example of a facets record is one that the schema allows."""
    (example,) = documented.blocks("docs/reference.md", "json")
    schema = json.loads((ROOT / "docs" / "schemas" / f"{codec.FACETS}.json").read_text())

    jsonschema.Draft202012Validator(schema).validate(json.loads(example.text))


@pytest.mark.parametrize("page", PAGES)
def test_each_link_leads_to_a_file_and_heading(page: str):
    """Every link to a file of the repository finds it, and every anchor its heading."""
    for target in documented.links(page):
        path, _, anchor = target.partition("#")
        found = (ROOT / page).parent / path if path else ROOT / page
        assert found.exists(), target
        if anchor:
            assert anchor in documented.anchors(str(found.resolve().relative_to(ROOT))), target


def toml_blocks() -> list[Block]:
    """Every TOML block of every page."""
    return [block for page in PAGES for block in documented.blocks(page, "toml")]


@pytest.mark.parametrize("block", toml_blocks(), ids=lambda block: block.place)
def test_each_toml_block_is_a_valid_configuration(block: Block, tmp_path: Path):
    """Each TOML block is a configuration that is accepted, with the tables added that it leaves out."""
    documented.project(tmp_path)
    config = tmp_path / "facetline.toml"
    config.write_text(block.text + missing_tables(tomllib.loads(block.text)), encoding="utf-8")

    loaded = project.load_project(load_settings(config=config))
    assert loaded.definitions


def missing_tables(table: dict[str, Any]) -> str:
    """Return what makes a part of a configuration a whole one."""
    defined = table.get("evaluators", {})
    named = {each["evaluator"] for each in table.get("collections", {}).values()} - set(defined)
    added = [f'\n[evaluators.{name}]\nkind = "recorded"\npath = "answers.ndjson"\n' for name in sorted(named)]
    if "collections" not in table:
        evaluator = next(iter(defined), "whoever")
        added.append(f'\n[collections.made]\npattern = "made/*"\nevaluator = "{evaluator}"\n')
        added.append(
            '[collections.made.questions.topic]\ntype = "choice"\nask = "?"\noptions = {a = "A", other = "B"}\n'
        )
        if not defined:
            added.append('\n[evaluators.whoever]\nkind = "embedded"\n')
    return "".join(added)


def test_producers_by_kcat_hash_keys_as_we_do():
    """Every kcat example that produces says `-X topic.partitioner=murmur2_random`, and there is one."""
    commands = [
        command
        for page in PAGES
        for block in documented.blocks(page, "sh")
        for command in re.split(r"\n(?! )", block.text.replace("\\\n", " ").replace("|\n", "| "))
        if "kcat -P" in command
    ]

    assert commands
    assert [each for each in commands if "-X topic.partitioner=murmur2_random" not in each] == []


def test_no_page_names_a_place_of_this_machine():
    """Paths of the repository's own folder or of a home never get into the documentation."""
    for page in PAGES:
        assert str(ROOT) not in documented.text_of(page)
        assert not re.search(r"/(home|root|Users)/", documented.text_of(page))


def test_dependencies_are_justified():
    """The table of docs/decisions.md names exactly the packages that pyproject.toml depends on."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for texts in table["optional-dependencies"].values() for text in texts]
    needed = {re.split(r"[\[<>=]", each)[0] for each in [*table["dependencies"], *extras]} - {"facetline"}
    text = documented.text_of("docs/decisions.md")
    rows = re.findall(r"^\| ([\w, -]+) \|", text.split("| package |")[1], re.MULTILINE)

    assert {name.strip() for row in rows for name in row.split(",")} == needed


GUARANTEES = documented.text_of("docs/guarantees.md")


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", GUARANTEES))))
def test_every_named_test_exists(named: str):
    """A guarantee's proof is a test that is there."""
    path, _, name = named.partition("::")

    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("number", range(1, 9))
def test_every_promise_has_its_code_and_its_tests(number: int):
    """Each of the eight promises says by which code it is kept and which tests prove it."""
    (section,) = re.findall(rf"^### {number}\. .*?(?=^##)", GUARANTEES, re.DOTALL | re.MULTILINE)

    assert re.search(r"`(facets|evaluators|storage|streams)/[\w/]+\.py", section)
    assert len(re.findall(r"`tests/[\w/]+\.py::\w+`", section)) >= 2


def code_names() -> list[tuple[str, str]]:
    """Files of the packages that pages name, with a function or class of theirs or without (""), as in `a/b.py:c`."""
    pattern = r"`((?:facets|evaluators|storage|streams)/[\w/]+\.py)(?::(\w+))?`"
    return sorted({found for page in PAGES for found in re.findall(pattern, documented.text_of(page))})


@pytest.mark.parametrize(("path", "name"), code_names())
def test_every_named_piece_of_code_exists(path: str, name: str):
    """Files, functions and classes that pages name are there."""
    source = (ROOT / path).read_text(encoding="utf-8")

    assert not name or re.search(rf"^(async )?(def|class) {name}\b", source, re.MULTILINE)


@pytest.mark.parametrize("name", failpoints.NAMES)
def test_every_step_is_told(name: str):
    """Each failpoint is a row of docs/guarantees.md that says what happens after it."""
    assert re.search(rf"^\| [^|]*`{name}`[^|]* \| [^|]*\w[^|]* \|$", GUARANTEES, re.MULTILINE)


def test_log_events_to_watch_exist():
    """Each log event that docs/operate.md tells people to watch is one that the code writes."""
    rows = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \| (?:warning|error) \|", documented.text_of("docs/operate.md"), re.MULTILINE
    )
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in [file for package in ("streams", "storage", "facets") for file in ROOT.glob(f"{package}/**/*.py")]
    )

    assert len(told) > 10
    assert [name for name in sorted(told) if f'"{name}"' not in source] == []


def test_security_settings_have_their_other_names():
    """Each setting of SASL and TLS has a row with its names in librdkafka and Java."""
    page = documented.text_of("docs/operate.md")
    security = [name for name in KafkaSettings.model_fields if name.startswith(("sasl_", "ssl_", "security_"))]

    for name in security:
        librdkafka = name.replace("_", ".")
        assert re.search(rf"^\| `kafka\.{name}` \| `{re.escape(librdkafka)}` \| `[^|]+ \|$", page, re.MULTILINE), name


def test_make_targets_exist():
    """Every `make` command on a page is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {
        name
        for page in PAGES
        for name in re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", documented.text_of(page), re.MULTILINE)
        for name in name
        if name
    }

    assert used - targets == set()


def test_the_picture_of_the_architecture_shows_what_is_there():
    """Each box of the picture is a folder or a module of its package."""
    picture = next(block for block in documented.blocks("docs/architecture.md", "mermaid")).text
    boxes = []
    for package, part in re.findall(r"subgraph (\w+)\[.*?\n(.*?)\n  end", picture, re.DOTALL):
        for label in re.findall(r'\["([^"]+)"\]', part):
            boxes += [(package, name) for name in label.split(":")[0].split(", ")]

    assert len(boxes) > 25
    assert [
        box for box in boxes if not (ROOT / box[0] / box[1]).is_dir() and not (ROOT / box[0] / f"{box[1]}.py").exists()
    ] == []
