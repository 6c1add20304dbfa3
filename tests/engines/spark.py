"""Spark 3.5: inside Beam's job server, or as a standalone cluster of separate processes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.engines import worker_pool
from tests.engines.cache import OPENS, QUICK, jars, job_server_jar, program
from tests.engines.processes import Group, answers, free_ports

HOSTS = ("127.0.0.1", "127.0.0.1")  # of two workers
LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.12"}


def start(group: Group) -> tuple[str, ...]:
    """Spark in the job server; Python workers in the client's own process."""
    group.environment = ENVIRONMENT
    endpoint = start_job_server(group, "local[2]", *QUICK)
    return ("--runner=SparkRunner", endpoint, "--environment_type=LOOPBACK")


def start_cluster(
    group: Group, forking: bool = False, *options: str, hosts: tuple[str, ...] = HOSTS
) -> tuple[str, ...]:
    """A master, two workers of one core each, a pool of Python workers, and the job server.

    Args:
        group: an empty one.
        forking: of `worker_pool.start`.
        options: Java options of the driver, such as `-Dspark.speculation=true`.
        hosts: of the workers. Spark starts no second attempt on the host of the first.
    """
    home = group.folder / "spark-home"
    home.mkdir(exist_ok=True)
    # What Spark takes for a distribution: a folder of jars and a file of this name.
    (home / "RELEASE").touch()
    if not (home / "jars").exists():
        (home / "jars").symlink_to(jars("spark"))
    group.environment = {**ENVIRONMENT, **worker_pool.environment(), "SPARK_HOME": str(home)}
    quick = QUICK if forking else ()
    java = [program("java", "run Spark"), *OPENS, LOGGING, *quick, "-cp", f"{jars('spark')}/*"]
    port, page, *worker_pages = free_ports(2 + len(hosts))
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    group.start(
        "master",
        [*java, "-Xmx512m", f"{deploy}.master.Master", "--host", "127.0.0.1"]
        + ["--port", str(port), "--webui-port", str(page)],
        port,
    )
    for number, (worker_page, host) in enumerate(zip(worker_pages, hosts), 1):
        start_worker(group, f"worker-{number}", master, worker_page, host)
    workers = worker_pool.start(group, forking)
    executor = " ".join((*OPENS, LOGGING, *quick))
    endpoint = start_job_server(
        group,
        master,
        f"-Dspark.executor.extraJavaOptions={executor}",
        "-Dspark.executor.memory=1g",
        "-Dspark.driver.host=127.0.0.1",
        "-Dspark.ui.enabled=false",
        # By default an application is given up after ten executors were lost.
        "-Dspark.deploy.maxExecutorRetries=-1",
        *quick,
        *options,
    )
    # Executors have all jars. Left to itself Beam has each of them fetched anew for every job.
    return ("--runner=SparkRunner", endpoint, *workers, f"--files_to_stage={jars_file()}")


def jars_file() -> str:
    """A small file for Beam to send to executors."""
    return str(Path(__file__).with_name("log4j2.properties"))


def master_of(group: Group) -> str:
    """The address of a running cluster's master, as its log says it."""
    found = re.search(r"Starting Spark master at (spark://\S+)", group.text("master"))
    assert found is not None
    return found.group(1)


def start_worker(
    group: Group, role: str, master: str, page: int | None = None, host: str = HOSTS[0]
) -> None:
    """One worker of one core, which starts an executor for every job."""
    page = page or free_ports(1)[0]
    group.start(
        role,
        [program("java", "run Spark"), *OPENS, LOGGING, "-Xmx512m", "-cp", f"{jars('spark')}/*"]
        + ["org.apache.spark.deploy.worker.Worker", "--host", host]
        + ["--webui-port", str(page), "--cores", "1", "--memory", "2g"]
        + ["--work-dir", str(group.folder / role), master],
        ready=lambda: answers(page) and "registered with master" in group.text(role).lower(),
    )


def start_job_server(group: Group, master: str, *java_options: str) -> str:
    """Beam's job server, which is Spark's driver; gives the flag that names it."""
    job, artifact, expansion = free_ports(3)
    java = [program("java", "run Spark's job server"), "-Xmx2g", *OPENS, LOGGING, *java_options]
    group.start(
        "job-server",
        [*java, "-jar", str(job_server_jar("spark")), f"--spark-master-url={master}"]
        + [f"--job-port={job}", f"--artifact-port={artifact}", f"--expansion-port={expansion}"]
        + ["--job-host=localhost", f"--artifacts-dir={group.folder / 'artifacts'}"],
        job,
    )
    return f"--job_endpoint=localhost:{job}"
