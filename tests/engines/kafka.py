"""A Kafka broker on loopback, and the Java service that lends Beam's Kafka connector to Python."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from tests.engines.cache import JARS, OPENS, QUICK, jars, program
from tests.engines.processes import Group, free_ports

TOPIC = "answers"
PARTITIONS = 2
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
CONFIGURATION = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/kafka
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
# How each engine runs the connector. Flink reads itself, with offsets in its checkpoints, and runs
# what else is Java in its own processes; the others ask the service for a Java worker.
BY_FLINK = ("--experiments=use_deprecated_read", "--defaultEnvironmentType=EMBEDDED")
BY_THE_SERVICE = ("--experiments=use_unbounded_sdf_wrapper", "--alsoStartLoopbackWorker=true")


@dataclass(frozen=True)
class Kafka:
    """What runs.

    Attributes:
        broker: `host:port` of the broker, which has the topic `TOPIC`.
        expansion_service: `host:port` of the service that expands the connector.
    """

    broker: str
    expansion_service: str


def start(group: Group, how: tuple[str, ...]) -> Kafka:
    """Start both.

    Args:
        group: where they belong.
        how: `BY_FLINK` or `BY_THE_SERVICE`.
    """
    broker, controller, expansion = free_ports(3)
    configuration = group.folder / "kafka.properties"
    configuration.write_text(
        CONFIGURATION.format(broker=broker, controller=controller, folder=group.folder)
    )
    _run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(configuration))
    group.start("broker", [*_java("kafka"), JARS["kafka"][1], str(configuration)], broker)
    address = f"127.0.0.1:{broker}"
    topic = ["--create", "--topic", TOPIC, "--partitions", str(PARTITIONS)]
    _run("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, *topic)
    # Who runs the connector has its jars: the client need not carry them there (a small file does).
    staged = f"--filesToStage={configuration}"
    service = [JARS["kafka-connector"][1], str(expansion), *how, staged]
    service = [*_java("kafka-connector"), *service]
    group.start("expansion-service", service, expansion)
    return Kafka(address, f"localhost:{expansion}")


def producer(group: Group, kafka: Kafka) -> subprocess.Popen[bytes]:
    """A program that sends each line `KEY,VALUE` of its input as a message."""
    where = ["--bootstrap-server", kafka.broker, "--topic", TOPIC]
    keys = ["--property", "parse.key=true", "--property", "key.separator=,"]
    command = [*_java("kafka"), "kafka.tools.ConsoleProducer", *where, *keys]
    with group.log("producer").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)


def _run(main_class: str, *arguments: str) -> None:
    command = [*_java("kafka"), main_class, *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=180)


def _java(name: str) -> list[str]:
    where = f"{jars(name)}/*"
    return [program("java", "run Kafka"), "-Xmx512m", *QUICK, *OPENS, "-cp", where]
