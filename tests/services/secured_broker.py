"""A real Kafka node that takes nobody without TLS: one listener wants a user and a password, one a certificate."""

import asyncio
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import kafka_broker
import loopback
from polling import eventually

USER, PASSWORD = "facetline", "open-sesame"
JAVA = ("java", "-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_S = 60.0
STOP_S = 30.0


@dataclass(frozen=True)
class SecuredBroker:
    """Addresses of a running node, and the files that a client needs."""

    password: str
    certificate: str
    folder: Path

    def settings(self, mechanism: str | None) -> dict[str, str]:
        """Settings of a client with a user and a password, or (None) with a certificate of its own."""
        given = {"SSL_CA_LOCATION": str(self.folder / "ca.pem")}
        if mechanism is None:
            given |= {
                "BOOTSTRAP_SERVERS": self.certificate,
                "SECURITY_PROTOCOL": "SSL",
                "SSL_CERTIFICATE_LOCATION": str(self.folder / "client.pem"),
                "SSL_KEY_LOCATION": str(self.folder / "client.key"),
            }
        else:
            given |= {
                "BOOTSTRAP_SERVERS": self.password,
                "SECURITY_PROTOCOL": "SASL_SSL",
                "SASL_MECHANISM": mechanism,
                "SASL_USERNAME": USER,
                "SASL_PASSWORD": PASSWORD,
            }
        return {f"FACETLINE_KAFKA__{name}": value for name, value in given.items()}


@contextmanager
def running(folder: Path) -> Iterator[SecuredBroker]:
    """Run a node in a folder.

    Raises:
        MissingKafka: without Java, Maven or the jars.
    """
    jars = _jars()
    _certificates(folder)
    ports = loopback.free_ports(4)
    properties = folder / "server.properties"
    properties.write_text(_properties(folder, *ports))
    scram = [f"--add-scram={each}=[name={USER},password={PASSWORD}]" for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    classes = ("-cp", f"{jars}/*")
    format_ = ("kafka.tools.StorageTool", "format", "-t", uuid.uuid4().hex[:22], "-c", str(properties), *scram)
    subprocess.run([*JAVA, *classes, *format_], check=True, capture_output=True)
    log = folder / "server.log"
    with log.open("wb") as out:
        log4j = f"-Dlog4j2.configurationFile={kafka_broker.SCRIPTS / 'log4j2.xml'}"
        node = subprocess.Popen([*JAVA, log4j, *classes, "kafka.Kafka", str(properties)], stdout=out, stderr=out)
    try:

        def started() -> bool:
            assert node.poll() is None, log.read_text()[-4000:]
            return b"Kafka Server started" in log.read_bytes()

        asyncio.run(eventually(started, deadline_s=START_S, what="the secured node has started"))
        yield SecuredBroker(f"127.0.0.1:{ports[1]}", f"127.0.0.1:{ports[2]}", folder)
    finally:
        node.terminate()
        try:
            node.wait(STOP_S)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()


def _jars() -> Path:
    start = kafka_broker.SCRIPTS / "start"
    limit_s = kafka_broker.START_LIMIT_S
    done = subprocess.run([start, "--fetch"], capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode != 0:
        raise kafka_broker.MissingKafka(done.stderr.strip().splitlines()[-1])
    whole = [path for path in (kafka_broker.SCRIPTS / "jars").iterdir() if ".part" not in path.name]
    return max(whole, key=lambda path: path.stat().st_mtime)


def _properties(folder: Path, internal: int, password: int, certificate: int, controller: int) -> str:
    listeners = f"INTERNAL://127.0.0.1:{internal},PASSWORD://127.0.0.1:{password},CERTIFICATE://127.0.0.1:{certificate}"
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
listener.security.protocol.map=INTERNAL:PLAINTEXT,PASSWORD:SASL_SSL,CERTIFICATE:SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=INTERNAL
listener.name.password.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.password.plain.sasl.jaas.config={plain}
listener.name.password.scram-sha-256.sasl.jaas.config={scram}
listener.name.password.scram-sha-512.sasl.jaas.config={scram}
listener.name.certificate.ssl.client.auth=required
ssl.keystore.type=PEM
ssl.keystore.location={folder / "broker-chain.pem"}
ssl.truststore.type=PEM
ssl.truststore.location={folder / "ca.pem"}
log.dirs={folder / "logs"}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def _certificates(folder: Path) -> None:
    """Make an authority, and a certificate from it for the broker (for 127.0.0.1) and one for its clients."""
    _openssl(folder, "ca", "/CN=authority")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key")
    _openssl(folder, "broker", "/CN=broker", *signed, "-addext", "subjectAltName=IP:127.0.0.1")
    _openssl(folder, "client", "/CN=client", *signed)
    chain = "".join((folder / f"broker.{part}").read_text() for part in ("key", "pem"))
    (folder / "broker-chain.pem").write_text(chain)


def _openssl(folder: Path, name: str, subject: str, *more: str) -> None:
    words = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", subject)
    files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
    subprocess.run(["openssl", *words, *files, *more], cwd=folder, check=True, capture_output=True)
