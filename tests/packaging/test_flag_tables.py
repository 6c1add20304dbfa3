"""docs/command-line.md names every flag of every command."""

from __future__ import annotations

import re

import pytest

from tests.packaging.flag_tables import PAGE, flags_in
from tests.packaging.stable import commands, flags_of

pytestmark = pytest.mark.exact

COMMAND = "python -m tests.packaging.flag_tables"


def sections() -> dict[str, str]:
    """The tables of the page, by command."""
    parts = re.split(r"^### `beam-ldp ([a-z -]+)`$", PAGE.read_text("utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def test_every_flag_of_every_command_is_in_the_page() -> None:
    told = sections()
    for name, text in commands().items():
        flags = set(flags_of(text)) - {"--help", "--version"}
        listed = set(re.findall(r"^\| `(--[a-z][a-z-]*)", told.get(name, ""), re.M))
        assert listed == flags, f"beam-ldp {name}: {listed ^ flags}; {COMMAND} writes them"
    assert set(told) <= set(commands())


def test_the_flags_of_frequency_are_there() -> None:
    """Those that came late, so that an empty help cannot pass for a full page."""
    table = sections()["frequency"]
    for flag in (
        "--design", "--bins", "--quantiles", "--between", "--fan-out", "--group-by", "--groups",
        "--stream", "--time-column", "--window", "--budget-windows", "--people-store",
    ):  # fmt: skip
        assert f"| `{flag}" in table, flag
    assert "--allow-over-target" in sections()["collect"]
    assert "--allow-over-target" not in sections()["randomize"]
    for row in re.findall(r"^\| `--.*$", PAGE.read_text("utf-8"), re.M):
        assert re.fullmatch(r"\| `--[^`]+` \| .{3,} \|", row), row


def test_help_is_taken_apart() -> None:
    text = (
        "options:\n  --input PATH          file or glob\n  --a-very-long-flag-of-all {x,y}\n"
        "                        what it is\n                        and more\n"
        "  -o, --output DIR  where\n\nexamples:\n  beam-ldp x --not-a-flag 3\n"
    )
    assert flags_in(text) == [
        ("--input", "PATH", "file or glob"),
        ("--a-very-long-flag-of-all", "{x,y}", "what it is and more"),
        ("--output", "DIR", "where"),
    ]
