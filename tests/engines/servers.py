"""Real Beam engines for the tests: fetched into a cache, started on free loopback ports, ended.

    python -m tests.engines.servers fetch            # all, into the cache
    python -m tests.engines.servers start            # prism, spark-cluster and flink, until `stop`
    python -m tests.engines.servers start flink      # one; prints the Beam flags for it
    python -m tests.engines.servers status
    python -m tests.engines.servers stop

The cache is the folder named by `BEAM_LDP_ENGINES`, or `.engines` in the repository. Every engine
is reached as a *portable* runner. The Python workers of `prism`, `spark` and `flink` run in the
client's own process (`LOOPBACK`), so a test's classes need not be installed anywhere; those of the
clusters are processes of a worker pool.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from tests.engines import flink, prism, spark
from tests.engines.cache import cache_folder, fetch_into_cache, is_cached
from tests.engines.processes import EngineError, Group, PortTakenError, Server, end

SPECULATION = (  # Spark starts slow tasks a second time, as soon as half of them are done
    "-Dspark.speculation=true",
    "-Dspark.speculation.quantile=0.5",
    "-Dspark.speculation.interval=100ms",
)


def _speculating(group: Group) -> tuple[str, ...]:
    return spark.start_cluster(group, True, *SPECULATION, hosts=("127.0.0.1", "127.0.0.2"))


ENGINES: dict[str, tuple[str, Callable[[Group], tuple[str, ...]]]] = {  # what it needs, how
    "prism": ("prism", prism.start),
    "spark": ("spark", spark.start),
    "spark-cluster": ("spark", spark.start_cluster),
    "flink": ("flink", flink.start),
    "flink-cluster": ("flink", flink.start_cluster),
    # With forked Python workers, which start at once: for tests of many jobs.
    "prism-forking": ("prism", prism.start_with_pool),
    "spark-forking": ("spark", lambda group: spark.start_cluster(group, True)),
    "spark-speculating": ("spark", _speculating),
    "flink-forking": ("flink", lambda group: flink.start_cluster(group, True)),
}
EMBEDDED = ("prism", "spark", "flink")  # quick to start; Python workers in the client's process
CLUSTERS = ("spark-cluster", "flink-cluster")  # Python workers in processes of their own
USUAL = ("prism", "spark-cluster", "flink")  # what `make engines` starts
ATTEMPTS = 3


@dataclass(frozen=True)
class Engine:
    """A running engine.

    Attributes:
        name: one of `ENGINES`.
        options: the Beam flags that send a job to it.
        group: its processes.
    """

    name: str
    options: list[str]
    group: Group

    @property
    def job_endpoint(self) -> str:
        """`host:port` of the job server, on the loopback interface."""
        (flag,) = (flag for flag in self.options if flag.startswith("--job_endpoint="))
        return flag.split("=", 1)[1]

    @property
    def process_ids(self) -> list[int]:
        """Its servers, in the order in which they were started."""
        return [server.process_id for server in self.group.servers]


def is_fetched(name: str) -> bool:
    """Whether the cache holds what this engine needs, whole."""
    return is_cached(_known(name)[0])


def fetch(name: str) -> None:
    """Bring what an engine needs into the cache; does nothing if it is there."""
    fetch_into_cache(_known(name)[0])


def launch(name: str, folder: Path) -> Engine:
    """Start an engine and wait until it answers; whoever calls ends `engine.group`.

    Args:
        name: one of `ENGINES`.
        folder: an empty folder for its logs and files.

    Raises:
        ValueError: an engine of another name.
        EngineError: it is not fetched, or did not answer within 90 seconds in three attempts.
    """
    _, start = _known(name)
    if not is_fetched(name):
        raise EngineError(f"{name} is not in the cache; run `make engines-fetch`")
    # A port that was free may be taken before the server binds it: try again on others.
    for attempt in range(1, ATTEMPTS + 1):
        group = Group(folder)
        try:
            return Engine(name, list(start(group)), group)
        except PortTakenError:
            group.end()
            if attempt == ATTEMPTS:
                raise
        except BaseException:
            group.end()
            raise
    raise AssertionError("not reached")


@contextmanager
def running(name: str) -> Iterator[Engine]:
    """An engine for as long as the block lasts, then it is ended with everything it started.

    A Spark job server holds one job at a time, so a hung job blocks the next: give every client a
    time limit.

    Raises: as `launch`.
    """
    with tempfile.TemporaryDirectory(prefix=f"beam-ldp-{name}-", ignore_cleanup_errors=True) as at:
        engine = launch(name, Path(at))
        try:
            yield engine
        finally:
            engine.group.end()


def _known(name: str) -> tuple[str, Callable[[Group], tuple[str, ...]]]:
    if name not in ENGINES:
        raise ValueError(f"name must be one of {', '.join(ENGINES)}, got {name!r}")
    return ENGINES[name]


# --- engines that outlive the command that started them -----------------------------------------


def _record(name: str) -> Path:
    return cache_folder() / "run" / f"{name}.json"


def recorded(name: str) -> tuple[list[str], list[Server]] | None:
    """The flags and the servers of an engine that was started and not stopped."""
    if not _record(name).exists():
        return None
    found = json.loads(_record(name).read_text())
    return found["options"], [Server(**server) for server in found["servers"]]


def start_for_long(name: str) -> list[str]:
    """Start an engine that stays until `stop`; gives its Beam flags. It may be there already."""
    found = recorded(name)
    if found is not None and all(server.process() for server in found[1]):
        return found[0]
    stop(name)
    folder = cache_folder() / "run" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    engine = launch(name, folder)
    servers = [asdict(server) for server in engine.group.servers]
    _record(name).write_text(json.dumps({"options": engine.options, "servers": servers}, indent=2))
    return engine.options


def stop(name: str) -> bool:
    """End an engine by the ids that were recorded; says whether there was one."""
    found = recorded(name)
    if found is None:
        return False
    end(found[1])
    _record(name).unlink()
    return True


@click.group()
def main() -> None:
    """Fetch, start and stop the engines that the tests use."""


_NAMES = click.argument("names", nargs=-1, type=click.Choice(list(ENGINES)))


@main.command("fetch")
@_NAMES
def fetch_command(names: tuple[str, ...]) -> None:
    """Bring engines (by default all) into the cache."""
    for needed in dict.fromkeys(ENGINES[name][0] for name in names or ENGINES):
        click.echo(f"{needed}: {'already there' if is_cached(needed) else 'fetching (a minute)'}")
        fetch_into_cache(needed)


@main.command("start")
@_NAMES
def start_command(names: tuple[str, ...]) -> None:
    """Start engines (by default prism, spark-cluster and flink), print the Beam flags for each."""
    for name in names or USUAL:
        click.echo(f"{name}: {' '.join(start_for_long(name))}")
    click.echo(f"logs are in {cache_folder() / 'run'}; `make engines-stop` ends them")


@main.command("status")
def status_command() -> None:
    """Which engines run, and with which flags."""
    for name in ENGINES:
        found = recorded(name)
        if found is None:
            click.echo(f"{name}: not running")
            continue
        gone = [server.role for server in found[1] if server.process() is None]
        state = f"ended: {', '.join(gone)}" if gone else "running"
        click.echo(f"{name}: {state}; {' '.join(found[0])}")


@main.command("stop")
@_NAMES
def stop_command(names: tuple[str, ...]) -> None:
    """End engines (by default all) by the ids that were recorded when they were started."""
    for name in names or ENGINES:
        if stop(name):
            click.echo(f"{name}: ended")


if __name__ == "__main__":
    main()
