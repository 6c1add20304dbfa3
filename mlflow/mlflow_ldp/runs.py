"""One MLflow run that a long program writes to: in batches, and never at the program's cost.

A slow server must not hold what it records (`patiently`). A request that is under way cannot be
stopped, so it goes on in a thread of its own, which the program no longer waits for. A late answer
still counts: what it carried has arrived.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

SECONDS_VARIABLE = "BEAM_LDP_TRACKING_SECONDS"
USUAL_SECONDS = 60.0
_OURS = {  # by themselves requests and retries would take a quarter of an hour
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "{seconds:.0f}",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # which may be JSON for another program
}

_T = TypeVar("_T")


class TrackingTimeoutError(RuntimeError):
    """The tracking server did not answer in time."""


def tracking_seconds() -> float:
    """How long to wait: the environment variable BEAM_LDP_TRACKING_SECONDS, or a minute.

    Raises:
        ValueError: if the variable is no number above zero.
    """
    text = os.environ.get(SECONDS_VARIABLE)
    if not text:
        return USUAL_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"{SECONDS_VARIABLE} must be a number of seconds above zero")
    return seconds


class Patience:
    """Does one thing after the other, and waits for each only so long.

    Args:
        seconds: to wait; default: see `tracking_seconds`.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = tracking_seconds() if seconds is None else seconds
        self._at_work: Future[Any] | None = None

    def do(self, work: Callable[[], _T]) -> _T:
        """What `work` gives.

        Raises:
            TrackingTimeoutError: if it takes longer, or what was begun before is still not done;
                `work` is then not begun.
        """
        if self._at_work is not None and not self._at_work.done():
            raise TrackingTimeoutError("the tracking server still holds an earlier request")
        done: Future[_T] = Future()
        self._at_work = done

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # raised where it is waited for
                done.set_exception(error)

        with _mlflow_settings(self.seconds):
            # Not an executor: its threads are waited for when the program ends.
            threading.Thread(target=run, name="beam-ldp-tracking", daemon=True).start()
            wait([done], self.seconds)
        if not done.done():
            raise TrackingTimeoutError(
                f"the tracking server did not answer within {self.seconds:g} s ({SECONDS_VARIABLE})"
            )
        return done.result()


@contextmanager
def _mlflow_settings(seconds: float) -> Iterator[None]:
    """MLflow's requests end too, and say nothing, unless the user has set it otherwise."""
    ours = {
        name: how.format(seconds=max(1.0, seconds))
        for name, how in _OURS.items()
        if name not in os.environ
    }
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


# A SQLite store is made when it is first opened; two programs that make it at once break it.


def open_client(uri: str) -> Any:
    """MLflow's client of a store. One program at a time opens a SQLite store, which makes it."""
    from mlflow.tracking import MlflowClient

    with _alone_with(uri):
        return MlflowClient(tracking_uri=uri)


@contextmanager
def _alone_with(uri: str) -> Iterator[None]:
    """Hold a lock on the folder of a SQLite store, where the file system has locks."""
    with ExitStack() as held:
        if uri.startswith("sqlite:///"):
            with suppress(OSError):  # a file system of a network, perhaps, or no folder at all
                folder = Path(uri.removeprefix("sqlite:///")).absolute().parent
                handle = os.open(folder, os.O_RDONLY)
                held.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


NAMESPACE = "privacy"
ARTIFACTS = "privacy"
RECORD_TAG = f"{NAMESPACE}.record_sha256"  # so that a release is logged once
CHARGED_WITH_TAG = f"{NAMESPACE}.charged_with"  # the charge that holds the price of this run too
IDENTITY_TAG = f"{NAMESPACE}.identity"  # digest of what was released about whom
STAGING_TAG = f"{NAMESPACE}.staging"  # name of the folder that a training goes on in
LOG_TAG = f"{NAMESPACE}.log"  # by which a program finds the run that it made again

# What the interface shows a run and an experiment by.
NOTE_TAG = "mlflow.note.content"
KIND_TAG, KIND = "mlflow.experimentKind", "custom_model_development"  # not that of language models
_ABOUT = """Private releases. `privacy.epsilon` is what one of them costs a person against its
readers, `privacy.local_epsilon` against whoever sees their report, `privacy.dataset.*` what all
releases about the same people have cost together; the run "budget of ..." is their history."""

