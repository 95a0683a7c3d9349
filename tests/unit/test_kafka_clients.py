"""Kafka settings: what reaches the clients, what is refused and how it is said."""

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from facetline.facets import errors
from facetline.streams.kafka import clients, connection_check, faust_app
from facetline.streams.settings import KafkaSettings


def settings(**given: Any) -> KafkaSettings:
    """Settings that reach a broker, and what a test wants besides."""
    return KafkaSettings(bootstrap_servers="one:9092, two:9092", **given)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate and its key, which has a password."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "1", "-subj", "/CN=broker"),
            *("-passout", "pass:sesame", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    return folder


def test_addresses_are_taken_apart():
    """Several brokers are given with commas, spaces or not."""
    found = clients.client_arguments(settings())

    assert found["bootstrap_servers"] == ["one:9092", "two:9092"]
    assert found["security_protocol"] == "PLAINTEXT"


def test_no_address_is_refused_with_the_variable_to_set():
    """Without a broker the message names the setting's variable."""
    with pytest.raises(errors.InvalidSettings, match="FACETLINE_KAFKA__BOOTSTRAP_SERVERS"):
        clients.client_arguments(KafkaSettings())


@pytest.mark.parametrize("mechanism", clients.USER_MECHANISMS)
def test_user_and_password_reach_the_client(mechanism: str):
    """SASL names of librdkafka become aiokafka's."""
    found = clients.client_arguments(
        settings(
            security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_username="ann", sasl_password="sesame"
        )
    )

    assert found["sasl_mechanism"] == mechanism
    assert found["sasl_plain_username"] == "ann"
    assert found["sasl_plain_password"] == "sesame"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security_protocol": "SASL_PLAINTEXT"}, "sasl_mechanism is not set"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}, "not supported"),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "a"}, "sasl_password"),
        ({"sasl_username": "ann"}, "security_protocol is PLAINTEXT"),
        ({"ssl_ca_location": "ca.pem"}, "security_protocol is PLAINTEXT"),
        ({"security_protocol": "SSL", "ssl_ca_location": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"security_protocol": "SSL", "ssl_key_location": __file__}, "ssl_certificate_location"),
        ({"security_protocol": "SSL", "ssl_ca_location": __file__}, "PEM"),
        ({"extra": {"isolation_level": "read_uncommitted"}}, "cannot be changed"),
        ({"extra": {"metadata_max_age": 1}}, "metadata_max_age_ms"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(given: dict[str, Any], said: str):
    """Each wrong combination is refused before anything connects, naming the setting."""
    with pytest.raises(errors.InvalidSettings) as refused:
        clients.client_arguments(settings(**given))

    assert said in refused.value.message


async def test_a_certificate_that_is_gone_is_why_no_broker_is_reached():
    """What was right at the start and is not now is said in place of the broker's own reason, and raised by nobody."""
    gone = settings(security_protocol="SSL", ssl_ca_location="/nowhere/ca.pem")

    said = await connection_check.why_unreachable(gone)

    assert said == "kafka.ssl_ca_location: there is no file /nowhere/ca.pem"


def test_tls_context_checks_the_brokers_and_carries_our_certificate(certificate: Path):
    """The context verifies certificate and host name, and loads a key with its password."""
    found = clients.client_arguments(
        settings(
            security_protocol="SSL",
            ssl_ca_location=str(certificate / "cert.pem"),
            ssl_certificate_location=str(certificate / "cert.pem"),
            ssl_key_location=str(certificate / "key.pem"),
            ssl_key_password="sesame",
        )
    )["ssl_context"]

    assert found.verify_mode is ssl.CERT_REQUIRED
    assert found.check_hostname
    assert [dict(pair[0] for pair in ca["subject"])["commonName"] for ca in found.get_ca_certs()] == ["broker"]


@pytest.mark.parametrize("password", [None, "wrong"])
def test_a_wrong_key_password_is_refused_without_asking_or_showing_it(certificate: Path, password: str | None):
    """A key that cannot be opened is an error in the settings; no prompt, no secret in the message."""
    with pytest.raises(errors.InvalidSettings) as refused:
        clients.ssl_context(
            settings(
                security_protocol="SSL",
                ssl_certificate_location=str(certificate / "cert.pem"),
                ssl_key_location=str(certificate / "key.pem"),
                ssl_key_password=password,
            )
        )

    assert "ssl_key_password" in refused.value.message
    assert "wrong" not in refused.value.message


def test_extra_wins_and_reaches_only_the_clients_that_take_it():
    """An extra argument overrides ours, and a producer's is not given to a consumer."""
    given = settings(extra={"request_timeout_ms": 1234, "compression_type": "gzip"})
    producer = clients.producer_arguments(given)
    consumer = clients.consumer_arguments(given)

    assert producer["request_timeout_ms"] == consumer["request_timeout_ms"] == 1234
    assert producer["compression_type"] == "gzip"
    assert "compression_type" not in consumer


def test_delivery_rests_on_these_arguments():
    """Producers wait for every replica and are idempotent; consumers read only what was committed."""
    producer = clients.producer_arguments(settings())
    consumer = clients.consumer_arguments(settings())

    assert (producer["acks"], producer["enable_idempotence"]) == ("all", True)
    assert producer["max_request_size"] == clients.RECORD_BYTES_MAX
    assert (consumer["isolation_level"], consumer["enable_auto_commit"]) == ("read_committed", False)


def test_a_dead_workers_partitions_are_free_soon_enough() -> None:
    """What a killed worker holds is given to others early enough for work to go on within 15 s of the kill."""
    assert faust_app.HEARTBEAT_S * 3 <= faust_app.SESSION_S <= 10


class Leaking:
    """A client whose stop lets a cancellation out; its sockets are closed by `close`."""

    def __init__(self) -> None:
        self.client = self
        self.closed = 0

    async def stop(self) -> None:
        """End as if somebody had cancelled the caller."""
        raise asyncio.CancelledError

    async def close(self) -> None:
        """Count."""
        self.closed += 1


async def test_a_clients_own_cancellation_cancels_nobody_else():
    """What a client cancels of its own while it stops does not end the command; its sockets are closed all the same."""
    client = Leaking()

    assert await clients.stop_within(client, 1.0) is False
    assert client.closed > 0


async def test_a_real_cancellation_is_kept():
    """Who is cancelled while a client stops is cancelled."""

    class Slow(Leaking):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    stopping = asyncio.create_task(clients.stop_within(Slow(), 60.0))
    await asyncio.sleep(0)
    stopping.cancel()

    with pytest.raises(asyncio.CancelledError):
        await stopping
