"""What can be set from outside, and in which order: arguments, environment, `.env`, then `[settings]` of the file.

The one place that reads the environment. `FACETLINE_KAFKA__BOOTSTRAP_SERVERS` alone chooses the Kafka runtime.
"""

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from facetline.facets import errors, masking, validation_messages

CONFIG_NAME = "facetline.toml"
PREFIX = "FACETLINE_"
PORT_MAX = 65_535
NEARLY = 0.8
"""How alike two names are, of 1, when one is taken for the other misspelt (`difflib`'s ratio)."""


class KafkaSettings(BaseModel):
    """How to reach Kafka; the names are librdkafka's, with underscores."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap_servers: str | None = Field(
        default=None, description="host:port of one or more brokers; sets the Kafka runtime"
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="how connections are secured"
    )
    sasl_mechanism: str | None = Field(default=None, description="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, …")
    sasl_username: str | None = Field(default=None, description="user for PLAIN and SCRAM")
    sasl_password: SecretStr | None = Field(default=None, description="password for PLAIN and SCRAM")
    ssl_ca_location: str | None = Field(default=None, description="file with the authorities that signed the brokers")
    ssl_certificate_location: str | None = Field(default=None, description="file with our own certificate")
    ssl_key_location: str | None = Field(default=None, description="file with our own private key")
    ssl_key_password: SecretStr | None = Field(default=None, description="password of the private key")
    group_id: str = Field(default="facetline", description="consumer group of the workers")
    client_id: str = Field(default="facetline", description="what brokers log us as")
    topic_prefix: str = Field(
        default="facetline", pattern=r"^[a-zA-Z0-9._-]{1,200}$", description="first part of topic names"
    )
    partitions: int = Field(default=8, ge=1, le=10_000, description="partitions that `topics create` makes")
    replication_factor: int = Field(default=1, ge=1, le=32, description="copies that `topics create` makes")
    extra: dict[str, Any] = Field(default_factory=dict, description="more arguments for the Kafka client, as JSON")


class Settings(BaseSettings):
    """All settings of one process."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", env_file=".env", extra="forbid", frozen=True
    )

    config: Path = Field(default=Path(CONFIG_NAME), description="the file with collections and evaluators")
    data_folder: Path = Field(default=Path(".facetline"), description="where the local runtime keeps its data")
    store_url: SecretStr | None = Field(
        default=None, description="SQLAlchemy URL of the store of record; default: SQLite in the data folder"
    )
    store_connect_s: float = Field(
        default=5.0, ge=1, le=600, description="seconds that connecting to PostgreSQL may take, for each address"
    )
    store_statement_s: float = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="seconds that one statement may take on PostgreSQL, waits for locks included; 5 s later its"
        " connection is given up",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="warning", description="least level logged")
    log_format: Literal["auto", "text", "json"] = Field(default="auto", description="auto: text on a terminal")
    write_deadline_s: float = Field(default=5.0, gt=0, le=60, description="seconds a write may take to be acknowledged")
    grace_s: float = Field(default=10.0, ge=0, le=600, description="seconds that running calls get at stop")
    worker_http: str = Field(
        default="127.0.0.1:8090",
        description="host:port for a worker's /livez, /readyz and /metrics (port 0: a free one), or off",
    )
    hosts: tuple[str, ...] = Field(
        default=(), description="names (with port) that `serve` answers for, as JSON; none: any, where there are tokens"
    )
    origins: tuple[str, ...] = Field(
        default=(), description="origins whose pages may read what `serve` answers (CORS), as JSON"
    )
    agent_tools: tuple[Literal["sql", "write", "delete", "reindex"], ...] = Field(
        default=(), description="what agents may do beside reading, as JSON: sql, write, delete, reindex"
    )
    url: str | None = Field(default=None, description="address of a running `serve` that `mcp` and `tools` are to ask")
    token: SecretStr | None = Field(default=None, description="the token for that")
    export_folder: Path | None = Field(
        default=None, description="folder in which `serve` keeps a Parquet snapshot up to date; none: it does not"
    )
    export_every_s: float = Field(default=60.0, ge=1, le=86_400, description="seconds between two such snapshots")
    memo_rows_max: int = Field(default=1_000_000, ge=0, description="answers remembered; the oldest go first")
    calls: Literal["live", "record", "replay"] = Field(
        default="live",
        description="live: evaluators and embedders are called; replay: `calls_file` answers, nothing is called;"
        " record: what it lacks is called and added to it",
    )
    calls_file: Path = Field(default=Path("calls.ndjson"), description="the file of recorded calls")
    kafka: KafkaSettings = Field(default_factory=KafkaSettings, description="the Kafka runtime")

    @field_validator("store_url")
    @classmethod
    def _check_store_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            check_store_url(url.get_secret_value())
        return url

    @field_validator("worker_http")
    @classmethod
    def _check_address(cls, text: str) -> str:
        listen_address(text)
        return text

    @property
    def runtime(self) -> Literal["local", "kafka"]:
        """Which runtime is in force."""
        return "kafka" if self.kafka.bootstrap_servers else "local"

    @property
    def store(self) -> str:
        """The store's URL, password and all."""
        if self.store_url is not None:
            return self.store_url.get_secret_value()
        return f"sqlite:///{self.data_folder.resolve() / 'facetline.db'}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Put `[settings]` of the configuration file last."""
        dotenv = _OwnDotEnv(settings_cls) if isinstance(dotenv_settings, DotEnvSettingsSource) else dotenv_settings
        earlier = (init_settings, env_settings, dotenv, file_secret_settings)
        return (*earlier, _FileTable(settings_cls, earlier))


