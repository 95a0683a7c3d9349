"""A real Kafka node for tests, run by the scripts of deploy/kafka; processes are reached by pid only."""

import os
import signal
import subprocess
from pathlib import Path

import freezing

SCRIPTS = Path(__file__).resolve().parents[2] / "deploy" / "kafka"
# `start` gives the node 120 s, after fetching the jars once a machine.
START_LIMIT_S = 300
STOP_LIMIT_S = 60
NOTHING_TO_RUN = 3
# Half the processor time of a start: a test's node never lives long enough for the second compiler to pay.
QUICK_START = {"KAFKA_JAVA_OPTS": "-XX:TieredStopAtLevel=1"}


class MissingKafka(Exception):
    """Kafka cannot be run here; the message says what to install."""


class Broker:
    """One node with its own data folder. It keeps its port and its topics over stop, kill and start.

    Methods block for up to a few seconds; tests with an event loop call them in a thread.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bootstrap = ""

    def start(self) -> str:
        """Start the node, wait until it takes clients, and return the bootstrap address.

        Raises MissingKafka without Java, Maven or the jars, RuntimeError with the log's end when the node fails.
        """
        port = ["--port", self.bootstrap.rpartition(":")[2]] if self.bootstrap else []
        done = subprocess.run(
            [SCRIPTS / "start", "--data", self.folder, *port],
            env=os.environ | QUICK_START,
            capture_output=True,
            text=True,
            timeout=START_LIMIT_S,
            check=False,
        )
        if done.returncode == NOTHING_TO_RUN:
            raise MissingKafka(done.stderr.strip().splitlines()[-1])
        if done.returncode != 0:
            raise RuntimeError(f"Kafka did not start:\n{done.stderr}")
        self.bootstrap = done.stdout.split()[-1]
        return self.bootstrap

    def stop(self) -> None:
        """Stop the node in order; does nothing when none runs. A paused one is resumed first, so that it can."""
        if (self.folder / "pid").exists():
            self._send(signal.SIGCONT)
        subprocess.run([SCRIPTS / "stop", "--data", self.folder], timeout=STOP_LIMIT_S, check=True, capture_output=True)

    def kill(self) -> None:
        """End the node at once (SIGKILL); `start` brings it back on the same port with what it had written."""
        self._send(signal.SIGKILL)

    def pause(self) -> None:
        """Let the node hang (SIGSTOP): connections stay open and nothing is answered until `resume`."""
        freezing.freeze(self.pid)

    def resume(self) -> None:
        """Let a paused node go on."""
        self._send(signal.SIGCONT)

    @property
    def pid(self) -> int:
        """The node's process id."""
        return int((self.folder / "pid").read_text())

    def _send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
