"""docs/pyspark.md, run on a local Spark without Beam, beside Beam's stages on the same people."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest

from beam_ldp.accounting import shuffle_epsilon
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import SubsetSelection
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import CoordinateRanges, LInfMean
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.settings import People
from beam_ldp.transforms import Aggregate, EncodeRows, EncodeVectors, Randomize, Shuffle
from beam_ldp.transforms.device.keyed import NoiseSource
from tests.engines.cache import QUICK

# With both marks it is run by `make test-pyspark` alone, which makes what it needs.
pytestmark = [pytest.mark.engines, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-pyspark" / "bin" / "python"
PAGE = (ROOT / "docs" / "pyspark.md").read_text("utf-8")
PAGES = Domain(("/home", "/news", "/help"))
ORACLE = SubsetSelection(PAGES.size, local_epsilon=2.0)
MINUTES = CoordinateRanges(low=(0.0,), high=(240.0,))
MEAN = LInfMean.for_shuffle(1, epsilon=0.5, delta=1e-8, num_users=20_000)


def identity_of(mechanism, column, values) -> ReleaseIdentity:
    digest = mechanism.config_digest().hex()
    return ReleaseIdentity("telemetry", "week-47", digest, (column,), values.digest.hex())


URLS, MEANS = identity_of(ORACLE, "url", PAGES), identity_of(MEAN, "minutes", MINUTES)
LAST = """
import importlib.util, json
from dataclasses import replace

def encode(frame):
    return pages.encode(frame["url"])

def noisy(frames):
    for frame in frames:
        yield pd.DataFrame({"n": oracle.accumulate(oracle.randomize(encode(frame)))})

found = {"statistic": statistic.tolist(), "mean": mean_statistic.tolist(), "epsilon": float(price)}
found["users"] = [users, mean_users]
found["beam"] = importlib.util.find_spec("apache_beam") is not None
other = private_sums(people.repartition(3, "url"), oracle, encode, pages_seen)
found["other partitions"] = release(other, oracle, 1)[1].tolist()
again = private_sums(people, oracle, encode, replace(pages_seen, release_id="week-48"))
found["other release"] = release(again, oracle, 1)[1].tolist()
try:
    release(sums, oracle, 20_001)
except RuntimeError as error:
    found["too few"] = str(error)
fresh = people.mapInPandas(noisy, "n long")
found["fresh"] = [[row["n"] for row in fresh.collect()] for _ in range(2)]
dealt = people.repartition(3)
found["dealt"] = [[row["uid"] for row in dealt.limit(50).collect()] for _ in range(2)]
found["plan"] = people.orderBy(F.rand())._jdf.queryExecution().toString()
with open("found.json", "w") as file:
    json.dump(found, file)
