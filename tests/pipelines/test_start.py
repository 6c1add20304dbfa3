"""What a program loads before it answers: nobody waits for a library that has no part in it.

Each test starts one interpreter, for this one has loaded everything. Times are in
`benchmarks/start.py`; here only what is loaded counts, which does not depend on the machine.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
)
from apache_beam.typehints import decorators

from beam_ldp.accounting import shuffle_epsilon
from beam_ldp.fast_start import TESTED, remember_signatures
from beam_ldp.release.beam_job import JobOptions

HEAVY = (  # NumPy, of 0.1 seconds, is not
    "apache_beam", "scipy", "pyarrow", "numba", "pandas", "matplotlib", "dp_accounting",
    "mlflow", "sqlalchemy",
)  # fmt: skip
HELPS = """
import json, sys
from click.testing import CliRunner
from beam_ldp.pipelines.cli import group

heavy, found = json.loads(sys.argv[1]), {}
def ask(name, command):
    shown = CliRunner().invoke(group, [*name, "--help"])
    assert shown.exit_code == 0, shown.output
    found[" ".join(name)] = [len(shown.output), [one for one in heavy if one in sys.modules]]
    for below in getattr(command, "list_commands", lambda _: ())(None):
        ask([*name, below], command.get_command(None, below))
ask([], group)
for below in ("frequency", "mean", "user-mean", "train"):
    ask(["plan", below], None)
print(json.dumps(found))
"""


def told(code: str, *arguments: str) -> dict[str, list[object]]:
    """What a fresh interpreter prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, timeout=120, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


@pytest.mark.exact
def test_help_loads_nothing_heavy() -> None:
    found = told(HELPS, json.dumps(HEAVY))
    assert {"frequency", "mean", "user-mean", "train", "plan mean", "budget show"} <= set(found)
    assert {name: loaded for name, (_, loaded) in found.items() if loaded} == {}
    assert all(length > 200 for length, _ in found.values())  # type: ignore[operator]


PRICES = """
import json, sys
from beam_ldp.accounting import local_epsilon_for, shuffle_epsilon
from beam_ldp.accounting.schedule_prices import CLONES
from beam_ldp.accounting.prices import event_epsilon
from beam_ldp.accounting.shuffle.one_release import shuffled_reports
from beam_ldp.accounting.schedule import Schedule
from beam_ldp.planning import plan_frequencies
from beam_ldp.randomizers.frequency import KRandomizedResponse

heavy, found = json.loads(sys.argv[1]), {}
def priced(name, price):
    found[name] = [float(price), [one for one in heavy if one in sys.modules]]
priced("one", shuffle_epsilon(2.0, 10**4, 1e-6))
priced("several", CLONES.epsilon(Schedule(2.0, 10**4, 10**4, 3), 1e-6)[0])
reports = shuffled_reports(KRandomizedResponse(9, 2.0), 10**4)
priced("mechanism", event_epsilon(reports, 1e-6))
priced("plan", plan_frequencies(10**3, 9, local_epsilon=2.0, delta=1e-6)[0].local_epsilon)
from beam_ldp.pipelines import frequency  # and all that a small run loads
found["program"] = [0.0, [one for one in heavy if one in sys.modules and one != "apache_beam"]]
print(json.dumps(found))
"""


@pytest.mark.exact
def test_prices_do_without_dp_accounting() -> None:
    found = told(PRICES, json.dumps(["dp_accounting", "apache_beam", "numba", "matplotlib"]))
    assert {name: loaded for name, (_, loaded) in found.items()} == dict.fromkeys(found, [])
    one = shuffle_epsilon(2.0, 10**4, 1e-6)
    assert found["one"][0] == float(one) and found["plan"][0] == 2.0


PLANS = """
import json, sys
from click.testing import CliRunner
from beam_ldp.pipelines.cli import group

heavy, found = json.loads(sys.argv[1]), {}
for line in (
    "plan frequency --expected-users 1e5 --domain-size 50 --epsilon 1 --delta 1e-8",
    "plan mean --expected-users 1e4 --dimension 12 --epsilon 1 --delta 1e-8",
    "plan user-mean --expected-users 1e4 --range 0 1 --epsilon 1 --delta 1e-8 --rows-per-user 99 "
    "--sigma 0.1",
    "privacy --local-epsilon 2 --expected-users 1e5 --rounds 9 --delta 1e-8",
):
    shown = CliRunner().invoke(group, line.split())
    assert shown.exit_code == 0, shown.output
    found[line.split(" --")[0]] = [one for one in heavy if one in sys.modules]
print(json.dumps(found))
"""


