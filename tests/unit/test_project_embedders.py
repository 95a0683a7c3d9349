"""Embedders of facetline.toml: what their tables take, and which collection's texts get vectors from which."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from facetline.evaluators.embedded import minilm
from facetline.evaluators.embedder_call_file import EmbedderFromFile
from facetline.evaluators.embedders.hosted import HostedEmbedder
from facetline.evaluators.embedders.local import LocalEmbedder
from facetline.facets.errors import InvalidDefinition
from facetline.streams import project
from facetline.streams.classify.call import CallLimits
from facetline.streams.project import Project
from facetline.streams.settings import load_settings

COLLECTION = """
[evaluators.fixed]
kind = "recorded"
path = "answers.ndjson"
[collections.tickets]
pattern = "tickets/*"
evaluator = "fixed"
[collections.tickets.questions.topic]
type = "choice"
ask = "About?"
options = { billing = "Money", other = "Anything else" }
"""
SMALL = '[embedders.small]\nkind = "embedded"\n'
BIG = '[embedders.big]\nkind = "hosted"\nmodel = "openai/text-embedding-3-small"\n'
TEXT = '[collections.tickets.text]\nembedder = "small"\n'

Load = Callable[..., Project]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load the project of a file with these tables beside the collection's."""
    (tmp_path / "answers.ndjson").touch()
    (tmp_path / "calls.ndjson").touch()

    def loaded(tables: str, calls: str = "live") -> Project:
        config = tmp_path / "facetline.toml"
        config.write_text(COLLECTION + tables)
        return project.load_project(load_settings(config=config, calls=calls, calls_file=tmp_path / "calls.ndjson"))

    return loaded


def refusal(load: Load, tables: str) -> str:
    """Return the words by which a file is refused."""
    with pytest.raises(InvalidDefinition) as caught:
        load(tables)
    return str(caught.value)


def test_tables_become_embedders(load: Load):
    """Each under its name, with its limits or the general ones."""
    loaded = load(SMALL + BIG + "max_batch = 7\nconcurrency = 3\nmax_usd_per_day = 0.5\n")

    small, big = loaded.embedders["small"], loaded.embedders["big"]
    assert isinstance(small, LocalEmbedder)
    assert isinstance(big, HostedEmbedder)
    assert (big.name, big.model, big.max_batch) == ("big", "openai/text-embedding-3-small", 7)
    assert loaded.embedder_limits == {
        "small": CallLimits(),
        "big": CallLimits(concurrency=3, max_usd_per_day=0.5),
    }


def test_a_collection_gets_its_vectors_from_the_embedder_that_it_names(load: Load):
    """What its vectors depend on is in its definition; its answers' fingerprint stays."""
    (definition,) = load(SMALL + TEXT).definitions
    (without,) = load(SMALL).definitions

    assert definition.embedding is not None
    assert definition.embedding.model_dump() == {
        "embedder": "small",
        "kind": "embedded",
        "model": minilm.MODEL,
        "fingerprint": LocalEmbedder("x").fingerprint,
        "min_similarity": 0.5,
    }
    assert without.embedding is None
    assert definition.fingerprint == without.fingerprint


def test_a_floor_of_the_collection_stands_before_the_embedders(load: Load):
    """Also one of zero."""
    (definition,) = load(SMALL + TEXT + "min_similarity = 0.0\n").definitions

    assert definition.embedding is not None
    assert definition.embedding.min_similarity == 0


def test_a_replay_is_not_held_up_by_a_providers_limits(load: Load):
    """As evaluators are not."""
    loaded = load(BIG + "requests_per_minute = 5\nmax_usd_per_day = 0.5\nconcurrency = 3\n", "replay")

    assert loaded.embedder_limits["big"] == CallLimits(concurrency=3)


