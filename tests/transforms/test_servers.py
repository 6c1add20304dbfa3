"""A job whose servers do not answer is refused before anything is reserved, whoever reserves."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2_grpc as services

from beam_ldp.ledger import BudgetLedger
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.settings import People
from beam_ldp.transforms import ChargeTo, PrivateFrequencies, servers
from beam_ldp.transforms.servers import NoServerError, check_servers

pytestmark = pytest.mark.exact


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "ANSWER_SECONDS", 0.3)


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    """Addresses: of nobody, of a listener that never answers, of a job server, of a page."""
    silent = socket.create_server(("localhost", 0))
    server = grpc.server(ThreadPoolExecutor(1))
    services.add_JobServiceServicer_to_server(services.JobServiceServicer(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    page = HTTPServer(("localhost", 0), BaseHTTPRequestHandler)
    Thread(target=page.serve_forever, daemon=True).start()
    yield {
        "nobody": "localhost:1",
        "silent": f"localhost:{silent.getsockname()[1]}",
        "job server": f"localhost:{port}",
        "page": f"localhost:{page.server_address[1]}",
    }
    silent.close()
    server.stop(None)
    page.shutdown()
    page.server_close()


REFUSED = [
    ("PortableRunner", "--job_endpoint={nobody}", "--job_endpoint localhost:1.*prism"),
    ("PortableRunner", "--job_endpoint={silent}", "no server answered there"),
    ("PrismRunner", "--job_endpoint={silent}", "prism --job_port"),
    ("SparkRunner", "--job_endpoint={nobody}", "--spark-master-url"),
    ("PortableRunner", "--job_endpoint={job server} --artifact_endpoint={silent}",
     "--artifact_endpoint"),
    ("PortableRunner", "", "needs --job_endpoint"),
    ("FlinkRunner", "--flink_master={nobody}", "--flink_master"),
    ("FlinkRunner", "--flink_master={silent}", "--flink_master"),
    ("SparkRunner", "--spark_master_url=spark://{nobody}", "--spark_master_url"),
    ("SparkRunner", "--spark_submit_uber_jar --spark_rest_url=http://{silent}", "--spark_rest_url"),
    ("SparkRunner", "--job_server_java_launcher=no-java", "there is no 'no-java'"),
]  # fmt: skip
TAKEN = [
    ("PortableRunner", "--job_endpoint={job server}"),
    ("PortableRunner", "--job_endpoint={job server} --artifact_endpoint={job server}"),
    ("PortableRunner", "--job_endpoint=embed"),
    ("FlinkRunner", "--flink_master={page}"),
    ("SparkRunner", "--spark_master_url=spark://{nobody},{page}"),
    ("SparkRunner", "--spark_master_url=local[2]"),
    ("DirectRunner", "--job_endpoint={nobody}"),  # which it does not ask
    ("PrismRunner", ""),
]


def options(runner: str, flags: str, places: dict[str, str]) -> PipelineOptions:
    java = [] if "java_launcher" in flags else ["--job_server_java_launcher=true"]
    told = [flag.format_map(places) for flag in flags.split(" --")]
    found = [flag if flag.startswith("--") else f"--{flag}" for flag in told if flag]
    return PipelineOptions([f"--runner={runner}", *java, *found])


@pytest.mark.parametrize(("runner", "flags", "said"), REFUSED)
def test_a_server_that_does_not_answer_is_named(
    runner: str, flags: str, said: str, places: dict[str, str]
) -> None:
    with pytest.raises(NoServerError, match=said):
        check_servers(options(runner, flags, places))


@pytest.mark.parametrize(("runner", "flags"), TAKEN)
def test_what_answers_is_taken(runner: str, flags: str, places: dict[str, str]) -> None:
    check_servers(options(runner, flags, places))


def test_a_pipeline_of_ones_own_reserves_nothing(tmp_path: Path, places: dict[str, str]) -> None:
    url = f"sqlite:///{tmp_path}/l.db"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("web", epsilon=3, delta=1e-6, local_epsilon=20)
    rows = len(ledger.rows())

    def build(endpoint: str) -> None:
        told = options("PortableRunner", f"--job_endpoint={endpoint}", places)
        pipeline = beam.Pipeline(options=told)
        values: Any = pipeline | beam.Create(["a"]).with_output_types(str)
        values | PrivateFrequencies(
            KRandomizedResponse(3, 2.0),
            domain=Domain(("a", "b")),
            min_reports=1000,
            people=People(one_row=True),
            budget=ChargeTo("web", url, run_id="r"),
        )

    with pytest.raises(NoServerError):
        build(places["silent"])
    assert len(ledger.rows()) == rows
    build(places["job server"])  # the same once more, where the server is there now
    assert ledger.charge("r").status == "reserved"