@pytest.mark.exact
def test_plans_and_prices_load_as_little_as_they_can() -> None:
    parts = ["special", "optimize", "stats", "signal", "linalg"]
    heavy = [one for one in HEAVY if one != "scipy"] + [f"scipy.{part}" for part in parts]
    found = told(PLANS, json.dumps(heavy))
    assert found["plan frequency"] == []  # asked first: not even special functions
    old_scipys = {"scipy.linalg"}  # which their special functions load
    assert set(found["plan mean"]) <= {"scipy.special", "numba"} | old_scipys
    bisected = {"scipy.optimize", "scipy.linalg"}  # the radii of a search
    assert set(found["plan user-mean"]) <= {"scipy.special", "numba"} | bisected
    assert "scipy.stats" not in found["privacy"] and "dp_accounting" not in found["privacy"]


BEAM = """
import json, sys
from beam_ldp.fast_start import load_beam

load_beam()
import beam_ldp.pipelines.frequency
found = {"loaded": [1.0, [name for name in ("pandas", "pymongo") if name in sys.modules]]}
import pyarrow
frame = pyarrow.table({"a": [1, 2]}).to_pandas()  # who wants it has it
import pymongo
found["pandas"] = [float(pyarrow.Table.from_pandas(frame)["a"].to_pylist() == [1, 2]), []]
print(json.dumps(found))
"""


@pytest.mark.exact
def test_a_program_loads_no_data_frames() -> None:
    assert told(BEAM) == {"loaded": [1.0, []], "pandas": [1.0, []]}


@pytest.mark.exact
def test_options_are_beams_own_and_each_view_is_made_once() -> None:
    flags = ["--runner=Flink", "--direct_num_workers=3", "--experiments=a", "--beam_plugin=x"]
    ours, theirs = JobOptions(flags), PipelineOptions(flags)
    for kind in (StandardOptions, DirectOptions, DebugOptions, SetupOptions, GoogleCloudOptions):
        assert ours.view_as(kind) is ours.view_as(kind)
        assert ours.view_as(kind).display_data() == theirs.view_as(kind).display_data()
    ours.view_as(DebugOptions).add_experiment("b")
    assert ours.view_as(SetupOptions).view_as(DebugOptions).experiments == ["a", "b"]
    again = pickle.loads(pickle.dumps(ours))
    assert again.get_all_options() == ours.get_all_options()
    assert again.view_as(DirectOptions).direct_num_workers == 3


@pytest.mark.exact
@pytest.mark.parametrize("package", TESTED)
def test_what_is_not_loaded_was_looked_at_in_these_versions(package: str) -> None:
    """Of another one: is all that `lean` leaves out still optional, and is each worth its lines?"""
    assert f"{version(package)}.".startswith(f"{TESTED[package]}.")


@pytest.mark.exact
def test_signatures_are_those_that_beam_works_out() -> None:
    class Stage(beam.DoFn):
        def process(self, element, window=beam.DoFn.WindowParam, more: int = 3):
            yield element

    assert list(inspect.signature(decorators.get_signature).parameters) == ["func"]
    remember_signatures()
    assert decorators.get_signature.remembers  # type: ignore[attr-defined]
    for method in (Stage().process, Stage().setup, Stage.process, len, str.strip, lambda x: x):
        assert decorators.get_signature(method) == decorators.get_signature(method)
    found = decorators.get_signature(Stage().process)
    assert found == inspect.signature(Stage().process) and "self" not in found.parameters
    assert decorators.get_signature(Stage.process) == inspect.signature(Stage.process)


MLFLOW = """
import json, sys
from pathlib import Path
from beam_ldp.fast_start import load_mlflow

sys.path.insert(0, sys.argv[1])
load_mlflow()
import mlflow_ldp
loaded = "pandas" in sys.modules
import pandas  # who wants it has it
print(json.dumps({"found": [mlflow_ldp.available(), loaded]}))
"""


@pytest.mark.exact
@pytest.mark.parametrize("somebodys", [False, True])
def test_the_log_needs_no_data_frames_unless_somebodys_plugin_does(
    somebodys: bool, tmp_path: Path
) -> None:
    if somebodys:
        (tmp_path / "theirs-1.dist-info").mkdir()
        (tmp_path / "theirs-1.dist-info" / "METADATA").write_text("Name: theirs\nVersion: 1\n")
        (tmp_path / "theirs-1.dist-info" / "entry_points.txt").write_text(
            "[mlflow.request_header_provider]\nx = theirs:Provider\n"
        )
        (tmp_path / "theirs.py").write_text("import pandas\nclass Provider:\n    pass\n")
    assert told(MLFLOW, str(tmp_path)) == {"found": [True, somebodys]}
