"""Flink 1.19: inside Beam's job server, or as a session cluster of separate processes."""

from __future__ import annotations

from tests.engines import worker_pool
from tests.engines.cache import JARS, OPENS, QUICK, jars, job_server_jar, program
from tests.engines.processes import Group, free_ports

NUM_TASK_MANAGERS = 2
SLOTS = 2
PARALLELISM = 2
LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
    "-Dorg.slf4j.simpleLogger.showShortLogName=true",
)
# Files that say how, for task managers that are started later too.
SHORT_JOBS = "short-jobs"
MORE_JARS = "more-jars"
CONFIGURATION = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.port: {rest}
rest.bind-address: 127.0.0.1
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: {slots}
taskmanager.cpu.cores: 1
taskmanager.memory.task.heap.size: 512m
taskmanager.memory.task.off-heap.size: 64m
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.network.min: 512m
taskmanager.memory.network.max: 512m
# 512 by default, of 32 KiB, for every exchange: too many for a job of forty branches.
taskmanager.network.sort-shuffle.min-buffers: 64
taskmanager.memory.managed.size: 256m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 128m
taskmanager.memory.jvm-overhead.max: 128m
# The job server and the task managers share one class path.
classloader.resolve-order: parent-first
classloader.check-leaked-classloader: false
heartbeat.interval: 1000
heartbeat.timeout: 10000
io.tmp.dirs: {folder}
# Beam tells Flink how often to start again for streams only; this is for all jobs.
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 10
restart-strategy.fixed-delay.delay: 1 s
# By default checkpoints are kept in the job manager, which takes no state above 5 MB.
state.checkpoints.dir: file://{folder}/checkpoints
"""


def start(group: Group) -> tuple[str, ...]:
    """Flink in the job server; Python workers in the client's own process."""
    endpoint = start_job_server(group, "[local]")
    return ("--runner=FlinkRunner", endpoint, f"--parallelism={PARALLELISM}",
            "--environment_type=LOOPBACK")  # fmt: skip


def start_cluster(group: Group, forking: bool = False, more_jars: str = "") -> tuple[str, ...]:
    """A job manager, two task managers, a pool of Python workers, and Beam's job server.

    Args:
        group: an empty one.
        forking: of `worker_pool.start`.
        more_jars: one of `cache.JARS`, whose classes the cluster gets too.
    """
    group.environment = worker_pool.environment()
    rpc, rest = free_ports(2)
    given = CONFIGURATION.format(rpc=rpc, rest=rest, slots=SLOTS, folder=group.folder)
    (group.folder / "flink-conf.yaml").write_text(given)
    if forking:
        (group.folder / SHORT_JOBS).touch()
    (group.folder / MORE_JARS).write_text(more_jars)
    runtime = "org.apache.flink.runtime"
    _start(group, "job-manager", f"{runtime}.entrypoint.StandaloneSessionClusterEntrypoint", rest)
    for number in range(1, NUM_TASK_MANAGERS + 1):
        start_task_manager(group, f"task-manager-{number}")
    workers = worker_pool.start(group, forking)
    endpoint = start_job_server(group, f"127.0.0.1:{rest}", f"--flink-conf-dir={group.folder}")
    return ("--runner=FlinkRunner", endpoint, f"--parallelism={PARALLELISM}", *workers)


def start_task_manager(group: Group, role: str) -> None:
    """One more task manager; `role` is also the name of its log."""
    _start(group, role, "org.apache.flink.runtime.taskexecutor.TaskManagerRunner")


def _start(group: Group, role: str, main_class: str, port: int | None = None) -> None:
    java = [
        program("java", "run Flink"),
        *(QUICK if (group.folder / SHORT_JOBS).exists() else ()),
        "-Xmx768m",
        "-XX:MaxDirectMemorySize=1g",
        *OPENS,
        *LOGGING,
        "-cp",
        ":".join(f"{jars(name)}/*" for name in _parts(group)),
    ]
    done = "Successful registration at resource manager"
    group.start(
        role,
        [*java, main_class, "--configDir", str(group.folder)],
        port,
        None if port else lambda: done in group.text(role),
    )


def _parts(group: Group) -> list[str]:
    """Whose jars the cluster has."""
    noted = group.folder / MORE_JARS
    return ["flink", *(noted.read_text().split() if noted.exists() else [])]


def start_job_server(group: Group, master: str, *more: str) -> str:
    """Beam's job server; gives the flag that names it."""
    job, artifact, expansion = free_ports(3)
    quick = QUICK if master == "[local]" else ()
    java = [program("java", "run Flink's job server"), "-Xmx2g", *quick, *OPENS, *LOGGING]
    class_path = ":".join(str(job_server_jar(name)) for name in _parts(group))
    group.start(
        "job-server",
        [*java, "-cp", class_path, JARS["flink"][1], f"--flink-master={master}"]
        + [f"--job-port={job}", f"--artifact-port={artifact}", f"--expansion-port={expansion}"]
        + ["--job-host=localhost", f"--artifacts-dir={group.folder / 'artifacts'}"]
        + [*more],
        job,
    )
    return f"--job_endpoint=localhost:{job}"