# MLflow's limits, per key, value and request.
LONGEST_KEY, LONGEST_PARAM, LONGEST_TAG = 250, 6000, 5000
METRICS_PER_BATCH, PARAMS_PER_BATCH = 1000, 100
FLUSH_AT = 5000  # metrics that wait
FLUSH_SECONDS = 10.0

_Item = TypeVar("_Item")


def shown_uri(uri: str) -> str:
    """The address of a store without its password."""
    parts = urlsplit(uri)
    user, at, host = parts.netloc.rpartition("@")
    if ":" in user:
        uri = parts._replace(netloc=f"{user.partition(':')[0]}:***{at}{host}").geturl()
    return re.sub(r"(?i)([?&][^=&]*pass[^=&]*=)[^&]*", r"\1***", uri)


@dataclass(frozen=True)
class LoggedRun:
    """Where something was logged.

    Attributes:
        run_id, experiment_id: as MLflow names them.
        tracking_uri: the store that holds the run.
    """

    run_id: str
    experiment_id: str
    tracking_uri: str

    @property
    def shown_uri(self) -> str:
        """The store, without a password."""
        return shown_uri(self.tracking_uri)

    @property
    def link(self) -> str | None:
        """Its page, where the store is a server with pages."""
        if not self.tracking_uri.startswith(("http://", "https://")):
            return None
        where = f"experiments/{self.experiment_id}/runs/{self.run_id}"
        return f"{self.shown_uri.rstrip('/')}/#/{where}"

    @property
    def ui_command(self) -> str:
        """What to type, or to open, to look at it."""
        return self.link or f"mlflow ui --backend-store-uri {self.shown_uri}"

    def to_json(self) -> dict[str, str | None]:
        """Its address, for programs."""
        return {
            "mlflow_run_id": self.run_id,
            "mlflow_uri": self.shown_uri,
            "mlflow_link": self.link,
        }


