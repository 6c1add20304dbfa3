"""Every kind of question at every door: it works, or the door refuses and says why.

The table of docs/questions.md is made here: `python -m tests.questions.test_matrix` prints it.
Releases of each cell that works are in the tests of its door (`tests/pipelines`, `tests/pairs`,
`tests/yaml`, `tests/golden`); here a cell is held to what the product says it has.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.usage.plan import PLANS
from beam_ldp.release.commands import COMMANDS, PROGRAMS, usage_of

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"
DOORS = ("job file", "plan", "Python", "transform", "Beam YAML", "groups", "devices", "stream")
YAML = "beam_ldp.transforms.yaml"

# By what is asked: its program, and what its doors are called; doors that flags open are found.
KINDS = {
    "values of a list": ("frequency", "frequencies", "PrivateFrequencies", "PrivateFrequencies"),
    "numbers in bins": ("frequency", "frequencies", "PrivateFrequencies", "PrivateFrequencies"),
    "several lists": ("frequency", "frequencies", "PrivateQuestions", "PrivateQuestions"),
    "means": ("mean", "means", "PrivateMean", "PrivateMean"),
    "means of many rows": ("user_mean", "user_means", "PrivateUserMean", ""),
    "words": ("heavy_hitters", "heavy_hitters", "PrivateHeavyHitters", ""),
    "A/B tests": ("ab_test", "", "decisions:PrivateExperiment", ""),
    "bandits": ("bandit_advance", "", "", ""),
}
DEVICES = {
    "frequency": "randomize", "mean": "randomize", "heavy_hitters": "heavy-hitters --publish",
    "ab_test": "randomize --ab-test", "bandit_advance": "bandit start",
}  # fmt: skip
PLANNED = {"ab_test": "ab-test design", "bandit_advance": "bandit plan"}


def cells(kind: str) -> dict[str, str]:
    """What opens each door to a kind; "" for a door that it has not."""
    program, python, transform, yaml = KINDS[kind]
    usage = usage_of(program)
    return {
        "job file": program if program in PROGRAMS else "",
        "plan": f"plan {usage.name}" if usage.name in PLANS else PLANNED.get(program, ""),
        "Python": python,
        "transform": transform.partition(":")[2] or transform,
        "Beam YAML": yaml,
        "groups": usage.known_flag_of("people.group_by") or "",
        "devices": DEVICES.get(program, ""),
        "stream": usage.known_flag_of("stream.on") or "",
    }


REFUSED_BY = {"Python": "python", "transform": "transform", "Beam YAML": "yaml",
              "groups": "group-by", "devices": "publish", "stream": "stream"}  # fmt: skip


def why_not(kind: str, door: str) -> str:
    """The sentence of a door that a kind has not."""
    return usage_of(KINDS[kind][0]).refuses[REFUSED_BY[door]]


def table() -> str:
    """Of docs/questions.md, in Markdown."""
    lines = [f"| | {' | '.join(DOORS)} |", "|---" * (len(DOORS) + 1) + "|"]
    notes: list[str] = []
    for kind in KINDS:
        row = []
        for door, opened in cells(kind).items():
            if opened:
                row.append(f"`{opened}`")
                continue
            note = why_not(kind, door)
            if note not in notes:
                notes.append(note)
            row.append(f"no ({notes.index(note) + 1})")
        lines.append(f"| {kind} | {' | '.join(row)} |")
    return "\n".join(
        [*lines, "", *(f"{i}. {note[0].upper()}{note[1:]}." for i, note in enumerate(notes, 1))]
    )


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text("utf-8"), "python -m tests.questions.test_matrix prints it"


@pytest.mark.parametrize("kind", KINDS)
def test_doors_are_there_or_refuse(kind: str) -> None:
    program, python, transform, yaml = KINDS[kind]
    usage = usage_of(program)
    for opened, room in ((python, "beam_ldp"), (yaml, YAML)):
        assert not opened or callable(getattr(importlib.import_module(room), opened))
    room, _, name = transform.rpartition(":")
    rooms = importlib.import_module(f"beam_ldp.{room or 'transforms'}")
    assert not transform or callable(getattr(rooms, name))
    assert usage.name in COMMANDS
    for door, opened in cells(kind).items():
        flag = REFUSED_BY.get(door)
        if opened or flag in (None, "python", "transform", "yaml"):
            continue
        said = CliRunner().invoke(group, [*usage.name.split(), f"--{flag}"])
        assert said.exit_code == 2
        assert why_not(kind, door) in " ".join(said.output.split())


if __name__ == "__main__":
    print(table())
