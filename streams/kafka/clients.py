"""Kafka settings to the arguments of aiokafka's clients: addresses, security, limits, and what users add in `extra`.

Every client of the product is made from these, Faust's consumer too, so all of them connect in the same way. `extra`
wins over everything except the arguments that our promises rest on; those are refused by name.
"""

import asyncio
import importlib.util
import inspect
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from facetline.facets import errors
from facetline.streams.kafka import header_decoding
from facetline.streams.settings import KafkaSettings

RECORD_BYTES_MAX = 4 * 1024 * 1024
"""Largest record in a topic: a body of 512 KiB and a state of 64 KiB as JSON may reach 3.6 MB."""
DEAD_LETTER_BYTES_MAX = RECORD_BYTES_MAX + 64 * 1024
"""A dead letter is the largest record plus the headers that say what was wrong with it."""
REQUEST_MS = 10_000
"""How long a broker may take for one request; far longer than the half second that a fetch waits for data."""

CUT_OFF_S = 1.0

KEPT = (
    *("acks", "auto_offset_reset", "bootstrap_servers", "enable_auto_commit", "enable_idempotence", "group_id"),
    *("isolation_level", "key_deserializer", "key_serializer", "loop", "partitioner", "transactional_id"),
    *("value_deserializer", "value_serializer"),
)
"""Arguments that `extra` may not change: order, delivery and identity rest on them."""

USER_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
KERBEROS = "GSSAPI"


def client_arguments(settings: KafkaSettings) -> dict[str, Any]:
    """Return what every kind of client takes: addresses, names and security.

    Raises:
        InvalidSettings: naming the setting and what to do.
    """
    if not settings.bootstrap_servers:
        raise errors.InvalidSettings(
            "kafka.bootstrap_servers is not set; set FACETLINE_KAFKA__BOOTSTRAP_SERVERS=host:port"
        )
    check_extra(settings.extra)
    return {
        "bootstrap_servers": [address.strip() for address in settings.bootstrap_servers.split(",")],
        "client_id": settings.client_id,
        "request_timeout_ms": REQUEST_MS,
        "security_protocol": settings.security_protocol,
        **_sasl(settings),
        **_ssl(settings),
    }


def consumer_arguments(settings: KafkaSettings, **own: Any) -> dict[str, Any]:
    """Return the arguments of an `AIOKafkaConsumer`; `own` win over the defaults, `extra` over both."""
    given = {
        "isolation_level": "read_committed",
        "enable_auto_commit": False,
        "max_partition_fetch_bytes": RECORD_BYTES_MAX,
        **own,
    }
    return {**client_arguments(settings), **given, **_extra_for(aiokafka.AIOKafkaConsumer, settings)}


def make_consumer(settings: KafkaSettings, **own: Any) -> aiokafka.AIOKafkaConsumer:
    """Make a consumer that no record can stop."""
    header_decoding.install()
    return aiokafka.AIOKafkaConsumer(**consumer_arguments(settings, **own))


def producer_arguments(settings: KafkaSettings, **own: Any) -> dict[str, Any]:
    """Return the arguments of an `AIOKafkaProducer`; `own` win over the defaults, `extra` over both."""
    given = {"acks": "all", "enable_idempotence": True, "max_request_size": RECORD_BYTES_MAX, **own}
    return {**client_arguments(settings), **given, **_extra_for(aiokafka.AIOKafkaProducer, settings)}


def admin_arguments(settings: KafkaSettings) -> dict[str, Any]:
    """Return the arguments of an `AIOKafkaAdminClient`."""
    return {**client_arguments(settings), **_extra_for(AIOKafkaAdminClient, settings)}


def check_extra(extra: dict[str, Any]) -> None:
    """Refuse names in `extra` that no client takes, or that our promises rest on.

    Raises:
        InvalidSettings: naming the first such name.
    """
    known = set().union(*(_names(kind) for kind in (aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer)))
    for name in sorted(extra):
        if name in KEPT:
            raise errors.InvalidSettings(f"kafka.extra: {name} cannot be changed, delivery rests on it; leave it out")
        if name not in known:
            raise errors.InvalidSettings(f"kafka.extra: aiokafka takes no {name!r}{errors.nearest(name, known)}")


async def stop_within(client: Any, limit_s: float) -> bool:
    """Stop an aiokafka client; after `limit_s` cut it off: a broker that is away must not hold up our own end.

    Returns:
        Whether it stopped in order: with everything sent, and the group left.
    """
    try:
        async with asyncio.timeout(limit_s):
            await client.stop()
    except (KafkaError, OSError, TimeoutError):
        await _cut_off(client)
        return False
    except asyncio.CancelledError:
        # aiokafka 0.14 lets one out that is its own, when a fetch has been begun but has not run yet.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        await _cut_off(client)
        return False
    return True