class _OwnDotEnv(DotEnvSettingsSource):
    """`.env` without the lines that are for other programs; a misspelt name of ours is still refused."""

    def __call__(self) -> dict[str, Any]:
        found = super().__call__()
        prefix = Settings.model_config["env_prefix"].lower()
        return {
            name: value for name, value in found.items() if name in Settings.model_fields or name.startswith(prefix)
        }


class _FileTable(PydanticBaseSettingsSource):
    """`[settings]` of the file that the earlier sources name."""

    def __init__(self, settings_cls: type[BaseSettings], earlier: tuple[PydanticBaseSettingsSource, ...]) -> None:
        super().__init__(settings_cls)
        self._earlier = earlier

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002 (pydantic's shape)
        """Not used: the table is taken whole."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        named = [source()["config"] for source in self._earlier if "config" in source()]
        table = read_file(Path(named[0]) if named else Path(CONFIG_NAME)).get("settings", {})
        return table if isinstance(table, dict) else {"settings": table}


STORE_FORMS = "postgresql+psycopg://user:password@host:5432/database, or sqlite:///folder/file.db"


def check_store_url(url: str) -> None:
    """Refuse what is no address of a store; what it holds is not repeated, for it may be a password.

    Raises:
        ValueError: saying which form is taken.
    """
    scheme, colon, rest = url.partition("://")
    if not colon or not scheme:
        raise ValueError(f"it is no URL; write {STORE_FORMS}")
    if scheme in {"postgres", "postgresql"}:
        raise ValueError(f"{scheme}:// names no driver; write postgresql+psycopg:// and leave the rest as it is")
    if scheme not in {"postgresql+psycopg", "sqlite"}:
        raise ValueError(f"its scheme is of no store that we know; write {STORE_FORMS}")
    if scheme == "sqlite" and (not rest.startswith("/") or not rest.strip("/")):
        raise ValueError(f"it names no file: three slashes and a path; write {STORE_FORMS}")
    if scheme == "postgresql+psycopg":
        try:
            _ = urlsplit(url).port
        except ValueError:
            raise ValueError(f"host and port cannot be read; write {STORE_FORMS}") from None


def listen_address(text: str) -> tuple[str, int] | None:
    """Return host and port to listen on; None for `off`.

    Raises:
        ValueError: it is neither.
    """
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ValueError("give host:port, such as 127.0.0.1:8090 or [::1]:8090, or off")
    return host, int(port)


def read_file(path: Path) -> dict[str, Any]:
    """Return the parsed configuration file, empty where there is none.

    Raises:
        InvalidSettings: the file is not TOML, or cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidSettings(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise errors.InvalidSettings(f"{path} is not valid TOML: {error}") from error
    except RecursionError:
        raise errors.InvalidSettings(f"{path} is nested too deeply to be read; settings have a few levels") from None


def load_settings(**given: Any) -> Settings:
    """Return the settings in force; `given` are those named on the command line, None where they were not.

    Raises:
        InvalidSettings: naming each wrong setting and where it can be set.
    """
    _check_environment()
    named = {name: value for name, value in given.items() if value is not None}
    try:
        found = Settings(**named)
    except ValidationError as error:
        raise errors.InvalidSettings("\n".join(_problems(error))) from error
    except SettingsError as error:  # not from it: the parser's words hold the value
        raise errors.InvalidSettings(f"{error}: give it as JSON") from None
    secrets = [*_secrets(found), *_secrets(found.kafka)]
    masking.remember([{"secret": secrets}, {"store_url": found.store}, found.model_dump(mode="json")])
    return found


def _secrets(settings: BaseModel) -> list[str]:
    given = (getattr(settings, name) for name in type(settings).model_fields if name != "store_url")
    return [each.get_secret_value() for each in given if isinstance(each, SecretStr)]


def _check_environment() -> None:
    """Refuse a variable that is nearly a setting. Others with our prefix may be anybody's: Kubernetes makes such for
    a service of our name.
    """
    own = PREFIX.lower()
    given = sorted(name for name in os.environ if name.lower().startswith(own))
    known = [*Settings.model_fields, *(f"kafka__{name}" for name in KafkaSettings.model_fields)]
    problems = []
    for variable in given:
        name = variable.lower().removeprefix(own)
        close = difflib.get_close_matches(name, known, n=1, cutoff=NEARLY)
        if close and close[0] != name:
            problems.append(
                f"environment {variable}: there is no such setting; did you mean {PREFIX}{close[0].upper()}?"
            )
    if problems:
        raise errors.InvalidSettings("\n".join(problems))


def _problems(error: ValidationError) -> list[str]:
    found = []
    for problem in error.errors(include_url=False, include_input=False):
        where = [str(part).removeprefix("facetline_") for part in problem["loc"]]
        variable = PREFIX + "__".join(where).upper()
        message = validation_messages.message_of(problem)
        if problem["type"] == "extra_forbidden":
            *tables, name = where
            message = f"there is none of that name{errors.nearest(name, _names(tables))}"
        found.append(f"setting {'.'.join(where)}: {message} (environment {variable}, or [settings] in the file)")
    return found


def _names(tables: list[str]) -> list[str]:
    """Return the settings of a table: those of Kafka, or the ones that stand alone."""
    return list((KafkaSettings if tables == ["kafka"] else Settings).model_fields)
