"""A container for tests is taken only where a daemon on this machine answers and has the image; else it says why.

Method: a small server stands in for the Docker daemon on a unix socket.
"""

import http.server
import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import kafka_container
import pytest

IMAGE = "example/kafka:1"


class Daemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers pings and questions about images; keeps the paths that were asked for."""

    daemon_threads = True
    healthy = True

    def __init__(self, path: Path, images: set[str]) -> None:
        super().__init__(str(path), Answer)
        self.images = images
        self.asked: list[str] = []


class Answer(http.server.BaseHTTPRequestHandler):
    """One request to the daemon."""

    server: Daemon

    def do_GET(self) -> None:
        """Answer as Docker does."""
        self.server.asked.append(f"{self.command} {self.path}")
        name = self.path.partition("/images/")[2].removesuffix("/json")
        if self.path.endswith("/version"):
            self.say(200, {"ApiVersion": "1.45"})
        elif self.path.endswith("/_ping"):
            self.say(200 if self.server.healthy else 500, {})
        elif name in self.server.images:
            self.say(200, {"Id": f"sha256:{name}", "RepoTags": [name]})
        else:
            self.say(404, {"message": f"No such image: {name}"})

    def do_POST(self) -> None:
        """Nothing is ever made here."""
        self.server.asked.append(f"{self.command} {self.path}")
        self.say(500, {"message": "refused"})

    def say(self, status: int, body: object) -> None:
        """Send JSON."""
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def address_string(self) -> str:
        """A unix socket has no address."""
        return "unix"

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A daemon that has the image, named by DOCKER_HOST; no variable of the caller's is in force."""
    monkeypatch.delenv(kafka_container.ADDRESS_VARIABLE, raising=False)
    monkeypatch.setenv(kafka_container.IMAGE_VARIABLE, IMAGE)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'docker.sock'}")
    with Daemon(tmp_path / "docker.sock", {IMAGE}) as made:
        threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield made
        made.shutdown()


def test_an_image_that_is_there_is_used(daemon: Daemon):
    """Where a daemon answers and has the image, the tests' Kafka is a container of it."""
    assert kafka_container.usable_image() == IMAGE
    assert kafka_container.choice() == f"a container of {IMAGE}"


def test_a_missing_image_is_not_fetched(daemon: Daemon):
    """Without the image the reason names it and how to get it, and the daemon is asked for nothing but to look."""
    daemon.images.clear()

    with pytest.raises(kafka_container.NoContainer, match=f"docker pull {IMAGE}"):
        kafka_container.usable_image()

    assert daemon.asked
    assert all(each.startswith("GET ") for each in daemon.asked)


def test_a_daemon_that_is_unwell_is_passed_over(daemon: Daemon):
    """What answers but not as a well daemon is named, and the native node takes over."""
    daemon.healthy = False

    assert kafka_container.choice().startswith("the native node (what answers at ")


def test_an_empty_name_means_no_container(daemon: Daemon, monkeypatch: pytest.MonkeyPatch):
    """The variable set to nothing switches containers off without asking the daemon."""
    monkeypatch.setenv(kafka_container.IMAGE_VARIABLE, "")

    assert "is empty" in kafka_container.choice()
    assert not kafka_container.demanded()
    assert daemon.asked == []


def test_an_address_comes_first(daemon: Daemon, monkeypatch: pytest.MonkeyPatch):
    """A broker that the caller names is used although a container could be had."""
    monkeypatch.setenv(kafka_container.ADDRESS_VARIABLE, "127.0.0.1:9092")

    assert kafka_container.choice() == "at 127.0.0.1:9092, named by FACETLINE_TEST_KAFKA"


def test_a_daemon_elsewhere_is_passed_over(monkeypatch: pytest.MonkeyPatch):
    """A daemon of another machine would publish its ports there; it is named and not connected to."""
    monkeypatch.delenv(kafka_container.IMAGE_VARIABLE, raising=False)
    monkeypatch.setenv("DOCKER_HOST", "tcp://docker.example.org:2375")

    with pytest.raises(kafka_container.NoContainer, match=r"docker\.example\.org.* is not on this machine"):
        kafka_container.usable_image()


def test_no_daemon_costs_nothing(tmp_path: Path):
    """Where no daemon listens the Docker client is not even imported."""
    script = "import kafka_container, sys; print(kafka_container.choice()); print('docker' in sys.modules)"
    folder = str(Path(kafka_container.__file__).parent)
    environment = {"PYTHONPATH": folder, "DOCKER_HOST": f"unix://{tmp_path / 'none.sock'}"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.splitlines() == [f"the native node (no Docker daemon at {tmp_path / 'none.sock'})", "False"]
