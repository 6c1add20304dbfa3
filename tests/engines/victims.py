"""Processes of an engine that tests kill: how to find one, and how to put one in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psutil

from tests.engines import flink, spark
from tests.engines.servers import Engine

Find = Callable[[Engine], list[psutil.Process]]


@dataclass(frozen=True)
class Victim:
    """A kind of process: how to find one of them, and how to put one in its place."""

    engine: str
    name: str
    find: Find
    replace: Callable[[Engine], None] = lambda engine: None
    recovers: bool = True  # whether the engine goes on without it


def servers_of(role: str) -> Find:
    """Processes that were started by us."""

    def find(engine: Engine) -> list[psutil.Process]:
        found = [s.process() for s in engine.group.servers if s.role.startswith(role)]
        return [process for process in found if process is not None]

    return find


def children_of(role: str, running: str) -> Find:
    """Processes that the servers of a role started, whose command line says `running`."""
    servers = servers_of(role)

    def find(engine: Engine) -> list[psutil.Process]:
        return [c for s in servers(engine) for c in children(s) if running in command_of(c)]

    return find


def nurseries(engine: Engine) -> list[psutil.Process]:
    """What Python workers are forked from: the only child of the pool."""
    return [nursery for pool in servers_of("workers")(engine) for nursery in children(pool)]


def forked_workers(engine: Engine) -> list[psutil.Process]:
    return [worker for nursery in nurseries(engine) for worker in children(nursery)]


def children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [c for c in process.children() if c.status() != psutil.STATUS_ZOMBIE]
    except psutil.Error:
        return []


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def new_spark_worker(engine: Engine) -> None:
    master = spark.master_of(engine.group)
    spark.start_worker(engine.group, f"worker-{len(engine.group.servers)}", master)


def new_task_manager(engine: Engine) -> None:
    flink.start_task_manager(engine.group, f"task-manager-{len(engine.group.servers)}")


EXECUTORS = children_of("worker-", "CoarseGrainedExecutorBackend")
POOLED = children_of("workers", "SdkHarness")
TASK_MANAGERS = servers_of("task-manager-")
VICTIMS = (
    Victim("spark-forking", "Python worker", forked_workers),
    Victim("spark-forking", "executor", EXECUTORS),
    Victim("spark-forking", "Spark worker", servers_of("worker-"), new_spark_worker),
    Victim("flink-forking", "Python worker", forked_workers),
    Victim("flink-forking", "task manager", TASK_MANAGERS, new_task_manager),
    Victim("prism-forking", "Python worker", forked_workers, recovers=False),
)
WITH_BEAMS_POOL = {
    "spark-cluster": (POOLED, EXECUTORS),
    "flink-cluster": (POOLED, TASK_MANAGERS),
}


def pooled_workers(engine: Engine) -> list[psutil.Process]:
    """Python workers of a pool of either kind."""
    return forked_workers(engine) or POOLED(engine)
