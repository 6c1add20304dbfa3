"""The flags of every command, from its help: `python -m tests.packaging.flag_tables` writes them
into docs/command-line.md, below the heading "All flags"."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.packaging.stable import commands

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
HEADING = "\n## All flags\n"
_FLAG = re.compile(r"^ {2,6}(?:-\w, )?(--[a-z][a-z-]*)(.*?)(?: {2,}(\S.*))?$")
_MORE = re.compile(r"^ {10,}(\S.*)$")


def flags_in(help_text: str) -> list[tuple[str, str, str]]:
    """Name, metavar and description of every flag, in the order of the help."""
    found: list[tuple[str, str, str]] = []
    open_flag = False
    for line in help_text.split("\n"):
        flag, more = _FLAG.match(line), _MORE.match(line)
        if flag:
            found.append((flag[1], flag[2].strip(" ,"), flag[3] or ""))
        elif more and open_flag:
            name, metavar, told = found[-1]
            found[-1] = (name, metavar, f"{told} {more[1]}".strip())
        open_flag = bool(flag or (more and open_flag))
    return [one for one in found if one[0] not in ("--help", "--help-all", "--version")]


def section() -> str:
    """The part of the page below the heading."""
    os.environ["COLUMNS"] = "1000"
    parts = [
        HEADING,
        "\nAs `--help-all` has them (`--help` has those that one needs). Both are "
        "understood everywhere, and commands that\nrun on Beam take all of Beam's flags besides.\n",
    ]
    for name, told in sorted(commands().items()):
        rows = flags_in(told)
        if rows:
            parts.append(f"\n### `beam-ldp {name}`\n\n| flag | what it says |\n|---|---|\n")
            parts += [_row(*row) for row in rows]
    return "".join(parts)


def _row(flag: str, metavar: str, told: str) -> str:
    shown = f"{flag} {metavar}".strip().replace("|", "\\|")
    return f"| `{shown}` | {told.replace('|', chr(92) + '|') or 'yes or no'} |\n"


def main() -> None:
    text = PAGE.read_text("utf-8")
    before = text.split(HEADING)[0]
    PAGE.write_text(before.rstrip("\n") + "\n" + section(), "utf-8")


if __name__ == "__main__":
    main()
