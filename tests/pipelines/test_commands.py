"""The table of commands: every one loads; another package adds its own without a changed line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from beam_ldp.pipelines import check, job_runs
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.programs import DONE, MISUSED
from beam_ldp.release import commands, job_files
from beam_ldp.settings.usage import Usage

pytestmark = pytest.mark.exact

THEIRS = """
import click
from dataclasses import dataclass

from beam_ldp.settings.usage import Part, Usage
from beam_ldp.settings.fields import COUNT, setting


@dataclass(frozen=True, kw_only=True)
class HowMany:
    column: tuple[str, ...] = setting((), "column", flag="column", many=True, basic=True)
    sides: int | None = setting(None, "sides of the die", COUNT, flag="sides", basic=True)


USAGE = Usage(
    name="roll-dice", module="theirs.program", summary="Rolls.", synopsis="--sides N",
    examples="", parts=(Part("question", HowMany, "the dice"),), question="roll_dice",
)


@click.command()
def greet() -> None:
    click.echo("hello")


def shout(flags: list[str]) -> int:
    print(*flags, sep="!")
    return 5
"""
PROGRAM = """
from beam_ldp.release.checks import Finding
from beam_ldp.pipelines.programs import Program
from beam_ldp.settings import SettingError
from theirs import USAGE


def run(given, console):
    print("rolled", given["question"])
    return 0


def refuse(given):
    raise SettingError("question.sides must be even")


PROGRAM = Program(USAGE, run, refuse)
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that is installed, with a command of each sort."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "__init__.py").write_text(THEIRS)
    (tmp_path / "theirs" / "program.py").write_text(PROGRAM)
    (tmp_path / "theirs-1.dist-info").mkdir()
    (tmp_path / "theirs-1.dist-info" / "METADATA").write_text("Name: theirs\nVersion: 1\n")
    (tmp_path / "theirs-1.dist-info" / "entry_points.txt").write_text(
        "[beam_ldp.commands]\nroll-dice = theirs:USAGE\ngreet = theirs:greet\n"
        "shout = theirs:shout\nfrequency = theirs:greet\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    commands.of_others.cache_clear()
    yield
    commands.of_others.cache_clear()
    for name in ("theirs", "theirs.program"):
        sys.modules.pop(name, None)


def test_every_command_is_where_the_table_says() -> None:
    for typed, command in commands.COMMANDS.items():
        found = command.load()
        assert command.in_jobs == isinstance(found, Usage), typed
        assert isinstance(found, Usage | click.Command) or callable(found), typed
        if isinstance(found, Usage):
            program = commands.program_of(found)
            assert program.usage is found and found.name == typed
    assert commands.job_name("ab-test run") == "ab_test"
    assert commands.job_name("ab-test decide") == "ab_test_decide"


def test_a_command_of_ours_looks_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "of_others", lambda: pytest.fail("looked"))
    assert CliRunner().invoke(group, ["--help"]).exit_code == DONE
    assert CliRunner().invoke(group, ["frequency", "--help"]).exit_code == DONE
    asked = {"questions": [{"frequency": "url", "domain": "urls.txt"}]}
    assert job_files.jobs_of(asked)[0][0] == "frequency"


def test_commands_of_another_package(theirs: None) -> None:
    """One of a name of ours is not reached."""
    for words, code, said in (
        (["greet"], 0, "hello"),
        (["shout", "a", "--b"], 5, "a!--b"),
        (["roll-dice", "--sides=6", "--column=d"], 0, "rolled"),
        (["roll-dice", "--help"], 0, "Rolls."),
        (["frequency", "--help"], 0, "How often"),
    ):
        done = CliRunner().invoke(group, words)
        assert (done.exit_code, said in done.output) == (code, True), (words, done.output)


def test_a_program_of_another_package_in_a_job_file(
    theirs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.json").write_text(json.dumps({"questions": [{"roll_dice": "d", "sides": 6}]}))
    assert job_runs.main(["job.json"]) == DONE
    assert "'sides': 6" in capsys.readouterr().out
    assert check.main(["job.json"]) == MISUSED
    assert "must be even" in capsys.readouterr().out
    assert check.main(["roll-dice", "--sides=6", "--format=json"]) == MISUSED
