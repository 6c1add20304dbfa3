"""The template's metadata and container file fit the program that they start."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "dataflow"
TYPES = {"TEXT", "GCS_READ_FILE", "GCS_WRITE_FOLDER"}  # a few of those that Dataflow knows
REQUIRED = {"input", "domain", "delta", "output"}
pytestmark = pytest.mark.dataflow

EXAMPLES = {
    "input": ["gs://bucket/events/*.parquet"], "input_format": ["parquet", "auto"],
    "domain": ["gs://bucket/words.txt"], "output": ["gs://bucket/out"],
    "delta": ["1e-8", "0.000001"], "epsilon": ["1", "0.5"], "local_epsilon": ["4"],
    "max_local_epsilon": ["6.5"], "expected_users": ["1e6", "1000000"], "min_reports": ["900"],
    "honest_fraction": ["1", "0.9", "1.0"], "mechanism": ["auto", "KRandomizedResponse"],
    "max_bits": ["32"], "shuffle_output": ["statistic", "reports"], "scope": ["batch", "global"],
    "memoize_key_file": ["gs://bucket/key"], "bad_rows": ["dead-letter", "other"],
}  # fmt: skip
REFUSED = {
    "input": ["/tmp/x"], "delta": ["small", "-1"], "epsilon": ["inf", ""], "scope": ["all"],
    "honest_fraction": ["0", "2"], "expected_users": ["many"], "mechanism": ["a b"],
}  # fmt: skip


def metadata() -> dict[str, Any]:
    return json.loads((DEPLOY / "metadata.json").read_text())


def parameters() -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in metadata()["parameters"]}


def program_flags() -> dict[str, dict[str, Any]]:
    """The flags of the installed program, as it names them itself."""
    code = (
        "import json; from beam_ldp.pipelines.usage.frequency import USAGE;"
        "print(json.dumps({'--' + about.flag: {'choices': list(about.choices) or None} "
        "for _, _, about in USAGE}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {name[2:].replace("-", "_"): how for name, how in json.loads(done.stdout).items()}


def test_metadata_has_the_form_that_dataflow_reads() -> None:
    assert set(metadata()) == {"name", "description", "parameters"}
    assert len(parameters()) == len(metadata()["parameters"])
    for name, entry in parameters().items():
        assert set(entry) <= {"name", "label", "helpText", "isOptional", "regexes", "paramType"}
        assert re.fullmatch(r"[a-z][a-z_]*", name)
        assert entry["paramType"] in TYPES
        assert entry["label"] and entry["helpText"].endswith(".")
        assert entry.get("isOptional", False) != (name in REQUIRED)


def test_every_parameter_is_a_flag_and_takes_its_choices() -> None:
    flags = program_flags()
    for name, entry in parameters().items():
        assert name in flags
        choices = flags[name]["choices"]
        if choices:
            (regex,) = entry["regexes"]
            assert all(re.fullmatch(regex, choice) for choice in choices), name
            assert not re.fullmatch(regex, "something-else")


def test_the_regexes_take_what_is_right_and_nothing_else() -> None:
    assert {n for n, entry in parameters().items() if "regexes" in entry} == set(EXAMPLES)
    for examples, accepted in ((EXAMPLES, True), (REFUSED, False)):
        for name, values in examples.items():
            (regex,) = parameters()[name]["regexes"]
            for value in values:
                assert bool(re.fullmatch(regex, value)) == accepted, (name, value)


def test_container_file_passes_the_linter() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [linter, DEPLOY / "Dockerfile"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout


def test_the_linter_finds_faults(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian:latest\nRUN cd x && sudo pip install y\n")
    linter = Path(sys.executable).with_name("hadolint")
    assert subprocess.run([linter, bad], capture_output=True, timeout=60).returncode != 0


def test_container_holds_what_the_graph_was_built_with() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    pins = dict(
        line.split("==") for line in (ROOT / "requirements/dataflow-py311.txt").read_text().split()
    )
    assert f"sdk:{pins['apache-beam']}" in text
    assert f"python{sys.version_info.major}.{sys.version_info.minor}_sdk" in text
    copied = re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE)
    assert copied == [
        "requirements/dataflow-py311.txt",
        "dist/*.whl",
        "deploy/dataflow/frequency.py",
    ]
    assert all((ROOT / path).exists() for path in copied if "*" not in path)
    entry = re.search(r"FLEX_TEMPLATE_PYTHON_PY_FILE=(\S+)", text)
    assert entry and Path(entry.group(1)).name == "frequency.py"