spark.stop()
"""


@dataclass(frozen=True)
class Ran:
    """The folder in which the page ran, what it printed, and what it held at its end."""

    folder: Path
    printed: str
    found: dict


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    assert PYTHON.exists(), "no .venv-pyspark: run `make pyspark`"
    folder = tmp_path_factory.mktemp("pyspark")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    (folder / "page.py").write_text("\n".join([*blocks, LAST]), encoding="utf-8")
    left_out = ("SPARK_HOME", "PYTHONPATH", "PYSPARK_PYTHON")
    environment = {name: text for name, text in os.environ.items() if name not in left_out}
    spark = {"SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": " ".join(QUICK)}
    done = subprocess.run(
        [str(PYTHON), "page.py"], cwd=folder, env={**environment, **spark},
        capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    yield Ran(folder, done.stdout, json.loads((folder / "found.json").read_text("utf-8")))


def beams(
    encoded: beam.PTransform, mechanism: object, identity: ReleaseIdentity, folder: Path
) -> tuple[int, list]:
    """Number of reports and statistic of the Beam stages, in small blocks."""
    columns = pq.read_table(folder / "people.parquet")
    rows = [columns.slice(at, 3777).to_batches()[0] for at in range(0, len(columns), 3777)]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        (
            pipeline
            | beam.Create(rows)
            | encoded
            | Randomize(mechanism, noise=NoiseSource(identity, str(folder / "release.key")))
            | Shuffle(mechanism, min_reports=18_000, output="statistic")
            | Aggregate(mechanism)
            | beam.Map(lambda sum_: (sum_.num_reports, sum_.statistic.tolist()))
            | beam.Map(json.dumps)
            | beam.io.WriteToText(str(folder / type(mechanism).__name__), num_shards=1)
        )
    (file,) = folder.glob(f"{type(mechanism).__name__}-*")
    held = json.loads(file.read_text("utf-8"))
    return held[0], held[1]


def test_counts_are_beams_integers(ran: Ran) -> None:
    encoded = EncodeRows(PAGES, "url", people=People(id="uid"))
    users, statistic = beams(encoded, ORACLE, URLS, ran.folder)
    assert ran.found["users"][0] == users == 20_000
    assert ran.found["statistic"] == statistic
    assert ran.found["other partitions"] == statistic
    assert ran.found["other release"] != statistic


def test_means_are_beams_integers(ran: Ran) -> None:
    encoded = EncodeVectors("minutes", 1, people=People(id="uid"), ranges=MINUTES)
    users, statistic = beams(encoded, MEAN, MEANS, ran.folder)
    assert ran.found["users"][1] == users == 20_000
    assert ran.found["mean"] == statistic


def test_beam_is_not_there(ran: Ran) -> None:
    assert ran.found["beam"] is False


def test_the_price_is_that_of_the_reports(ran: Ran) -> None:
    assert ran.found["epsilon"] == shuffle_epsilon(ORACLE, 20_000, 1e-8)
    assert f"epsilon {ran.found['epsilon']:.3f} at delta 1e-8" in ran.printed


def test_too_few_release_nothing(ran: Ran) -> None:
    assert ran.found["too few"] == "fewer than 20,001 reports: nothing is released"


def test_reports_leave_without_ids_and_in_another_order(ran: Ran) -> None:
    """The same multiset of reports; the order is as far from the input's as a random one is.

    Reports that keep their place: about `share` of them by chance; 5 standard deviations.
    """
    written = pq.read_table(ran.folder / "reports")
    assert written.column_names == ["report"]
    left = np.array(written.column("report").to_pylist())
    columns = pq.read_table(ran.folder / "people.parquet")
    uids = columns.column("uid").to_numpy()
    key = (ran.folder / "release.key").read_bytes()
    values = PAGES.encode(columns.column("url").to_pylist())
    sent = ORACLE.randomize(values, UserRandomness(key, uids, URLS))
    assert ORACLE.accumulate(left.astype(ORACLE.report_dtype)).tolist() == ran.found["statistic"]
    one, other = sent.astype(np.int64), left
    kinds, shares = np.unique(one, axis=0, return_counts=True)
    np.testing.assert_array_equal(kinds, np.unique(other, axis=0))
    share = float(np.sum((shares / len(one)) ** 2))
    kept = int(np.sum((one == other).all(axis=1)))
    assert abs(kept - share * len(one)) < 5 * (len(one) * share * (1 - share)) ** 0.5


def test_what_the_page_says_of_sparks_own_means(ran: Ran) -> None:
    assert ran.found["dealt"][0] == ran.found["dealt"][1]  # repartition repeats itself
    assert re.search(r"rand\(-?\d+\)", ran.found["plan"])  # the seed is in the plan
    assert ran.found["fresh"][0] != ran.found["fresh"][1]  # two actions are two reports


def test_the_version_is_that_of_the_jars() -> None:
    pins = (ROOT / "requirements" / "pyspark-py311.txt").read_text("utf-8")
    poms = (ROOT / "tests" / "engines" / "spark-pom.xml").read_text("utf-8")
    (pinned,) = re.findall(r"^pyspark==(\S+)$", pins, flags=re.MULTILINE)
    jars = re.findall(r"<artifactId>spark-\w+_2\.12</artifactId><version>([^<]+)<", poms)
    assert set(jars) == {pinned}
