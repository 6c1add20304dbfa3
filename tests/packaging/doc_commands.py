"""The shell commands of the documentation's pages, as a reader finds them.

A block of commands is a fence labelled `sh`, or an indented or unlabelled block whose first word is
a program. A block that needs more than a plain environment has a comment right before it, with the
target that runs it, or the reason why nothing does:

    <!-- run by make test-slow-engines: needs Spark -->
    <!-- not run: needs a real Dataflow service -->

In a block that is run, a line with `...` in it is a pattern: of such only `--help` of its
sub-command is run. Of `make`, and of `python -m` with a module of the clone, only what is named is
looked up.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("beam-ldp", "make", "python", "export", "head", "mkdir", "mv", "cp", "cat", "ls", "rm",
            "printf", "for", "done", "(umask", "uv", "docker", "gcloud", "java", "mlflow",
            "openssl", "flower-superlink", "flwr", "until", "kill", "wait",
            ".venv-tff/bin/beam-ldp", ".venv-tff/bin/python")  # fmt: skip
REASON = re.compile(r"<!-- (?:not run: (?P<reason>.+)|run by make (?P<target>[\w-]+): .+) -->")
OF_THE_CLONE = re.compile(
    r"python -m (?:pytest (?P<file>\S+)|(?P<module>(?:benchmarks|tests)[\w.]*))"
)
_FENCE = re.compile(r"^( *)```(\w*)")


@dataclass(frozen=True)
class Block:
    """Some commands of a page.

    Attributes:
        page: name of the file.
        line: where the block begins, from 1.
        lines: the commands, continued lines joined, comments gone.
        reason: why it is not run; empty if it is.
        target: of the Makefile, where only that runs it; empty if every run of the page does.
    """

    page: str
    line: int
    lines: tuple[str, ...]
    reason: str
    target: str = ""

    @property
    def script(self) -> list[str]:
        """What is run of it."""
        return [ran for line in self.lines if (ran := _runnable(line))]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of commands of a page, in order."""
    text = page.read_text("utf-8").split("\n")
    at, reason, target = 0, "", ""
    while at < len(text):
        fence, label = _FENCE.match(text[at]), ""
        begin = at
        if fence:
            label = fence.group(2)
            end = next(i for i in range(at + 1, len(text)) if text[i].strip() == "```")
            body, at = text[at + 1 : end], end + 1
        elif text[at].startswith("    ") and (at == 0 or not text[at - 1].strip()):
            while at < len(text) and text[at].startswith("    "):
                at += 1
            body, label = text[begin:at], ""
        else:
            if text[at].strip():
                found = REASON.search(text[at])
                reason = (found and found["reason"]) or ""
                target = (found and found["target"]) or ""
            at += 1
            continue
        lines = tuple(_commands(body))
        if label in ("sh", "bash") or (label == "" and lines and _program(lines[0]) in PROGRAMS):
            yield Block(page.name, begin + 1, lines, reason, target)
        reason = target = ""


def _commands(body: list[str]) -> Iterator[str]:
    joined = re.sub(r"\\\n\s*", " ", "\n".join(body))
    for line in joined.split("\n"):
        command = re.sub(r"(^|\s)#.*", "", line).strip().removeprefix("$ ")
        if command:
            yield command


def _program(line: str) -> str:
    try:
        return shlex.split(line)[0]
    except ValueError:
        return ""


def is_pattern(line: str) -> bool:
    """Whether something is left out of the line."""
    return "..." in line or "…" in line


def _runnable(line: str) -> str:
    words = line.split()
    if words[0] == "make" or OF_THE_CLONE.match(line):
        return ""
    if is_pattern(line):
        named = [word for word in words[1:3] if re.fullmatch(r"[a-z-]+", word) and word[0] != "-"]
        return shlex.join([words[0], *named, "--help"])
    return line
