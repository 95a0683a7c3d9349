"""What a worker says when it is ready, by a real command on a real Kafka and PostgreSQL."""

import time
from pathlib import Path

import pytest
import runtimes
from commands import finish

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.timeout(180)]

LIMIT_S = 60.0


@pytest.mark.parametrize("level", ["warning", "info"])
def test_a_worker_says_once_when_it_is_ready(tmp_path: Path, request: pytest.FixtureRequest, level: str):
    """One line, at any level: the topic and partitions, the store without its password, and where its health is."""
    with runtimes.made("kafka", tmp_path, request.getfixturevalue) as site:
        secret = site.place.settings["FACETLINE_STORE_URL"].replace("postgres@", "postgres:s3cret@")
        given = {"FACETLINE_LOG_LEVEL": level, "FACETLINE_STORE_URL": secret, "FACETLINE_WORKER_HTTP": "127.0.0.1:0"}
        path = tmp_path / "said"
        with path.open("w") as log:
            process = site.place.start("worker", settings=given, stderr=log)
            ends = time.monotonic() + LIMIT_S
            while not _lines(path) and process.poll() is None and time.monotonic() < ends:
                time.sleep(0.1)
            process.terminate()
            ended = finish(process)
        (line,) = _lines(path)

    assert ended.code == 0
    prefix = site.settings.kafka.topic_prefix
    for part in (f"{prefix}.documents.v1", "4 of 4 partitions", "PostgreSQL", "http://127.0.0.1:", "/readyz"):
        assert part in line
    assert "s3cret" not in path.read_text()


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if "worker_ready" in line or "worker ready" in line]
