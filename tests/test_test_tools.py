"""What tests stand on is right itself: answers of Beam that are remembered, warm programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions
from apache_beam.transforms.core import CallableWrapperDoFn
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from tests import beam_memory
from tests.conftest import LIMIT_SECONDS
from tests.made_once import MadeOnce
from tests.pipelines.conftest import DRAWN
from tests.warm import run_warm, warm_commands

ROOT = Path(__file__).resolve().parents[1]
SEEN = beam.DoFn.StateParam(ReadModifyWriteStateSpec("seen", VarIntCoder()))


class Plain(beam.DoFn):
    def process(self, element, window=beam.DoFn.WindowParam):
        yield element


class Stateful(beam.DoFn):
    def process(self, element, seen=SEEN):
        yield element


def plain(element):
    return [element]


def windowed(element, window=beam.DoFn.WindowParam):
    return [element]


def stateful(element, seen=SEEN):
    return [element]


@pytest.mark.exact
def test_what_is_remembered_of_a_stage_is_what_beam_says():
    """Of classes and of functions in the same wrapper, whichever is asked first and again."""
    stages = [Plain(), Stateful(), *map(CallableWrapperDoFn, (plain, windowed, stateful, plain))]
    for _ in range(2):
        for stage in stages:
            assert beam_memory.get_dofn_specs(stage) == beam_memory._specs(stage)
            for method in (stage.process, plain, windowed, stateful, str):
                found = beam_memory.get_signature(method)
                assert found == beam_memory._signature(method)
    assert [bool(beam_memory.get_dofn_specs(stage)[0]) for stage in stages[:2]] == [False, True]


@pytest.mark.exact
def test_pipelines_share_no_options():
    first = PipelineOptions(["--experiments=a"])
    first.view_as(DebugOptions).add_experiment("b")
    assert first.view_as(DebugOptions).experiments == ["a", "b"]
    assert PipelineOptions(["--experiments=a"]).view_as(DebugOptions).experiments == ["a"]
    assert PipelineOptions(["--experiments=c"]).view_as(DebugOptions).experiments == ["c"]


@pytest.mark.e2e
def test_a_warm_program_is_a_program(tmp_path: Path):
    """Its own arguments, variables, folder and `__main__`; its exit code, its error, its end."""
    script = tmp_path / "program.py"
    script.write_text(
        "import os, sys, time\nclass Own: pass\n"
        "print(sys.argv[1:], os.environ['WORD'], os.getcwd(), Own.__module__)\n"
        "if sys.argv[1] == 'wait': time.sleep(60)\n"
        "raise {'leave': SystemExit(3), 'fail': ValueError('so')}[sys.argv[1]]\n"
    )
    left = run_warm(str(script), "leave", "now", cwd=tmp_path, WORD="w")
    assert (left.returncode, left.stderr) == (3, "")
    assert left.stdout == f"['leave', 'now'] w {tmp_path} __main__\n"
    failed = run_warm(str(script), "fail", cwd=tmp_path, WORD="w")
    assert failed.returncode == 1 and failed.stderr.endswith("ValueError: so\n")
    assert run_warm(str(script), "wait", timeout=0.5, WORD="w").returncode == -9


@pytest.mark.e2e
def test_a_shell_finds_warm_programs(tmp_path: Path):
    """With the shell's streams, folder and variables; several at once; their ends are its own."""
    (tmp_path / "program.py").write_text(
        "import os, sys\nprint(sys.stdin.read(), sys.argv[1:], os.environ['WORD'], os.getcwd())\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    script = """
        export WORD=w
        python program.py 0 < word & python -c 'print("cold")'
        wait $!
        beam-ldp plan frequency --help > help
        echo piped | python program.py 3
    """
    (tmp_path / "word").write_text("read")
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PATH": f"{warm_commands()}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    assert ran.returncode == 3 and not ran.stderr, ran.stderr
    told = {f"read ['0'] w {tmp_path}", "cold", f"piped\n ['3'] w {tmp_path}".split("\n")[1]}
    assert told <= set(ran.stdout.splitlines()), ran.stdout
    assert "--expected-users" in (tmp_path / "help").read_text()


@pytest.mark.exact
def test_a_test_that_hangs_is_ended(request: pytest.FixtureRequest):
    """At the limit that every test has, which a test's own marker replaces."""
    limit = request.node.get_closest_marker("timeout")
    assert limit.args == (LIMIT_SECONDS,) and request.config.pluginmanager.hasplugin("timeout")


@pytest.mark.exact
def test_a_test_of_pictures_has_them_drawn():
    """Whoever asks for one, or reads one."""
    of_pictures = re.compile(r"\bplot_\w+\(|imread|matplotlib\.image")
    files = (Path(__file__).parent / "pipelines").glob("test_*.py")
    assert {path.stem for path in files if of_pictures.search(path.read_text("utf-8"))} <= DRAWN


@pytest.mark.exact
def test_what_is_made_once_is_made_by_the_first_and_anew_where_that_failed(tmp_path: Path) -> None:
    """By name, whichever process asks: here two that have only the folder in common."""
    one, other = MadeOnce(tmp_path), MadeOnce(tmp_path)
    assert one.made("a", lambda: [1, 2]) == other.made("a", lambda: [3]) == [1, 2]
    assert other.made("b", lambda: [3]) == [3]

    def fill(folder: Path, text: str = "whole") -> None:
        assert list(folder.iterdir()) == []
        (folder / "file").write_text(text)
        if text != "whole":
            raise RuntimeError

    with pytest.raises(RuntimeError):
        one.folder("c", lambda folder: fill(folder, "half"))
    assert (other.folder("c", fill) / "file").read_text() == "whole"
    assert one.folder("c", pytest.fail) == other.folder("c", pytest.fail)


@pytest.mark.exact
def test_seconds_of_a_processor_are_written_beside_those_of_other_files(tmp_path: Path) -> None:
    """Of a worker, which has no terminal."""
    kept = tmp_path / "seconds.json"
    kept.write_text('{"tests/other.py": 7.0}')
    file = "tests/packaging/test_fetch_data.py"
    order = [sys.executable, "-m", "pytest", "-q", "-n1", "-p", "no:cacheprovider", file]
    variables = os.environ | {"BEAM_LDP_SECONDS": str(kept)}
    subprocess.run(order, cwd=ROOT, env=variables, check=True, capture_output=True)
    told = json.loads(kept.read_text("utf-8"))
    assert set(told) == {file, "tests/other.py"} and 0 < told[file] < 60
