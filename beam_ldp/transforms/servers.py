"""The servers that a job needs: asked before a budget is reserved, since Beam waits for ever.

A server answers or it does not: one that takes a connection and then says nothing is as dead as one
that is not there. What is asked is what the launcher itself talks to; workers and clusters that a
job server reaches are that server's concern, and `--job-timeout` is for them.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
    StandardOptions,
)
from apache_beam.portability.api import beam_job_api_pb2 as messages
from apache_beam.portability.api import beam_job_api_pb2_grpc as services

ANSWER_SECONDS = 10.0  # for all of them; a server that is just starting is waited for
_START = {
    "PortableRunner": "prism --job_port=8073, or the job server of Spark or Flink",
    "SparkRunner": "java -jar JOB_SERVER.jar --spark-master-url=spark://HOST:7077 --job-port=8099",
    "FlinkRunner": "java -jar JOB_SERVER.jar --flink-master=HOST:8081 --job-port=8099",
    "PrismRunner": "prism --job_port=8073",
}


class NoServerError(ValueError):
    """A server that the job needs does not answer. Nothing was reserved."""


def check_servers(options: PipelineOptions, runner: str | None = None) -> None:
    """Refuse a job whose servers do not answer; it would hang after its budget was reserved.

    Args:
        options: Beam's, of the job.
        runner: name of its runner; default: the one in the options.

    Raises:
        NoServerError: naming the flag, the address and what to start.
    """
    runner = (runner or options.view_as(StandardOptions).runner or "").rsplit(".", 1)[-1]
    if runner not in _START:
        return
    portable = options.view_as(PortableOptions)
    until = time.monotonic() + ANSWER_SECONDS
    endpoint = portable.job_endpoint
    if endpoint == "embed":
        return
    if endpoint:
        describe_options(endpoint, until, runner)
    else:
        _check_without_endpoint(options, runner, until)
    if portable.artifact_endpoint:
        with grpc.insecure_channel(portable.artifact_endpoint) as channel:
            ready = grpc.channel_ready_future(channel)
            _ask("--artifact_endpoint", portable.artifact_endpoint, runner, until,
                 lambda seconds: ready.result(timeout=seconds))  # fmt: skip


def describe_options(endpoint: str, until: float | None = None, runner: str = "") -> Any:
    """The options that a job server says it takes; none from one that cannot say.

    Args:
        endpoint: its `host:port`.
        until: how long to wait, by `time.monotonic()`; default: `ANSWER_SECONDS` from now.
        runner: name of the job's runner, for what the error says.

    Raises:
        NoServerError: if it does not answer.
    """
    until = time.monotonic() + ANSWER_SECONDS if until is None else until
    with grpc.insecure_channel(endpoint) as channel:
        ask = services.JobServiceStub(channel).DescribePipelineOptions

        def described(seconds: float) -> Any:
            request = messages.DescribePipelineOptionsRequest()
            try:
                return ask(request, timeout=seconds, wait_for_ready=True).options
            except grpc.RpcError as error:
                if error.code() in (
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    grpc.StatusCode.UNAVAILABLE,
                ):
                    raise
                return ()  # it refused the question, so it answers

        return _ask("--job_endpoint", endpoint, runner, until, described)


def _check_without_endpoint(options: PipelineOptions, runner: str, until: float) -> None:
    """Beam starts the job server itself: with Java, for a cluster that may be elsewhere."""
    if runner == "PortableRunner":
        raise NoServerError(
            "--runner=PortableRunner needs --job_endpoint, the HOST:PORT of a running job server. "
            "Nothing was reserved"
        )
    if runner == "PrismRunner":
        return
    spark, flink = options.view_as(SparkRunnerOptions), options.view_as(FlinkRunnerOptions)
    is_spark = runner == "SparkRunner"
    uber = spark.spark_submit_uber_jar if is_spark else flink.flink_submit_uber_jar
    java = options.view_as(JobServerOptions).job_server_java_launcher
    if not uber and shutil.which(java) is None:
        raise NoServerError(
            f"--runner={runner} starts a job server with Java, and there is no {java!r}: install "
            "Java 17, or start the server elsewhere and give --job_endpoint=HOST:PORT. Nothing was "
            "reserved"
        )
    if is_spark and uber and spark.spark_rest_url:
        _ask("--spark_rest_url", spark.spark_rest_url, runner, until, _http(spark.spark_rest_url))
    elif is_spark and spark.spark_master_url.startswith("spark://"):
        _ask("--spark_master_url", spark.spark_master_url, runner, until,
             _connected(spark.spark_master_url))  # fmt: skip
    elif not is_spark and not flink.flink_master.startswith("["):  # [local], [auto]
        _ask("--flink_master", flink.flink_master, runner, until, _http(flink.flink_master))


def _ask(
    flag: str, address: str, runner: str, until: float, question: Callable[[float], Any]
) -> Any:
    """The answer to a question, which is asked again until the time is over."""
    began = time.monotonic()
    while True:
        try:
            return question(max(0.2, until - time.monotonic()))
        except (grpc.RpcError, grpc.FutureTimeoutError, OSError, HTTPException, ValueError):
            if time.monotonic() + 0.5 < until:
                time.sleep(0.5)
                continue
        start = f" ({_START[runner]})" if flag == "--job_endpoint" and runner in _START else ""
        raise NoServerError(
            f"{flag} {address}: no server answered there within {time.monotonic() - began:.0f} s. "
            f"Start it{start}, or correct the address; see docs/engines.md. Nothing was reserved"
        ) from None


def _http(url: str) -> Callable[[float], Any]:
    """Ask a server for its first page; any answer is one."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection

    def question(seconds: float) -> None:
        with closing(kind(parts.hostname or "", parts.port, timeout=seconds)) as connection:
            connection.request("GET", "/")
            connection.getresponse()

    return question


def _connected(url: str) -> Callable[[float], Any]:
    """Connect to one of a Spark cluster's masters, `spark://HOST:PORT,HOST:PORT`."""
    masters = [urlsplit(f"//{one}") for one in url.removeprefix("spark://").split(",")]

    def question(seconds: float) -> None:
        for i, master in enumerate(masters):
            try:
                where = master.hostname or "", master.port or 7077
                socket.create_connection(where, timeout=seconds / len(masters)).close()
                return
            except OSError:
                if i == len(masters) - 1:
                    raise

    return question