class RunLog:
    """Metrics, parameters and artifacts of one program, sent in batches.

    Writes into the caller's active run if it lives in the same store, else into a new run. A store
    that cannot be reached, or does not answer in time, is said once, tried again at every flush,
    and never an error: `finish` says what was lost.

    Args:
        tracking_uri: where to log; default: MLflow's own.
        experiment: name of the experiment of a new run.
        run_name: name of a new run.
        params: parameters to log at the start.
        inputs: gives MLflow's data set inputs to log at the start.
        goes_on: tags by which a run is found that an earlier program began, to go on with it; a run
            that is made bears them. It is never the caller's: that becomes its parent.
    """

    def __init__(
        self,
        *,
        tracking_uri: str | None,
        experiment: str,
        run_name: str,
        params: Mapping[str, Any],
        inputs: Callable[[], list[Any]] = list,
        goes_on: Mapping[str, str] | None = None,
    ) -> None:
        self._uri = tracking_uri
        self._experiment, self._run_name = experiment, run_name
        self._params = dict(params)
        self._inputs = inputs
        self._goes_on = dict(goes_on or {})
        self._named = self._goes_on or {
            LOG_TAG: log_name(str(params.get(f"{NAMESPACE}.run_id") or uuid.uuid4().hex))
        }
        self._made = self._described = False
        self._begun: Any = None  # the run as an earlier program left it
        self._waiting: list[tuple[str, float, int, int]] = []
        self._tags: dict[str, str] = {}
        self._flushed = time.monotonic()
        self._client: Any = None
        self._own_run = False
        self._warned = False
        self.patience = Patience()  # may be changed
        self.run_id: str | None = None
        self.uri = ""  # and where the run is, once it is there
        self.experiment_id = ""

    @property
    def logged(self) -> LoggedRun | None:
        """Where the run is, once it is there."""
        return None if self.run_id is None else LoggedRun(self.run_id, self.experiment_id, self.uri)

    def start(self) -> None:
        """Open the run, or try again later."""
        self._quietly(self._describe_run)

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Values of one step; what is not finite becomes a tag that says so."""
        self.put(values, step, int(time.time() * 1000))
        overdue = time.monotonic() - self._flushed > FLUSH_SECONDS
        if overdue or len(self._waiting) >= FLUSH_AT:
            self.flush()

    def put(self, values: Mapping[str, float], step: int, at: int) -> None:
        """Values of one step that wait for the next flush; `at`: milliseconds since 1970."""
        for name, value in values.items():
            if math.isfinite(value):
                self._waiting.append((clean_key(name), float(value), at, step))
            else:
                self._tags[clean_key(name)] = "unbounded"

    def history(self, name: str) -> dict[int, float] | None:
        """What the run shows of a metric, by its steps; None if the server does not tell."""
        found: dict[int, float] = {}

        def read() -> None:
            for point in self._client.get_metric_history(self.run_id, clean_key(name)):
                found[point.step] = point.value

        return found if self._quietly(read) else None

    def tag(self, tags: Mapping[str, str]) -> None:
        """Tags, sent with what waits."""
        self._tags |= {clean_key(name): value for name, value in tags.items()}

    def describe(self, text: str) -> None:
        """What the run says of itself, if nothing said more; the caller's run keeps its words."""
        if self._own_run and NOTE_TAG not in self._tags:
            self.tag({NOTE_TAG: text})

    def flush(self) -> bool:
        """Send what waits. Whether it arrived."""
        return self._quietly(self._flush)

    def files(self, artifacts: Mapping[str, Any]) -> bool:
        """Send files, as `finish` does; whether they arrived."""
        return self._quietly(lambda: self._send_files(artifacts))

    def finish(self, artifacts: Mapping[str, Any], failed: bool = False) -> bool:
        """Send the rest, and files: dictionaries as JSON, text and bytes as they are.

        Returns:
            Whether everything arrived.
        """
        sent = self._quietly(self._flush) and self._quietly(lambda: self._send_files(artifacts))
        if self._own_run:
            self._quietly(
                lambda: self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")
            )
        if not sent:
            warnings.warn(
                "the tracking server could not be reached: the record of this run is incomplete. "
                "Charges that are in a ledger can be logged later with mlflow_ldp.mirror",
                stacklevel=3,
            )
        return sent

    # Inside ------------------------------------------------------------------------------------

    def _quietly(self, do: Callable[[], None]) -> bool:
        try:
            if self.run_id is None:
                begin = self._starter()
                self.patience.do(begin)
            self.patience.do(do)
        except Exception as error:  # a record that is lost must not stop what it records
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"MLflow could not be written ({type(error).__name__}); it is tried again",
                    stacklevel=4,
                )
            return False
        return True

    def _starter(self) -> Callable[[], None]:
        """What opens the run. Whose run that is, only the caller's thread knows."""
        import mlflow
        from mlflow.tracking.context.registry import resolve_tags

        uri = self._uri or mlflow.get_tracking_uri()
        parent, tags = callers_run(uri), dict(resolve_tags())
        return lambda: self._start(uri, parent, tags)

    def _start(self, uri: str, run_id: str | None, tags: dict[str, str]) -> None:
        client = open_client(uri)
        may_be_there = self._made or bool(self._goes_on)
        begun = self._find(client) if may_be_there else None
        parent = None if run_id is None else client.get_run(run_id)
        if begun is not None:
            client.update_run(begun.info.run_id, status="RUNNING")
            self._own_run, found = True, begun
        elif parent is not None and not self._goes_on and not self._is_held(parent.data.params):
            found = parent
        else:
            if parent is not None:  # another tracker writes there
                tags["mlflow.parentRunId"] = str(run_id)
            where = (
                find_experiment(client, self._experiment, uri)
                if parent is None
                else parent.info.experiment_id
            )
            self._made = True  # maybe, from here on
            name = self._run_name[:LONGEST_KEY]
            found = client.create_run(where, tags={**tags, **self._named}, run_name=name)
            self._own_run = True
        self._begun, self.experiment_id = begun, str(found.info.experiment_id)
        self._client, self.uri, self.run_id = client, uri, str(found.info.run_id)

    def _describe_run(self) -> None:
        """Parameters and inputs, as far as the run lacks them: what is there stays."""
        from mlflow.entities import Param

        if self._described:
            return
        begun = self._begun
        there = {} if begun is None else begun.data.params
        told = [
            Param(clean_key(key), as_text(value)[:LONGEST_PARAM])
            for key, value in self._params.items()
            if clean_key(key) not in there
        ]
        for batch in batches(told, PARAMS_PER_BATCH):
            self._client.log_batch(self.run_id, params=batch)
        if begun is None or not begun.inputs.dataset_inputs:
            self._client.log_inputs(self.run_id, datasets=self._inputs())
        self._described = True

    def _find(self, client: Any) -> Any:
        """The run that an earlier program or try began; of two the older one counts."""
        where = [experiment.experiment_id for experiment in client.search_experiments()]
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in self._named.items())
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        found = client.search_runs(where, wanted, max_results=1, order_by=order) if where else []
        return found[0] if found else None

    def _is_held(self, params: Mapping[str, str]) -> bool:
        """Whether another tracker writes to a run with these parameters."""
        key = f"{NAMESPACE}.run_id"
        return params.get(key) not in (None, self._params.get(key))

    def _flush(self) -> None:
        from mlflow.entities import Metric, RunTag

        self._describe_run()
        while self._waiting:
            batch = self._waiting[:METRICS_PER_BATCH]
            self._client.log_batch(self.run_id, metrics=[Metric(*item) for item in batch])
            del self._waiting[: len(batch)]
        if self._tags:
            sent = dict(self._tags)  # more may come while the server takes its time
            tags = [RunTag(key, value[:LONGEST_TAG]) for key, value in sent.items()]
            self._client.log_batch(self.run_id, tags=tags)
            self._tags = {k: v for k, v in self._tags.items() if sent.get(k) != v}
        self._flushed = time.monotonic()

    def _send_files(self, artifacts: Mapping[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in artifacts.items():
                if isinstance(content, dict):
                    content = json.dumps(content, indent=2, ensure_ascii=False)
                data = (
                    content.encode("utf-8", "backslashreplace")
                    if isinstance(content, str)
                    else content
                )
                (Path(folder) / name).write_bytes(data)
            self._client.log_artifacts(self.run_id, folder, ARTIFACTS)


def callers_run(uri: str) -> str | None:
    """Id of the run that the caller has open in this store; None if there is none.

    `mlflow run` opens one in another process, and names it in the environment.
    """
    import mlflow

    if uri != mlflow.get_tracking_uri():
        return None
    run = mlflow.active_run()
    return os.environ.get("MLFLOW_RUN_ID") if run is None else str(run.info.run_id)


def log_name(run_id: str) -> str:
    """What `LOG_TAG` says of the log of a run, in a form that searches can hold."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:32]


def lasting_run(client: Any, tag: str, value: str, make: Callable[[], Any]) -> Any:
    """The one run of a store that bears a tag, whatever its experiment; no program works on it.

    The oldest one counts. Newer ones, which two programs made at once or earlier versions made in
    other experiments, are deleted: nothing would update them.

    Args:
        client: of the store.
        tag, value: of the run.
        make: makes it where there is none.
    """

    def found() -> list[Any]:
        where = [experiment.experiment_id for experiment in client.search_experiments()]
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        return list(client.search_runs(where, f"tags.`{tag}` = '{value}'", order_by=order))

    runs = found()
    if not runs:
        make()
        runs = found()
    for other in runs[1:]:
        with suppress(Exception):  # another program was faster
            client.delete_run(other.info.run_id)
    if runs[0].info.status != "FINISHED":
        client.set_terminated(runs[0].info.run_id, "FINISHED")
    return runs[0]


def find_experiment(client: Any, name: str, uri: str) -> str:
    """Id of the experiment of that name, made where it does not exist.

    It is marked as what it is: unmarked ones open in MLflow's view for language models.
    """
    found = client.get_experiment_by_name(name)
    if found is not None:
        if KIND_TAG not in found.tags:
            client.set_experiment_tag(found.experiment_id, KIND_TAG, KIND)
        return str(found.experiment_id)
    place = None
    if uri.startswith("sqlite:///"):  # or the files would land in the working directory
        database = Path(uri.removeprefix("sqlite:///")).absolute()
        place = (database.parent / "mlartifacts").as_uri()
    tags = {KIND_TAG: KIND, NOTE_TAG: _ABOUT}
    try:
        return str(client.create_experiment(name, artifact_location=place, tags=tags))
    except Exception:
        found = client.get_experiment_by_name(name)  # another program was faster
        if found is None:
            raise
        return str(found.experiment_id)


def batches(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """The items, at most `size` at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def clean_key(name: str) -> str:
    """A key that every MLflow store takes."""
    return re.sub(r"[^\w\-./ ]", "_", name, flags=re.ASCII)[:LONGEST_KEY]


def as_text(value: Any) -> str:
    """A parameter's value as text: names as they are written."""
    if isinstance(value, str):
        return value
    text = json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()
