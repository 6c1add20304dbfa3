"""Real Beam engines for the tests: fetched into a cache, started on free loopback ports, ended.

Two engines besides the local runner: Prism (Go) and Spark embedded in Beam's job server (Java).
Both are reached as a *portable* runner; the Python workers run in the client's own process
(`LOOPBACK`), so a test's classes need not be installed anywhere.

    python -m tests.engines.servers fetch            # both, into the cache
    python -m tests.engines.servers start spark      # prints the Beam flags, stays until Ctrl-C

The cache is the folder named by `BEAM_LDP_ENGINES`, or `.engines` in the repository.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

ENGINES = ("prism", "spark")
PRISM_MODULE = "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"
SPARK_JAR = "beam-runners-spark-3-2.62.0.jar"
START_SECONDS = 90
ATTEMPTS = 3

# Spark reflects into the JDK; since Java 17 each package must be opened by name.
OPENED_PACKAGES = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
)


class EngineError(RuntimeError):
    """An engine could not be fetched or did not come up; the message says what to do."""


@dataclass(frozen=True)
class Engine:
    """A running job server.

    Attributes:
        name: `prism` or `spark`.
        job_endpoint: `host:port` on the loopback interface.
        process_id: the id it was started with; also its process group.
        log: where the server writes.
    """

    name: str
    job_endpoint: str
    process_id: int
    log: Path

    @property
    def options(self) -> list[str]:
        """The Beam flags that send a job to this engine."""
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self.job_endpoint}",
            "--environment_type=LOOPBACK",
            "--job_server_timeout=60",
        ]


def cache_folder() -> Path:
    """Where the engines are kept: `BEAM_LDP_ENGINES`, or `.engines` in the repository."""
    named = os.environ.get("BEAM_LDP_ENGINES")
    return Path(named) if named else Path(__file__).resolve().parents[2] / ".engines"


def _prism_binary() -> Path:
    return cache_folder() / "bin" / "prism"


def _spark_jars() -> Path:
    return cache_folder() / "spark" / "lib"


def is_fetched(name: str) -> bool:
    """Whether the cache holds this engine, whole."""
    found = {"prism": _prism_binary(), "spark": _spark_jars() / SPARK_JAR}
    return found[name].exists()


def _program(name: str, why: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise EngineError(f"`{name}` is not installed; it is needed to {why}")
    return path


def fetch(name: str) -> None:
    """Bring an engine into the cache; does nothing if it is there.

    It appears whole or not at all: it is fetched into a folder beside its place and then renamed.
    """
    if is_fetched(name):
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as temporary:
        if name == "prism":
            go = _program("go", "build Prism")
            command = [go, "install", PRISM_MODULE]
            target, fetched = _prism_binary(), Path(temporary) / "prism"
            environment = {**os.environ, "GOBIN": temporary, "GOFLAGS": "-modcacherw"}
        else:
            maven = _program("mvn", "fetch Spark's job server")
            target, fetched = _spark_jars(), Path(temporary) / "lib"
            pom = Path(__file__).with_name("spark-pom.xml")
            command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            command += [f"-DoutputDirectory={fetched}", "-DincludeScope=runtime"]
            environment = dict(os.environ)
        # The caller's folder may hold a go.mod or a .mvn of its own.
        done = subprocess.run(
            command, cwd=temporary, env=environment, timeout=1200, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise EngineError(f"fetching {name} failed: {' '.join(command[:3])} ...")
        target.parent.mkdir(parents=True, exist_ok=True)
        fetched.rename(target)


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _command(name: str, ports: list[int]) -> list[str]:
    job, artifact, expansion = ports
    if name == "prism":
        return [str(_prism_binary()), "--job_port", str(job), "--serve_http=false"]
    java = _program("java", "run Spark's job server")
    opens = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED_PACKAGES]
    return [
        java,
        "-Xmx2g",
        *opens,
        "-cp",
        f"{_spark_jars()}/*",
        "org.apache.beam.runners.spark.SparkJobServerDriver",
        "--job-host=localhost",
        f"--job-port={job}",
        f"--artifact-port={artifact}",
        f"--expansion-port={expansion}",
        "--spark-master-url=local[2]",
    ]


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("localhost", port), timeout=1):
            return True
    except OSError:
        return False


def _await_port(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(port):
            return True
        time.sleep(0.1)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group that we started: politely, then not."""
    for how, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue


@contextmanager
def running(name: str) -> Iterator[Engine]:
    """Start an engine, wait until it answers, and end it with everything it started.

    A Spark job server holds one job at a time, so a hung job blocks the next: start one per test
    module and give every client a time limit.

    Raises:
        ValueError: an engine of another name.
        EngineError: it is not fetched, or did not answer within 90 seconds in three attempts.
    """
    if name not in ENGINES:
        raise ValueError(f"name must be one of {', '.join(ENGINES)}, got {name!r}")
    if not is_fetched(name):
        raise EngineError(f"{name} is not in the cache; run `make engines`")
    with tempfile.TemporaryDirectory(prefix=f"beam-ldp-{name}-") as folder:
        log = Path(folder) / "server.log"
        # A port that was free may be taken before the server binds it: try again on others.
        for _ in range(ATTEMPTS):
            ports = free_ports(3)
            with log.open("ab") as output:
                process = subprocess.Popen(
                    _command(name, ports),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                    start_new_session=True,
                )
            try:
                if _await_port(process, ports[0]):
                    yield Engine(name, f"localhost:{ports[0]}", process.pid, log)
                    return
            finally:
                _end(process)
        tail = log.read_text(errors="replace")[-2000:]
        raise EngineError(f"{name} did not come up; its log ends with:\n{tail}")


@click.group()
def main() -> None:
    """Fetch and run the engines that the tests use."""


@main.command("fetch")
@click.argument("names", nargs=-1, type=click.Choice(ENGINES))
def fetch_command(names: tuple[str, ...]) -> None:
    """Bring engines (by default all) into the cache."""
    for name in names or ENGINES:
        state = "already there" if is_fetched(name) else "fetching (a minute or two)"
        click.echo(f"{name}: {state}")
        fetch(name)


@main.command("start")
@click.argument("name", type=click.Choice(ENGINES))
def start_command(name: str) -> None:
    """Start one engine, print the Beam flags for it, and keep it until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with running(name) as engine:
        click.echo(f"process {engine.process_id}, log {engine.log}")
        click.echo(" ".join(engine.options))
        try:
            signal.pause()
        except KeyboardInterrupt:
            click.echo(f"ending {name}")


if __name__ == "__main__":
    main()