async def _cut_off(client: Any) -> None:
    """Close the sockets and end the tasks that a broken-off `stop` of aiokafka 0.14 leaves behind."""
    network = getattr(client, "_client", None) or client.client
    coordinator, fetcher = getattr(client, "_coordinator", None), getattr(client, "_fetcher", None)
    left = (
        getattr(getattr(client, "_sender", None), "sender_task", None),
        *(getattr(coordinator, name, None) for name in ("_coordination_task", "_heartbeat_task")),
        getattr(fetcher, "_fetch_task", None),
    )
    tasks = {task for task in left if task is not None and not task.done()}
    for task in tasks:
        task.cancel()
    await network.close()  # what the tasks wait for ends with it
    if tasks:
        await asyncio.wait(tasks, timeout=CUT_OFF_S)
    await network.close()


def _names(kind: type[Any]) -> set[str]:
    return set(inspect.signature(kind.__init__).parameters) - {"self", "topics"}


def _extra_for(kind: type[Any], settings: KafkaSettings) -> dict[str, Any]:
    taken = _names(kind)
    return {name: value for name, value in settings.extra.items() if name in taken}


def _sasl(settings: KafkaSettings) -> dict[str, Any]:
    if not settings.security_protocol.startswith("SASL"):
        _unused(settings, ("sasl_mechanism", "sasl_username", "sasl_password"), "SASL_SSL or SASL_PLAINTEXT")
        return {}
    mechanism = settings.sasl_mechanism
    if mechanism is None:
        raise errors.InvalidSettings(
            f"kafka.security_protocol is {settings.security_protocol} and kafka.sasl_mechanism is not set;"
            f" set it to one of {', '.join((*USER_MECHANISMS, KERBEROS))}"
        )
    if mechanism == KERBEROS:
        return _kerberos()
    if mechanism not in USER_MECHANISMS:
        raise errors.InvalidSettings(
            f"kafka.sasl_mechanism {mechanism!r} is not supported; use one of {', '.join((*USER_MECHANISMS, KERBEROS))}"
        )
    if settings.sasl_username is None or settings.sasl_password is None:
        raise errors.InvalidSettings(f"{mechanism} needs both kafka.sasl_username and kafka.sasl_password")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": settings.sasl_username,
        "sasl_plain_password": settings.sasl_password.get_secret_value(),
    }


def _kerberos() -> dict[str, Any]:
    if importlib.util.find_spec("gssapi") is None:
        raise errors.InvalidSettings("kafka.sasl_mechanism GSSAPI needs the Python package gssapi; install it")
    return {"sasl_mechanism": KERBEROS}


def _ssl(settings: KafkaSettings) -> dict[str, Any]:
    names = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location", "ssl_key_password")
    if not settings.security_protocol.endswith("SSL"):
        _unused(settings, names, "SSL or SASL_SSL")
        return {}
    return {"ssl_context": ssl_context(settings)}


def ssl_context(settings: KafkaSettings) -> ssl.SSLContext:
    """Build the context from the files named; the brokers' certificates and host names are always checked.

    Raises:
        InvalidSettings: a file is missing or is not what it should be.
    """
    _check_files(settings, ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location"))
    if settings.ssl_key_location and not settings.ssl_certificate_location:
        raise errors.InvalidSettings("kafka.ssl_key_location needs kafka.ssl_certificate_location")
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_location)
    except ssl.SSLError as error:
        raise errors.InvalidSettings(f"kafka.ssl_ca_location holds no certificate in PEM form: {error}") from error
    if settings.ssl_certificate_location:
        # Without a password given, OpenSSL would ask on the terminal: an empty one makes it fail instead.
        password = settings.ssl_key_password.get_secret_value() if settings.ssl_key_password else ""
        try:
            context.load_cert_chain(settings.ssl_certificate_location, settings.ssl_key_location, password)
        except ssl.SSLError as error:
            raise errors.InvalidSettings(
                f"kafka.ssl_certificate_location, ssl_key_location and ssl_key_password do not go together: {error}"
            ) from error
    return context


def _check_files(settings: KafkaSettings, names: Iterable[str]) -> None:
    for name in names:
        path = getattr(settings, name)
        if path is not None and not Path(path).is_file():
            raise errors.InvalidSettings(f"kafka.{name}: there is no file {path}")


def _unused(settings: KafkaSettings, names: Iterable[str], needed: str) -> None:
    """Refuse settings that would silently do nothing: someone thinks that the connection is secured."""
    for name in names:
        if getattr(settings, name) is not None:
            raise errors.InvalidSettings(
                f"kafka.{name} is set but kafka.security_protocol is {settings.security_protocol}; set it to {needed}"
            )
