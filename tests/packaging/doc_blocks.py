"""The Python of the documentation's pages, and where some might hide from the tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.doc_commands import REASON, blocks

BLOCK = re.compile(
    r"```python\n(.*?)```\n(?:\n((?: {4}[^\n]*\n)+))?", re.DOTALL
)  # and what it prints
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^( *)```(.*)$")


def code_of(page: Path) -> list[str]:
    """The blocks that are run. One with a title is a file that the page's commands run."""
    return _PYTHON.findall(page.read_text("utf-8"))


def hidden_python(page: Path) -> list[int]:
    """Lines where an indented or unlabelled block begins that is Python, and that nothing runs."""
    return [line for line, excused in _stray_python(page) if not excused]


def excused_python(page: Path) -> list[int]:
    """The same where a comment says why nothing runs it."""
    return [line for line, excused in _stray_python(page) if excused]


def _stray_python(page: Path) -> Iterator[tuple[int, bool]]:
    """What follows a fence is what its program prints; commands are for the tests of commands."""
    text = page.read_text("utf-8").split("\n")
    commands = {block.line for block in blocks(page)}
    at, after_fence, excused = 0, False, False
    while at < len(text):
        fence, begin = _FENCE.match(text[at]), at
        if fence:
            at = next(i for i in range(at + 1, len(text)) if text[i].strip() == "```") + 1
            body, promised = text[begin + 1 : at - 1], bool(fence.group(2))
            indent = len(fence.group(1))
        elif text[at].startswith("    ") and not (at and text[at - 1].strip()):
            while at < len(text) and (text[at].startswith("    ") or not text[at].strip()):
                at += 1
            body, promised, indent = text[begin:at], after_fence, 4
        else:
            at += 1
            if text[begin].strip():
                reason = REASON.search(text[begin])
                after_fence, excused = False, bool(reason and reason["reason"])
            continue
        after_fence = bool(fence)
        code = "\n".join(line[indent:] for line in body)
        if not promised and begin + 1 not in commands and _is_python(code):
            yield begin + 1, excused
        excused = False


def _is_python(code: str) -> bool:
    """Whether it does something, as Python."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return False
    doing = (ast.Call, ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.ClassDef)
    return any(isinstance(node, doing) for node in ast.walk(tree))
