"""A Kafka node in a container, for tests: through testcontainers, where a Docker daemon answers and has the image."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import loopback

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

ADDRESS_VARIABLE = "FACETLINE_TEST_KAFKA"
IMAGE_VARIABLE = "FACETLINE_TEST_KAFKA_IMAGE"
OFFICIAL_IMAGE = "apache/kafka:4.3.1"
SOCKET = "/var/run/docker.sock"
# A daemon on this machine answers at once or not at all.
PING_LIMIT_S = 2.0
# As long as the native node is given.
START_LIMIT_S = 120
TRIES = 3

SETTINGS = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    # The node talks to itself, too (transactions), and the port that clients are told is not there inside.
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://localhost:9093,INSIDE://localhost:9094",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT",
    "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "5",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "5",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_HEAP_OPTS": "-Xms128m -Xmx512m",
    "KAFKA_OPTS": "-XX:TieredStopAtLevel=1",
}
"""What the scripts of deploy/kafka give the native node."""


class NoContainer(Exception):
    """No container can be had without fetching anything; the message says why."""


def choice() -> str:
    """Say which Kafka the tests share: an address that was given, a container, or the node of deploy/kafka."""
    if os.environ.get(ADDRESS_VARIABLE):
        return f"at {os.environ[ADDRESS_VARIABLE]}, named by {ADDRESS_VARIABLE}"
    try:
        return f"a container of {usable_image()}"
    except NoContainer as error:
        return f"the native node ({error})"


def demanded() -> bool:
    """Whether a container was asked for by the name of an image: then nothing else will do."""
    return bool(os.environ.get(IMAGE_VARIABLE))


def usable_image() -> str:
    """Return the image to start. Nothing is fetched, and where no daemon answers this takes no time.

    Raises:
        NoContainer: switched off by an empty variable, no daemon, or a daemon without the image.
    """
    image = os.environ.get(IMAGE_VARIABLE, OFFICIAL_IMAGE)
    if not image:
        raise NoContainer(f"{IMAGE_VARIABLE} is empty")
    _check_answers(os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}")
    import docker  # tenths of a second, for those who have a daemon

    client = docker.from_env(timeout=START_LIMIT_S)
    try:
        client.images.get(image)
    except docker.errors.ImageNotFound as error:
        raise NoContainer(f"Docker has no image {image}, and tests fetch none: docker pull {image}") from error
    except docker.errors.DockerException as error:
        raise NoContainer(f"Docker does not answer: {error}") from error
    finally:
        client.close()
    return image


@contextlib.contextmanager
def running(image: str) -> Iterator[str]:
    """Run one node until the end of the block; gives its bootstrap address, on loopback."""
    from docker.errors import APIError

    for tries_left in reversed(range(TRIES)):
        (port,) = loopback.free_ports(1)
        node = _node(image, port)
        try:
            node.start()
        except APIError as error:
            node.stop()
            if not tries_left or "already" not in str(error):  # in use, or allocated to another container
                raise
        except BaseException:
            node.stop()
            raise
        else:
            break
    try:
        yield f"127.0.0.1:{port}"
    finally:
        node.stop()


def _node(image: str, port: int) -> "DockerContainer":
    """Return a container to start. Its clients are told the address in its settings, so the port is chosen before."""
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    # Its cleaner is one more image to fetch. `running` removes the container, also after a failure.
    testcontainers_config.ryuk_disabled = True
    advertised = f"PLAINTEXT://127.0.0.1:{port},INSIDE://localhost:9094"
    node = DockerContainer(image, env={**SETTINGS, "KAFKA_ADVERTISED_LISTENERS": advertised})
    node.ports["9092/tcp"] = ("127.0.0.1", port)  # its methods would publish the port to everybody
    return node.waiting_for(LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(START_LIMIT_S))


def _check_answers(address: str) -> None:
    at = urlsplit(address)
    if at.scheme == "unix":
        if not Path(at.path).exists():
            raise NoContainer(f"no Docker daemon at {at.path}")
        connection, target = socket.socket(socket.AF_UNIX), at.path
    elif at.hostname in {"127.0.0.1", "localhost"}:
        connection, target = socket.socket(), (at.hostname, at.port or 2375)
    else:
        raise NoContainer(f"DOCKER_HOST={address} is not on this machine, so its ports are not reached on loopback")
    with connection:
        connection.settimeout(PING_LIMIT_S)
        try:
            connection.connect(target)
            connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            answer = connection.recv(64)
        except OSError as error:
            raise NoContainer(f"no Docker daemon answers at {address}: {error}") from error
    if not answer.startswith(b"HTTP/") or b" 200 " not in answer:
        raise NoContainer(f"what answers at {address} is no Docker daemon")
