"""Settings: which source wins, and what a wrong one is told."""

from pathlib import Path

import pytest

from facetline.facets import errors
from facetline.streams.settings import load_settings


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_sources_are_taken_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument wins over the environment, that over `.env`, that over the file."""
    (tmp_path / "facetline.toml").write_text(
        "[settings]\ngrace_s = 1\nlog_level = 'info'\n[settings.kafka]\ngroup_id = 'f'\n"
    )
    (tmp_path / ".env").write_text("FACETLINE_GRACE_S=2\nFACETLINE_LOG_FORMAT=json\nOTHER=x\n")
    monkeypatch.setenv("FACETLINE_GRACE_S", "3")
    monkeypatch.setenv("FACETLINE_DATA_FOLDER", "from-environment")

    settings = load_settings(data_folder=Path("given"))

    assert (settings.grace_s, settings.log_format, settings.log_level) == (3, "json", "info")
    assert (settings.kafka.group_id, settings.data_folder) == ("f", Path("given"))


def test_bootstrap_servers_alone_choose_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime follows from one setting."""
    assert load_settings().runtime == "local"

    monkeypatch.setenv("FACETLINE_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")

    assert load_settings().runtime == "kafka"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("FACETLINE_GRACE_S", "soon", "grace_s"),
        ("FACETLINE_KAFKA__SECURITY_PROTOCOL", "TLS", "FACETLINE_KAFKA__SECURITY_PROTOCOL"),
        ("FACETLINE_KAFKA__TOPIC_PREFIX", "a b", "topic_prefix"),
        ("FACETLINE_WORKER_HTTP", "8090", "host:port"),
        ("FACETLINE_WORKER_HTTP", "127.0.0.1:99999", "worker_http"),
        ("FACETLINE_WORKER_HTTP", ":8090", "worker_http"),
    ],
)
def test_wrong_value_is_named_with_its_variable(
    name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which setting is wrong and where it can be set."""
    monkeypatch.setenv(name, value)

    with pytest.raises(errors.InvalidSettings, match=words):
        load_settings()


def test_misspelt_name_in_dotenv_is_refused(tmp_path: Path) -> None:
    """A name of ours that does not exist is an error, those of other programs are not."""
    (tmp_path / ".env").write_text("OPENAI_API_KEY=x\nFACETLINE_GRACE=2\n")

    with pytest.raises(errors.InvalidSettings, match=r"grace: there is none of that name \(did you mean 'grace_s'\?\)"):
        load_settings()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("FACETLINE_LOG_LEVLE", "FACETLINE_LOG_LEVEL"),
        ("FACETLINE_KAFKA_BOOTSTRAP_SERVERS", "FACETLINE_KAFKA__BOOTSTRAP_SERVERS"),
    ],
)
def test_misspelt_name_in_the_environment_is_refused(given: str, meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is nearly a setting is named with its neighbour; one that only shares the prefix is left."""
    monkeypatch.setenv("FACETLINE_SERVICE_PORT", "8080")
    load_settings()
    monkeypatch.setenv(given, "info")

    with pytest.raises(errors.InvalidSettings, match=rf"{given}: .* {meant}\?"):
        load_settings()


def test_misspelt_name_of_kafka_has_its_neighbour(tmp_path: Path) -> None:
    """The right name is looked for in the table that the wrong one stands in."""
    (tmp_path / "facetline.toml").write_text("[settings.kafka]\npartition = 3\n")

    with pytest.raises(errors.InvalidSettings, match=r"kafka\.partition: .*did you mean 'partitions'"):
        load_settings()


@pytest.mark.parametrize("text", ["x = " + "[" * 5_000 + "]" * 5_000, "x = " + "{a = " * 5_000 + "1" + "}" * 5_000])
def test_file_nested_without_end_is_named(tmp_path: Path, text: str) -> None:
    """A file that nests thousands of levels is refused in one line, not with a traceback."""
    (tmp_path / "facetline.toml").write_text(text)

    with pytest.raises(errors.InvalidSettings, match="nested too deeply") as refused:
        load_settings()

    assert "\n" not in refused.value.message


def test_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    """A damaged file is an error with its name, wherever it is first read."""
    (tmp_path / "facetline.toml").write_text("[settings\n")

    with pytest.raises(errors.InvalidSettings, match=r"facetline\.toml"):
        load_settings()


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No password shows when settings are printed."""
    monkeypatch.setenv("FACETLINE_KAFKA__SASL_PASSWORD", "hunter2")
    monkeypatch.setenv("FACETLINE_STORE_URL", "postgresql+psycopg://u:hunter2@h/d")

    settings = load_settings()

    assert "hunter2" not in repr(settings)
    assert "hunter2" not in settings.model_dump_json()
    assert settings.store.endswith("hunter2@h/d")