@pytest.mark.parametrize("calls", ["record", "replay"])
def test_embedders_answer_from_recorded_calls(load: Load, calls: str):
    """Where the settings want it; definitions stay what they are."""
    live, loaded = load(SMALL + TEXT), load(SMALL + TEXT, calls)

    assert isinstance(loaded.embedders["small"], EmbedderFromFile)
    assert loaded.definitions == live.definitions


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (SMALL + TEXT.replace("small", "smal"), "collection 'tickets': text: embedder 'smal' is not defined (did you"),
        (SMALL + TEXT.replace("small", "smal"), "write a table [embedders.smal] (defined: small)"),
        (TEXT, "embedder 'small' is not defined; write a table [embedders.small] (defined: none)"),
        ("[embedders.small]\n", "embedder 'small': has no kind; write kind = one of 'embedded', 'hosted'"),
        ('[embedders.small]\nkind = "hostd"\n', "unknown kind 'hostd' (did you mean 'hosted'?)"),
        ('[embedders.small]\nkind = ["x"]\n', "unknown kind ['x']"),
        ("[embedders]\nsmall = 3\n", "embedder 'small': write it as a table [embedders.small]"),
        (SMALL + 'model = "big"\n', f"unknown model 'big'; kind 'embedded' has '{minilm.MODEL}'"),
        (SMALL + "max_batch = 3\n", "unknown key 'max_batch'; kind 'embedded' takes 'kind', 'model'"),
        (SMALL + "max_usd = 3\n", "embedder 'small': unknown key 'max_usd' (did you mean 'max_usd_per_day'?)"),
        (SMALL + "call_s = 0\n", "embedder 'small': call_s is 0; write a number above zero"),
        (SMALL + 'concurrency = "3"\n', "embedder 'small': concurrency is '3'; write a number above zero"),
        (BIG + "max_batches = 3\n", "embedder 'big': unknown key 'max_batches' (did you mean 'max_batch'?)"),
        (
            '[embedders.big]\nkind = "hosted"\n',
            "model is 'provider/model', for example 'openai/text-embedding-3-small'",
        ),
        (BIG.replace("openai/", ""), "model is 'provider/model'"),
        (BIG + 'api_base = "models"\n', "embedder 'big': api_base is the server's address"),
        (BIG + "dimensions = 0\n", "embedder 'big': dimensions is a whole number from 1 to 8192, not 0"),
        (BIG + "dimensions = 8193\n", "dimensions is a whole number from 1 to 8192, not 8193"),
        (BIG + "dimensions = true\n", "dimensions is a whole number from 1 to 8192, not True"),
        (BIG + "max_batch = 2049\n", "max_batch is a whole number from 1 to 2048, not 2049"),
        (BIG + "max_batch = 0.5\n", "max_batch is a whole number from 1 to 2048, not 0.5"),
        (BIG + "window_chars = 99\n", "window_chars is a whole number from 100 to 100000, not 99"),
        (BIG + "query_prefix = 1\n", "query_prefix is text of at most 1000 characters, not 1"),
        (BIG + f'passage_prefix = "{"x" * 1001}"\n', "passage_prefix is text of at most 1000 characters, not 'xxx"),
    ],
)
def test_a_wrong_table_is_refused(load: Load, tables: str, words: str):
    """By a message that names the embedder or the collection, and the way out."""
    assert words in refusal(load, tables)


def test_embedders_are_tables(load: Load, tmp_path: Path):
    """As evaluators are."""
    (tmp_path / "facetline.toml").write_text("embedders = 3\n" + COLLECTION)
    with pytest.raises(InvalidDefinition, match=re.escape("embedders: write one [embedders.NAME] table for each")):
        project.load_project(load_settings(config=tmp_path / "facetline.toml"))


def test_all_problems_are_named_at_once(load: Load):
    """A refused embedder is one problem: the collection that names it has none of its own."""
    words = refusal(load, SMALL + "dimensions = 3\n" + BIG + "dimensions = 0\nmax_batch = 0\ncall_s = -1\n" + TEXT)

    assert len(words.splitlines()) == 4
    assert "is not defined" not in words


@pytest.mark.parametrize(
    ("line", "bytes_max"), [("", 96 << 17), ("max_batch = 1\n", 4 << 20), ("reply_bytes_max = 5000\n", 5000)]
)
def test_a_reply_may_be_as_long_as_its_vectors_are(load: Load, line: str, bytes_max: int):
    """More windows in a request make a longer reply."""
    big = load(BIG + line).embedders["big"]

    assert isinstance(big, HostedEmbedder)
    assert big.reply_bytes_max == bytes_max
