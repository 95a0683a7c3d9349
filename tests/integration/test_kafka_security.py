"""Brokers that want TLS, and a password or a certificate: every client gets in, and what is refused is said clearly."""

import gc
import re
from collections.abc import Iterator
from pathlib import Path

import kafka_broker
import kafka_topics
import missing
import pytest
import runtimes
import secured_broker
from polling import eventually
from runtimes import Site
from secured_broker import SecuredBroker

from facetline.facets import errors
from facetline.streams.kafka import connection_check, topics

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    # aiokafka does not wait for the sockets of connections that were refused: they end with our loop, or after it.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WAIT_S = 5.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A node that all tests of this file share."""
    folder = tmp_path_factory.mktemp("secured")
    try:
        with secured_broker.running(folder) as made:
            yield made
    except kafka_broker.MissingKafka as error:
        missing.skip_or_fail(str(error))


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Have such sockets collected here, where the warning about them is expected."""
    yield
    gc.collect()


def _settings(node: SecuredBroker, mechanism: str | None, name: str) -> dict[str, str]:
    own = {"TOPIC_PREFIX": name, "GROUP_ID": name, "PARTITIONS": str(runtimes.PARTITIONS)}
    return {**node.settings(mechanism), **{f"FACETLINE_KAFKA__{key}": value for key, value in own.items()}}


async def test_a_write_becomes_facets_through_a_secured_broker(
    node: SecuredBroker, tmp_path_factory: pytest.TempPathFactory
):
    """Topics, producer, Faust's consumer, the log reader and the publisher all get through, and the answer is there."""
    site = Site("kafka", tmp_path_factory.mktemp("site"), _settings(node, "SCRAM-SHA-512", "whole"))
    kafka = site.settings.kafka
    await topics.create_topics(kafka)
    with site.worker():
        wrote = site.place.run("write", "notes/n1", "--body", "billing", "--wait", "answered", "--json")

        async def published() -> bool:
            return bool(await kafka_topics.contents(kafka, topics.topic_names("whole").facets, 100, deadline_s=2.0))

        await eventually(published, deadline_s=runtimes.ANSWERED_S, what="the facets are on their topic")

    assert wrote.code == 0, wrote.err + site.logs()
    assert wrote.json["facets"]["topic"]["choice"] == "billing"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", None])
async def test_each_way_in_is_open(node: SecuredBroker, mechanism: str | None, tmp_path: Path):
    """With a user and a password in each of the ways that need no Kerberos, and with a certificate."""
    settings = Site("kafka", tmp_path, _settings(node, mechanism, f"way-{mechanism}")).settings.kafka

    await topics.create_topics(settings)

    assert await connection_check.why_unreachable(settings) == ""


@pytest.mark.parametrize(
    ("mechanism", "wrong", "said"),
    [
        ("PLAIN", {"SASL_PASSWORD": "guessed"}, "kafka.sasl_password"),
        ("SCRAM-SHA-512", {"SASL_PASSWORD": "guessed"}, "kafka.sasl_password"),
        ("PLAIN", {"SSL_CA_LOCATION": None}, "kafka.ssl_ca_location"),
        ("PLAIN", {"BOOTSTRAP_SERVERS": "localhost"}, "host name"),
        (None, {"SSL_CERTIFICATE_LOCATION": None, "SSL_KEY_LOCATION": None}, "kafka.ssl_certificate_location"),
        ("PLAIN", {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SSL_CA_LOCATION": None}, "kafka.security_protocol"),
        ("PLAIN", {"BOOTSTRAP_SERVERS": "no-such-host.invalid"}, "no-such-host.invalid"),
    ],
    ids=["plain-password", "scram-password", "unknown-authority", "other-name", "no-certificate", "no-tls", "no-host"],
)
async def test_what_a_broker_refuses_is_said(
    node: SecuredBroker, mechanism: str | None, wrong: dict[str, str | None], said: str, tmp_path: Path
):
    """A wrong password, authority, name or protocol is reported with the setting to mend, never with the password."""
    given = _settings(node, mechanism, "refused")
    port = given["FACETLINE_KAFKA__BOOTSTRAP_SERVERS"].rpartition(":")[2]
    for name, value in wrong.items():
        setting = f"FACETLINE_KAFKA__{name}"
        given.pop(setting)
        if value is not None:
            given[setting] = f"{value}:{port}" if name == "BOOTSTRAP_SERVERS" else value

    with pytest.raises(errors.BrokerUnavailable, match=re.escape(said)) as caught:
        await topics.create_topics(Site("kafka", tmp_path, given).settings.kafka, wait_s=WAIT_S)

    assert not {secured_broker.PASSWORD, "guessed"} & set(str(caught.value).split())


def test_a_command_says_it(node: SecuredBroker, tmp_path: Path):
    """A write with a wrong password ends with 1 and the setting to mend."""
    given = _settings(node, "SCRAM-SHA-512", "refused") | {"FACETLINE_KAFKA__SASL_PASSWORD": "guessed"}
    done = Site("kafka", tmp_path, given).place.run("write", "notes/n1", "--body", "billing")

    assert done.code == 1
    assert "kafka.sasl_password" in done.err
