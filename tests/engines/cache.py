"""Where engines are kept, and how they come there: from Maven Central and Go's module proxy."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from tests.engines.processes import EngineError

FETCH_SECONDS = 1200
PRISM_MODULE = "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"
JARS = {  # what a folder of jars must hold to be whole, and the class that `java -jar` starts
    "spark": (
        ("beam-runners-spark-3-2.62.0.jar", "log4j-slf4j2-impl-2.20.0.jar"),
        "org.apache.beam.runners.spark.SparkJobServerDriver",
    ),
    "flink": (
        ("beam-runners-flink-1.19-2.62.0.jar", "slf4j-simple-1.7.30.jar"),
        "org.apache.beam.runners.flink.FlinkJobServerDriver",
    ),
    "kafka": (("kafka_2.13-3.9.0.jar", "slf4j-simple-1.7.36.jar"), "kafka.Kafka"),
    "kafka-connector": (
        ("beam-sdks-java-io-kafka-2.62.0.jar", "jamm-0.4.0.jar"),
        "org.apache.beam.sdk.expansion.service.ExpansionService",
    ),
}
# The engines reflect into the JDK; since Java 17 each package must be opened by name.
OPENED_PACKAGES = tuple(
    f"java.base/{name}"
    for name in (
        *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
        *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.time"),
        *("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action"),
        "sun.util.calendar",
    )
)
OPENS = tuple(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED_PACKAGES)

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # a JVM that starts soon, for short jobs


def cache_folder() -> Path:
    """Where the engines are kept: `BEAM_LDP_ENGINES`, or `.engines` in the repository."""
    named = os.environ.get("BEAM_LDP_ENGINES")
    return Path(named) if named else Path(__file__).resolve().parents[2] / ".engines"


def prism_binary() -> Path:
    return cache_folder() / "bin" / "prism"


def jars(name: str) -> Path:
    """The folder of jars of one of `JARS`."""
    return cache_folder() / name / "lib"


def job_server_jar(name: str) -> Path:
    """A jar that `java -jar` starts, of an engine Beam's job server: it names the other jars."""
    return cache_folder() / name / "job-server.jar"


def is_cached(name: str) -> bool:
    """Whether the cache holds `prism` or one of `JARS`, whole."""
    if name == "prism":
        return prism_binary().exists()
    needed = [jars(name) / jar for jar in JARS[name][0]]
    return all(path.exists() for path in (*needed, job_server_jar(name)))


def program(name: str, why: str) -> str:
    """Where a program is installed.

    Raises:
        EngineError: if it is not.
    """
    path = shutil.which(name)
    if path is None:
        raise EngineError(f"`{name}` is not installed; it is needed to {why}")
    return path


def fetch_into_cache(name: str) -> None:
    """Bring `prism` or one of `JARS` into the cache; does nothing if it is there.

    It appears whole or not at all: it is fetched into a folder beside its place and then renamed.

    Raises:
        EngineError: if a program that fetches it is missing, or fails.
    """
    if is_cached(name):
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as temporary:
        if name == "prism":
            target, fetched = prism_binary(), Path(temporary) / "prism"
            command = [program("go", "build Prism"), "install", PRISM_MODULE]
            environment = {**os.environ, "GOBIN": temporary, "GOFLAGS": "-modcacherw"}
        else:
            target, fetched = jars(name).parent, Path(temporary) / name
            pom = Path(__file__).with_name(f"{name}-pom.xml")
            maven = program("mvn", f"fetch the jars of {name}")
            command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            command += [f"-DoutputDirectory={fetched / 'lib'}", "-DincludeScope=runtime"]
            environment = dict(os.environ)
        # The caller's folder may hold a go.mod or a .mvn of its own.
        done = subprocess.run(
            command, cwd=temporary, env=environment, timeout=FETCH_SECONDS, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise EngineError(f"fetching {name} failed: {' '.join(command[:3])} ...")
        if name in JARS:
            write_job_server_jar(fetched, JARS[name][1])
            shutil.rmtree(target, ignore_errors=True)  # an older one
        target.parent.mkdir(parents=True, exist_ok=True)
        fetched.rename(target)


def write_job_server_jar(folder: Path, main_class: str) -> None:
    """`job-server.jar`, for Beam's `--spark_job_server_jar` and `--flink_job_server_jar`.

    Only a manifest: the class to start, the jars in `lib/`, and the packages that Java must open.
    """
    names = " ".join(f"lib/{path.name}" for path in sorted((folder / "lib").glob("*.jar")))
    lines = [
        "Manifest-Version: 1.0",
        f"Main-Class: {main_class}",
        f"Add-Opens: {' '.join(OPENED_PACKAGES)}",
        f"Class-Path: {names}",
    ]
    with zipfile.ZipFile(folder / "job-server.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "".join(map(_folded, lines)))


def _folded(line: str) -> str:
    """A manifest's lines have at most 72 bytes; what follows starts with a space."""
    rest = line[70:]
    return "\r\n ".join([line[:70], *(rest[i : i + 69] for i in range(0, len(rest), 69))]) + "\r\n"
